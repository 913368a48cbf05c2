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
from rllib_scale.simulator.replicas.dynamo import cost, sampled
from rllib_scale.simulator.replicas.gate import GATE_TERMS, PLACE_TERMS, active_at, added_by, open_to, weigh_replicas
from rllib_scale.simulator.replicas.handles import fleet_handles, fleet_of
from rllib_scale.simulator.replicas.known import EXACT, OWN, Knowledge, count_calls, meet, remember
from rllib_scale.simulator.replicas.line import hold
from rllib_scale.simulator.replicas.loop import answer, begin_ticks, next_offer
from rllib_scale.simulator.replicas.pointed import NO_NETWORK, pick_by, pointing
from rllib_scale.simulator.replicas.release import go_on, must_line_up, pick
from rllib_scale.simulator.replicas.service import evict_until, usage
from rllib_scale.simulator.replicas.state import FULL, NONE, RELEASE, Fleet, grown
from rllib_scale.simulator.replicas.thunder import ask_program
from rllib_scale.workloads.random_numbers import integer, mix

RANDOM, LEAST, TWO, STICKY, AFFINITY, LMETRIC, SCORES, MARGINAL, ROBIN = range(9)
CACHE_AWARE, HASHING, DYNAMO, THUNDER = range(9, 13)
KINDS = MappingProxyType(
    {
        "random-replica": RANDOM,
        "least-outstanding": LEAST,
        "two-choices": TWO,
        "session-affinity": STICKY,
        "bounded-affinity": AFFINITY,
        "lmetric": LMETRIC,
        "weighted-scores": SCORES,
        "prefix-cache-affinity": SCORES,
        "marginal-price": MARGINAL,
        "round-robin-replica": ROBIN,
        "cache-aware": CACHE_AWARE,
        "bounded-consistent-hashing": HASHING,
        "dynamo-kv": DYNAMO,
        "thunder-agent": THUNDER,
    }
)
"""The rules of `rllib_scale.config.replica_rules.FLEET_RULES`."""
LINE = ("gate", "order", "head_after_s", "offers", "active_for_s")
VALUES = (
    *LINE,
    "bound",
    *("prefix_cache", "queue", "kv_cache_utilization", "running_requests", "token_load", "queue_threshold_tokens"),
    *("affinity_threshold", "max_ttft_penalty_ms", "peak_prefill_throughput"),
    *("answer", "overflow"),
    *("cache_threshold", "balance_abs_threshold", "balance_rel_threshold", "max_load_skew"),
    *("overlap_score_weight", "router_temperature", "kv_cache_block_size"),
    *("scheduler_interval", "acting_token_weight", "use_acting_token_decay", "buffer_per_program", "resume_timeout"),
    "characters_per_token",
)
"""Parameters as compiled code takes them, behind the kind; 0 where a rule has none."""
_BOUND, _PREFIX, _QUEUE, _KV, _RUNNING, _TOKENS, _THRESHOLD_TOKENS, _AFFINITY, _PENALTY_MS, _PREFILL_PER_S = range(
    1 + len(LINE), 11 + len(LINE)
)
_ANSWER, _OVERFLOW, _CACHE, _BALANCE_ABS, _BALANCE_REL, _SKEW, _OVERLAP, _TEMPERATURE, _BLOCK = range(
    11 + len(LINE), 20 + len(LINE)
)
_INTERVAL, _ACTING, _DECAYS, _BUFFER, _TIMEOUT, _CHARACTERS = range(20 + len(LINE), 1 + len(VALUES))
GATE_WEIGHTS = 1 + len(VALUES)
INDEX_WEIGHTS = GATE_WEIGHTS + len(GATE_TERMS) + len(PLACE_TERMS)
"""Where the weights of the gate of `release` begin, behind the parameters, and those of its index."""
CHARACTERS = 5.0
"""Of a token, as ThunderAgent takes them before the first answer."""
_STICKY = 2
"""An open replica that has the prefix, while the filter looks."""
_VIRTUAL_NODES = 160
"""Of each replica on the ring of consistent hashing [vllm-project/router, src/policies/consistent_hash.rs]."""


@rare
def expected_tokens(fleet, call):  # type: ignore[no-untyped-def]
    """Tokens of a call's answer, as far as they are known when it is asked; 0: hidden."""
    return fleet.tasks[fleet.first_task[fleet.sessions[call.session].script] + call.call].expected


