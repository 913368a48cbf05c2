"""Played episodes as traces for Perfetto."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.envs.places import places_of
from rllib_scale.files import write_atomic
from rllib_scale.workloads.model import Workload

WORKLOAD_PID = 1
"""Process of arrivals and counters; tiers follow. Perfetto keeps process and thread 0 for itself."""


@dataclass(frozen=True, eq=False)
class Played:
    """An episode that was played.

    Attributes:
        env: the problem.
        workload: what arrived in it.
        schedule: every attempt, dtype `rllib_scale.simulator.record.SCHEDULE`.
        end_s: clock at the end [s].
        name: a title.
    """

    env: EnvConfig
    workload: Workload
    schedule: np.ndarray
    end_s: float
    name: str

    def edges(self) -> np.ndarray:
        """(E, 2) predecessor and successor, rows of the workload's tasks."""
        first = np.repeat(self.workload.task_offsets[:-1], np.diff(self.workload.edge_offsets))
        return self.workload.edges + first[:, None]

    def tasks(self) -> np.ndarray:
        """(A,) task of each attempt, a row of the workload's tasks."""
        return self.workload.task_offsets[self.schedule["workflow"]] + self.schedule["task"]

    def names(self, pattern: str) -> list[str]:
        """(T,) a name for each task from its workflow {w} and its number {t} in it."""
        sizes = np.diff(self.workload.task_offsets).tolist()
        return [pattern.format(w=w, t=t) for w, size in enumerate(sizes) for t in range(size)]


def write(path: Path, content: dict[str, Any]) -> None:
    """Write an export as JSON on one line; a reader sees the old file or the new one, never a part.

    Raises:
        UserError: it cannot be written.
    """
    write_atomic(path, lambda temporary: temporary.write_text(json.dumps(content, allow_nan=False), encoding="utf-8"))


# ---------------------------------------------------------------------- Chrome trace events


def to_trace(played: Played) -> dict[str, Any]:
    """The episode as Chrome trace events, for ui.perfetto.dev or chrome://tracing; times in whole microseconds.

    A process is a tier, a thread a place of one of its servers. An attempt is a slice; where its place was taken for a
    transfer, too, the slice holds one for each part. A flow leads from the end of a predecessor's last attempt to the
    start of each attempt of its successor. A first process shows arrivals and how many tasks wait.
    """
    attempts = _attempts(played)
    flows = _flows(played, attempts)
    timed = [event for group in (attempts, flows, _arrivals(played), _waiting(played)) for event in group]
    # At one time: flows leave the slice that ends before the next one begins, a slice comes before what it holds,
    # and flows arrive in slices that have begun.
    order = {"s": 0, "f": 2}
    timed.sort(key=lambda event: (event["ts"], order.get(event["ph"], 1), -event.get("dur", 0)))
    for event in timed:
        event.pop("row", None)
    return {"traceEvents": _metadata(played) + timed, "displayTimeUnit": "ms", "otherData": {"title": played.name}}


def _us(time_s: float) -> int:
    """Whole microseconds: rounding keeps the order, so slices that follow one another never overlap."""
    return round(time_s * 1e6)


def _metadata(played: Played) -> list[dict[str, Any]]:
    """Names and order of processes and threads."""
    events: list[dict[str, Any]] = []

    def name(pid: int, tid: int | None, text: str) -> None:
        kind = "process" if tid is None else "thread"
        for field, key, value in (("name", "name", text), ("sort_index", "sort_index", tid or pid)):
            event = {"ph": "M", "name": f"{kind}_{field}", "pid": pid, "args": {key: value}}
            events.append(event | ({} if tid is None else {"tid": tid}))

    name(WORKLOAD_PID, None, "workload")
    name(WORKLOAD_PID, 1, "arrivals")
    place = server = 0
    for at, tier in enumerate(played.env.cluster.tiers):
        pid = WORKLOAD_PID + 1 + at
        name(pid, None, f"{tier.name} ({tier.compute_gflops:g} GFLOPS, {tier.memory_gb:g} GB)")
        for _ in range(tier.count):
            for own in range(tier.max_concurrent):
                name(pid, _tid(place), f"server {server}" + (f", place {own}" if tier.max_concurrent > 1 else ""))
                place += 1
            server += 1
    return events


def _tid(place: int) -> int:
    """Thread of a place; 1 is that of the arrivals."""
    return place + 2


