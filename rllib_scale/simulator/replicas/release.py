"""Which held call goes, or none: candidates, what is seen of them, and an index that decides.

Candidates are the first CANDIDATES of the held calls, by the order of release, that fit somewhere open, or a replica
that has nothing to do; of the first LOOKED in line, or of all while there is such a replica. It is asked after an
event; again after a release; and after "none" not before the next event. None may not be the answer while a candidate
fits a replica that has nothing to do, or while so few agents are active that the weights of the gate do not count.
While calls are held, one that is asked lines up, too, unless its agent is active. Where no call is held, nothing is
asked. The rule places the call that goes.

A call that has been held for longer than `head_after_s` is overdue. It goes as soon as the gate of the rule, without
weights, lets it through; the one that asked first goes first. Until then a replica is reserved for each overdue call,
the one with most room for it of those that are left: it takes no other calls but those of agents active there.

`release-index`: the index of a candidate is a weighted sum of CALL_TERMS and FLEET_TERMS; the largest goes if it is at
least 0, of equal ones the first in line.
"""

from __future__ import annotations

import math

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.gate import (
    active_at,
    call_room,
    fits,
    has_nothing_to_do,
    open_to,
    room_at,
    room_for,
    weigh_replicas,
)
from rllib_scale.simulator.replicas.known import EXACT, OWN, count_calls, meet
from rllib_scale.simulator.replicas.line import first_in_line, set_key, step_back
from rllib_scale.simulator.replicas.service import evict_until
from rllib_scale.simulator.replicas.state import CALL_TERMS, CANDIDATES, NONE

LOOKED = 64


@rare
def must_line_up(fleet, call):  # type: ignore[no-untyped-def]
    """Whether a call that was just asked is held behind others."""
    now = fleet.now[0]
    is_away = fleet.agents[call.session, call.agent].active == NONE
    return now.releases and now.held > 0 and call.place == NONE and is_away


@rare
def go_on(fleet, call, was_held):  # type: ignore[no-untyped-def]
    """After an answer: ask for the next one, unless the call that should go is still held."""
    step_back(fleet)
    if call.replica != NONE or not was_held:
        fleet.now[0].offers = 0


@rare
def find_candidates(fleet, known, gate, how):  # type: ignore[no-untyped-def]
    """Let candidates step out of the line, into `Fleet.candidates`; returns how many, and whether one has to go.

    Args:
        fleet: with held calls.
        known: what is known of the caches, `how`: EXACT, READ or OWN.
        gate: weights of the terms of the gate.
        how: see `known`.
    """
    now = fleet.now[0]
    now.cursor = now.first_held
    if _overdue_goes(fleet):
        fleet.candidates[0] = first_in_line(fleet)
        while fleet.candidates[0] != now.overdue:
            fleet.candidates[0] = first_in_line(fleet)
        if how != EXACT:
            call = fleet.calls[now.overdue]
            meet(known, call.session, fleet.sessions[call.session].number)
        return 1, True
    if how == OWN:
        count_calls(fleet, known)
    weigh_replicas(fleet, known, gate)
    groups, is_idle = _group(fleet, gate)
    looked = now.held if is_idle else min(LOOKED, now.held)
    for _ in range(looked):
        first_in_line(fleet)
    count, must = 0, False
    for at in range(looked):
        index = fleet.line[now.held - 1 - at]  # they stepped out of the line into its rows, the last one first
        call = fleet.calls[index]
        if how != EXACT:
            meet(known, call.session, fleet.sessions[call.session].number)
        fits_idle = False
        for group in range(groups):
            idle = fleet.replicas[group].idle
            fits_idle |= idle != NONE and fits(fleet, index, idle)
        if fits_idle or _is_open(fleet, known, index, gate, groups):
            set_key(fleet, known, index)
            fleet.candidates[count] = index
            count, must = count + 1, must or fits_idle
            if count == CANDIDATES:
                break
    return count, must or now.learned == 0.0


@rare
def _group(fleet, gate):  # type: ignore[no-untyped-def]
    """Put adjacent replicas that are alike into groups; returns how many, and whether a replica has nothing to do."""
    groups, is_idle = 0, False
    for replica in range(len(fleet.replicas)):
        here, before = fleet.replicas[replica], fleet.replicas[max(0, replica - 1)]
        kind = here.kv_tokens, here.prefill_s, here.attention_s
        if replica == 0 or kind != (before.kv_tokens, before.prefill_s, before.attention_s):
            group = fleet.replicas[groups]
            group.first, group.idle, group.most = replica, NONE, -math.inf
            groups += 1
        group = fleet.replicas[groups - 1]
        group.most = max(group.most, room_at(fleet, replica, gate))
        if has_nothing_to_do(here):
            group.idle, is_idle = replica, True
    return groups, is_idle


