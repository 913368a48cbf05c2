"""Rules that send calls to replicas, as they are used in the field, and a gate that holds calls back.

Among the replicas that the gate leaves open the rule chooses.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled, internal, rare
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.gate import open_to
from rllib_scale.simulator.replicas.handles import fleet_handles, fleet_of
from rllib_scale.simulator.replicas.loop import FULL, answer, next_offer
from rllib_scale.simulator.replicas.service import memory_now
from rllib_scale.simulator.replicas.state import NONE, Fleet, grown
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
_GATE = 1 + len(VALUES)


@rare
def expected_tokens(fleet, call):  # type: ignore[no-untyped-def]
    """Tokens of a call's answer, as far as they are known when it is asked; 0: hidden."""
    return fleet.tasks[fleet.first_task[fleet.sessions[call.session].script] + call.call].expected


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
        fleet.replicas[replica].open = open_to(fleet, index, replica, rule[1], rule[_GATE:])
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
