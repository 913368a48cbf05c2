"""HEFT and CPOP: plan one workflow on heterogeneous servers, on top of what is planned already.

Source: H. Topcuoglu, S. Hariri, M.-Y. Wu, Performance-effective and low-complexity task scheduling for heterogeneous
computing, IEEE TPDS 13(3), 2002, sec. 4. Where a server is too small for a task, its execution time is inf there: the
task is never placed on it, and its mean execution time is over the others. Ties go to the lowest index. A task without
work, as the pseudo entry of the paper, needs no server and moves no data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rllib_scale.schedulers.placement import Lines, place_all
from rllib_scale.schedulers.ranks import by_priority, critical_path, downward_rank, upward_rank

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FIRST_ROOM = 8


class Timelines:
    """Planned intervals on each of P servers; `lines` has room for more."""

    def __init__(self, num_servers: int) -> None:
        table = (num_servers, FIRST_ROOM)
        used, numbers = np.zeros(num_servers, dtype=np.int64), np.zeros(table, dtype=np.int64)
        self.lines = Lines(np.zeros(num_servers), used, np.zeros(table), np.zeros(table), numbers)

    def drop_next(self, servers: Ints) -> None:
        """Take the next task off the plans of these servers."""
        for array in self.lines[2:]:
            array[servers, :-1] = array[servers, 1:]
        self.lines.used[servers] -= 1

    def make_room(self, tasks: int) -> None:
        """Make room for more intervals on every server."""
        if self.lines.used.max(initial=0) + tasks > self.lines.start.shape[1]:
            self.lines = Lines(*self.lines[:2], *(np.pad(array, ((0, 0), (0, tasks))) for array in self.lines[2:]))


@dataclass(frozen=True)
class Plan:
    """Where and when each of T tasks runs."""

    server: Ints  # (T,) -1 of a task without work
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
    first_number: int = 0,
    release_s: Floats | None = None,
    moved_on_server: bool = False,
) -> Plan:
    """Heterogeneous Earliest Finish Time: by upward rank, each task to where it finishes first, gaps included.

    Args:
        execution_s: (T, P) execution time of each task on each server [s], above 0; inf where it does not fit. A task
            without work has 0 on all servers.
        edges: (E, 2) predecessor, successor; acyclic.
        delay_s: (E,) communication delay of each edge between two servers [s]; 0 by default, and always on one server
            and of a task without work.
        mean_delay_s: (E,) what the ranks take for it; by default `delay_s`, the mean over pairs of distinct servers.
        timelines: what is planned already; the plan is added to it. By default all servers are free from 0 on.
        first_number: number of task 0 in the timelines.
        release_s: (T,) time from the end of its predecessors until a task is ready [s], 0 by default; of a task without
            any, when it is ready.
        moved_on_server: whether the server of the successor is taken while data are moved to it, one predecessor after
            the other, as with `communication.mode: transfer`. By default they are moved meanwhile, as in the paper.

    Returns:
        The plan. One task of two seconds, which the second server halves:

        >>> heft(np.array([[2.0, 1.0]]), np.zeros((0, 2), dtype=np.int64)).makespan_s
        1.0
    """
    delay, mean_delay, release, lines = _defaults(execution_s, edges, delay_s, mean_delay_s, release_s, timelines)
    upward = upward_rank(_mean_execution(execution_s), edges, mean_delay)
    # By rank among the ready ones: a task without work has the rank of its successor, which may have a lower index.
    order, never = by_priority(upward, edges), np.full(len(execution_s), -1)
    return Plan(*place_all(execution_s, edges, delay, moved_on_server, release, order, never, lines, first_number))


def cpop(
    execution_s: Floats,
    edges: Ints,
    delay_s: Floats | None = None,
    mean_delay_s: Floats | None = None,
    timelines: Timelines | None = None,
    first_number: int = 0,
    release_s: Floats | None = None,
    moved_on_server: bool = False,
) -> Plan:
    """Critical Path on a Processor: the tasks of a longest path to one server, the others as by HEFT.

    The path leads from the entry task of highest priority, upward plus downward rank, along the upward rank. Its server
    is the one that would end first if it ran the path, and nothing else, after what is planned on it: with nothing
    planned, as in the paper, the one of the least total execution time. A ready task of the highest priority is placed
    next. If no server is large enough for the whole path, it is placed as the others are.

    Args and returns: as of `heft`.
    """
    delay, mean_delay, release, lines = _defaults(execution_s, edges, delay_s, mean_delay_s, release_s, timelines)
    mean = _mean_execution(execution_s)
    upward = upward_rank(mean, edges, mean_delay)
    priority = upward + downward_rank(mean, edges, mean_delay)
    path = critical_path(upward, priority, edges, mean_delay)
    # End of what is planned on each server; the path is appended, gaps are left to the others.
    last = np.where(lines.used > 0, lines.end[np.arange(len(lines.used)), lines.used - 1], lines.free_at)
    ends = last + execution_s[path].sum(axis=0)
    fixed = np.full(len(execution_s), -1)
    if np.isfinite(ends).any():
        fixed[path] = np.argmin(ends)
    # A task without work is taken as soon as it is ready: in the queue it would hold its successors back.
    order = by_priority(np.where(_has_work(execution_s), priority, np.inf), edges)
    return Plan(*place_all(execution_s, edges, delay, moved_on_server, release, order, fixed, lines, first_number))


def _defaults(
    execution_s: Floats,
    edges: Ints,
    delay_s: Floats | None,
    mean_delay_s: Floats | None,
    release_s: Floats | None,
    timelines: Timelines | None,
) -> tuple[Floats, Floats, Floats, Lines]:
    """Delays of the edges, and for the ranks; release delays of the tasks; room in the timelines."""
    moves = _has_work(execution_s)[edges].all(axis=1)
    delay = np.zeros(len(edges)) if delay_s is None else np.where(moves, delay_s, 0.0)
    mean_delay = delay if mean_delay_s is None else np.where(moves, mean_delay_s, 0.0)
    release = np.zeros(len(execution_s)) if release_s is None else release_s
    timelines = timelines or Timelines(execution_s.shape[1])
    timelines.make_room(len(execution_s))
    # A way through the workflow is as long as what is waited for on it.
    return delay, mean_delay + release[edges[:, 1]], release, timelines.lines


def _has_work(execution_s: Floats) -> NDArray[np.bool_]:
    """(T,) whether a task takes time on a server."""
    return np.asarray((execution_s > 0).any(axis=1))


def _mean_execution(execution_s: Floats) -> Floats:
    """(T,) mean over the servers that fit."""
    fits = np.isfinite(execution_s)
    return np.where(fits, execution_s, 0.0).sum(axis=1) / fits.sum(axis=1)
