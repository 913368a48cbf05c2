"""Snapshots of an environment, copied out of the engine's arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rllib_scale.observation.snapshot import AWAY, DRAINING, INPUT, READY, RUNNING, UP, LiveWorkflow, Snapshot
from rllib_scale.simulator.state import AWAY as GONE
from rllib_scale.simulator.state import NOWHERE, Problem, State


def take_snapshot(b: int, state: State, problem: Problem) -> Snapshot:
    """Environment b as it is now."""
    env, servers, p = state.env[b], problem.servers, problem.parameters[0]
    clock = float(env["clock"])
    # A limit of -1 says that nothing can start there any more: it drains, or is away.
    takes, places = state.limit[b] >= 0, servers["max_concurrent"]
    away = (places == 0) | (state.presence[b]["status"] == GONE)
    free_at = np.where(state.free_places[b] > 0, clock, np.maximum(clock, state.next_end[b]))
    rows, ready, candidates = _waiting(b, state, problem)
    return Snapshot(
        index=b,
        clock_s=clock,
        num_arrived=int(env["next_number"]),
        capacity_gflops=servers["capacity"].copy(),
        memory_gb=servers["memory"].copy(),
        free_memory_gb=np.where(away, 0.0, state.free[b]),
        max_concurrent=places.copy(),
        properties=servers,
        num_running=places - state.free_places[b],
        status=np.where(away, AWAY, np.where(takes, UP, DRAINING)),
        expected_end_s=state.next_end[b].copy(),
        available_at_s=np.where(takes, free_at + state.extra[b], np.inf),
        running=_running(b, state, problem),
        ready=ready,
        inputs=_inputs(b, rows, state, problem),
        candidates=candidates,
        workflows=_Workflows(b, state, problem),
        bandwidth_gb_s=float(p["bandwidth"]),
        latency_s=float(p["latency"]),
    )


def _running(b: int, state: State, problem: Problem) -> np.ndarray:
    """(A,) RUNNING."""
    # A task that was given up holds its place until it has stopped, and is at that place no longer.
    places = np.flatnonzero(state.running[b] >= 0)
    places = places[state.tasks["place"][b, state.running[b, places]] == places]
    table = np.empty(len(places), dtype=RUNNING)
    table["workflow"], table["task"] = _names(b, state.running[b, places], state)
    table["server"], table["expected_end_s"] = problem.server_of[places], state.expected[b, places]
    return np.sort(table, order=("server", "workflow", "task"))


def _names(b: int, rows: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray]:
    """Number of the workflow and index in it of task rows."""
    workflows = state.workflows[b, state.tasks[b, rows]["workflow"]]
    return workflows["number"], rows - workflows["first_task"]


def _waiting(b: int, state: State, problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tasks that wait, in order: their task rows, as READY; positions of the candidates among them."""
    env = state.env[b]
    offered = state.offered[b, : env["num_offered"]]
    rows = np.concatenate([state.ready[b, : env["num_ready"]], state.aside[b, : env["num_aside"]], offered])
    # Waiting, deferred and offered tasks all wait.
    rows = np.unique(rows)  # a single candidate may stay in the heap
    tasks, details = state.tasks[b, rows], state.details[b, rows]
    workflow, index = _names(b, rows, state)
    # Level 1 [SCALE, sec. 4.1]: by rank, then by the time of readiness or not, then by number; as heaps.BY_RANK.
    since = np.zeros(len(rows)) if problem.parameters[0]["ties_by_arrival"] else tasks["ready"]
    order = np.lexsort((index, workflow, since, -tasks["rank"]))
    table = np.empty(len(rows), dtype=READY)
    table["workflow"], table["task"] = workflow, index
    table["compute_gflop"], table["memory_gb"] = tasks["left"] * details["error"], tasks["memory"]
    table["places"], table["labels"] = details["places"], details["labels"]
    table["output_gb"], table["hop"] = tasks["output"], details["hop"]
    table["arrival_s"], table["ready_s"] = state.workflows["arrival"][b, tasks["workflow"]], tasks["ready"]
    return rows[order], table[order], np.flatnonzero(np.isin(rows[order], offered))


