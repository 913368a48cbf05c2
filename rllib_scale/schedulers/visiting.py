"""The choice of a row in rounds with reservations: each task that is visited starts on a row, or waits for one.

A reservation is a rule's own: it moves the row's virtual availability by the time that the task would take there, and
is forgotten with the round. So a round decides which tasks start, in any problem, whatever its `on_busy` is.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import internal

FASTEST_OPEN, EARLIEST_FINISH, LEAST_COST = range(3)
"""How a row is chosen: the fastest of the open ones; the earliest finish, or the one on the best open row where that is
not `waiting` times as late; the least of weight (waiting w + p) + price p, and the penalty where it has to be waited
for, of w seconds until the row is available and p of transfer and execution."""


@internal
def cost_of(rule, waiting, weight, price, penalty, ahead, lasts, capacity, can_start):  # type: ignore[no-untyped-def]
    """By what rows are compared: see the rules above. `ahead` s until the row is available, `lasts` s on it."""
    if rule == FASTEST_OPEN:
        return -capacity if can_start else np.inf
    if rule == EARLIEST_FINISH:
        return ahead + lasts
    cost = weight * (waiting * ahead + lasts) + price * lasts
    return cost if can_start else cost + penalty


@internal
def choose(  # type: ignore[no-untyped-def]
    rule, waiting, weight, price, penalty, compute, memory, transfer, capacity, limit, host, wait, is_open, free,
    next_end,
):  # fmt: skip
    """Row that a task starts on or waits for; -1: it fits none. `transfer` (N,) s to move its input there."""
    best, least, best_open, least_open = -1, np.inf, -1, np.inf
    for j in range(len(capacity)):
        if memory > limit[j]:
            continue
        can_start = is_open[j] and memory <= free[host[j]]
        lasts = transfer[j] + compute / capacity[j]
        ahead = wait[j]
        if is_open[j] and not can_start and next_end[host[j]] < np.inf:
            ahead = next_end[host[j]]
        if can_start and lasts < least_open:
            best_open, least_open = j, lasts
        cost = cost_of(rule, waiting, weight, price[j], penalty, ahead, lasts, capacity[j], can_start)
        if cost < least:
            best, least = j, cost
    if rule == EARLIEST_FINISH and best_open >= 0 and waiting * least >= least_open:
        best = best_open
    return best
