"""Agents as LangGraph draws them: a graph without costs; these come from a YAML file or from defaults.

Sources are a graph, then optionally a YAML file of costs and recorded runs (JSON), each a workflow:

- the graph: JSON of `compiled.get_graph().to_json()`;
- costs: `{node: {compute_gflop: 12, memory_gb: 8, output_gb: 0.5, delay_s: 0}}`; the mapping has the defaults;
- a run: a list of the nodes that were executed, `["agent", "tools", "agent"]`; those that ran side by side may be given
  together, `[["plan"], ["search", "read"], ["write"]]`.

Without a run the graph must be a DAG: each node is executed once, when all its predecessors have ended; a conditional
edge or a loop is an error. A run unrolls the graph: an execution follows those of its node's predecessors since the
node was last executed. If there are none, as in a node that is sent several tasks, it follows what that one followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, RootModel

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.config.yaml_files import build_model, parse_yaml, read_text
from rllib_scale.errors import UserError, choice_error
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS, Accumulator
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sources import Record, read_json
from rllib_scale.workloads.model import Workload, find_cycle

START, END = "__start__", "__end__"
"""Nodes of LangGraph that do nothing."""
MAX_EDGES = 10_000_000
"""No recorded run unrolls to more."""


class LangGraphMapping(Model):
    """Costs of the nodes that the YAML file leaves open, and the arrivals of runs."""

    compute_gflop: Positive = Field(default=10.0, description="of a node [the paper's mean; SCALE, sec. 5]")
    memory_gb: NonNegative = Field(default=16.0, description="of a node [the paper's mean; SCALE, sec. 5]")
    output_gb: NonNegative = Field(default=0.5, description="of a node [the paper's mean; SCALE, sec. 5]")
    delay_s: NonNegative = Field(
        default=0.0, description="from the end of a node's predecessors, or the arrival, to its start [the paper's]"
    )
    arrival_gap_s: NonNegative = Field(
        default=0.0, description="time from the arrival of a run to that of the next [assumed: all at once]"
    )


class NodeCosts(Model):
    """Costs of a node in the YAML file."""

    compute_gflop: Positive | None = None
    memory_gb: NonNegative | None = None
    output_gb: NonNegative | None = None
    delay_s: NonNegative | None = None


NodeName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""LangGraph numbers nodes that have no name."""


class _Node(Record):
    id: NodeName


class _Edge(Record):
    source: NodeName
    target: NodeName
    conditional: Any = None


class _GraphJson(Record):
    nodes: list[_Node]
    edges: list[_Edge]


def _step(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"must be a node, or a list of nodes that ran side by side (got {value!r:.60})")
    return names


class _Run(RootModel[list[Annotated[list[str], BeforeValidator(_step)]]]):
    """Nodes that were executed side by side, step by step."""


@dataclass
class _Graph:
    """Nodes and edges, without those that begin and end it."""

    where: str
    names: list[str]
    before: dict[str, list[str]]
    """Predecessors of each node."""
    roots: set[str]
    """Nodes with which it begins."""
    conditional: list[tuple[str, str]]
    """Edges that are taken or not."""


def read_workload(sources: Sequence[Path], mapping: LangGraphMapping, progress: Progress) -> Workload:
    """Read a graph, and the costs and runs that come with it."""
    graphs: list[_Graph] = []
    read_json(sources[:1], _GraphJson, lambda data, where: graphs.append(_graph(data, where)), Progress())
    if len(graphs) != 1:
        raise UserError(f"{sources[0]}: must have one JSON graph")
    graph = graphs[0]
    yamls = [path for path in sources[1:] if path.suffix in (".yaml", ".yml")]
    if len(yamls) > 1:
        raise UserError(f"{yamls[1]}: one file of costs too many; valid: GRAPH [COSTS.yaml] [RUN.json...]")
    costs = _costs(yamls[0] if yamls else None, graph, mapping)
    out = Accumulator()

    def add(names: list[str], edges: list[tuple[int, int]]) -> None:
        columns = {key: [costs[name][key] for name in names] for key in TASK_FIELDS}
        out.add(len(out) * mapping.arrival_gap_s, len(out), columns, edges)

    def add_run(run: _Run, where: str) -> None:
        add(*_unroll(graph, run.root, where))
        progress.counts["runs"] += 1

    runs = [path for path in sources[1:] if path not in yamls]
    read_json(runs, _Run, add_run, progress)
    if not runs:
        add(graph.names, _as_dag(graph))
    return Workload.collected(out, sources)


