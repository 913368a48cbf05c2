"""ThunderAgent's gate in front of replicas [ThunderAgent-org/ThunderAgent, scheduler/router.py and backend/state.py].

A program is an agent: reasoning from a call to the next answer, then acting. It is bound to a replica, where all its
calls go, or paused; the calls of a paused one wait. Each `interval_s` programs resume into the room of all replicas:
those with a call first, then new ones, then acting ones, the smallest first; they are placed from the largest on where
most room is left. Then, where programs take more than the memory, acting ones are paused, the smallest first, and if
these are not enough, all that are reasoning, when they are answered. A call that waits for `resume_after_s` resumes its
program.

A program takes its tokens and a buffer. The tokens of a prompt are counted from its characters, five a token until the
first answer says how many there are. `acting_weight` weighs the tokens of acting ones; with `decays` these halve
each second where programs resume. Prefixes that programs share count for each.
"""

from __future__ import annotations

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.state import NONE


@rare
def ask_program(fleet, index):  # type: ignore[no-untyped-def]
    """The replica of a call's program, or NONE: it is paused, as a new one is that finds others paused or no room."""
    now, call = fleet.now[0], fleet.calls[index]
    agent = fleet.agents[call.session, call.agent]
    is_new = agent.program == NONE
    if is_new:
        agent.program = now.free_programs
        of = fleet.programs[agent.program]
        now.free_programs = of.next
        now.programs_left -= 1
        now.programs += 1
        of.number, of.steps, of.marked, of.paused = now.programs, 0, 0, 0
        of.replica, of.origin, of.first_held = NONE, NONE, NONE
    of = fleet.programs[agent.program]
    of.steps += 1
    of.tokens, of.reasoning = int(call.prompt * now.estimate), 1
    if is_new and now.paused == 0:
        of.replica = _least_used(fleet, of.tokens + now.buffer)
    if is_new and of.replica == NONE:
        _pause(fleet, of)
    return of.replica


@rare
def wait_for_program(fleet, index):  # type: ignore[no-untyped-def]
    """A call waits until its program resumes."""
    call = fleet.calls[index]
    of = fleet.programs[fleet.agents[call.session, call.agent].program]
    call.next = NONE
    if of.first_held == NONE:
        of.first_held = index
    else:
        fleet.calls[of.last_held].next = index
    of.last_held = index


@rare
def answer_program(fleet, call, time):  # type: ignore[no-untyped-def]
    """A call is answered: its program acts, and pauses if it was to."""
    fleet.now[0].estimate = 1.0
    of = fleet.programs[fleet.agents[call.session, call.agent].program]
    of.reasoning, of.acting_s, of.tokens = 0, time, call.prompt + call.output
    if of.marked and of.replica != NONE:
        of.marked = 0
        _pause(fleet, of)


@rare
def end_programs(fleet, session):  # type: ignore[no-untyped-def]
    """A session has ended: its programs go if ends are told; else they act for ever."""
    now = fleet.now[0]
    for agent in range(fleet.agents.shape[1]):
        row = fleet.agents[session, agent].program
        if row == NONE or not now.ends_told:
            continue
        of = fleet.programs[row]
        now.paused -= of.paused > 0
        of.number, of.next, now.free_programs = 0, now.free_programs, row
        now.programs_left += 1


@rare
def tick(fleet):  # type: ignore[no-untyped-def]
    """Resume programs into free room, then pause those that take too much."""
    _count(fleet, fleet.now[0].decays)
    _resume_greedily(fleet)
    _count(fleet, 0)
    for replica in range(len(fleet.replicas)):
        _pause_until_safe(fleet, replica)


@rare
def force(fleet, index):  # type: ignore[no-untyped-def]
    """Resume the program of a call that has waited for too long: where it was, or where the fewest are."""
    call = fleet.calls[index]
    of = fleet.programs[fleet.agents[call.session, call.agent].program]
    replica = of.origin
    if replica == NONE:
        _count(fleet, 0)
        replica = 0
        for at in range(len(fleet.replicas)):
            if fleet.replicas[at].programs < fleet.replicas[replica].programs:
                replica = at
    _resume(fleet, of, replica)


@rare
def _count(fleet, decays):  # type: ignore[no-untyped-def]
    """Count the programs of each replica, and the room that they leave."""
    now = fleet.now[0]
    for here in fleet.replicas:
        here.programs, here.reasoning, here.acting = 0, 0, 0.0
    for of in fleet.programs:
        if of.number == 0 or of.replica == NONE:
            continue
        here = fleet.replicas[of.replica]
        here.programs += 1
        if of.reasoning:
            here.reasoning += of.tokens
        else:
            here.acting += of.tokens * (2.0 ** (of.acting_s - now.time) if decays else 1.0)
    for here in fleet.replicas:
        _set_room(now, here)


@rare
def _set_room(now, here):  # type: ignore[no-untyped-def]
    here.room = here.kv_tokens - (_used(now, here) + here.programs * now.buffer)


