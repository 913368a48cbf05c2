"""Where planners put the tasks of a workflow: onto timelines of servers, into gaps of what is planned already."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import compiled


class Lines(NamedTuple):
    """The intervals in which each of P servers is planned to work, by start; they never overlap on a server."""

    free_at: np.ndarray  # (P,) s: nothing is planned earlier
    used: np.ndarray  # (P,) number of columns of the other arrays in use for each server
    start: np.ndarray  # (P, K) s
    end: np.ndarray  # (P, K) s
    number: np.ndarray  # (P, K) of the planned task


@partial(compiled, allocates=True)
def place_all(  # type: ignore[no-untyped-def]
    execution, edges, delay, moved_on_server, release, order, fixed, lines, first_number
):
    """Place tasks in `order` where each finishes first, or on server `fixed` [k] if it is not negative.

    Args:
        execution: (T, P) s; inf where a task does not fit. A task of 0 s needs no server and gets -1.
        edges: (E, 2) predecessor, successor.
        delay: (E,) s, between two servers.
        moved_on_server: whether a server is taken while it receives the input, one predecessor after the other.
        release: (T,) s from the end of its predecessors until a task is ready; without any it is ready at that time.
        order: (T,) predecessors before successors.
        fixed: (T,) see above.
        lines: the plan is added to it.
        first_number: number of task 0 in `lines`.

    Returns:
        Server, start and finish, each (T,). The start is that of the transfer where it takes the server.
    """
    num_tasks, num_servers = execution.shape
    server = np.full(num_tasks, -1)
    begin, finish = np.empty(num_tasks), np.empty(num_tasks)
    for k in order:
        best, best_start, least = -1, np.inf, np.inf
        if execution[k].max() == 0.0:
            begin[k] = _input_of(k, -1, edges, delay, moved_on_server, server, finish)[0] + release[k]
            finish[k] = begin[k]
            continue
        for j in range(num_servers):
            if (fixed[k] >= 0 and j != fixed[k]) or execution[k, j] == np.inf:
                continue
            # Earliest start by data; the gap search is left out where even without a wait another server is earlier.
            given, moves = _input_of(k, j, edges, delay, moved_on_server, server, finish)
            ready, taken = max(lines.free_at[j], given + release[k]), moves + execution[k, j]
            if ready + taken >= least:
                continue  # not even without a wait
            at = _first_gap(lines, j, ready, taken)
            if at + taken < least:
                best, best_start, least = j, at, at + taken
        server[k], begin[k], finish[k] = best, best_start, least
        _insert(lines, best, best_start, finish[k], first_number + k)
    return server, begin, finish


@compiled
def _input_of(k, j, edges, delay, moved_on_server, server, finish):  # type: ignore[no-untyped-def]
    """Input of task k on server j: when it is there [s], 0 if it needs none; time for which moving it takes j [s]."""
    ready, taken = 0.0, 0.0
    for e in range(len(edges)):
        if edges[e, 1] == k:
            before = edges[e, 0]
            moved = 0.0 if server[before] == j else delay[e]
            if moved_on_server:
                taken, moved = taken + moved, 0.0
            ready = max(ready, finish[before] + moved)
    return ready, taken


@compiled
def _first_gap(lines, j, ready, duration):  # type: ignore[no-untyped-def]
    """Earliest time from `ready` on at which server j is free for `duration`: between two intervals or after all."""
    at = ready
    for i in range(lines.used[j]):
        if at + duration <= lines.start[j, i]:
            break
        at = max(at, lines.end[j, i])
    return at


@compiled
def _insert(lines, j, begin, finish, number):  # type: ignore[no-untyped-def]
    """Add an interval to the timeline of server j, in order of start."""
    start, end, numbers = lines.start[j], lines.end[j], lines.number[j]
    i = lines.used[j]
    # Insertion keeps each timeline sorted: plans are added near its end.
    while i > 0 and start[i - 1] > begin:
        start[i], end[i], numbers[i] = start[i - 1], end[i - 1], numbers[i - 1]
        i -= 1
    start[i], end[i], numbers[i] = begin, finish, number
    lines.used[j] += 1