@internal
def _score(fleet, known, index, replica, rule, ranges):  # type: ignore[no-untyped-def]
    """What a rule minimises over the replicas."""
    kind, call, here = int(rule[0]), fleet.calls[index], fleet.replicas[replica]
    load = here.calls + here.waiting
    if kind == LMETRIC:  # new prefill tokens x batch with the call [arXiv 2603.15202]
        score = float(call.target - found(known, call, replica)) * (load + 1)
        return score * math.exp(here.place) if len(rule) > GATE_WEIGHTS else score
    if kind == SCORES:
        return -_sum_of_scores(fleet, known, call, replica, rule, ranges)
    if kind == MARGINAL:
        return _marginal_s(fleet, known, call, replica, rule)
    if kind == DYNAMO:
        here.cost = cost(fleet, known, call, replica, rule[_OVERLAP], int(rule[_BLOCK]))
        return here.cost
    if kind == ROBIN:
        return float((replica - fleet.now[0].turn) % len(fleet.replicas))
    if kind == HASHING:
        return _clockwise(fleet.sessions[call.session].number, replica)
    return float(load)


@rare
def _clockwise(key, replica):  # type: ignore[no-untyped-def]
    """How far behind a key the next virtual node of a replica is on the ring of 2^64."""
    at, least = mix(np.uint64(key) + np.uint64(2**63)), np.inf
    for node in range(_VIRTUAL_NODES):
        behind = mix(np.uint64(replica * _VIRTUAL_NODES + node)) - at
        least = min(least, float(behind))
    return least


@rare
def _sum_of_scores(fleet, known, call, replica, rule, ranges):  # type: ignore[no-untyped-def]
    """llm-d's scorers by their weights: what it maximises [llm-d-router, plugins/scheduling/scorer]."""
    here, seen, hit = fleet.replicas[replica], known.replicas[replica], found(known, call, replica)
    least_waiting, most_waiting, least_calls, most_calls = ranges
    score = rule[_PREFIX] * hit / call.prompt
    score += rule[_QUEUE] * _rank(seen.waiting, least_waiting, most_waiting)
    score += rule[_KV] * (1.0 - usage(seen, fleet.now[0].time))
    score += rule[_RUNNING] * _rank(seen.calls, least_calls, most_calls)
    if rule[_TOKENS] > 0.0:
        tokens = here.in_flight + call.target - hit
        score += rule[_TOKENS] * (1.0 - min(1.0, tokens / rule[_THRESHOLD_TOKENS]))
    return score


@rare
def _rank(value, least, most):  # type: ignore[no-untyped-def]
    """1 for the least, 0 for the most; 1 for all while they are alike."""
    return (most - value) / (most - least) if most > least else 1.0


@rare
def _ranges(fleet, known):  # type: ignore[no-untyped-def]
    """Least and most waiting calls, and least and most running calls, of the open replicas."""
    least_waiting, most_waiting, least_calls, most_calls = 2**62, 0, 2**62, 0
    for replica in range(len(fleet.replicas)):
        seen = known.replicas[replica]
        if fleet.replicas[replica].open:
            least_waiting, most_waiting = min(least_waiting, seen.waiting), max(most_waiting, seen.waiting)
            least_calls, most_calls = min(least_calls, seen.calls), max(most_calls, seen.calls)
    return least_waiting, most_waiting, least_calls, most_calls


@rare
def _keep_sticky(fleet, known, call, rule):  # type: ignore[no-untyped-def]
    """llm-d's prefix-cache-affinity-filter: close replicas without the prefix; returns how many stay open.

    It closes none where none has the prefix, or where the best of those that have it would answer too much later than
    the best other one. They answer after the tokens in flight at `peak_prefill_throughput`.
    """
    count, sticky, sticky_ms, other_ms = 0, 0, np.inf, np.inf
    for replica in range(len(fleet.replicas)):
        here = fleet.replicas[replica]
        if not here.open:
            continue
        count += 1
        first_ms = here.in_flight / rule[_PREFILL_PER_S] * 1000.0
        if found(known, call, replica) / call.prompt >= rule[_AFFINITY]:
            here.open = _STICKY
            sticky, sticky_ms = sticky + 1, min(sticky_ms, first_ms)
        else:
            other_ms = min(other_ms, first_ms)
    if sticky == 0 or (rule[_PENALTY_MS] > 0.0 and sticky_ms - other_ms > rule[_PENALTY_MS]):
        return count
    for here in fleet.replicas:
        here.open = here.open == _STICKY
    return sticky


