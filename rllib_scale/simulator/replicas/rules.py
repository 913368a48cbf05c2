"""Rules that send calls to replicas, as they are used in the field, and a gate that holds calls back.

With a gate, a call is sent only where the contexts of the active sessions, its own included, stay within a share of the
memory for contexts, or where its session is active already (as ThunderAgent). Among these replicas the rule chooses.

`adaptive-gate` is `lmetric` whose gate follows the state: a weighted sum of GATE_TERMS is added to the room that the
gate sees, and the score is multiplied by exp of one of PLACE_TERMS. Without weights it is `lmetric`.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled, internal, rare
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.handles import fleet_handles, fleet_of
from rllib_scale.simulator.replicas.loop import FULL, answer, fits, next_offer
from rllib_scale.simulator.replicas.service import duration
from rllib_scale.simulator.replicas.state import NONE, RUNNING, Fleet, grown
from rllib_scale.workloads.random_numbers import integer

RANDOM, LEAST, TWO, STICKY, AFFINITY, LMETRIC, WEIGHTED, MARGINAL = range(8)
KINDS = MappingProxyType(
    {
        "random-replica": RANDOM,
        "least-outstanding": LEAST,
        "two-choices": TWO,
        "session-affinity": STICKY,
        "bounded-affinity": AFFINITY,
        "lmetric": LMETRIC,
        "weighted-scores": WEIGHTED,
        "marginal-price": MARGINAL,
    }
)
"""The rules of `rllib_scale.config.schedulers.FLEET_RULES`."""
VALUES = ("gate", "bound", "prefix", "queue", "memory", "answer", "overflow")
"""Parameters as compiled code takes them, behind the kind."""
PLACE_TERMS = ("new", "new_held", "calls", "backlog", "pinned", "step", "active")
"""Of a call at a replica: ln(1 + seconds of its prefill), the same times `held`, ln(1 + calls there), ln(1 + seconds of
prefill that wait there), share of the memory that running calls take, a decode step [0.1 s], 1 where its session is
active."""
GATE_TERMS = (*PLACE_TERMS, "one", "held", "waited", "working_set", "prompt")
"""And 1, ln(1 + held calls per replica), ln(1 + seconds since the call was asked), tokens of active sessions over the
memory of all replicas less 1, 10 times the prompt over the memory of the replica."""
_GATE = 1 + len(VALUES)
_PLACE = _GATE + len(GATE_TERMS)
_TERMS = len(PLACE_TERMS)


@rare
def memory_now(here, time):  # type: ignore[no-untyped-def]
    """Share of the memory that running calls take."""
    pinned = here.pinned
    if here.phase == RUNNING and here.decoding > 0 and here.planned > 1:
        whole = duration(here, here.planned)
        pinned += int(here.planned * here.decoding * min(1.0, (time - here.clock) / whole))
    return pinned / here.kv_tokens


@rare
def expected_tokens(fleet, call):  # type: ignore[no-untyped-def]
    """Tokens of a call's answer, as far as they are known when it is asked; 0: hidden."""
    return fleet.tasks[fleet.first_task[fleet.sessions[call.session].script] + call.call].expected


@rare
def room_for(fleet, call, here, replica, gate):  # type: ignore[no-untyped-def]
    """Share of a replica's memory that a gate leaves beside a call; 1 where its session is active. Below 0: closed."""
    if fleet.agents[call.session, call.agent].active == replica:
        return 1.0
    return (gate * here.kv_tokens - (here.active + call.prompt)) / here.kv_tokens


@rare
def open_to(fleet, index, replica, rule):  # type: ignore[no-untyped-def]
    """Whether a call fits a replica, and the gate lets it through."""
    if not fits(fleet, index, replica):
        return False
    call, here = fleet.calls[index], fleet.replicas[replica]
    if rule[1] <= 0.0:
        return True
    room = room_for(fleet, call, here, replica, rule[1])
    if len(rule) > _GATE:
        now, weights = fleet.now[0], rule[_GATE + _TERMS : _PLACE]
        terms = _terms(fleet, index, replica)
        here.place = _weighted(terms, rule[_PLACE:])
        room += _weighted(terms, rule[_GATE:])
        room += weights[0] + weights[1] * math.log1p(now.held / len(fleet.replicas))
        room += weights[2] * math.log1p(now.time - call.asked_s)
        room += weights[3] * (now.active_tokens / now.memory - 1.0)
        room += weights[4] * 10.0 * call.prompt / here.kv_tokens
    return room >= 0.0


@rare
def _terms(fleet, index, replica):  # type: ignore[no-untyped-def]
    """PLACE_TERMS; of the second one its factor."""
    call, here, now = fleet.calls[index], fleet.replicas[replica], fleet.now[0]
    hit = found(fleet, call, replica)
    tokens = call.target - hit
    new = math.log1p(here.prefill_s * tokens + here.attention_s * tokens * (hit + tokens / 2))
    step_s = here.step_s + here.call_s * here.decoding + here.context_s * here.context
    return (
        new,
        math.log1p(now.held / len(fleet.replicas)),
        math.log1p(here.calls + here.waiting),
        math.log1p(here.prefill_s * here.backlog),
        memory_now(here, now.time),
        step_s,
        1.0 if fleet.agents[call.session, call.agent].active == replica else 0.0,
    )


