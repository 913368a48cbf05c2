"""LangGraph agents: graphs with costs, runs that unroll loops and branches, and what is refused.

The JSON below is in the form of `get_graph().to_json()` of langgraph 1.2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.langgraph import FORMAT
from rllib_scale.workloads.model import Workload


def graph(nodes: str, *edges: str) -> dict[str, Any]:
    """Edges as "a b"; conditional ones as "a ? b"."""
    begin, end = {"id": "__start__", "type": "runnable", "data": {"name": "__start__"}}, {"id": "__end__"}
    inner = [{"id": name, "type": "runnable", "data": {"id": ["langgraph"], "name": name}} for name in nodes.split()]
    ends = [(edge.split()[0], edge.split()[-1], "?" in edge) for edge in edges]
    shown = [{"source": a, "target": b} | ({"data": "x", "conditional": True} if c else {}) for a, b, c in ends]
    return {"nodes": [begin, *inner, end], "edges": shown}


DIAMOND = graph("a b c d", "__start__ a", "a b", "a c", "b d", "c d", "d __end__")
LOOP = graph("agent tools", "__start__ agent", "agent ? tools", "agent ? __end__", "tools agent")
MAP = graph("plan work join", "__start__ plan", "plan ? work", "work join", "join ? plan", "join ? __end__")
ROUND = ["plan", ["work", "work"], "join"]


def read(folder: Path, content: Any, *runs: Any, costs: str | None = None, **mapping: Any) -> Workload:
    sources = [folder / "graph.json"]
    sources[0].write_text(json.dumps(content))
    for i, run in enumerate(runs):
        sources.append(folder / f"run{i}.json")
        sources[-1].write_text(json.dumps(run))
    if costs is not None:
        sources.append(folder / "costs.yaml")
        sources[-1].write_text(costs)
    return FORMAT.read(sources, FORMAT.mapping(**mapping), Progress())


def test_a_dag_with_costs(tmp_path: Path) -> None:
    costs = "b: {compute_gflop: 30, delay_s: 2}\nd: {memory_gb: 1, output_gb: 0}\n"
    found = read(tmp_path, DIAMOND, costs=costs, compute_gflop=5, memory_gb=8)
    assert found.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert found.compute_gflop.tolist() == [5, 30, 5, 5]
    assert found.memory_gb.tolist() == [8, 8, 8, 1]
    assert found.output_gb.tolist() == [0.5, 0.5, 0.5, 0]
    assert found.delay_s.tolist() == [0, 2, 0, 0]
    paper = read(tmp_path, DIAMOND, costs="")
    assert (paper.compute_gflop[0], paper.memory_gb[0]) == (10, 16)
    numbered = {"nodes": [{"id": 0}, {"id": 1}], "edges": [{"source": 0, "target": 1}]}  # and no start
    assert read(tmp_path, numbered, costs="1: {compute_gflop: 2}").compute_gflop.tolist() == [10, 2]


@pytest.mark.parametrize(
    ("content", "run", "edges"),
    [
        (LOOP, ["__start__", "agent", "tools", "agent", "tools", "agent", "__end__"], [[0, 1], [1, 2], [2, 3], [3, 4]]),
        # Two tools side by side, as steps or one after the other as updates come in.
        (LOOP, ["agent", ["tools", "tools"], "agent"], [[0, 1], [0, 2], [1, 3], [2, 3]]),
        (LOOP, ["agent", "tools", "tools", "agent"], [[0, 1], [0, 2], [1, 3], [2, 3]]),
        (DIAMOND, ["a", "c", "b", "d"], [[0, 1], [0, 2], [1, 3], [2, 3]]),
        # A branch that was not taken plays no part.
        (DIAMOND, ["a", "b", "d"], [[0, 1], [1, 2]]),
        # The second round follows what came since, not the works of the first.
        (MAP, [*ROUND, "plan", "work", "join"], [[0, 1], [0, 2], [1, 3], [2, 3], [3, 4], [4, 5], [5, 6]]),
        # A node that comes back to itself is a chain.
        (graph("a b", "__start__ a", "a ? a", "a ? b"), ["a", "a", "a", "b"], [[0, 1], [1, 2], [2, 3]]),
    ],
)
def test_runs_unroll(tmp_path: Path, content: Any, run: Any, edges: list[list[int]]) -> None:
    found = read(tmp_path, content, run)
    assert found.edges.tolist() == edges
    assert found.num_tasks == sum(len(step) if isinstance(step, list) else step[:2] != "__" for step in run)


def test_runs_are_workflows_with_the_costs_of_their_nodes(tmp_path: Path) -> None:
    costs = "agent: {compute_gflop: 7}\ntools: {compute_gflop: 1, delay_s: 9}\n"
    found = read(tmp_path, LOOP, ["agent"], ["agent", "tools", "agent"], costs=costs, arrival_gap_s=4)
    assert found.arrival_s.tolist() == [0, 4]
    assert found.compute_gflop.tolist() == [7, 7, 1, 7]
    assert found.delay_s.tolist() == [0, 0, 9, 0]
    assert found.edges.tolist() == [[0, 1], [1, 2]]
    assert found.edge_offsets.tolist() == [0, 0, 2]


# ---------------------------------------------------------------------- what is refused

RUNS = "a recorded run unrolls it"
NAMES = [f"n{i}" for i in range(2000)]
LONG_LOOP = graph(" ".join(NAMES), "__start__ n0", *(f"n{i} n{(i + 1) % 2000}" for i in range(2000)))


@pytest.mark.parametrize(
    ("content", "run", "parts"),
    [
        (LOOP, None, ["graph.json: edge 'agent' to 'tools' is conditional", RUNS]),
        (graph("a b c", "__start__ a", "a b", "b c", "c b"), None, ["edges form a loop: b -> c -> b", RUNS]),
        (LONG_LOOP, None, ["edges form a loop: n0 -> n1", "more) -> n1"]),
        (graph("a b", "a __end__", "__start__ a", "b a"), None, ["node 'b' has no way from __start__", RUNS]),
        (graph("a a", "__start__ a"), None, ["nodes.2: id 'a' stands twice"]),
        (graph(""), None, ["nodes has only __start__ and __end__"]),
        (graph("a", "a b"), None, ["edges.0: target 'b' is no node"]),
        (LOOP, [], ["run0.json: the run is empty"]),
        (LOOP, ["agent", "tool"], ["run0.json: [1]: unknown node 'tool'; did you mean 'tools'?"]),
        (LOOP, ["tools"], ["run0.json: [0]: node 'tools' cannot have run here"]),
        (LOOP, ["agent", 3], ["run0.json: 1: must be a node, or a list of nodes"]),
        (LOOP, {"agent": 1}, ["run0.json: input should be a valid list"]),
        (MAP, [["plan"], ["work"] * 5000, ["join"] * 5000], ["[2]: the run unrolls to more than 10,000,000 edges"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and value and isinstance(value[0], str) else "",
)
def test_mistakes_are_named(tmp_path: Path, content: Any, run: Any, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, content, *([] if run is None else [run]))
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert len(str(caught.value)) < 500


def test_mistakes_in_costs_are_named(tmp_path: Path) -> None:
    for costs, message in (
        ("e: {compute_gflop: 1}", r"costs\.yaml: unknown node 'e'.*valid: a, b, c, d"),
        ("a: {compute: 1}", r"costs\.yaml: node a: unknown key 'compute'; did you mean 'compute_gflop'\?"),
        ("a: {compute_gflop: 0}", r"costs\.yaml: node a: compute_gflop.*\(got 0\)"),
        ("[a]", r"costs\.yaml: must be a mapping"),
    ):
        with pytest.raises(UserError, match=message):
            read(tmp_path, DIAMOND, costs=costs)
    sources = [tmp_path / name for name in ("graph.json", "a.yaml", "b.yml")]
    with pytest.raises(UserError, match=r"b\.yml: one file of costs too many"):
        FORMAT.read(sources, FORMAT.mapping(), Progress())