@rare
def _keep_match(fleet, known, call, rule):  # type: ignore[no-untyped-def]
    """Of `cache-aware`: while loads are balanced, close all but the best match, if it is good enough."""
    least, most, best, at = 2**62, 0, 0, NONE
    for replica in range(len(fleet.replicas)):
        here = fleet.replicas[replica]
        if not here.open:
            continue
        load, hit = here.calls + here.waiting, found(known, call, replica)
        least, most = min(least, load), max(most, load)
        if hit > best:
            best, at = hit, replica
    if most - least > rule[_BALANCE_ABS] and most > rule[_BALANCE_REL] * least:
        return
    if best / call.prompt > rule[_CACHE]:
        for replica in range(len(fleet.replicas)):
            fleet.replicas[replica].open = replica == at


@rare
def _keep_light(fleet, most):  # type: ignore[no-untyped-def]
    """Close replicas with more calls than that."""
    for here in fleet.replicas:
        here.open = here.open and here.calls + here.waiting <= most


@rare
def _marginal_s(fleet, known, call, replica, rule):  # type: ignore[no-untyped-def]
    """Seconds that a call costs all calls of a replica, its own included, as `adaptive-price` counts them.

    Its own: the prefill before it, its prefill, and its answer at the steps that the batch then takes. Of each call
    that decodes there: this prefill, and longer steps while the answer lasts. Of others: the contexts of active
    sessions that it makes the memory lose are computed again when they return.
    """
    here, seen, hit = fleet.replicas[replica], known.replicas[replica], found(known, call, replica)
    new, answer_tokens = call.target - hit, rule[_ANSWER]
    if expected_tokens(fleet, call) > 0:
        answer_tokens = float(expected_tokens(fleet, call))
    new_s = here.prefill_s * new + here.attention_s * new * (hit + new / 2)
    longer_s = here.call_s + here.context_s * call.prompt
    step_s = here.step_s + here.call_s * seen.decoding + here.context_s * seen.context + longer_s
    cost_s = here.prefill_s * seen.backlog + new_s + answer_tokens * step_s
    cost_s += seen.decoding * (new_s + answer_tokens * longer_s)
    added = 0 if active_at(fleet, call) == replica else added_by(fleet, call, replica)
    lost = max(0.0, here.active + added - here.kv_tokens)
    return cost_s + rule[_OVERFLOW] * lost * (here.prefill_s + here.attention_s * call.prompt / 2)


@rare
def choose(fleet, known, index, rule, rng):  # type: ignore[no-untyped-def]
    """The replica that a rule sends an offered call to, or NONE to hold it.

    It reads caches, memory in use and what runs and waits from `known`; from `fleet` what a router counts itself: calls
    that it has sent and that are not answered, and the agents that are active.
    """
    kind, call, now = int(rule[0]), fleet.calls[index], fleet.now[0]
    if kind == THUNDER:
        return ask_program(fleet, index)
    count, total = 0, 0
    weigh_replicas(fleet, known, rule[GATE_WEIGHTS:])
    for replica in range(len(fleet.replicas)):
        here = fleet.replicas[replica]
        here.open = open_to(fleet, known, index, replica, rule[GATE_WEIGHTS:])
        if here.open:
            count, total = count + 1, total + here.calls + here.waiting
            if now.gate > 0.0 and found(known, call, replica) > 0:  # without one: as the steps planned there began
                evict_until(known, replica, now.time)
    if count == 0:
        return NONE
    home = fleet.agents[call.session, call.agent].home
    if home != NONE and not fleet.replicas[home].open:
        home = NONE
    if kind == STICKY and home != NONE:
        return home
    if kind == AFFINITY and home != NONE:
        load = fleet.replicas[home].calls + fleet.replicas[home].waiting
        if load + 1 <= rule[_BOUND] * (total + 1) / count:
            return home
    ranges = (0, 0, 0, 0)
    if kind == SCORES:
        if rule[_AFFINITY] > 0.0:
            count = _keep_sticky(fleet, known, call, rule)
        ranges = _ranges(fleet, known)
    if kind == CACHE_AWARE:
        _keep_match(fleet, known, call, rule)
    if kind == HASHING:
        _keep_light(fleet, rule[_SKEW] * total / count)
    first, second = 0 if kind in (ROBIN, CACHE_AWARE, HASHING) else integer(rng, 0, count - 1), NONE
    if kind == TWO and count > 1:
        second = integer(rng, 0, count - 2)
        second += second >= first
    # Ties go to the first replica from a random one on: with the lowest index, replicas that are alike would not be
    # used alike. Published rules take the first one, or any at random.
    best, best_score, ties, seen = NONE, np.inf, 0, 0
    for turn in range(2):
        seen = 0
        for replica in range(len(fleet.replicas)):
            if not fleet.replicas[replica].open:
                continue
            number = seen
            seen += 1
            if (number >= first) != (turn == 0) or (kind == RANDOM and number != first):
                continue
            if kind == TWO and number not in (first, second):
                continue
            score = _score(fleet, known, index, replica, rule, ranges)
            if score < best_score:
                best, best_score, ties = replica, score, 1
            elif kind in (SCORES, DYNAMO) and score == best_score:
                ties += 1
                if integer(rng, 0, ties - 1) == 0:
                    best = replica
    if kind == DYNAMO and rule[_TEMPERATURE] > 0.0:
        best = sampled(fleet, rule[_TEMPERATURE], rng)
    if kind == ROBIN:
        fleet.now[0].turn = best + 1
    return best


