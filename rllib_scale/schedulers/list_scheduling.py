"""HEFT and CPOP: plan one workflow on heterogeneous servers, on top of what is planned already.

Source: H. Topcuoglu, S. Hariri, M.-Y. Wu, Performance-effective and low-complexity task scheduling for heterogeneous
computing, IEEE TPDS 13(3), 2002, sec. 4. Where a server is too small for a task, its execution time is inf there: the
task is never placed on it, and its mean execution time is over the others. Ties go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FIRST_ROOM = 8


class Timelines:
    """The intervals in which each of P servers is planned to work, by start; they never overlap on a server."""

    def __init__(self, num_servers: int) -> None:
        self.free_at = np.zeros(num_servers)
        """(P,) s: nothing is planned earlier."""
        self.count = np.zeros(num_servers, dtype=np.int64)
        self.start = np.zeros((num_servers, FIRST_ROOM))
        self.end = np.zeros((num_servers, FIRST_ROOM))
        self.row = np.zeros((num_servers, FIRST_ROOM), dtype=np.int64)
        """(P, K) number of the planned task; of each server the first `count` columns are in use."""

    def drop_next(self, servers: Ints) -> None:
        """Take the next task off the plans of these servers."""
        for array in (self.start, self.end, self.row):
            array[servers, :-1] = array[servers, 1:]
        self.count[servers] -= 1

    def make_room(self, tasks: int) -> None:
        """Let every server hold so many more intervals."""
        if self.count.max(initial=0) + tasks > self.start.shape[1]:
            for name in ("start", "end", "row"):
                old = getattr(self, name)
                setattr(
                    self, name, np.concatenate([old, np.zeros((len(old), old.shape[1] + tasks), old.dtype)], axis=1)
                )


@dataclass(frozen=True)
class Plan:
    """Where and when each of T tasks runs."""

    server: Ints  # (T,)
    start_s: Floats  # (T,)
    finish_s: Floats  # (T,)

    @property
    def makespan_s(self) -> float:
        """When the last task finishes."""
        return float(self.finish_s.max())


Planner = Callable[..., Plan]


def heft(
    execution_s: Floats,
    edges: Ints,
    delay_s: Floats | None = None,
    mean_delay_s: Floats | None = None,
    timelines: Timelines | None = None,
    first_row: int = 0,
) -> Plan:
    """Heterogeneous Earliest Finish Time: by upward rank, each task to where it finishes first, gaps included.

    Args:
        execution_s: (T, P) execution time of each task on each server [s], above 0; inf where it does not fit.
        edges: (E, 2) predecessor, successor; acyclic.
        delay_s: (E,) communication delay of each edge between two servers [s]; 0 by default, and always on one server.
        mean_delay_s: (E,) what the ranks take for it; by default `delay_s`, the mean over pairs of distinct servers.
        timelines: what is planned already; the plan is added to it. By default all servers are free from 0 on.
        first_row: number of task 0 in the timelines.

    Returns:
        The plan. One task of two seconds, which the second server halves:

        >>> heft(np.array([[2.0, 1.0]]), np.zeros((0, 2), dtype=np.int64)).makespan_s
        1.0
    """
    delay, mean_delay, lines = _defaults(execution_s, edges, delay_s, mean_delay_s, timelines)
    upward = _upward_rank(_mean_execution(execution_s), edges, mean_delay)
    order = np.argsort(-upward, kind="stable")
    never = np.full(len(execution_s), -1)
    plan = _place_all(execution_s, edges, delay, order, never, lines.free_at, *_arrays(lines), first_row)
    return Plan(*plan)


def cpop(
    execution_s: Floats,
    edges: Ints,
    delay_s: Floats | None = None,
    mean_delay_s: Floats | None = None,
    timelines: Timelines | None = None,
    first_row: int = 0,
) -> Plan:
    """Critical Path on a Processor: the tasks of a longest path to one server, the others as by HEFT.

    The path leads from the entry task of highest priority, upward plus downward rank, along the upward rank. Its server
    is the one that would end first if it ran the path, and nothing else, after what is planned on it: with nothing
    planned, as in the paper, the one of the least total execution time. A ready task of the highest priority is placed
    next. If no server is large enough for the whole path, it is placed as the others are.

    Args and returns: as of `heft`.
    """
    delay, mean_delay, lines = _defaults(execution_s, edges, delay_s, mean_delay_s, timelines)
    mean = _mean_execution(execution_s)
    upward = _upward_rank(mean, edges, mean_delay)
    priority = upward + _downward_rank(mean, edges, mean_delay)
    path = _critical_path(upward, priority, edges, mean_delay)
    last = np.where(lines.count > 0, lines.end[np.arange(len(lines.count)), lines.count - 1], lines.free_at)
    ends = last + execution_s[path].sum(axis=0)
    fixed = np.full(len(execution_s), -1)
    if np.isfinite(ends).any():
        fixed[path] = np.argmin(ends)
    order = _by_priority(priority, edges)
    plan = _place_all(execution_s, edges, delay, order, fixed, lines.free_at, *_arrays(lines), first_row)
    return Plan(*plan)


def _defaults(
    execution_s: Floats, edges: Ints, delay_s: Floats | None, mean_delay_s: Floats | None, timelines: Timelines | None
) -> tuple[Floats, Floats, Timelines]:
    delay = np.zeros(len(edges)) if delay_s is None else delay_s
    lines = Timelines(execution_s.shape[1]) if timelines is None else timelines
    lines.make_room(len(execution_s))
    return delay, delay if mean_delay_s is None else mean_delay_s, lines


def _arrays(lines: Timelines) -> tuple[Ints, Floats, Floats, Ints]:
    return lines.count, lines.start, lines.end, lines.row


def _mean_execution(execution_s: Floats) -> Floats:
    """(T,) mean over the servers that fit."""
    fits = np.isfinite(execution_s)
    return np.where(fits, execution_s, 0.0).sum(axis=1) / fits.sum(axis=1)


# ---------------------------------------------------------------------- ranks


@partial(compiled, allocates=True)
def _upward_rank(mean, edges, delay):  # type: ignore[no-untyped-def]
    """(T,) longest path from a task to the end, itself included: mean execution and mean communication."""
    rank = mean.copy()
    changed = True
    while changed:  # backwards through edges by predecessor, once and a check where tasks are numbered in their order
        changed = False
        for e in range(len(edges) - 1, -1, -1):
            i, j = edges[e, 0], edges[e, 1]
            longer = mean[i] + delay[e] + rank[j]
            if longer > rank[i]:
                rank[i] = longer
                changed = True
    return rank


@partial(compiled, allocates=True)
def _downward_rank(mean, edges, delay):  # type: ignore[no-untyped-def]
    """(T,) longest path from the beginning to a task, itself excluded."""
    rank = np.zeros(len(mean))
    changed = True
    while changed:
        changed = False
        for e in range(len(edges)):
            i, j = edges[e, 0], edges[e, 1]
            longer = rank[i] + mean[i] + delay[e]
            if longer > rank[j]:
                rank[j] = longer
                changed = True
    return rank


@partial(compiled, allocates=True)
def _critical_path(upward, priority, edges, delay):  # type: ignore[no-untyped-def]
    """Tasks of a longest path, from its entry on."""
    is_entry = np.ones(len(upward), dtype=np.bool_)
    for e in range(len(edges)):
        is_entry[edges[e, 1]] = False
    at = np.argmax(np.where(is_entry, priority, -1.0))
    path = [at]
    while True:
        longest, following = -1.0, -1
        for e in range(len(edges)):
            if edges[e, 0] == at and delay[e] + upward[edges[e, 1]] > longest:
                longest, following = delay[e] + upward[edges[e, 1]], edges[e, 1]
        if following < 0:
            return np.array(path)
        path.append(following)
        at = following


@partial(compiled, allocates=True)
def _by_priority(priority, edges):  # type: ignore[no-untyped-def]
    """(T,) tasks in the order in which they are taken from the queue of the ready ones."""
    num_tasks = len(priority)
    missing = np.zeros(num_tasks, dtype=np.int64)
    for e in range(len(edges)):
        missing[edges[e, 1]] += 1
    order = np.empty(num_tasks, dtype=np.int64)
    for position in range(num_tasks):
        first = -1
        for k in range(num_tasks):
            if missing[k] == 0 and (first < 0 or priority[k] > priority[first]):
                first = k
        order[position] = first
        missing[first] = -1
        for e in range(len(edges)):
            if edges[e, 0] == first:
                missing[edges[e, 1]] -= 1
    return order


# ---------------------------------------------------------------------- placement


@partial(compiled, allocates=True)
def _place_all(execution, edges, delay, order, fixed, free_at, count, start, end, row, first_row):  # type: ignore[no-untyped-def]
    """Place tasks in `order` where they finish first, or on server `fixed` [k] where that is not negative.

    Returns (server, start, finish), each (T,).
    """
    num_tasks, num_servers = execution.shape
    server = np.full(num_tasks, -1)
    begin, finish = np.empty(num_tasks), np.empty(num_tasks)
    for k in order:
        best, best_start, best_finish = -1, np.inf, np.inf
        for j in range(num_servers):
            if (fixed[k] >= 0 and j != fixed[k]) or execution[k, j] == np.inf:
                continue
            ready = free_at[j]
            for e in range(len(edges)):
                if edges[e, 1] == k:
                    before = edges[e, 0]
                    ready = max(ready, finish[before] + (0.0 if server[before] == j else delay[e]))
            if ready + execution[k, j] >= best_finish:
                continue  # not even without a wait
            at = _first_gap(start[j], end[j], count[j], ready, execution[k, j])
            if at + execution[k, j] < best_finish:
                best, best_start, best_finish = j, at, at + execution[k, j]
        server[k], begin[k], finish[k] = best, best_start, best_finish
        _insert(best, best_start, best_finish, first_row + k, count, start, end, row)
    return server, begin, finish


@compiled
def _first_gap(start, end, count, ready, duration):  # type: ignore[no-untyped-def]
    """Earliest time from `ready` on at which a server is free for `duration`: between two intervals or after all."""
    at = ready
    for i in range(count):
        if at + duration <= start[i]:
            break
        at = max(at, end[i])
    return at


@compiled
def _insert(j, begin, finish, number, count, start, end, row):  # type: ignore[no-untyped-def]
    """Add an interval to the timeline of server j, in order of start."""
    i = count[j]
    while i > 0 and start[j, i - 1] > begin:
        start[j, i], end[j, i], row[j, i] = start[j, i - 1], end[j, i - 1], row[j, i - 1]
        i -= 1
    start[j, i], end[j, i], row[j, i] = begin, finish, number
    count[j] += 1
