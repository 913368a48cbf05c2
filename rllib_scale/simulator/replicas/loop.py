"""Sessions, events, and the clock of a fleet.

A live session repeats a script, a recorded session: a call is asked when all calls that it needs are answered and its
tool has run (`gap_s`). In an open loop a turn begins at its time (`release_s`) if the turns before it are answered.

A call that is asked is offered: the answer is a replica, or NONE, which holds it. When a call ends, an agent has been
idle for `active_for_s`, or a send makes room [gate], held calls are offered again, the first `most_offers` in line.
None is held beside a replica that has nothing to do and that it fits: it goes there. Where `releases` is set, RELEASE
asks for one of the held calls in place of these offers [release].
"""

from __future__ import annotations

import math

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.caches import forget_owner
from rllib_scale.simulator.replicas.gate import (
    answer_agent,
    become_away,
    end_session,
    fits,
    has_nothing_to_do,
    send_agent,
)
from rllib_scale.simulator.replicas.known import EXACT, OWN, remember
from rllib_scale.simulator.replicas.line import first_in_line, hold, leave, step_back
from rllib_scale.simulator.replicas.service import carry_out, ending, enqueue, plan
from rllib_scale.simulator.replicas.state import DONE, FULL, NONE, READY, RELEASE
from rllib_scale.simulator.replicas.thunder import answer_program, end_programs, force, tick, wait_for_program

_START, _AWAY, _TICK, _FORCE = -1, -2, -3, -4
_ROWS = 2**24


@rare
def _precedes(fleet, a, b):  # type: ignore[no-untyped-def]
    if fleet.event_s[a] != fleet.event_s[b]:
        return fleet.event_s[a] < fleet.event_s[b]
    if fleet.event[a, 0] != fleet.event[b, 0]:
        return fleet.event[a, 0] < fleet.event[b, 0]
    return fleet.event[a, 1] < fleet.event[b, 1]


@rare
def _swap(fleet, a, b):  # type: ignore[no-untyped-def]
    fleet.event_s[a], fleet.event_s[b] = fleet.event_s[b], fleet.event_s[a]
    for k in range(2):
        fleet.event[a, k], fleet.event[b, k] = fleet.event[b, k], fleet.event[a, k]


@rare
def _push(fleet, time, session, number):  # type: ignore[no-untyped-def]
    """Add an event: a call is asked; session _START: one begins; _AWAY: an agent has been idle.

    Of _AWAY: the answers so far, and the row of `active`. Of agents that are idle since one step, the one that was
    answered first is away first.
    Of `thunder-agent`: _TICK, the number of the interval; _FORCE: a call, by its rank and row, has waited for too long.
    """
    at = fleet.now[0].events
    fleet.now[0].events += 1
    fleet.event_s[at], fleet.event[at, 0], fleet.event[at, 1] = time, session, number
    while at > 0 and _precedes(fleet, at, (at - 1) >> 1):
        _swap(fleet, at, (at - 1) >> 1)
        at = (at - 1) >> 1


@rare
def _pop(fleet):  # type: ignore[no-untyped-def]
    """Remove the first event, which is then behind the others."""
    fleet.now[0].events -= 1
    last, at = fleet.now[0].events, 0
    _swap(fleet, 0, last)
    while 2 * at + 1 < last:
        child = 2 * at + 1
        if child + 1 < last and _precedes(fleet, child + 1, child):
            child += 1
        if not _precedes(fleet, child, at):
            break
        _swap(fleet, child, at)
        at = child
    return last


@rare
def _set_due(fleet, replica, time):  # type: ignore[no-untyped-def]
    """Set when a replica's next event is, in the tournament: a node holds the smaller time of its two children."""
    due = fleet.due
    at = len(due) // 2 + replica
    due[at] = time
    while at > 1:
        at >>= 1
        due[at] = min(due[2 * at], due[2 * at + 1])


@rare
def _first_due(fleet):  # type: ignore[no-untyped-def]
    due, at = fleet.due, 1
    while at < len(due) // 2:
        at = 2 * at if due[2 * at] <= due[2 * at + 1] else 2 * at + 1
    return at - len(due) // 2


@rare
def _pass_time(fleet, time):  # type: ignore[no-untyped-def]
    now, lasts = fleet.now[0], time - fleet.now[0].time
    now.open_call_s += now.open_calls * lasts
    now.active_token_s += now.active_tokens * lasts
    now.time = time


@rare
def _begin(fleet, number, time):  # type: ignore[no-untyped-def]
    """Begin a session."""
    now, start = fleet.now[0], fleet.starts[number]
    row = now.free_sessions
    session = fleet.sessions[row]
    now.free_sessions = session.next
    now.sessions_left -= 1
    first, end = fleet.first_task[start.script], fleet.first_task[start.script + 1]
    session.script, session.number, session.start_s, session.answered_s = start.script, number, time, time
    session.left = end - first - start.skipped
    for at in range(fleet.agents.shape[1]):
        agent = fleet.agents[row, at]
        agent.kept, agent.home, agent.active, agent.program = NONE, NONE, NONE, NONE
    for call in range(end - first):
        fleet.needs[row, call] = fleet.tasks[first + call].needs
    for call in range(start.skipped):
        task = fleet.tasks[first + call]
        for at in range(task.first_next, task.end_next):
            fleet.needs[row, fleet.successors[at]] -= 1
    for call in range(start.skipped, end - first):
        if fleet.needs[row, call] == 0:
            _push(fleet, time + (0.0 if start.skipped else fleet.tasks[first + call].release_s), row, call)