@rare
def set_gate(now, rule):  # type: ignore[no-untyped-def]
    """Let the gate and the line be those of a rule, the first of its values."""
    now.gate, now.order, now.most_offers = rule[1], rule[2], rule[4]
    now.head_after_s = rule[3] if rule[3] > 0.0 else np.inf
    if rule[5] > 0.0:
        now.active_for_s = rule[5]


@rare
def _set_programs(fleet, rule):  # type: ignore[no-untyped-def]
    """Let the programs of `thunder-agent` be those of a rule, from now on."""
    now = fleet.now[0]
    if rule[0] == THUNDER and now.interval_s == 0.0:
        now.interval_s, now.resume_after_s, now.acting_weight = rule[_INTERVAL], rule[_TIMEOUT], rule[_ACTING]
        now.decays, now.buffer, now.estimate = int(rule[_DECAYS]), int(rule[_BUFFER]), rule[_CHARACTERS] / CHARACTERS
        begin_ticks(fleet)


@compiled
def play(index, until_s, rule, rng, ended, table, known_table, how, network):  # type: ignore[no-untyped-def]
    """Play under a rule until a time: DONE or FULL. `index`: the call that is offered already, or NONE.

    `known_table` is of what the rule knows, `how` it is known: EXACT, READ or OWN. `network`: Pointing.
    """
    fleet, known = fleet_of(table), fleet_of(known_table)
    set_gate(fleet.now[0], rule)
    fleet.now[0].answers_told = how != OWN
    _set_programs(fleet, rule)
    has_network = len(network.weights.pointer) > 0
    fleet.now[0].releases = has_network or len(rule) > INDEX_WEIGHTS
    while True:
        if index >= 0:
            call = fleet.calls[index]
            was_held = call.place != NONE
            if how != EXACT:
                meet(known, call.session, fleet.sessions[call.session].number)
            if how == OWN:
                count_calls(fleet, known)
            if must_line_up(fleet, call):
                hold(fleet, known, index)
            else:
                replica = choose(fleet, known, index, rule, rng)
                fleet.now[0].decisions += 1
                fleet.now[0].passed += replica == NONE
                answer(fleet, known, index, replica)
            if fleet.now[0].releases:
                go_on(fleet, call, was_held)
            if how != EXACT and call.replica != NONE:
                remember(fleet, known, call, how == OWN)
        index = next_offer(fleet, known, how, until_s, ended)
        if index == RELEASE and has_network:
            index = pick_by(network, fleet, known, rule[GATE_WEIGHTS:], how)
        elif index == RELEASE:
            index = pick(fleet, known, rule[GATE_WEIGHTS:], rule[INDEX_WEIGHTS:], how)
        elif index < 0:
            return index


def run(
    fleet: Fleet,
    until_s: float,
    values: NDArray[np.float64],
    rng: NDArray[np.uint64],
    parts: list[NDArray[Any]],
    caches: float | str = "exact",
) -> Fleet:
    """Play one fleet under a rule, its kind and VALUES, and append the records of completed calls to `parts`."""
    ended, known, network = np.zeros(fleet.batch.shape[1], np.int64), Knowledge(caches, fleet), pointing(NO_NETWORK)
    while True:
        table = fleet_handles(fleet)
        state = play(NONE, known.until(until_s), values, rng, ended, table, known.table(table), known.how, network)
        parts.append(fleet.records[: fleet.now[0]["records"]].copy())
        fleet.now["records"] = 0
        if state == FULL:
            fleet = grown(fleet)
        if not known.follow(fleet, state) and state != FULL:
            return fleet