def _graph(data: _GraphJson, where: str) -> _Graph:
    before: dict[str, dict[str, None]] = {}  # as ordered sets
    for i, node in enumerate(data.nodes):
        if node.id in before:
            raise UserError(f"{where}: nodes.{i}: id {node.id!r:.60} stands twice")
        before[node.id] = {}
    for i, edge in enumerate(data.edges):
        for key, name in (("source", edge.source), ("target", edge.target)):
            if name not in before:
                raise UserError(f"{where}: edges.{i}: {key} {name!r:.60} is no node of the graph")
        before[edge.target][edge.source] = None
    inner = [name for name in before if name not in (START, END)]
    if not inner:
        raise UserError(f"{where}: nodes has only {START} and {END}: at least one other is needed")
    roots = {name for name in inner if START in before[name] or (START not in before and not before[name])}
    inside = {name: [source for source in before[name] if source not in (START, END)] for name in inner}
    return _Graph(where, inner, inside, roots, [(e.source, e.target) for e in data.edges if e.conditional])


def _as_dag(graph: _Graph) -> list[tuple[int, int]]:
    """The edges of a graph in which each node is executed once."""
    help_text = "a recorded run unrolls it: import langgraph GRAPH RUN.json"
    if graph.conditional:
        source, target = graph.conditional[0]
        raise UserError(f"{graph.where}: edge {source!r:.60} to {target!r:.60} is conditional; {help_text}")
    number = {name: i for i, name in enumerate(graph.names)}
    edges = sorted((number[source], number[name]) for name in graph.names for source in graph.before[name])
    cycle = find_cycle(np.array(edges, dtype=np.int64).reshape(-1, 2), graph.names)
    if cycle:
        raise UserError(f"{graph.where}: edges form a loop: {cycle}; {help_text}")
    for name in graph.names:
        if not graph.before[name] and name not in graph.roots:
            raise UserError(
                f"{graph.where}: node {name!r:.60} has no way from {START}: LangGraph draws a conditional edge only "
                f"if its path_map or return type names the targets; {help_text}"
            )
    return edges


def _costs(path: Path | None, graph: _Graph, mapping: LangGraphMapping) -> dict[str, dict[str, float]]:
    """Every field of every node."""
    costs = {name: {key: getattr(mapping, key) for key in TASK_FIELDS} for name in graph.names}
    data = (parse_yaml(read_text(path), str(path)) if path else None) or {}
    if not isinstance(data, dict):
        raise UserError(f"{path}: must be a mapping of nodes to costs (got {data!r:.60})")
    for name, values in data.items():
        if str(name) not in costs:
            raise UserError(f"{path}: {choice_error('node', str(name), graph.names)}")
        given = build_model(NodeCosts, values, f"{path}: node {name}")
        costs[str(name)] |= given.model_dump(exclude_none=True)
    return costs


def _unroll(graph: _Graph, steps: list[list[str]], where: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Nodes of a run in order of execution, and the edges between executions."""
    names: list[str] = []
    edges: list[tuple[int, int]] = []
    latest: dict[str, list[int]] = {}  # executions of a node: the last one, and those beside it
    followed: dict[str, list[int]] = {}  # what those follow
    for i, step in enumerate(steps):
        at = f"{where}: [{i}]"
        begun: list[tuple[str, list[int]]] = []
        for name in step:
            if name in (START, END):
                continue
            if name not in graph.before:
                raise UserError(f"{at}: {choice_error('node', f'{name:.60}', graph.names)}")
            executed = [source for source in graph.before[name] if source in latest]
            since = latest[name][-1] if name in latest else -1
            fresh = [i for source in executed if latest[source][-1] >= since for i in latest[source]]
            before = sorted(fresh) if fresh or name not in latest else followed[name]
            if not before and name not in graph.roots:
                raise UserError(f"{at}: node {name!r:.60} cannot have run here: none of its predecessors has yet")
            begun.append((name, before))
        for name, before in begun:
            at_once = name in latest and followed[name] == before
            latest[name] = [*latest[name], len(names)] if at_once else [len(names)]
            followed[name] = before
            edges += [(i, len(names)) for i in before]
            names.append(name)
            if len(edges) > MAX_EDGES:
                raise UserError(f"{at}: the run unrolls to more than {MAX_EDGES:,} edges")
    if not names:
        raise UserError(f"{where}: the run is empty: at least one node must have been executed")
    return names, sorted(edges)


FORMAT = Format(
    "langgraph",
    "a LangGraph agent: GRAPH [COSTS.yaml] [RUN.json...]; GRAPH is JSON of get_graph().to_json()",
    LangGraphMapping,
    read_workload,
)