def _sources(b: int, rows: np.ndarray, state: State, problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predecessors whose output tasks need: position of the task in `rows`, row of the predecessor, s to move it."""
    p = problem.parameters[0]
    if p["from_all"]:
        details = state.details[b, rows]
        first, count = details["predecessors"], details["num_predecessors"]
        # Positions first[k] to first[k] + count[k] - 1 of each task, one behind the other.
        listed = np.arange(count.sum()) + np.repeat(first + count - np.cumsum(count), count)
        at, source, moved = np.repeat(np.arange(len(rows)), count), state.edges[b, listed], state.moved[b, listed]
    else:
        source = state.tasks["first_predecessor"][b, rows]
        at = np.flatnonzero(source >= 0)
        source, moved = source[at], state.details["input"][b, rows[at]]
    return at, source, moved / p["bandwidth"] + p["latency"]


def _inputs(b: int, rows: np.ndarray, state: State, problem: Problem) -> np.ndarray:
    """Data moved for the tasks of these rows, INPUT; the engine's own account is `attempts.transfer_time`."""
    at, source, transfer_s = _sources(b, rows, state, problem)
    place = state.tasks["place"][b, source]
    ran = place >= 0
    inputs = np.empty(ran.sum(), dtype=INPUT)
    inputs["task"], inputs["server"] = at[ran], problem.server_of[place[ran]]
    inputs["transfer_s"] = transfer_s[ran]
    return inputs


class _Workflows(Mapping[int, LiveWorkflow]):
    """The unfinished workflows of an environment, each built when it is asked for."""

    def __init__(self, b: int, state: State, problem: Problem) -> None:
        self._b, self._state, self._problem = b, state, problem

        env = state.env[b]
        arrived = state.workflows[b, env["first_live"] : env["workflows_arrived"]]
        live = np.flatnonzero(arrived["num_completed"] < arrived["num_tasks"])
        self._rows = dict(zip(arrived["number"][live].tolist(), (live + env["first_live"]).tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __getitem__(self, number: int) -> LiveWorkflow:
        b, state = self._b, self._state
        workflow = state.workflows[b, self._rows[number]]
        first, count = int(workflow["first_task"]), int(workflow["num_tasks"])
        tasks = state.tasks[b, first : first + count]
        source = np.repeat(np.arange(count), tasks["num_successors"])
        at = int(tasks["first_successor"][0])
        edges = np.stack([source, state.edges[b, at : at + len(source)] - first], axis=1)
        transfer = self._transfers(first, edges, state.details[b, first : first + count])
        seen = np.arange(count)
        if self._problem.parameters[0]["revealed"]:
            seen = np.flatnonzero(tasks["num_missing"] == 0)
            # Edges are between rows of what is shown: a hidden task has none.
            position = np.full(count, -1)
            position[seen] = np.arange(len(seen))
            shown = np.isin(edges, seen).all(axis=1)
            edges, transfer = position[edges[shown]], transfer[shown]
        tasks, details = tasks[seen], state.details[b, first + seen]
        place = tasks["place"].astype(np.int64)
        ran = np.maximum(place, 0)  # a place of its own or, where it had none, any
        running = (place >= 0) & (state.running[b, ran] == first + seen)
        return LiveWorkflow(
            index=number,
            arrival_s=float(workflow["arrival"]),
            task=seen,
            compute_gflop=details["compute"] * details["error"],
            memory_gb=tasks["memory"].copy(),
            places=details["places"].copy(),
            labels=details["labels"].copy(),
            output_gb=tasks["output"].copy(),
            delay_s=details["delay"].copy(),
            edges=edges,
            transfer_s=transfer,
            hop=details["hop"].astype(np.int64),
            server=np.where(place >= 0, self._problem.server_of[ran], -1),
            completed=((place >= 0) & ~running) | (place == NOWHERE),
        )

    def _transfers(self, first: int, edges: np.ndarray, details: np.ndarray) -> np.ndarray:
        """(E,) s to move the input of each edge of a workflow, whose tasks have rows from `first` on."""
        count = len(details)
        at, source, transfer_s = _sources(self._b, first + np.arange(count), self._state, self._problem)
        transfer = np.zeros(len(edges))
        # Edges are in order of predecessor and successor.
        transfer[np.searchsorted(edges @ (count, 1), (source - first) * count + at)] = transfer_s
        return np.where((details["compute"][edges] > 0).all(axis=1), transfer, 0.0)
