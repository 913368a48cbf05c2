"""A round of a router in front of replicas: all waiting requests are answered in one call from Python.

A router knows less than an episode: where it has sent each request, the prompts, the prefixes that they share, and the
sessions. Caches are what it remembers of these, as in an episode under `observation.caches: own`: in the fleet that the
rules read, whose other rows it rewrites before it asks the rule about one request after another.

A session is away, running at a replica (a call sent and unanswered) or idle there (since its last answer, for a time).
Running and idle ones count, in unique tokens. While these exceed what a gate allows, the session that has been idle
longest becomes away; running ones never do.

By an index of `release`, held requests are calls of the fleet from the second row on, in its line [line, release].
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled, internal
from rllib_scale.simulator.replicas.handles import fleet_of
from rllib_scale.simulator.replicas.known import EXACT, meet, remember
from rllib_scale.simulator.replicas.line import join, leave, set_key, step_back
from rllib_scale.simulator.replicas.release import pick
from rllib_scale.simulator.replicas.rules import GATE_WEIGHTS, INDEX_WEIGHTS, choose, set_gate
from rllib_scale.simulator.replicas.state import NONE

KNOWN = np.dtype(
    [
        ("number", np.int64),  # by which it is told from others that had the same row
        ("home", np.int64),  # number of the replica to which its last call was sent
        ("counts_at", np.int64),  # of that of the last one sent or answered
        ("at", np.int64),  # the same as a row of the fleet; NONE if the replica is away
        ("tokens", np.int64),  # of its context
        ("running", np.int64),  # calls
        ("open", np.int64),  # calls, those that wait included
        ("told", np.int64),  # whether its last call was sent elsewhere, and is still to be remembered
        ("heard", np.int64),  # when it was heard of last: a position in the list of these
        ("until_s", np.float64),  # it is idle, if none of its calls runs: it counts; then it is away
        ("answered_s", np.float64),  # its last answer; before the first one, when it was first heard of
        ("prefix", np.int64),  # with which its context begins; NONE: with none that is shared
        ("shared", np.int64),  # tokens of the prefix
    ],
    align=True,
)
"""Of a session that a router has heard of."""
ASKED = np.dtype(
    [
        *((name, np.int64) for name in ("session", "replica", "prompt", "prefix", "shared", "held")),
        *((name, np.float64) for name in ("asked_s", "key")),
    ],
    align=True,
)
"""A request: row of its session, number of the replica where it runs (NONE: it waits), tokens, prefix as in KNOWN,
whether it has been offered and held, and its key as of a held call (see `line`)."""


@compiled
def answer_round(  # type: ignore[no-untyped-def]
    known, heard, asked, order, row_of, numbers, places, others, former, since, rule, rng, line, found, table
):
    """Answer requests that wait; returns how many start, and how many are answered.

    As in an episode, at each event `offers` held requests are offered, the first in line; then new ones, the first that
    came first. A send that makes room is an event, too [gate]. Where a replica has nothing to do, it takes the first in
    line that fits. An index of `release` is asked after an event, after a new request, and after each that it lets go.

    Args:
        known: sessions, KNOWN, by their rows in the fleet.
        heard: rows of `known`, the session heard of last is the last; of a row that is there twice the last counts.
        asked: requests, ASKED.
        order: rows of `asked`, in the order in which they came.
        row_of: row of the fleet of each number of a replica, or NONE.
        numbers: number of the replica of each row of the fleet.
        places: calls that each may run.
        others: calls that each is known to have; afterwards, those of them that are not in `asked`.
        former: the same, after the last round.
        since: time of the last round, and events since then: calls that ended, and changes of replicas.
        rule: see `rules.VALUES`; and weights of `release`, or none.
        rng: of the rule.
        line: (requests,), for positions in `order`.
        found: (requests, 2), where the position in `order` and the row of the fleet of each that starts are written.
        table: of a fleet with a row of `calls` and `active` to describe a request to the rules, and one for each that
            waits, and room in `kept` for three contexts of each that may be sent.
    """
    fleet = fleet_of(table)
    now, replicas = fleet.now[0], fleet.replicas
    set_gate(now, rule)
    _write_running(fleet, asked, order, row_of, others)
    _write_sessions(fleet, known, heard, row_of)
    for at in range(len(replicas)):
        _pause(fleet, known, heard, at)
    events = int(since[1]) + _expired(known, heard, since[0], now.time)
    for at in range(len(replicas)):
        events += others[at] != former[at]
    of = (known, heard, asked, order, row_of, numbers, places, rule, rng, line, found)
    releases = len(rule) > INDEX_WEIGHTS
    if releases:
        _line_up_held(fleet, of)
        started, answered = _release(fleet, of, 0) if events > 0 else (0, 0)
    else:
        started, answered = _offer_held(fleet, of, 0, now.most_offers * events)
    for position in range(len(order)):
        request = asked[order[position]]
        if request.replica != NONE or request.held or _num_open(fleet, places) == 0:
            continue
        now.made_room, at = 0, NONE
        lines_up = releases and now.held > 0 and not _is_active(known[request.session], now.time)
        if not lines_up:
            at = _offer(fleet, known[request.session], request, row_of, rule, rng)
            answered += 1
        request.held = 1
        if at != NONE and replicas[at].calls < places[at]:
            _send(fleet, known, heard, request, at, numbers[at])
            found[started, 0], found[started, 1] = position, at
            started += 1
        elif releases:
            _line_up(fleet, of, position, lines_up)
        if releases:
            started, more = _release(fleet, of, started)
            answered += more
        elif now.made_room:
            started, more = _offer_held(fleet, of, started, now.most_offers)
            answered += more
    return started, answered


@internal
def _offer_held(fleet, of, started, offers):  # type: ignore[no-untyped-def]
    """Offer up to `offers` held requests, and `most_offers` again if one goes and makes room; see `answer_round`.

    Returns how many have started by now, beside those that had `started`, and how many were answered.
    """
    known, heard, asked, order, row_of, numbers, places, rule, rng, line, found = of
    now, replicas = fleet.now[0], fleet.replicas
    answered, now.made_room = 0, 1
    while now.made_room:
        now.made_room, in_line = 0, 0
        for position in range(len(order)):
            request = asked[order[position]]
            if request.replica == NONE and request.held:
                line[in_line] = position
                in_line += 1
        while in_line > 0 and (offers > 0 or _num_idle(fleet) > 0) and _num_open(fleet, places) > 0:
            position = _take_first(now, asked, order, line, in_line)
            in_line -= 1
            request = asked[order[position]]
            if offers > 0:
                at = _offer(fleet, known[request.session], request, row_of, rule, rng)
                answered += 1
                offers -= at == NONE or replicas[at].calls < places[at]  # not if it waits for a place of its replica
            else:
                at = _idle(fleet, request)
            if at != NONE and replicas[at].calls < places[at]:
                _send(fleet, known, heard, request, at, numbers[at])
                found[started, 0], found[started, 1] = position, at
                started += 1
        offers = now.most_offers
    return started, answered


@internal
def _line_up_held(fleet, of):  # type: ignore[no-untyped-def]
    """Let the held requests be the line of the fleet."""
    now, asked, order = fleet.now[0], of[2], of[3]
    now.held = now.in_line = 0
    now.first_held = now.last_held = now.overdue = NONE
    for position in range(len(order)):
        request = asked[order[position]]
        if request.replica == NONE and request.held:
            _line_up(fleet, of, position, False)


@internal
def _line_up(fleet, of, position, is_new):  # type: ignore[no-untyped-def]
    """Let a request be a call that is held, in its place: by its key, or where it `is_new`, by what it needs now."""
    known, asked, order, index = of[0], of[2], of[3], 1 + position
    request, call = asked[order[position]], fleet.calls[index]
    _write_call(fleet, index, request.session, known[request.session], request.prompt, request.prefix, request.shared)
    fleet.sessions[request.session].answered_s = known[request.session].answered_s
    call.asked_s, call.rank, call.key = request.asked_s, position, request.key
    if is_new:
        set_key(fleet, fleet, index)
        request.key = call.key
    join(fleet, index)


@internal
def _release(fleet, of, started):  # type: ignore[no-untyped-def]
    """Let held requests go by the index of `release`, until none goes.

    Returns how many have started by now, beside those that had `started`, and how many were answered.
    """
    known, heard, asked, order, row_of, numbers, places, rule, rng, _, found = of
    now, answered = fleet.now[0], 0
    while now.held > 0 and _num_open(fleet, places) > 0:
        for place in range(now.held):
            _write_session(fleet, fleet.line[place], known[fleet.calls[fleet.line[place]].session], row_of)
        index = pick(fleet, fleet, rule[GATE_WEIGHTS:], rule[INDEX_WEIGHTS:], EXACT)  # of the fleet as it is known
        if index == NONE:
            break
        position = fleet.calls[index].rank
        request = asked[order[position]]
        at = choose(fleet, fleet, index, rule, rng)
        answered += 1
        if at == NONE:
            at = _idle(fleet, request)
        goes = at != NONE and fleet.replicas[at].calls < places[at]
        if goes:
            leave(fleet, index)
            now.overdue = NONE
            _send(fleet, known, heard, request, at, numbers[at])
            found[started, 0], found[started, 1] = position, at
            started += 1
        else:
            set_key(fleet, fleet, index)
        step_back(fleet)
        if not goes:
            break
    for place in range(now.held):
        call = fleet.calls[fleet.line[place]]
        asked[order[call.rank]].key = call.key
    return started, answered


@internal
def _send(fleet, known, heard, request, at, number):  # type: ignore[no-untyped-def]
    """A request starts on a replica, and its session counts there alone."""
    session, now, here = known[request.session], fleet.now[0], fleet.replicas[at]
    former, counted = at, 0
    if session.at != NONE and _is_active(session, now.time):
        former, counted = session.at, fleet.replicas[session.at].active
        _count(fleet, session, -1)
    request.replica = session.home = session.counts_at = number
    session.at, session.tokens, session.running = at, request.prompt, session.running + 1
    session.prefix, session.shared = request.prefix, request.shared
    _count(fleet, session, 1)
    if now.gate > 0.0 and fleet.replicas[former].active < counted:
        now.made_room = 1
    here.calls += 1
    here.pinned += request.prompt
    _remember(fleet, request.session, session, at)
    _pause(fleet, known, heard, at)


@internal
def _write_call(fleet, index, row, session, prompt, prefix, shared):  # type: ignore[no-untyped-def]
    """Write a call of a session into a row of the calls."""
    meet(fleet, row, session.number)
    call = fleet.calls[index]
    call.session, call.in_flight, call.prompt, call.target, call.reusable = row, 0, prompt, prompt, prompt
    call.prefix, call.prefix_tokens = prefix, shared


@internal
def _remember(fleet, row, session, at):  # type: ignore[no-untyped-def]
    """The last call of a session was sent to a replica."""
    _write_call(fleet, 0, row, session, session.tokens, session.prefix, session.shared)
    call = fleet.calls[0]
    call.replica = at
    if call.prompt <= fleet.replicas[at].kv_tokens:
        remember(fleet, fleet, call, True)


@internal
def _take_first(now, asked, order, line, in_line):  # type: ignore[no-untyped-def]
    """Take the first request out of a line: one held for longer than `head_after_s`, or the one with the least key."""
    first, least = 0, np.inf
    for place in range(in_line):
        request = asked[order[line[place]]]
        if now.time - request.asked_s > now.head_after_s:
            first = place
            break
        if request.key < least:
            first, least = place, request.key
    position = line[first]
    for place in range(first, in_line - 1):
        line[place] = line[place + 1]
    return position


@internal
def _expired(known, heard, after_s, until_s):  # type: ignore[no-untyped-def]
    """Sessions that became away in this time, as they were idle for long enough."""
    count = 0
    for position in range(len(heard)):
        of = known[heard[position]]
        count += of.heard == position and of.running == 0 and after_s < of.until_s <= until_s
    return count


@internal
def _num_idle(fleet):  # type: ignore[no-untyped-def]
    """Replicas that have nothing to do."""
    count = 0
    for at in range(len(fleet.replicas)):
        count += fleet.replicas[at].calls == 0
    return count


@internal
def _num_open(fleet, places):  # type: ignore[no-untyped-def]
    """Replicas with a free place."""
    count = 0
    for at in range(len(fleet.replicas)):
        count += fleet.replicas[at].calls < places[at]
    return count


@internal
def _idle(fleet, request):  # type: ignore[no-untyped-def]
    """A replica that has nothing to do and that a request fits, or NONE."""
    for at in range(len(fleet.replicas)):
        if fleet.replicas[at].calls == 0 and request.prompt <= fleet.replicas[at].kv_tokens:
            return at
    return NONE


@internal
def _is_active(session, time):  # type: ignore[no-untyped-def]
    return session.running > 0 or session.until_s > time


@internal
def _count(fleet, session, change):  # type: ignore[no-untyped-def]
    """Count an active session at its replica (1) or no longer (-1), a shared prefix once."""
    tokens = session.tokens
    if session.prefix != NONE:
        prefix = fleet.prefixes[session.at, session.prefix]
        prefix.active += change
        if prefix.active > (1 if change > 0 else 0):
            tokens -= session.shared
    fleet.replicas[session.at].active += change * tokens
    fleet.now[0].active_tokens += change * tokens


@internal
def _pause(fleet, known, heard, at):  # type: ignore[no-untyped-def]
    """While more counts at a replica than its gate allows, the session that has been idle longest becomes away."""
    here, now = fleet.replicas[at], fleet.now[0]
    while now.gate > 0.0 and here.active > now.gate * here.kv_tokens:
        longest = NONE
        for position in range(len(heard)):
            row = heard[position]
            of = known[row]
            is_idle = of.heard == position and of.at == at and of.running == 0 and of.until_s > now.time
            if is_idle and (longest == NONE or of.until_s < known[longest].until_s):
                longest = row
        if longest == NONE:
            break
        _count(fleet, known[longest], -1)
        known[longest].until_s, now.made_room = -np.inf, 1


@internal
def _write_running(fleet, asked, order, row_of, others):  # type: ignore[no-untyped-def]
    """Write what the calls that run take."""
    replicas = fleet.replicas
    for at in range(len(replicas)):
        replicas[at].calls = replicas[at].pinned = 0
    for row in order:
        request = asked[row]
        if request.replica != NONE and row_of[request.replica] != NONE:
            here = replicas[row_of[request.replica]]
            here.calls += 1
            here.pinned += request.prompt
    for at in range(len(replicas)):
        others[at] = max(0, others[at] - replicas[at].calls)
        replicas[at].calls += others[at]


@internal
def _write_sessions(fleet, known, heard, row_of):  # type: ignore[no-untyped-def]
    """Write where sessions are, and which of them are active; remember the calls that were sent elsewhere."""
    now, replicas = fleet.now[0], fleet.replicas
    now.active_tokens = 0.0
    for at in range(len(replicas)):
        replicas[at].active = 0
        for prefix in range(fleet.prefixes.shape[1]):
            fleet.prefixes[at, prefix].active = 0
    for position in range(len(heard)):
        row = heard[position]
        session = known[row]
        if session.heard != position:
            continue
        session.at = row_of[session.counts_at] if session.counts_at != NONE else NONE
        if session.told and session.at != NONE:
            _remember(fleet, row, session, session.at)
        session.told = 0
        if session.at != NONE and _is_active(session, now.time):
            _count(fleet, session, 1)


@internal
def _offer(fleet, session, request, row_of, rule, rng):  # type: ignore[no-untyped-def]
    """The replica that a rule names for a request, or NONE; as in an episode, none is held beside an idle replica."""
    _write_call(fleet, 0, request.session, session, request.prompt, request.prefix, request.shared)
    _write_session(fleet, 0, session, row_of)
    call = fleet.calls[0]
    call.asked_s = request.asked_s
    at = choose(fleet, fleet, 0, rule, rng)
    set_key(fleet, fleet, 0)
    request.key = call.key
    return at if at != NONE else _idle(fleet, request)


@internal
def _write_session(fleet, index, session, row_of):  # type: ignore[no-untyped-def]
    """Write where the session of a call was last, and whether it is active: the call's index is its row of `active`."""
    agent = fleet.agents[fleet.calls[index].session, 0]
    agent.home = row_of[session.home] if session.home != NONE else NONE
    agent.active = index if _is_active(session, fleet.now[0].time) else NONE
    fleet.active[index].replica = session.at
