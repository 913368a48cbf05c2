"""Input of `decima`'s graph network at one moment: unfinished tasks as nodes, and the servers.

Times are seen in the unit of the largest task on the fastest server (`observation.task_compute_max_gflop` over
`server_compute_max_gflops`); those that have no bound as ln(1 + t).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rllib_scale.config import ObservationConfig
from rllib_scale.observation.starting import Starting

NODE = (
    "compute",  # demand over the largest
    "memory",  # over the largest
    "waits",  # 1: ready, and not started
    "runs",  # 1
    "left",  # of its execution, where it runs: units of time
    "age",  # since its workflow arrived: ln(1 + units of time)
    "waited",  # since it became ready, where it waits: ln(1 + units of time)
    "siblings",  # tasks of its workflow that are not done: ln
    "open_rows",  # share of the servers that it can start on now
    "at_hand",  # 1: one of them needs no transfer
)
"""Features of a task."""
SERVER = ("capacity", "memory", "free_memory", "ahead", "open")
"""Features of a server: capacity and GB, in all and free, over the largest; ln(1 + units until a place is free); 1:
open."""
PAIR = ("execution", "transfer", "memory_left")
"""Features of a task on a server: units of time; ln(1 + units); GB left free beside it, over the largest."""


@dataclass(frozen=True, eq=False)
class Graph:
    """One moment. Shapes: V tasks that are not done, E edges between them, J workflows, R that wait, N servers.

    Attributes:
        nodes: (V, NODE) float32, by workflow, then task.
        edges: (E, 2) predecessor, successor, rows of `nodes`.
        level: (V,) edges on the longest path to a sink: a task's successors are all on lower levels.
        workflow: (V,) number of its workflow here, from 0.
        waiting: (R,) node of each task that waits, in the order of `Snapshot.ready`.
        startable: (R,) bool: some server is open for it.
        servers: (N, SERVER) float32.
    """

    nodes: np.ndarray
    edges: np.ndarray
    level: np.ndarray
    workflow: np.ndarray
    waiting: np.ndarray
    startable: np.ndarray
    servers: np.ndarray


def units_of(observation: ObservationConfig) -> tuple[float, float, float, float]:
    """(compute [GFLOP], capacity [GFLOPS], memory [GB], time [s]) in which a graph is seen."""
    compute, capacity = observation.task_compute_max_gflop, observation.server_compute_max_gflops
    return compute, capacity, observation.memory_max_gb, compute / capacity


def graph_of(now: Starting, observation: ObservationConfig) -> Graph:
    """The graph of a moment before any start in it."""
    snapshot = now.snapshot
    compute, _, memory, unit_s = units_of(observation)
    tables: list[tuple[np.ndarray, ...]] = []
    edges, first = [np.zeros((0, 2), dtype=np.int64)], 0
    for number in sorted(snapshot.workflows):
        live = snapshot.workflows[number]
        left = np.flatnonzero(~live.completed)
        at = np.full(len(live.task), -1)
        at[left] = np.arange(first, first + len(left))
        both = at[live.edges].reshape(-1, 2)
        edges.append(both[(both >= 0).all(axis=1)])
        same = [np.full(len(left), value) for value in (number, len(left), live.arrival_s)]
        tables.append((live.task[left], live.compute_gflop[left], live.memory_gb[left], live.hop[left], *same))
        first += len(left)
    task, gflop, gb, level, numbers, siblings, arrival = map(np.concatenate, zip(*tables, strict=True))
    nodes = np.zeros((len(task), len(NODE)), dtype=np.float32)
    nodes[:, 0], nodes[:, 1] = gflop / compute, gb / memory
    nodes[:, 5], nodes[:, 7] = np.log1p((snapshot.clock_s - arrival) / unit_s), np.log(siblings)
    ready = snapshot.ready
    waiting = _nodes(numbers, task, ready)
    nodes[waiting, 2] = 1.0
    nodes[waiting, 6] = np.log1p(np.maximum(0.0, snapshot.clock_s - ready["ready_s"]) / unit_s)
    running = _nodes(numbers, task, snapshot.running)
    nodes[running, 3] = 1.0
    nodes[running, 4] = np.maximum(0.0, snapshot.running["expected_end_s"] - snapshot.clock_s) / unit_s
    workflow = np.unique(numbers, return_inverse=True)[1].reshape(-1)
    drawn = Graph(nodes, np.concatenate(edges), level, workflow, waiting, waiting, np.zeros(0))
    return _with_servers(drawn, now, observation)


def _nodes(numbers: np.ndarray, task: np.ndarray, named: np.ndarray) -> np.ndarray:
    """Nodes of the tasks that a table names; nodes are in the order of workflow and task."""
    wide = int(max(task.max(initial=0), named["task"].max(initial=0))) + 1
    return np.searchsorted(numbers * wide + task, named["workflow"] * wide + named["task"])


def after_start(before: Graph, now: Starting, observation: ObservationConfig) -> Graph:
    """The graph after the last start of a moment; `before` is that before it."""
    task, server = now.started[-1]
    nodes, node = before.nodes.copy(), before.waiting[task]
    nodes[node, [2, 6, 8, 9]], nodes[node, 3] = 0.0, 1.0
    nodes[node, 4] = now.lasts_s[task, server] / units_of(observation)[3]
    return _with_servers(replace(before, nodes=nodes), now, observation)


def _with_servers(drawn: Graph, now: Starting, observation: ObservationConfig) -> Graph:
    """With all that depends on which servers are open."""
    _, capacity, memory, unit_s = units_of(observation)
    can, at = now.can_start, now.servers
    drawn.nodes[drawn.waiting, 8] = can.mean(axis=1)
    drawn.nodes[drawn.waiting, 9] = (can & (now.transfer_s == 0)).any(axis=1)
    servers = np.empty((len(at.is_open), len(SERVER)), dtype=np.float32)
    servers[:, 0] = now.snapshot.capacity_gflops / capacity
    servers[:, 1] = now.snapshot.memory_gb / memory
    servers[:, 2] = at.free / memory
    there = at.wait < np.inf
    servers[:, 3] = np.log1p(np.where(there, at.wait, 0.0) / unit_s)
    servers[:, 4] = at.is_open
    servers[~there] = 0.0
    return replace(drawn, startable=np.asarray(can.any(axis=1)), servers=servers)


def pairs_of(now: Starting, tasks: Sequence[int] | np.ndarray, observation: ObservationConfig) -> np.ndarray:
    """(R, N, PAIR) float32 of some tasks that wait, rows of `Snapshot.ready`, on each server; 0 in an empty row."""
    _, _, memory, unit_s = units_of(observation)
    tasks = np.asarray(tasks, dtype=np.int64)
    execution, left = now.execution_s[tasks], now.servers.free - now.snapshot.ready["memory_gb"][tasks][:, None]
    pairs = np.stack([execution / unit_s, np.log1p(now.transfer_s[tasks] / unit_s), left / memory], axis=2)
    return np.where(np.isfinite(execution)[:, :, None], pairs, 0.0).astype(np.float32)