@rare
def _used(now, here):  # type: ignore[no-untyped-def]
    """Tokens of the programs of a replica, without buffers."""
    return int(here.reasoning + now.acting_weight * here.acting)


@rare
def _least_used(fleet, needed):  # type: ignore[no-untyped-def]
    """The replica with the fewest tokens of programs, of those that have room for these; or NONE."""
    _count(fleet, 0)
    best, now = NONE, fleet.now[0]
    for replica in range(len(fleet.replicas)):
        here = fleet.replicas[replica]
        if here.room >= needed and (best == NONE or _used(now, here) < _used(now, fleet.replicas[best])):
            best = replica
    return best


@rare
def _pause(fleet, of):  # type: ignore[no-untyped-def]
    now = fleet.now[0]
    now.paused += 1
    now.pauses += 1
    of.paused, of.paused_tokens = now.pauses, of.tokens
    of.origin, of.replica = of.replica, NONE


@rare
def _resume(fleet, of, replica):  # type: ignore[no-untyped-def]
    """Bind a paused program to a replica; its calls go there as soon as the others have resumed."""
    now = fleet.now[0]
    now.paused -= 1
    of.paused, of.replica, of.origin = 0, replica, NONE
    index = of.first_held
    if index == NONE:
        return
    if now.first_resumed == NONE:
        now.first_resumed = index
    else:
        fleet.calls[now.last_resumed].next = index
    now.last_resumed, of.first_held = of.last_held, NONE
    while index != NONE:
        fleet.calls[index].replica = replica
        index = fleet.calls[index].next


@rare
def _key(of):  # type: ignore[no-untyped-def]
    """The order in which paused programs resume: the least first."""
    group = 1 if of.steps == 1 else (0 if of.reasoning else 2)
    return (group << 60) | (of.paused_tokens << 30) | of.paused


@rare
def _resume_greedily(fleet):  # type: ignore[no-untyped-def]
    """Resume as many programs as the room of all replicas takes, from the least key on."""
    now, total = fleet.now[0], 0
    for here in fleet.replicas:
        here.open, here.turn = here.room > now.buffer, 0
        if here.open:
            total += here.room
    after, left = -1, total
    while left > 0:
        best, best_key = NONE, 0
        for row in range(len(fleet.programs)):
            of = fleet.programs[row]
            if of.number == 0 or of.paused == 0 or of.tokens + now.buffer > left:
                continue
            key = _key(of)
            if key > after and (best == NONE or key < best_key):
                best, best_key = row, key
        if best == NONE:
            break
        fleet.programs[best].chosen, after = 1, best_key
        left -= fleet.programs[best].tokens + now.buffer
    turn = 0
    while after >= 0:
        row = _largest_chosen(fleet)
        if row == NONE:
            break
        of = fleet.programs[row]
        of.chosen = 0
        replica = _roomiest(fleet)
        if replica == NONE or of.tokens + now.buffer > fleet.replicas[replica].room:
            continue
        here = fleet.replicas[replica]
        turn -= 1  # of two with the same room the one that took a program last is the first
        here.room, here.turn = here.room - of.tokens - now.buffer, turn
        here.open = here.room > now.buffer
        _resume(fleet, of, replica)


@rare
def _largest_chosen(fleet):  # type: ignore[no-untyped-def]
    """Of the programs that were chosen to resume the largest; the first of two, by key; or NONE."""
    best = NONE
    for row in range(len(fleet.programs)):
        of = fleet.programs[row]
        if of.number == 0 or not of.chosen:
            continue
        if best != NONE:
            other = fleet.programs[best]
            if of.tokens < other.tokens or (of.tokens == other.tokens and _key(of) > _key(other)):
                continue
        best = row
    return best


@rare
def _roomiest(fleet):  # type: ignore[no-untyped-def]
    """The open replica with the most room, or NONE."""
    best = NONE
    for replica in range(len(fleet.replicas)):
        here = fleet.replicas[replica]
        if not here.open:
            continue
        if best != NONE:
            other = fleet.replicas[best]
            if here.room < other.room or (here.room == other.room and here.turn >= other.turn):
                continue
        best = replica
    return best


@rare
def _pause_until_safe(fleet, replica):  # type: ignore[no-untyped-def]
    """While the programs of a replica take more than its memory, pause the smallest that acts."""
    now, here = fleet.now[0], fleet.replicas[replica]
    while here.room < 0:
        best = NONE
        for row in range(len(fleet.programs)):
            of = fleet.programs[row]
            if of.number == 0 or of.replica != replica or of.reasoning:
                continue
            if best != NONE:
                other = fleet.programs[best]
                if of.tokens > other.tokens or (of.tokens == other.tokens and of.number > other.number):
                    continue
            best = row
        if best == NONE:  # a mark gives no room, so that all get one
            for of in fleet.programs:
                if of.number > 0 and of.replica == replica:
                    of.marked = 1
            return
        here.programs -= 1
        here.acting -= fleet.programs[best].tokens
        _pause(fleet, fleet.programs[best])
        _set_room(now, here)
