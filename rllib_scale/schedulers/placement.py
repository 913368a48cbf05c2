"""Where planners put the tasks of a workflow: onto timelines of servers, into gaps of what is planned already."""

from __future__ import annotations

from functools import partial

import numpy as np

from rllib_scale.compiled import compiled


@partial(compiled, allocates=True)
def place_all(  # type: ignore[no-untyped-def]
    execution, edges, delay, order, fixed, free_at, count, start, end, row, first_row
):
    """Place tasks in `order` where each finishes first, or on server `fixed` [k] if it is not negative.

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
            ready = _ready_at(k, j, edges, delay, server, finish, free_at)
            if ready + execution[k, j] >= least:
                continue  # not even without a wait
            at = _first_gap(start[j], end[j], count[j], ready, execution[k, j])
            if at + execution[k, j] < least:
                best, best_start, least = j, at, at + execution[k, j]
        server[k], begin[k], finish[k] = best, best_start, best_start + execution[k, best]
        _insert(best, best_start, finish[k], first_row + k, count, start, end, row)
    return server, begin, finish


@compiled
def _ready_at(k, j, edges, delay, server, finish, free_at):  # type: ignore[no-untyped-def]
    """When task k could start on server j but for other plans: its input, of tasks that are placed, is there."""
    ready = free_at[j]
    for e in range(len(edges)):
        if edges[e, 1] == k and server[edges[e, 0]] >= 0:
            before = edges[e, 0]
            ready = max(ready, finish[before] + (0.0 if server[before] == j else delay[e]))
    return ready


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
