"""Snapshots of an environment: what schedulers are told of it, copied out of the engine's arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rllib_scale.observation.snapshot import AWAY, BUSY, DRAINING, IDLE, READY, LiveWorkflow, Snapshot
from rllib_scale.simulator.state import AWAY as GONE
from rllib_scale.simulator.state import Problem, State


def take_snapshot(b: int, state: State, problem: Problem) -> Snapshot:
    """Environment b as it is now."""
    env, servers, p = state.env[b], problem.servers, problem.parameters[0]
    clock = float(env["clock"])
    expected, limit, host = state.expected[b].copy(), state.limit[b], servers["host"]
    takes, is_free = limit >= 0, expected == np.inf
    hosts = state.hosts[b]
    there = host >= 0
    free = np.where(there, hosts["free"][host], 0.0)
    away = ~there | (hosts["status"][host] == GONE)
    available = np.where(takes, np.where(is_free, clock, np.maximum(clock, expected)) + state.extra[b], np.inf)
    running = state.running[b]
    tasks = state.tasks[b, running]
    runs = running >= 0
    ready, candidates = _waiting(b, state)
    return Snapshot(
        index=b,
        clock_s=clock,
        num_arrived=int(env["workflows_arrived"]),
        capacity_gflops=servers["capacity"].copy(),
        memory_gb=servers["memory"].copy(),
        free_memory_gb=np.where(away, 0.0, free),
        host=host.copy(),
        status=np.where(away, AWAY, np.where(~takes, DRAINING, np.where(is_free, IDLE, BUSY))),
        expected_end_s=expected,
        available_at_s=available,
        running=np.stack([np.where(runs, tasks["workflow"], -1), np.where(runs, tasks["index"], -1)], axis=1),
        ready=ready,
        candidates=candidates,
        workflows=_Workflows(b, state, problem),
        bandwidth_gb_s=float(p["bandwidth"]),
        latency_s=float(p["latency"]),
    )


def _waiting(b: int, state: State) -> tuple[np.ndarray, np.ndarray]:
    """The tasks that wait, READY, in order; positions of the candidates among them."""
    env = state.env[b]
    offered = state.offered[b, : env["num_offered"]]
    rows = np.concatenate([state.ready[b, : env["num_ready"]], state.aside[b, : env["num_aside"]], offered])
    rows = np.unique(rows)  # a single candidate may stay in the heap
    tasks = state.tasks[b, rows]
    order = np.lexsort((tasks["index"], tasks["workflow"], tasks["ready"], -tasks["rank"]))
    table = np.empty(len(rows), dtype=READY)
    table["workflow"], table["task"] = tasks["workflow"], tasks["index"]
    table["compute_gflop"], table["memory_gb"] = tasks["left"] * tasks["error"], tasks["memory"]
    table["output_gb"], table["hop"] = tasks["output"], tasks["hop"]
    table["arrival_s"], table["ready_s"] = state.slots["arrival"][b, tasks["slot"]], tasks["ready"]
    return table[order], np.flatnonzero(np.isin(rows[order], offered))


class _Workflows(Mapping[int, LiveWorkflow]):
    """The unfinished workflows of an environment, each built when it is asked for."""

    def __init__(self, b: int, state: State, problem: Problem) -> None:
        self._b, self._state, self._problem = b, state, problem

    def _slots(self) -> dict[int, int]:
        numbers = self._state.slots["workflow"][self._b]
        pending = self._state.env["pending"][self._b]
        return {int(numbers[s]): int(s) for s in np.flatnonzero(numbers >= 0) if s != pending}

    def __len__(self) -> int:
        return len(self._slots())

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._slots()))

    def __getitem__(self, number: int) -> LiveWorkflow:
        b, state = self._b, self._state
        s = self._slots()[number]
        slot = state.slots[b, s]
        first, count = int(slot["first_task"]), int(slot["num_tasks"])
        tasks = state.tasks[b, first : first + count]
        source = np.repeat(np.arange(count), tasks["num_successors"])
        at = int(slot["first_edge"])
        edges = np.stack([source, state.edges[b, at : at + len(source)] - first], axis=1)
        seen = np.arange(count)
        if self._problem.parameters[0]["revealed"]:
            seen = np.flatnonzero(tasks["num_missing"] == 0)
            position = np.full(count, -1)
            position[seen] = np.arange(len(seen))
            edges = position[edges[np.isin(edges, seen).all(axis=1)]]
        tasks = tasks[seen]
        host = tasks["host"].astype(np.int64)
        running = state.running[b, host] == first + seen
        return LiveWorkflow(
            index=number,
            arrival_s=float(slot["arrival"]),
            task=seen,
            compute_gflop=tasks["compute"] * tasks["error"],
            memory_gb=tasks["memory"].copy(),
            output_gb=tasks["output"].copy(),
            delay_s=tasks["delay"].copy(),
            edges=edges,
            hop=tasks["hop"].astype(np.int64),
            host=host,
            completed=(host >= 0) & ~running,
        )