@rare
def _begin_next(fleet, time):  # type: ignore[no-untyped-def]
    """Begin the next session, at a time or when it comes, whichever is later."""
    now = fleet.now[0]
    if now.next_start < len(fleet.starts):
        _push(fleet, max(time, fleet.starts[now.next_start].at_s), _START, now.next_start)
        now.next_start += 1


@rare
def _ask(fleet, row, number, time):  # type: ignore[no-untyped-def]
    """A call is asked; returns its row."""
    now, session = fleet.now[0], fleet.sessions[row]
    task = fleet.tasks[fleet.first_task[session.script] + number]
    index = now.free_calls
    call = fleet.calls[index]
    now.free_calls = call.next
    now.calls_left -= 1
    call.session, call.call, call.agent, call.reusable = row, number, task.agent, task.reusable
    call.prefix, call.prefix_tokens = task.prefix, task.prefix_tokens
    call.prompt, call.output = task.prompt, task.output
    call.replica, call.target, call.computed, call.started, call.generated = NONE, task.prompt, 0, NONE, 0
    call.chunk, call.hit, call.prefilled, call.preemptions, call.next, call.previous = 0, 0, 0, 0, NONE, NONE
    call.asked_s, call.placed_s, call.admitted_s, call.first_s = time, -1.0, -1.0, -1.0
    call.rank, call.place = now.asked, NONE
    now.asked += 1
    now.open_calls += 1
    return index


@rare
def _end(fleet, index, time):  # type: ignore[no-untyped-def]
    """A call has its last token: record it, let its session go on, free its row."""
    now, call = fleet.now[0], fleet.calls[index]
    request_s = fleet.replicas[call.replica].request_s
    session = fleet.sessions[call.session]
    task = fleet.tasks[fleet.first_task[session.script] + call.call]
    record = fleet.records[now.records]
    now.records += 1
    record.session, record.script, record.call, record.turn = session.number, session.script, call.call, task.turn
    record.prompt, record.output, record.reusable = call.prompt, call.output, task.reusable
    record.replica = call.replica
    record.hit, record.prefilled, record.preemptions = call.hit, call.prefilled, call.preemptions
    record.asked_s, record.placed_s, record.admitted_s = call.asked_s, call.placed_s, call.admitted_s
    record.first_s, record.end_s = call.first_s + request_s, time + request_s
    now.open_calls -= 1
    until_s = time + request_s + now.active_for_s
    _push(fleet, until_s, _AWAY, (now.asked - now.open_calls) * _ROWS + answer_agent(fleet, call, until_s))
    if now.interval_s > 0.0:
        answer_program(fleet, call, time)
    session.left -= 1
    session.answered_s = time + request_s
    if session.left > 0:
        for at in range(task.first_next, task.end_next):
            number = fleet.successors[at]
            fleet.needs[call.session, number] -= 1
            if fleet.needs[call.session, number] == 0:
                following = fleet.tasks[fleet.first_task[session.script] + number]
                due_s = time + request_s + following.gap_s
                if following.release_s >= 0 and not now.closed_loop:
                    due_s = max(time + request_s, session.start_s + following.release_s)
                _push(fleet, due_s, call.session, number)
    else:
        end_session(fleet, call.session)
        if now.interval_s > 0.0:
            end_programs(fleet, call.session)
        for agent in range(fleet.agents.shape[1]):
            while fleet.agents[call.session, agent].kept != NONE:
                forget_owner(fleet, fleet.agents[call.session, agent].kept)
        session.next, now.free_sessions = now.free_sessions, call.session
        now.sessions_left += 1
        if now.closed_loop:
            _begin_next(fleet, time + request_s)
    call.next, now.free_calls = now.free_calls, index
    now.calls_left += 1


@rare
def _offer_held(fleet, emptied):  # type: ignore[no-untyped-def]
    """Offer the first calls in line; `emptied`: the replica that has nothing to do since now, or NONE."""
    now = fleet.now[0]
    now.offers, now.cursor, now.emptied, now.made_room = now.most_offers, now.first_held, emptied, 0


@rare
def _next_held(fleet, known, how):  # type: ignore[no-untyped-def]
    """The next held call that is offered, or NONE."""
    now = fleet.now[0]
    while now.in_line > 0 and (now.offers > 0 or now.emptied != NONE):
        if now.offers <= 0 and not has_nothing_to_do(fleet.replicas[now.emptied]):
            break
        index = first_in_line(fleet)
        if now.offers > 0:
            now.offers -= 1
            return index
        if fits(fleet, index, now.emptied):
            _send(fleet, index, now.emptied)
            if how != EXACT:
                remember(fleet, known, fleet.calls[index], how == OWN)
    step_back(fleet)
    return NONE


