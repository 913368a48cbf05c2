"""A snapshot and the answers to it as JSON: what `rllib-scale serve` takes and gives."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Literal

import numpy as np
from pydantic import Field

from rllib_scale import __version__
from rllib_scale.config import ClusterConfig, EnvConfig, ObservationConfig, TierConfig
from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.errors import UserError
from rllib_scale.live.flows import Flow
from rllib_scale.observation.snapshot import AWAY, BUSY, DRAINING, IDLE, INPUT, READY, LiveWorkflow, Snapshot
from rllib_scale.workloads.model import find_cycle

VERSION = 1
"""Of the messages."""
STATUS = {"idle": IDLE, "busy": BUSY, "draining": DRAINING, "away": AWAY}


class WorkflowMessage(Model):
    """An unfinished workflow: T tasks, those that have ended included."""

    number: int = Field(ge=0, description="in order of arrival")
    arrival_s: NonNegative = 0.0
    compute_gflop: tuple[Positive, ...] = Field(min_length=1, description="(T,)")
    memory_gb: tuple[NonNegative, ...] = Field(description="(T,)")
    output_gb: tuple[NonNegative, ...] = Field(description="(T,)")
    edges: tuple[tuple[int, int], ...] = Field(default=(), description="predecessor, successor")
    row: tuple[int, ...] = Field(description="(T,) on which each was started; -1: not started")
    completed: tuple[bool, ...] = Field(description="(T,)")
    ready_s: dict[int, float] = Field(description="of each task that waits, since when")


class SnapshotMessage(Model):
    """A moment. Shapes: N rows (server slots), the slots of a server side by side."""

    version: Literal[1] = Field(description="of this form of message")
    observation: ObservationConfig | None = Field(
        default=None, description="that the sender takes the policy to have; another one is refused"
    )
    clock_s: NonNegative
    capacity_gflops: tuple[NonNegative, ...] = Field(min_length=1, description="(N,) 0: an empty row")
    memory_gb: tuple[NonNegative, ...] = Field(description="(N,) of its server, in all")
    host: tuple[int, ...] = Field(description="(N,) number of its server; -1 in an empty row")
    status: tuple[Literal["idle", "busy", "draining", "away"], ...] = Field(description="(N,)")
    expected_end_s: tuple[float | None, ...] = Field(description="(N,) of the task that runs; null where none does")
    running: tuple[tuple[int, int], ...] = Field(description="(N,) workflow and task; -1 where none runs")
    workflows: tuple[WorkflowMessage, ...]
    bandwidth_gb_s: Positive = 10.0
    latency_s: NonNegative = 0.01


class PlacementMessage(Model):
    """The answers of a scheduler: tasks to start now, in this order."""

    policy: str
    program: str = __version__
    version: int = VERSION
    answers: tuple[tuple[int, int, int], ...] = Field(description="workflow, task, row")
    decision_ms: float = Field(description="time that it took, without the transport")


def to_message(now: Snapshot) -> dict[str, Any]:
    """The JSON content of a snapshot."""
    names = {value: name for name, value in STATUS.items()}
    ready: dict[int, dict[int, float]] = {}
    for task in now.ready:
        ready.setdefault(int(task["workflow"]), {})[int(task["task"])] = float(task["ready_s"])
    return {
        "version": VERSION,
        "clock_s": now.clock_s,
        "capacity_gflops": now.capacity_gflops.tolist(),
        "memory_gb": now.memory_gb.tolist(),
        "host": now.host.tolist(),
        "status": [names[value] for value in now.status.tolist()],
        "expected_end_s": [None if end == np.inf else end for end in now.expected_end_s.tolist()],
        "running": now.running.tolist(),
        "workflows": [_workflow_message(now.workflow(n), ready.get(n, {})) for n in now.workflows],
        "bandwidth_gb_s": now.bandwidth_gb_s,
        "latency_s": now.latency_s,
    }


def _workflow_message(of: LiveWorkflow, ready: dict[int, float]) -> dict[str, Any]:
    return {
        "number": of.index,
        "arrival_s": of.arrival_s,
        "compute_gflop": of.compute_gflop.tolist(),
        "memory_gb": of.memory_gb.tolist(),
        "output_gb": of.output_gb.tolist(),
        "edges": of.edges.tolist(),
        "row": of.host.tolist(),
        "completed": of.completed.tolist(),
        "ready_s": ready,
    }


def from_message(message: SnapshotMessage, env: EnvConfig) -> tuple[Snapshot, list[int]]:
    """The snapshot, its workflows numbered from 0 on, and their numbers in the message.

    Args:
        message: as it came.
        env: the problem: its order of waiting tasks, and what is moved.

    Raises:
        UserError: naming the field that does not agree with another.
    """
    rows = len(message.capacity_gflops)
    for name in ("memory_gb", "host", "status", "expected_end_s", "running"):
        if len(getattr(message, name)) != rows:
            raise UserError(f"{name}: holds {len(getattr(message, name))} values; capacity_gflops holds {rows}")
    numbers = [workflow.number for workflow in message.workflows]
    if numbers != sorted(set(numbers)):
        raise UserError(f"workflows: must stand in the order of their numbers, each once (got {numbers[:10]})")
    flows = [_flow(at, workflow, rows) for at, workflow in enumerate(message.workflows)]
    memory, host = np.array(message.memory_gb), np.array(message.host)
    if host.max(initial=0) >= rows or host.min(initial=0) < -1 or (np.diff(host[host >= 0]) < 0).any():
        raise UserError(f"host: must number the servers from 0 on, the rows of one side by side (below {rows})")
    at_number = {number: at for at, number in enumerate(numbers)}
    running, used = np.full((rows, 2), -1, dtype=np.int64), np.zeros(rows)
    for row, (workflow, task) in enumerate(message.running):
        if workflow >= 0:
            flow = flows[at_number[workflow]] if workflow in at_number else None
            if flow is None or not 0 <= task < len(flow):
                raise UserError(f"running: row {row}: there is no workflow {workflow} with a task {task} in workflows")
            running[row], used[row] = (flow.number, task), flow.memory_gb[task]
    status = np.array([STATUS[name] for name in message.status])
    of_host = np.bincount(host[host >= 0], weights=used[host >= 0], minlength=rows)
    ends = np.array([np.inf if end is None else end for end in message.expected_end_s])
    takes = (status <= BUSY) & (host >= 0)
    waiting, inputs = _waiting(message, flows, host, env)
    snapshot = Snapshot(
        index=0,
        clock_s=message.clock_s,
        num_arrived=len(flows),
        capacity_gflops=np.array(message.capacity_gflops),
        memory_gb=memory,
        free_memory_gb=np.where(status == AWAY, 0.0, np.maximum(0.0, memory - of_host[host])),
        host=host,
        status=np.where(host >= 0, status, AWAY),
        expected_end_s=ends,
        available_at_s=np.where(
            takes, np.where(ends < np.inf, np.maximum(message.clock_s, ends), message.clock_s), np.inf
        ),
        running=running,
        ready=waiting,
        inputs=inputs,
        candidates=np.arange(min(len(waiting), env.decision.offered)),
        workflows={flow.number: flow.seen() for flow in flows},
        bandwidth_gb_s=message.bandwidth_gb_s,
        latency_s=message.latency_s,
    )
    return snapshot, numbers


def _flow(number: int, message: WorkflowMessage, rows: int) -> Flow:
    """A workflow of a message, checked."""
    where, count = f"workflows: workflow {message.number}", len(message.compute_gflop)
    for name in ("memory_gb", "output_gb", "row", "completed"):
        if len(getattr(message, name)) != count:
            raise UserError(f"{where}: {name} holds {len(getattr(message, name))} values, compute_gflop {count}")
    tasks = [*message.ready_s, *(task for edge in message.edges for task in edge)]
    for task in tasks:
        if not 0 <= task < count:
            raise UserError(f"{where}: there is no task {task}; valid: 0 to {count - 1}")
    edges = np.array(sorted(message.edges), dtype=np.int64).reshape(-1, 2)
    if find_cycle(count, edges):
        raise UserError(f"{where}: the edges form a cycle")
    if not all(-1 <= row < rows for row in message.row):
        raise UserError(f"{where}: row must be -1 to {rows - 1}")
    compute, memory, output = (
        np.array(values, dtype=np.float64) for values in (message.compute_gflop, message.memory_gb, message.output_gb)
    )
    flow = Flow(number, message.arrival_s, compute, memory, output, np.zeros(count), edges)
    flow.row, flow.completed = np.array(message.row, dtype=np.int64), np.array(message.completed)
    for task in message.ready_s:
        if not flow.completed[flow.predecessors[task]].all() or (flow.row[flow.predecessors[task]] < 0).any():
            raise UserError(f"{where}: task {task} waits, and a predecessor of it has not ended on a row")
    return flow


def _waiting(
    message: SnapshotMessage, flows: list[Flow], host: np.ndarray, env: EnvConfig
) -> tuple[np.ndarray, np.ndarray]:
    """READY, in the order of level 1, and INPUT."""
    names = []
    for flow, workflow in zip(flows, message.workflows, strict=True):
        for task, since in workflow.ready_s.items():
            ties = 0.0 if env.decision.ties_by_arrival else since
            names.append((-flow.rank(task, env.decision.level1), ties, flow.number, task, since))
    names.sort()
    table, inputs = [], []
    for at, (_, _, number, task, since) in enumerate(names):
        flow = flows[number]
        demand = (flow.compute_gflop[task], flow.memory_gb[task], flow.output_gb[task])
        table.append((number, task, *demand, flow.hop[task], flow.arrival_s, since))
        for before in flow.moved_for(task, env.communication):
            moved = flow.output_gb[before] / message.bandwidth_gb_s + message.latency_s
            inputs.append((at, host[flow.row[before]], moved))
    return np.array(table, dtype=READY), np.array(inputs, dtype=INPUT)


def cluster_of(now: Snapshot, like: ClusterConfig) -> ClusterConfig:
    """The cluster of a snapshot: a tier for each run of equal servers; power as servers of that kind have in `like`."""
    owned = now.host >= 0
    first = np.flatnonzero(owned & (np.diff(now.host, prepend=-2) != 0))
    slots = np.bincount(now.host[owned])[now.host[first]]
    kinds = list(zip(now.capacity_gflops[first].tolist(), now.memory_gb[first].tolist(), slots.tolist(), strict=True))
    known = {(tier.compute_gflops, tier.memory_gb): tier for tier in like.tiers}
    tiers: list[TierConfig] = []
    for kind, group in groupby(kinds):
        model = known.get(kind[:2], TierConfig(name="other", count=1, compute_gflops=1.0, memory_gb=1.0))
        changed = {"name": f"tier{len(tiers)}", "count": len(list(group)), "slots": kind[2]}
        tier = model.model_dump() | {"compute_gflops": kind[0], "memory_gb": kind[1]} | changed
        tiers.append(TierConfig.model_validate(tier))
    return ClusterConfig(
        tiers=tuple(tiers),
        empty_slots=int((~owned).sum()),
        bandwidth_gb_s=now.bandwidth_gb_s,
        latency_s=now.latency_s,
    )
