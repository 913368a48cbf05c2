"""A round of a router in front of replicas: all waiting requests are answered in one call from Python.

A router knows less than an episode: where it has sent each request, the prompts, and the sessions. From these it writes
the rows of a fleet that the rules read, and then asks the rule about one request after another.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled, internal
from rllib_scale.simulator.replicas.handles import fleet_of
from rllib_scale.simulator.replicas.rules import choose, set_gate
from rllib_scale.simulator.replicas.state import NONE

KNOWN = np.dtype(
    [
        ("home", np.int64),  # number of the replica of its last call
        ("at", np.int64),  # the same as a row of the fleet; NONE if the replica is away
        ("tokens", np.int64),  # of its context
        ("running", np.int64),  # calls
        ("open", np.int64),  # calls, those that wait included
        ("kept", np.int64),  # whether its context is still on its replica
        ("heard", np.int64),  # when it was heard of last: a position in the list of these
        ("until_s", np.float64),  # it is active, if none of its calls runs
    ],
    align=True,
)
"""Of a session that a router has heard of."""
ASKED = np.dtype(
    [("session", np.int64), ("replica", np.int64), ("prompt", np.int64), ("asked_s", np.float64)], align=True
)
"""A request: row of its session, number of the replica where it runs (NONE: it waits), tokens."""


@compiled
def answer_round(known, heard, asked, order, row_of, numbers, places, others, rule, rng, found, table):  # type: ignore[no-untyped-def]
    """Answer the requests that wait, the first that came first; returns how many start, and how many are answered.

    Args:
        known: sessions, KNOWN. A session that starts here has its replica as `at` and `home` afterwards.
        heard: rows of `known`, the session heard of last is the last; of a row that stands there twice the last counts.
        asked: requests, ASKED.
        order: rows of `asked`, in the order in which they came.
        row_of: row of the fleet of each number of a replica, or NONE.
        numbers: number of the replica of each row of the fleet.
        places: calls that each may run.
        others: calls that each is known to have; afterwards, those of them that are not in `asked`.
        rule: see `rules.VALUES`.
        rng: of the rule.
        found: (requests, 2), where the position in `order` and the row of the fleet of each that starts are written.
        table: of a fleet with a row of `calls`, `sessions`, `agents` and `kept` to describe a request to the rules.
    """
    fleet = fleet_of(table)
    now, replicas = fleet.now[0], fleet.replicas
    set_gate(now, rule)
    now.held = _write_running(fleet, asked, order, row_of, others)
    _write_sessions(fleet, known, heard, row_of)
    started, answered, with_place = 0, 0, 0
    for at in range(len(replicas)):
        with_place += replicas[at].calls < places[at]
    for position in range(len(order)):
        request = asked[order[position]]
        if with_place == 0:
            break
        if request.replica != NONE:
            continue
        session = known[request.session]
        at = _offer(fleet, session, request, rule, rng)
        answered += 1
        if at == NONE or replicas[at].calls >= places[at]:
            continue
        if session.at != NONE and _is_active(session, now.time):
            replicas[session.at].active -= session.tokens
            now.active_tokens -= session.tokens
        request.replica = session.home = numbers[at]
        session.at, session.tokens, session.running = at, request.prompt, session.running + 1
        replicas[at].calls += 1
        with_place -= replicas[at].calls == places[at]
        replicas[at].pinned += request.prompt
        replicas[at].active += request.prompt
        now.active_tokens += request.prompt
        now.held -= 1
        found[started, 0], found[started, 1] = position, at
        started += 1
    return started, answered


@internal
def _is_active(session, time):  # type: ignore[no-untyped-def]
    return session.running > 0 or session.until_s > time


@internal
def _write_running(fleet, asked, order, row_of, others):  # type: ignore[no-untyped-def]
    """Write what the calls that run take; returns how many wait."""
    replicas, waiting = fleet.replicas, 0
    for at in range(len(replicas)):
        replicas[at].calls = replicas[at].pinned = 0
    for row in order:
        request = asked[row]
        if request.replica == NONE:
            waiting += 1
        elif row_of[request.replica] != NONE:
            here = replicas[row_of[request.replica]]
            here.calls += 1
            here.pinned += request.prompt
    for at in range(len(replicas)):
        others[at] = max(0, others[at] - replicas[at].calls)
        replicas[at].calls += others[at]
    return waiting


@internal
def _write_sessions(fleet, known, heard, row_of):  # type: ignore[no-untyped-def]
    """Write where sessions are, which of them are active, and whose context later ones have not pushed out."""
    now, replicas = fleet.now[0], fleet.replicas
    now.active_tokens = 0.0
    for at in range(len(replicas)):
        replicas[at].active = replicas[at].used = 0
    for position in range(len(heard) - 1, -1, -1):
        session = known[heard[position]]
        if session.heard != position:
            continue
        session.at = row_of[session.home] if session.home != NONE else NONE
        session.kept = 0
        if session.at == NONE:
            continue
        here = replicas[session.at]
        here.used += session.tokens
        session.kept = here.used <= here.kv_tokens
        if _is_active(session, now.time):
            here.active += session.tokens
            now.active_tokens += session.tokens


@internal
def _offer(fleet, session, request, rule, rng):  # type: ignore[no-untyped-def]
    """The replica that a rule names for a request, or NONE; as in an episode, none is held beside an idle replica."""
    call, agent, kept = fleet.calls[0], fleet.agents[0, 0], fleet.kept[0]
    call.prompt = call.target = call.reusable = request.prompt
    call.prefix, call.asked_s = NONE, request.asked_s
    fleet.sessions[0].number = request.session
    agent.home, agent.active = session.at, 0 if _is_active(session, fleet.now[0].time) else NONE
    fleet.active[0].replica = session.at
    agent.kept = 0 if session.at != NONE and session.kept else NONE
    kept.replica, kept.tokens, kept.next = session.at, session.tokens, NONE
    at = choose(fleet, 0, rule, rng)
    if at == NONE:
        for replica in range(len(fleet.replicas)):
            if fleet.replicas[replica].calls == 0 and request.prompt <= fleet.replicas[replica].kv_tokens:
                return replica
    return at
