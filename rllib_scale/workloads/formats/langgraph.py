"""Agents as LangGraph draws them: a graph without costs, which come from a YAML file or from defaults.

Sources are a graph, then if wanted a YAML file of costs and recorded runs (JSON), each a workflow:

- the graph: JSON of `compiled.get_graph().to_json()`; or a compiled graph as `module:attribute` or
  `path/file.py:attribute`, whose import runs its code and so needs `mapping.import_code`;
- costs: `{node: {compute_gflop: 12, memory_gb: 8, output_gb: 0.5, delay_s: 0}}`; what is left out is the mapping's;
- a run: a list of the nodes that were executed, `["agent", "tools", "agent"]`; several that ran side by side may stand
  together, `[["plan"], ["search", "read"], ["write"]]`; or what `stream(..., stream_mode="debug")` yielded.

Without a run the graph must be a DAG, of which each node is executed once, when all its predecessors have ended; a
conditional edge or a loop is an error. A run unrolls it: an execution follows those of its node's predecessors since
the node was last executed; where there are none, as in a node that is sent several tasks, it follows what that one did.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.config.yaml_files import build_model, parse_yaml, read_text
from rllib_scale.errors import UserError, choice_error
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.accumulator import Accumulator
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.native import TASK_FIELDS
from rllib_scale.workloads.model import Workload, find_cycle, shown_cycle

START, END = "__start__", "__end__"
"""Nodes of LangGraph that do nothing."""
MAX_EDGES = 10_000_000
"""A run that unrolls to more is not one that anybody recorded."""


class LangGraphMapping(Model):
    """Costs of the nodes that the YAML file leaves open, and how runs follow one another."""

    compute_gflop: Positive = Field(default=10.0, description="of a node [the paper's mean; SCALE, sec. 5]")
    memory_gb: NonNegative = Field(default=16.0, description="of a node [the paper's mean; SCALE, sec. 5]")
    output_gb: NonNegative = Field(default=0.5, description="of a node [the paper's mean; SCALE, sec. 5]")
    delay_s: NonNegative = Field(
        default=0.0, description="from the end of a node's predecessors, or the arrival, to its start [the paper's]"
    )
    arrival_gap_s: NonNegative = Field(
        default=0.0, description="time from the arrival of a run to that of the next [assumed: all at once]"
    )
    import_code: bool = Field(
        default=False, description="a source module:attribute is imported from here, which runs the code in it"
    )


class NodeCosts(Model):
    """What the YAML file says of a node."""

    compute_gflop: Positive | None = None
    memory_gb: NonNegative | None = None
    output_gb: NonNegative | None = None
    delay_s: NonNegative | None = None


@dataclass
class _Graph:
    """Nodes and edges, without those that begin and end it."""

    where: str
    names: list[str]
    before: dict[str, list[str]]
    """Predecessors of each node."""
    roots: set[str]
    """Nodes with which it begins."""
    conditional: list[tuple[str, str]] = field(default_factory=list)
    """Edges that are taken or not."""


NodeName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""LangGraph numbers nodes that have no name."""


class _Node(read.Record):
    id: NodeName


class _Edge(read.Record):
    source: NodeName
    target: NodeName
    conditional: Any = None


class _GraphJson(read.Record):
    nodes: list[_Node]
    edges: list[_Edge]


class _DebugEvent(read.Record):
    type: str


class _Payload(read.Record):
    name: str


class _TaskEvent(read.Record):
    step: read.Whole
    payload: _Payload


def read_workload(sources: Sequence[Path], mapping: LangGraphMapping, progress: Progress) -> Workload:
    """Read a graph, and the costs and runs that come with it."""
    graph = _graph(sources[0], mapping)
    yamls = [path for path in sources[1:] if path.suffix in (".yaml", ".yml")]
    if len(yamls) > 1:
        raise UserError(f"{yamls[1]}: one file of costs too many; valid: GRAPH [COSTS.yaml] [RUN.json...]")
    costs = _costs(yamls[0] if yamls else None, graph, mapping)
    out = Accumulator()

    def add(names: list[str], edges: list[tuple[int, int]]) -> None:
        columns = {key: [costs[name][key] for name in names] for key in TASK_FIELDS}
        out.add(len(out) * mapping.arrival_gap_s, len(out), columns, edges)

    runs = [path for path in sources[1:] if path not in yamls]
    for path in read.find_files(runs):
        for where, record in read.records(path):
            try:
                add(*_unroll(graph, record, where))
                progress.counts["runs"] += 1
            except UserError as error:
                progress.bad(error)
            progress.advance(str(path))
    if not runs:
        add(graph.names, _as_dag(graph))
    return out.workload(", ".join(map(str, sources)))


# ---------------------------------------------------------------------- the graph


def _graph(source: Path, mapping: LangGraphMapping) -> _Graph:
    where = str(source)
    if ":" in source.name and not source.exists():
        return _parse_graph(_imported(where, mapping.import_code), where)
    found = list(itertools.islice(read.records(source), 2))
    if len(found) != 1:
        raise UserError(f"{where}: must hold one JSON graph")
    return _parse_graph(found[0][1], where)


def _imported(name: str, allowed: bool) -> Any:
    """JSON of the graph that `module:attribute` names."""
    if not allowed:
        raise UserError(
            f"{name}: importing it runs its code; --set mapping.import_code=true allows that, or give the JSON of "
            "get_graph().to_json()"
        )
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        found: Any = _load(Path(module)) if module.endswith(".py") else importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        if not hasattr(found, "get_graph"):
            raise UserError(f"{name}: has no get_graph(): a compiled graph is needed (got {type(found).__name__})")
        return found.get_graph().to_json()
    except (Exception, SystemExit) as error:  # whatever the code of others does
        if isinstance(error, UserError):
            raise
        line = " ".join(str(error).split()) or "no message"
        raise UserError(f"{name}: cannot be imported ({type(error).__name__}: {line:.200})") from None
    finally:
        sys.path.remove(here)


