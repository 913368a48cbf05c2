"""Servers that join, drain and fail [SCALE, sec. 3]: what a config says about it, and what happens to a cluster.

The changes of an episode are decided before anything is decided in it: by the schedule, and for each server that
changes at random by a stream of (seed, episode) of its own.
"""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.compiled import compiled, internal, rare
from rllib_scale.config import ClusterConfig
from rllib_scale.simulator.attempts import fail_attempt, leave_if_done, set_room, show
from rllib_scale.simulator.state import AWAY, CHANGE, DRAINING, UP
from rllib_scale.workloads.random_numbers import exponential, seed_stream

EVENTS = ("join", "drain", "fail")
JOIN, DRAIN, FAIL = range(3)
TO_FAIL, TO_DEPART, TO_LEAVE, TO_JOIN = range(4)
"""Next phase of a server that changes at random."""
FIRST_STREAM = 2


def scheduled(config: ClusterConfig) -> np.ndarray:
    """The scheduled changes, dtype CHANGE, in the order in which they happen."""
    first = np.cumsum([0, *(tier.count for tier in config.tiers)])
    rows: list[tuple[float, int, int]] = []
    for change in config.changes.schedule:
        servers = list(change.servers)
        for k, tier in enumerate(config.tiers):
            if change.share is not None and (not change.tiers or tier.name in change.tiers):
                # A share of a tier is taken from its end, at least one server, halves rounded up.
                count = max(1, math.floor(change.share * tier.count + 0.5))
                servers += range(int(first[k + 1]) - count, int(first[k + 1]))
        # Sorted by time alone, and Python's sort is stable: changes of one time happen in the order of the config.
        rows += [(change.time_s, EVENTS.index(change.event), server) for server in servers]
    return np.array(sorted(rows, key=lambda row: row[0]), dtype=CHANGE)


def starts_away(config: ClusterConfig) -> np.ndarray:
    """(N,) bool: the server's first scheduled change is that it joins."""
    away = np.zeros(config.num_servers, dtype=bool)
    for change in scheduled(config)[::-1]:
        away[change["server"]] = change["event"] == JOIN
    return away


def at_random(config: ClusterConfig) -> np.ndarray:
    """(N,) bool: the server fails or departs at random times."""
    changes = config.changes
    tiers = [tier for tier in config.tiers for _ in range(tier.count)]
    chosen = np.array([changes.at_random and (not changes.tiers or tier.name in changes.tiers) for tier in tiers])
    chosen[scheduled(config)["server"]] = False
    return chosen


def rates(config: ClusterConfig) -> tuple[float, float, float, float, float]:
    """Rates of failure and departure of one server [1/s]; mean repair, notice, mean time until its return [s]."""
    c = config.changes
    return (
        c.failures_per_1000_h / 3.6e6,
        c.departures_per_h / 3600,
        math.inf if c.repair_s is None else c.repair_s,
        c.notice_s,
        math.inf if c.return_s is None else c.return_s,
    )


# ---------------------------------------------------------------------- the timeline of a server


@compiled
def _next_loss(rng, time, failure_rate, departure_rate):  # type: ignore[no-untyped-def]
    """When a server that is there from `time` on is lost next, and how."""
    # Two Poisson processes race; the loser's draw is discarded, as it has no memory.
    failure = time + exponential(rng, 1.0 / failure_rate if failure_rate > 0.0 else np.inf)
    departure = time + exponential(rng, 1.0 / departure_rate if departure_rate > 0.0 else np.inf)
    if failure <= departure:
        return failure, TO_FAIL
    return departure, TO_DEPART


@compiled
def _event_of(phase):  # type: ignore[no-untyped-def]
    if phase == TO_JOIN:
        return JOIN
    return DRAIN if phase == TO_DEPART else FAIL


@compiled
def _following(rng, time, phase, failure_rate, departure_rate, repair, notice, return_after):  # type: ignore[no-untyped-def]
    """The phase after this one, and when it begins."""
    if phase == TO_DEPART:
        return time + notice, TO_LEAVE
    if phase == TO_JOIN:
        return _next_loss(rng, time, failure_rate, departure_rate)
    return time + exponential(rng, repair if phase == TO_FAIL else return_after), TO_JOIN


# ---------------------------------------------------------------------- in one environment


@internal
def begin_changes(b, seed, episode, state, problem):  # type: ignore[no-untyped-def]
    """Put every server where it is at the beginning."""
    env, p = state.env[b], problem.parameters[0]
    env.change_at = 0
    env.num_open = 0
    for j in range(len(problem.at_random)):
        presence, server = state.presence[b, j], problem.servers[j]
        presence.away = presence.left = 0.0
        presence.next = np.inf
        presence.status = AWAY if problem.starts_away[j] else UP
        state.limit[b, j] = server.memory if presence.status == UP else -1.0
        state.extra[b, j], state.room[b, j] = 0.0, -1.0
        show(b, j, state, problem)
        if problem.at_random[j]:
            seed_stream(presence.rng, seed, episode, FIRST_STREAM + j)
            presence.next, presence.phase = _next_loss(presence.rng, 0.0, p.failure_rate, p.departure_rate)
    _find_next_change(env, state.presence[b], problem)


@internal
def _find_next_change(env, presence, problem):  # type: ignore[no-untyped-def]
    env.next_change = np.inf
    if env.change_at < len(problem.changes):
        env.next_change = problem.changes[env.change_at].time
    if problem.parameters[0].failure_rate > 0.0 or problem.parameters[0].departure_rate > 0.0:
        for j in range(len(problem.at_random)):
            env.next_change = min(env.next_change, presence[j].next)


@rare
def change(b, state, problem):  # type: ignore[no-untyped-def]
    """The next change of the cluster happens."""
    env, p = state.env[b], problem.parameters[0]
    if env.change_at < len(problem.changes) and problem.changes[env.change_at].time <= env.next_change:
        due = problem.changes[env.change_at]
        env.change_at += 1
        apply(b, due.server, due.event, state, problem)
    else:
        for j in range(len(problem.at_random)):
            # The earliest of the random changes. Servers have streams of their own: what one draws moves no other.
            at = state.presence[b, j]
            if at.next <= env.next_change:
                event = _event_of(at.phase)
                at.next, at.phase = _following(
                    at.rng, at.next, at.phase, p.failure_rate, p.departure_rate, p.repair, p.notice, p.return_after
                )
                apply(b, j, event, state, problem)
                break
    _find_next_change(env, state.presence[b], problem)


@internal
def apply(b, j, event, state, problem):  # type: ignore[no-untyped-def]
    """A server joins, drains or fails."""
    env, presence, server = state.env[b], state.presence[b, j], problem.servers[j]
    if event == JOIN:
        if presence.status == AWAY:
            presence.away += env.clock - presence.left
        presence.status = UP
        state.limit[b, j] = server.memory
        set_room(b, j, state)
        return
    # A change that has happened already changes nothing: schedules may name a server twice.
    if presence.status == AWAY or (event == DRAIN and presence.status == DRAINING):
        return
    # To fail, a server drains first: its places are then emptied one by one as attempts end.
    presence.status = DRAINING
    state.limit[b, j] = -1.0
    set_room(b, j, state)
    if event == FAIL:
        for place in range(server.first_place, server.first_place + server.max_concurrent):
            if state.finish[b, place] < np.inf:
                fail_attempt(b, place, state, problem)
    leave_if_done(b, j, state, problem)
