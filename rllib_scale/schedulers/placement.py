"""Where planners put the tasks of a workflow: onto timelines of servers, into gaps of what is planned already."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import compiled


class Lines(NamedTuple):
    """The intervals in which each of P servers is planned to work, by start; they never overlap on a server."""

    free_at: np.ndarray  # (P,) s: nothing is planned earlier
    used: np.ndarray  # (P,) of each server the first so many columns of the others are in use
    start: np.ndarray  # (P, K) s
    end: np.ndarray  # (P, K) s
    number: np.ndarray  # (P, K) of the planned task


@partial(compiled, allocates=True)
def place_all(execution, edges, delay, release, order, fixed, lines, first_number):  # type: ignore[no-untyped-def]
    """Place tasks in `order` where each finishes first, or on server `fixed` [k] if it is not negative.

    `release` [k] s pass from the end of its predecessors until task k is ready; without any it is ready at that time.
    Returns (server, start, finish), each (T,).
    """
    num_tasks, num_servers = execution.shape
    server = np.full(num_tasks, -1)
    begin, finish = np.empty(num_tasks), np.empty(num_tasks)
    for k in order:
        best, best_start, least = -1, np.inf, np.inf
        for j in range(num_servers):
            if (fixed[k] >= 0 and j != fixed[k]) or execution[k, j] == np.inf:
                continue
            # Earliest start by data; the gap search is left out where even without a wait another server is earlier.
            ready = max(lines.free_at[j], _input_at(k, j, edges, delay, server, finish) + release[k])
            if ready + execution[k, j] >= least:
                continue  # not even without a wait
            at = _first_gap(lines, j, ready, execution[k, j])
            if at + execution[k, j] < least:
                best, best_start, least = j, at, at + execution[k, j]
        server[k], begin[k], finish[k] = best, best_start, best_start + execution[k, best]
        _insert(lines, best, best_start, finish[k], first_number + k)
    return server, begin, finish


@compiled
def _input_at(k, j, edges, delay, server, finish):  # type: ignore[no-untyped-def]
    """When the input of task k, of tasks that are placed, is on server j; 0: it needs none."""
    ready = 0.0
    for e in range(len(edges)):
        if edges[e, 1] == k and server[edges[e, 0]] >= 0:
            before = edges[e, 0]
            ready = max(ready, finish[before] + (0.0 if server[before] == j else delay[e]))
    return ready


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