def _attempts(played: Played) -> list[dict[str, Any]]:
    """Slices, for each attempt its own and then those of its parts; `row` is the attempt, for the one of its own."""
    names = played.names("workflow {w}, task {t}")
    tiers = {tier.name: WORKLOAD_PID + 1 + at for at, tier in enumerate(played.env.cluster.tiers)}
    events: list[dict[str, Any]] = []
    places = places_of(played.schedule, played.env.cluster).tolist()
    for at, (task, place, attempt) in enumerate(zip(played.tasks().tolist(), places, played.schedule, strict=True)):
        outcome = str(attempt["outcome"])
        finish_s = played.end_s if outcome == "running" else float(attempt["finish_s"])
        start, finish = _us(attempt["start_s"]), _us(finish_s)
        moved = min(_us(attempt["start_s"] + attempt["transfer_s"]), finish)
        where = {"ph": "X", "pid": tiers[str(attempt["tier"])], "tid": _tid(place)}
        work = float(attempt["work_gflop"])
        events.append(
            where
            | {
                "name": names[task] + ("" if outcome == "finished" else f" ({outcome})"),
                "cat": outcome,
                "ts": start,
                "dur": finish - start,
                "args": {
                    "workflow": int(attempt["workflow"]),
                    "task": int(attempt["task"]),
                    "outcome": outcome,
                    "arrival_s": float(attempt["arrival_s"]),
                    "ready_s": float(attempt["ready_s"]),
                    "transfer_s": float(attempt["transfer_s"]),
                    "work_gflop": None if np.isnan(work) else work,
                    "memory_gb": float(played.workload.memory_gb[task]),
                },
                "row": at,
            }
        )
        if moved > start:
            events.append(where | {"name": "transfer", "cat": "transfer", "ts": start, "dur": moved - start})
        if start < moved < finish:
            events.append(where | {"name": "execution", "cat": "execution", "ts": moved, "dur": finish - moved})
    return events


def _flows(played: Played, slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A pair of events for each attempt of a task and each predecessor of it."""
    of_attempt = {event["row"]: event for event in slices if "row" in event}
    finished: dict[int, dict[str, Any]] = {}
    started: dict[int, list[dict[str, Any]]] = {}
    for at, task in enumerate(played.tasks().tolist()):
        started.setdefault(task, []).append(of_attempt[at])
        if of_attempt[at]["cat"] == "finished":
            finished[task] = of_attempt[at]
    events: list[dict[str, Any]] = []
    for predecessor, successor in played.edges().tolist():
        for target in started.get(successor, []):
            source, shared = finished[predecessor], {"name": "output", "cat": "edge", "id": len(events) // 2 + 1}
            begin = {"ph": "s", "pid": source["pid"], "tid": source["tid"], "ts": source["ts"] + source["dur"]}
            end = {"ph": "f", "bp": "e", "pid": target["pid"], "tid": target["tid"], "ts": target["ts"]}
            events += [begin | shared, end | shared]
    return events


def _arrivals(played: Played) -> list[dict[str, Any]]:
    """An instant for each workflow that arrived."""
    where = {"ph": "i", "s": "t", "pid": WORKLOAD_PID, "tid": 1}
    arrivals = played.workload.arrival_s[played.workload.arrival_s <= played.end_s].tolist()
    return [where | {"name": f"workflow {w}", "ts": _us(arrival)} for w, arrival in enumerate(arrivals)]


def _waiting(played: Played) -> list[dict[str, Any]]:
    """A counter of tasks that are ready and do not run, at each time at which it changes."""
    workload, schedule = played.workload, played.schedule
    workflow = np.repeat(np.arange(workload.num_workflows), np.diff(workload.task_offsets))
    # When its last predecessor ended: of a task that never ran. Those of attempts are in the schedule.
    ready = workload.arrival_s[workflow].copy()
    ended = np.full(workload.num_tasks, np.inf)
    tasks, done = played.tasks(), schedule["outcome"] == "finished"
    ended[tasks[done]] = schedule["finish_s"][done]
    edges = played.edges()
    np.maximum.at(ready, edges[:, 1], ended[edges[:, 0]])
    ready += workload.delay_s
    untouched = np.ones(workload.num_tasks, dtype=bool)
    untouched[tasks] = False
    # A task that failed waits again: its next attempt says since when, and where there is none, its end does.
    last = np.full(workload.num_tasks, -1)
    last[tasks] = np.arange(len(schedule))
    given_up = last[last >= 0]
    given_up = given_up[schedule["outcome"][given_up] == "failed"]
    begins = np.concatenate(
        [schedule["ready_s"], ready[untouched & (ready <= played.end_s)], schedule["finish_s"][given_up]]
    )
    changes: dict[int, int] = {}
    for times_s, by in ((begins, 1), (schedule["start_s"], -1)):
        for time_s in times_s.tolist():
            changes[_us(time_s)] = changes.get(_us(time_s), 0) + by
    where = {"ph": "C", "pid": WORKLOAD_PID, "tid": 1, "name": "tasks waiting"}
    events, waiting = [], 0
    for ts in sorted(changes):
        if changes[ts]:
            waiting += changes[ts]
            events.append(where | {"ts": ts, "args": {"tasks": waiting}})
    return events