@rare
def _is_open(fleet, known, index, gate, groups):  # type: ignore[no-untyped-def]
    """Whether a held call fits somewhere open: where its agent is active, or at another replica."""
    call = fleet.calls[index]
    home = active_at(fleet, call)
    if home != NONE and open_to(fleet, known, index, home, gate):
        return True
    for group in range(groups):
        first, most = fleet.replicas[group].first, fleet.replicas[group].most
        end = fleet.replicas[group + 1].first if group + 1 < groups else len(fleet.replicas)
        own = call_room(fleet, call, fleet.replicas[first], gate)
        if most + own >= 0.0:
            for replica in range(first, end):
                if room_at(fleet, replica, gate) + own >= 0.0 and open_to(fleet, known, index, replica, gate):
                    return True
    return False


@rare
def _overdue_goes(fleet):  # type: ignore[no-untyped-def]
    """Whether an overdue call goes now, `now.overdue`; else a replica is reserved for each, while there is one."""
    now, index = fleet.now[0], fleet.now[0].first_held
    now.overdue = NONE
    for here in fleet.replicas:
        here.reserved = 0
    for _ in range(len(fleet.replicas)):
        if now.gate <= 0.0 or index == NONE or now.time - fleet.calls[index].asked_s <= now.head_after_s:
            return False
        best, most = NONE, -math.inf
        for replica in range(len(fleet.replicas)):
            here = fleet.replicas[replica]
            if here.reserved == 0 and fits(fleet, index, replica):
                room = 1.0 if has_nothing_to_do(here) else room_for(fleet, fleet.calls[index], here, replica, now.gate)
                if room > most:
                    best, most = replica, room
        if most >= 0.0:
            now.overdue = index
            return True
        if best != NONE:
            fleet.replicas[best].reserved = 1
        index = fleet.calls[index].next
    return False


@rare
def write_terms(fleet, known, count):  # type: ignore[no-untyped-def]
    """Write CALL_TERMS of the first `count` candidates, and FLEET_TERMS, into their arrays."""
    now, replicas, calls = fleet.now[0], len(fleet.replicas), 0
    for here in fleet.replicas:
        calls += here.calls + here.waiting
    totals = fleet.fleet_terms
    totals[0], totals[1] = 1.0, math.log1p(now.held / replicas)
    totals[2], totals[3] = now.active_tokens / now.memory - 1.0, math.log1p(calls / replicas)
    for at in range(count):
        call, terms = fleet.calls[fleet.candidates[at]], fleet.call_terms[at]
        home, room, load, hit = fleet.agents[call.session, call.agent].home, 0.0, 0, 0
        here = fleet.replicas[max(home, 0)]
        if home != NONE:
            evict_until(known, home, now.time)
            room = max(-1.0, room_for(fleet, call, here, home, now.gate))
            load, hit = here.calls + here.waiting, found(known, call, home)
        left = call.target - hit
        terms[0] = 10.0 * call.prompt * replicas / now.memory
        terms[1] = math.log1p(here.prefill_s * left + here.attention_s * left * (hit + left / 2))
        terms[2] = math.log1p(now.time - call.asked_s)
        terms[3] = math.log1p(max(0.0, now.time - fleet.sessions[call.session].answered_s))
        terms[4], terms[5], terms[6] = room, math.log1p(load), 1.0 if home == NONE else 0.0
        terms[7] = now.time / 60.0 - call.key


@rare
def pick(fleet, known, gate, weights, how):  # type: ignore[no-untyped-def]
    """The held call that goes by its index, which stepped out of the line; or NONE.

    `weights` are of CALL_TERMS, then FLEET_TERMS; see `find_candidates` for the others.
    """
    count, must = find_candidates(fleet, known, gate, how)
    write_terms(fleet, known, count)
    best, most = NONE, -math.inf
    shared = _sum(fleet.fleet_terms, weights[len(CALL_TERMS) :])
    for at in range(count):
        index = _sum(fleet.call_terms[at], weights) + shared
        if index > most:
            best, most = fleet.candidates[at], index
    if best == NONE or (most < 0.0 and not must):
        step_back(fleet)
        return NONE
    return best


@rare
def _sum(terms, weights):  # type: ignore[no-untyped-def]
    total = 0.0
    for at in range(len(terms)):
        total += weights[at] * terms[at]
    return total
