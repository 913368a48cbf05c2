"""The choice of a server in rounds with reservations: each task that is visited starts on one, or waits for one.

A reservation is a rule's own: it puts off the server's virtual availability by the time that the task would take there
(`starting.give`), and is forgotten with the round. So a round decides which tasks start, in any problem, whatever its
`on_busy` is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import internal
from rllib_scale.observation.starting import Servers
from rllib_scale.observation.view import View
from rllib_scale.workloads.fitting import fits

FASTEST_OPEN, EARLIEST_FINISH, LEAST_COST = range(3)
"""Choice of a server: the fastest of the open ones; the earliest finish, or the one on the best open server where
that is not `waiting` times as late; the least of weight (waiting w + p) + price p, and the penalty where it has to be
waited for, of w seconds until a place is free and p of transfer and execution."""


OPTION = np.dtype(
    [
        ("server", "i8"),
        ("wait_s", "f8"),  # until a place is free
        ("lasts_s", "f8"),  # transfer and execution
        ("price", "f8"),  # of a second there
        ("penalty", "f8"),  # 0 where the task can start now
        ("cost", "f8"),
        ("weight", "f8"),  # of a second of the task: n^alpha
    ]
)
"""One server for a task, and what it costs."""


class Way(NamedTuple):
    """Parameters of the choice of a server for one task."""

    rule: int
    waiting: float
    weight: float
    penalty: float


def servers_in(view: View, b: int) -> Servers:
    """The servers of environment b, which share the arrays of the view."""
    limit, wait, is_open = view.limit[b], view.wait[b], view.is_open[b]
    places, free, next_end = view.free_places[b], view.free[b], view.next_end[b]
    return Servers(view.capacity, view.properties, limit, wait, places, is_open, free, next_end)


compiled_servers_in = internal(servers_in)


@internal
def cost_of(way, price, ahead, lasts, capacity, can_start):  # type: ignore[no-untyped-def]
    """Cost of a task on a server; see the rules above. `ahead` s until a place is free, `lasts` s on it."""
    if way.rule == FASTEST_OPEN:
        return -capacity if can_start else np.inf
    if way.rule == EARLIEST_FINISH:
        return ahead + lasts
    # n^alpha (kappa w + p) + price p, analysis/studies/any-cluster/README.md.
    cost = way.weight * (way.waiting * ahead + lasts) + price * lasts
    return cost if can_start else cost + way.penalty


@internal
def fits_on(j, task, servers):  # type: ignore[no-untyped-def]
    """Whether a task can start on server j, now or later."""
    server = servers.properties[j]
    return fits(task.memory_gb, task.places, task.labels, servers.limit[j], server.max_concurrent, server.labels)


@internal
def can_start_on(j, task, servers):  # type: ignore[no-untyped-def]
    """Whether a task can start on server j now."""
    free, offered = servers.free_places[j], servers.properties[j].labels
    return servers.is_open[j] and fits(task.memory_gb, task.places, task.labels, servers.free[j], free, offered)


@internal
def terms_on(j, task, total, stays, servers):  # type: ignore[no-untyped-def]
    """Whether a task can start on server j, s until a place is free there, and s that it lasts there.

    Where only memory or places lack, the next end of a task there is awaited.
    """
    can_start = can_start_on(j, task, servers)
    ahead = servers.wait[j]
    if servers.is_open[j] and not can_start and servers.next_end[j] < np.inf:
        ahead = servers.next_end[j]
    return can_start, ahead, max(0.0, total - stays[j]) + task.compute_gflop / servers.capacity[j]


@internal
def choose(way, task, total, stays, servers, prices):  # type: ignore[no-untyped-def]
    """Server that a task starts on or waits for; -1: it fits none.

    `total` s for all input of the task, `stays` (N,) s of it that is on each server, `prices` (N,) of a second there.
    """
    best, least, best_open, least_open = -1, np.inf, -1, np.inf
    for j in range(len(servers.capacity)):
        if not fits_on(j, task, servers):
            continue
        can_start, ahead, lasts = terms_on(j, task, total, stays, servers)
        # The best open server, where `waiting` forbids to wait for a slightly earlier finish.
        if can_start and lasts < least_open:
            best_open, least_open = j, lasts
        cost = cost_of(way, prices[j], ahead, lasts, servers.capacity[j], can_start)
        if cost < least:
            best, least = j, cost
    if way.rule == EARLIEST_FINISH and best_open >= 0 and way.waiting * least >= least_open:
        best = best_open
    return best


@internal
def write_options(options, best, way, task, total, stays, servers, prices):  # type: ignore[no-untyped-def]
    """Write what the chosen server costs a task, and the best other one, to `options` (2,); -1: it fits no other."""
    options[1].server, options[1].cost = -1, np.inf
    for j in range(len(servers.capacity)):
        if not fits_on(j, task, servers):
            continue
        can_start, ahead, lasts = terms_on(j, task, total, stays, servers)
        cost = cost_of(way, prices[j], ahead, lasts, servers.capacity[j], can_start)
        if j != best and cost >= options[1].cost:
            continue
        option = options[0 if j == best else 1]
        option.server, option.wait_s, option.lasts_s, option.price, option.cost = j, ahead, lasts, prices[j], cost
        option.weight, option.penalty = way.weight, 0.0 if can_start else way.penalty