def _load(path: Path) -> Any:
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parse_graph(data: Any, where: str) -> _Graph:
    graph = read.checked(_GraphJson, data, where)
    before: dict[str, dict[str, None]] = {}  # as ordered sets
    for i, node in enumerate(graph.nodes):
        if node.id in before:
            raise UserError(f"{where}: nodes.{i}: id {node.id!r:.60} stands twice")
        before[node.id] = {}
    conditional: list[tuple[str, str]] = []
    for i, edge in enumerate(graph.edges):
        for key, name in (("source", edge.source), ("target", edge.target)):
            if name not in before:
                raise UserError(f"{where}: edges.{i}: {key} {name!r:.60} is no node of the graph")
        before[edge.target][edge.source] = None
        if edge.conditional:
            conditional.append((edge.source, edge.target))
    inner = [name for name in before if name not in (START, END)]
    if not inner:
        raise UserError(f"{where}: nodes holds none but {START} and {END}: at least one is needed")
    roots = {name for name in inner if START in before[name] or (START not in before and not before[name])}
    inside = {name: [source for source in before[name] if source not in (START, END)] for name in inner}
    return _Graph(where, inner, inside, roots, conditional)


def _as_dag(graph: _Graph) -> list[tuple[int, int]]:
    """The edges of a graph of which each node is executed once."""
    help_text = "a recorded run unrolls it: import langgraph GRAPH RUN.json"
    for source, target in graph.conditional[:1]:
        raise UserError(f"{graph.where}: edge {source!r:.60} to {target!r:.60} is conditional; {help_text}")
    number = {name: i for i, name in enumerate(graph.names)}
    edges = sorted((number[source], number[name]) for name in graph.names for source in graph.before[name])
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    cycle = find_cycle(len(graph.names), pairs)
    if cycle:
        names = shown_cycle([f"{graph.names[i]:.60}" for i in cycle])
        raise UserError(f"{graph.where}: edges form a loop: {names}; {help_text}")
    for name in graph.names:
        if not graph.before[name] and name not in graph.roots:
            raise UserError(
                f"{graph.where}: node {name!r:.60} has no way from {START}: LangGraph draws a conditional edge only "
                f"where its path_map or return type names the targets; {help_text}"
            )
    return edges


def _costs(path: Path | None, graph: _Graph, mapping: LangGraphMapping) -> dict[str, dict[str, float]]:
    """Every field of every node."""
    defaults = {key: getattr(mapping, key) for key in TASK_FIELDS}
    found = {name: dict(defaults) for name in graph.names}
    data = parse_yaml(read_text(path), str(path)) if path else None
    if path is None or data is None:
        return found
    if not isinstance(data, dict):
        raise UserError(f"{path}: must be a mapping of nodes to costs (got {data!r:.60})")
    for name, values in data.items():
        if str(name) not in found:
            raise UserError(f"{path}: {choice_error('node', str(name), graph.names)}")
        given = build_model(NodeCosts, values, f"{path}: node {name}")
        found[str(name)] |= given.model_dump(exclude_none=True)
    return found


# ---------------------------------------------------------------------- runs


def _unroll(graph: _Graph, record: Any, where: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Nodes of a run in order of execution, and the edges between executions."""
    names: list[str] = []
    edges: list[tuple[int, int]] = []
    latest: dict[str, list[int]] = {}  # executions of a node: the last one, and those beside it
    followed: dict[str, list[int]] = {}  # what those follow
    for at, nodes in _steps(record, where):
        begun: list[tuple[str, list[int]]] = []
        for name in nodes:
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


def _steps(record: Any, where: str) -> Iterator[tuple[str, list[str]]]:
    """Nodes that were executed side by side, step by step."""
    if isinstance(record, UserError):
        raise record
    if not isinstance(record, list):
        raise UserError(f"{where}: a run must be a list of nodes (got {record!r:.60})")
    if any(isinstance(entry, dict) for entry in record):
        yield from _debug_steps(record, where)
        return
    for i, entry in enumerate(record):
        at = f"{where}: [{i}]"
        step = [entry] if isinstance(entry, str) else entry
        if not isinstance(step, list) or not all(isinstance(name, str) for name in step):
            raise UserError(f"{at}: must be a node, or a list of nodes that ran side by side (got {entry!r:.60})")
        yield at, [name for name in step if name not in (START, END)]


def _debug_steps(record: list[Any], where: str) -> Iterator[tuple[str, list[str]]]:
    """Steps of a debug stream, which says of every task when it begins and when it ends."""
    steps: dict[int, tuple[str, list[str]]] = {}
    for i, entry in enumerate(record):
        at = f"{where}: [{i}]"
        if read.checked(_DebugEvent, entry, at).type == "task":
            event = read.checked(_TaskEvent, entry, at)
            if event.payload.name not in (START, END):
                steps.setdefault(event.step, (at, []))[1].append(event.payload.name)
    yield from (steps[step] for step in sorted(steps))


FORMAT = Format(
    "langgraph",
    "a LangGraph agent: GRAPH [COSTS.yaml] [RUN.json...]; GRAPH is JSON of get_graph().to_json() or module:attribute",
    LangGraphMapping,
    read_workload,
)