@rare
def _idle(fleet, index):  # type: ignore[no-untyped-def]
    for replica in range(len(fleet.replicas)):
        if has_nothing_to_do(fleet.replicas[replica]) and fits(fleet, index, replica):
            return replica
    return NONE


@rare
def _send(fleet, index, replica):  # type: ignore[no-untyped-def]
    call = fleet.calls[index]
    if call.place != NONE:
        leave(fleet, index)
    if index == fleet.now[0].overdue:
        fleet.now[0].overdue = NONE
    call.placed_s = fleet.now[0].time
    fleet.agents[call.session, call.agent].home = replica
    send_agent(fleet, call, replica)
    _set_due(fleet, replica, enqueue(fleet, replica, index, fleet.now[0].time))


@rare
def answer(fleet, known, index, replica):  # type: ignore[no-untyped-def]
    """Send an offered call to a replica, or hold it, in its place by what is `known` of the caches."""
    now, call = fleet.now[0], fleet.calls[index]
    if replica == NONE and now.interval_s > 0.0:
        wait_for_program(fleet, index)
        _push(fleet, call.asked_s + now.resume_after_s, _FORCE, call.rank * _ROWS + index)
        return
    if replica == NONE:
        replica = _idle(fleet, index)
    if replica != NONE:
        _send(fleet, index, replica)
        return
    hold(fleet, known, index)


@rare
def begin_ticks(fleet):  # type: ignore[no-untyped-def]
    """Let programs resume and be paused at each multiple of the interval."""
    now = fleet.now[0]
    ticks = int(now.time / now.interval_s) + 1
    _push(fleet, ticks * now.interval_s, _TICK, ticks)


@rare
def _send_resumed(fleet):  # type: ignore[no-untyped-def]
    """Send the calls of programs that have resumed."""
    now = fleet.now[0]
    while now.first_resumed != NONE:
        index = now.first_resumed
        now.first_resumed = fleet.calls[index].next
        _send(fleet, index, fleet.calls[index].replica)


@rare
def next_offer(fleet, known, how, until_s, ended):  # type: ignore[no-untyped-def]
    """Go on to the next offered call: its row; DONE at `until_s`; FULL where tables have to grow or be emptied.

    RELEASE: one of the held calls may go. `known`: what is known of the caches, `how` it is known.
    """
    now = fleet.now[0]
    if now.next_start == 0:
        for _ in range(min(now.live, len(fleet.starts)) if now.closed_loop else 1):
            _begin_next(fleet, fleet.starts[now.next_start].at_s)
    while True:
        if now.active_left < 2 or known.now[0].kept_left < known.spare[0]:
            return FULL
        if now.offers == NONE and now.made_room:  # by the last send
            _offer_held(fleet, NONE)
        if now.offers != NONE and now.releases:
            now.offers, now.made_room = NONE, 0
            if now.held > 0:
                return RELEASE
        elif now.offers != NONE:
            index = _next_held(fleet, known, how)
            if index != NONE:
                return index
            continue
        spare = fleet.spare[0]
        if now.records + spare > len(fleet.records) or now.events + spare > len(fleet.event_s):
            return FULL
        if min(now.calls_left, now.sessions_left, now.programs_left) < 1 or now.kept_left < spare:
            return FULL
        event_s = fleet.event_s[0] if now.events > 0 else math.inf
        if min(event_s, fleet.due[1]) > until_s:
            _pass_time(fleet, until_s)
            return DONE
        if event_s <= fleet.due[1]:
            _pass_time(fleet, event_s)
            last = _pop(fleet)
            session, number = fleet.event[last, 0], fleet.event[last, 1]
            if session == _START:
                _begin(fleet, number, event_s)
                if not now.closed_loop and now.next_start < len(fleet.starts):
                    _begin_next(fleet, fleet.starts[now.next_start].at_s)
            elif session >= 0:
                return _ask(fleet, session, number, event_s)
            elif session == _TICK:
                tick(fleet)
                _push(fleet, (number + 1) * now.interval_s, _TICK, number + 1)
                _send_resumed(fleet)
            elif session == _FORCE:
                call = fleet.calls[number % _ROWS]
                if call.rank == number // _ROWS and call.placed_s < 0:
                    force(fleet, number % _ROWS)
                    _send_resumed(fleet)
            elif fleet.active[number % _ROWS].until_s == event_s:
                become_away(fleet, number % _ROWS)
                _offer_held(fleet, NONE)
            continue
        replica = _first_due(fleet)
        here = fleet.replicas[replica]
        if here.phase == READY:
            plan(fleet, replica)
        else:
            _pass_time(fleet, fleet.due[1])
            count = carry_out(fleet, replica, ended)
            for at in range(count):
                _end(fleet, ended[at], here.clock)
            if count > 0:
                _offer_held(fleet, replica if has_nothing_to_do(here) else NONE)
        _set_due(fleet, replica, ending(here))