@rare
def _weighted(terms, weights):  # type: ignore[no-untyped-def]
    """Their sum by weights."""
    new, held, calls, backlog, memory, step_s, active = terms
    return (
        weights[0] * new
        + weights[1] * new * held
        + weights[2] * calls
        + weights[3] * backlog
        + weights[4] * memory
        + weights[5] * 10.0 * step_s
        + weights[6] * active
    )


@internal
def _score(fleet, index, replica, rule, time, most, least):  # type: ignore[no-untyped-def]
    """What a rule minimises over the replicas."""
    kind, call, here = int(rule[0]), fleet.calls[index], fleet.replicas[replica]
    load = here.calls + here.waiting
    if kind == LMETRIC:  # new prefill tokens x batch with the call [arXiv 2603.15202]
        score = float(call.target - found(fleet, call, replica)) * (load + 1)
        return score * math.exp(here.place) if len(rule) > _GATE else score
    if kind == WEIGHTED:
        spread = (load - least) / (most - least) if most > least else 0.0
        hit = found(fleet, call, replica) / call.prompt
        return -(rule[3] * hit + rule[4] * (1.0 - spread) + rule[5] * (1.0 - memory_now(here, time)))
    if kind == MARGINAL:
        return _marginal_s(fleet, call, here, replica, rule)
    return float(load)


@rare
def _marginal_s(fleet, call, here, replica, rule):  # type: ignore[no-untyped-def]
    """Seconds that a call costs all calls of a replica, its own included, as `adaptive-price` counts them.

    Its own: the prefill before it, its prefill, and its answer at the steps that the batch then takes. Of each call
    that decodes there: this prefill, and longer steps while the answer lasts. Of others: the contexts of active
    sessions that it makes the memory lose are computed again when they return.
    """
    hit = found(fleet, call, replica)
    new, answer_tokens = call.target - hit, rule[6]
    if expected_tokens(fleet, call) > 0:
        answer_tokens = float(expected_tokens(fleet, call))
    new_s = here.prefill_s * new + here.attention_s * new * (hit + new / 2)
    longer_s = here.call_s + here.context_s * call.prompt
    step_s = here.step_s + here.call_s * here.decoding + here.context_s * here.context + longer_s
    cost_s = here.prefill_s * here.backlog + new_s + answer_tokens * step_s
    cost_s += here.decoding * (new_s + answer_tokens * longer_s)
    added = 0 if fleet.agents[call.session, call.agent].active == replica else call.prompt
    lost = max(0.0, here.active + added - here.kv_tokens)
    return cost_s + rule[7] * lost * (here.prefill_s + here.attention_s * call.prompt / 2)


@rare
def choose(fleet, index, rule, rng):  # type: ignore[no-untyped-def]
    """The replica that a rule sends an offered call to, or NONE to hold it."""
    kind, call = int(rule[0]), fleet.calls[index]
    count, most, least, total = 0, 0, 2**62, 0
    for replica in range(len(fleet.replicas)):
        fleet.replicas[replica].open = open_to(fleet, index, replica, rule)
        if fleet.replicas[replica].open:
            load = fleet.replicas[replica].calls + fleet.replicas[replica].waiting
            count, total, most, least = count + 1, total + load, max(most, load), min(least, load)
    if count == 0:
        return NONE
    home = fleet.agents[call.session, call.agent].home
    if home != NONE and not fleet.replicas[home].open:
        home = NONE
    if kind == STICKY and home != NONE:
        return home
    if kind == AFFINITY and home != NONE:
        load = fleet.replicas[home].calls + fleet.replicas[home].waiting
        if load + 1 <= rule[2] * (total + 1) / count:
            return home
    first, second = integer(rng, 0, count - 1), NONE
    if kind == TWO and count > 1:
        second = integer(rng, 0, count - 2)
        second += second >= first
    # Ties go to the first replica from a random one on: with the lowest index, replicas that are alike would not be
    # used alike.
    best, best_score, seen = NONE, np.inf, 0
    for turn in range(2):
        seen = 0
        for replica in range(len(fleet.replicas)):
            if not fleet.replicas[replica].open:
                continue
            number = seen
            seen += 1
            if kind in (RANDOM, TWO):
                is_candidate = turn == 0 and number in (first, second)
            else:
                is_candidate = number >= first if turn == 0 else number < first
            if is_candidate:
                score = _score(fleet, index, replica, rule, fleet.now[0].time, most, least)
                if score < best_score:
                    best, best_score = replica, score
    return best


@compiled
def play(index, until_s, rule, rng, ended, table):  # type: ignore[no-untyped-def]
    """Play under a rule until a time: DONE or FULL. `index`: the call that is offered already, or NONE."""
    fleet = fleet_of(table)
    while True:
        if index >= 0:
            replica = choose(fleet, index, rule, rng)
            fleet.now[0].decisions += 1
            fleet.now[0].passed += replica == NONE
            answer(fleet, index, replica)
        index = next_offer(fleet, until_s, ended)
        if index < 0:
            return index


def run(
    fleet: Fleet, until_s: float, values: NDArray[np.float64], rng: NDArray[np.uint64], parts: list[NDArray[Any]]
) -> Fleet:
    """Play one fleet under a rule, its kind and VALUES, and append the records of completed calls to `parts`."""
    ended = np.zeros(fleet.batch.shape[1], np.int64)
    while True:
        state = play(NONE, until_s, values, rng, ended, fleet_handles(fleet))
        parts.append(fleet.records[: fleet.now[0]["records"]].copy())
        fleet.now["records"] = 0
        if state != FULL:
            return fleet
        fleet = grown(fleet)
