"""Rules as their sources define them: each formula written out on the states of the independent model.

A rule plays a random fleet in compiled code; the independent model sends the calls to the same replicas, and checks
before each of them that the formula has no better replica. Memory is ample: within a jump over several steps compiled
code evicts at its end, the independent model at each step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fleets import fleet
from fleets import played as played_by
from replica_cases import Case, random_case

from reference.gate import GateSettings
from reference.replica import Call, Replica, simulate
from rllib_scale.config.schedulers import RuleSpec, parse_scheduler
from rllib_scale.schedulers.replicas import REPLICA_RULES, FleetRule
from rllib_scale.simulator.replicas.rules import run
from rllib_scale.simulator.replicas.state import new_fleet
from rllib_scale.workloads.random_numbers import new_generator
from seeds import each_of

Costs = Callable[[list[Replica], Call], list[float]]
"""What a rule minimises, for each replica."""
BEST = -1e-9


def choices(case: Case, rule: str, seed: int, caches: float | str = "exact") -> dict[tuple[int, int], int]:
    """Session and call -> replica, as compiled code decides."""
    spec = parse_scheduler(rule)
    assert isinstance(spec, RuleSpec)
    scheduler = REPLICA_RULES[spec.name](spec.parameters)
    assert isinstance(scheduler, FleetRule)
    empty = new_fleet(case.replicas, case.scripts.arrays, case.starts, case.live, case.closed_loop)
    parts = list[np.ndarray]()
    played = run(empty, case.until_s, scheduler.values, new_generator(seed, 0), parts, caches)
    ended = np.concatenate(parts)
    is_open, row = np.ones(len(played.calls), bool), int(played.now[0]["free_calls"])
    while row >= 0:
        is_open[row], row = False, int(played.calls[row]["next"])
    rows = played.calls[is_open]
    keys = [*zip(ended["session"].tolist(), ended["call"].tolist(), strict=True)]
    keys += zip(played.sessions["number"][rows["session"]].tolist(), rows["call"].tolist(), strict=True)
    return dict(zip(keys, [*ended["replica"].tolist(), *rows["replica"].tolist()], strict=True))


def decisions(
    seed: int,
    rule: str,
    costs: Costs,
    caches: float | str = "exact",
    sent: Callable[[Case, Call], None] | None = None,
    memory: int = 20,
) -> list[tuple[int, list[float]]]:
    """The replica that a rule chose on a random fleet and the costs of all, but where rounding decides who is first."""
    case = random_case(seed)
    case.replicas = [each.model_copy(update={"kv_tokens": memory * each.kv_tokens}) for each in case.replicas]
    chosen, seen = choices(case, rule, seed, caches), list[tuple[float, int, list[float]]]()

    def see(replicas: list[Replica], call: Call) -> None:
        fit = [call.prompt + call.output <= replica.facts.kv_tokens for replica in replicas]
        each = [cost if fits else np.inf for cost, fits in zip(costs(replicas, call), fit, strict=True)]
        seen.append((call.asked, call.replica, each))
        if sent is not None:
            sent(case, call)

    loop = case.closed_loop
    of = case.replicas, case.scripts, case.starts, case.live, loop, case.until_s
    simulate(*of, lambda gate, call, _: [int(chosen[call.session, call.number])], GateSettings(), see)
    times = np.array([-1.0, *(time for time, *_ in seen), np.inf])
    is_alone = np.minimum(np.diff(times)[1:], np.diff(times)[:-1]) > 1e-9
    if sent is not None:  # and what is remembered from then on
        is_alone = np.logical_and.accumulate(is_alone)
    return [(replica, each) for (_, replica, each), alone in zip(seen, is_alone, strict=True) if alone]


def check(seed: int, rule: str, costs: Costs, *how: Any, **more: Any) -> int:
    """Check all choices of a rule on a random fleet; returns how often replicas were of unlike cost."""
    found = decisions(seed, rule, costs, *how, **more)
    for replica, each in found:
        assert each[replica] <= min(each) + 1e-9, (rule, seed, replica, each)
    return sum(max(each) > min(each) + 1e-9 for _, each in found)


def min_max(values: list[int]) -> list[float]:
    """1 for the least, 0 for the most, 1 for all while max = min."""
    if max(values) == min(values):
        return [1.0] * len(values)
    return [(max(values) - value) / (max(values) - min(values)) for value in values]


def llm_d(prefix: float, queue: float, memory: float, running: float) -> Costs:
    """Queue, KV-cache-utilization, prefix-cache and running-requests-size scorers."""

    def costs(replicas: list[Replica], call: Call) -> list[float]:
        of_queue = min_max([len(replica.waiting) for replica in replicas])
        of_running = min_max([len(replica.running) for replica in replicas])
        return [
            -prefix * replica.found(call) / call.prompt
            - queue * of_queue[at]
            - memory * (1 - replica.pinned() / replica.facts.kv_tokens)
            - running * of_running[at]
            for at, replica in enumerate(replicas)
        ]

    return costs


@each_of(range(60), by_default=15)
def test_weighted_scores_are_those_of_llm_d(seed: int) -> None:
    check(seed, "weighted-scores", llm_d(3, 2, 2, 0))
    weights = np.random.default_rng(seed).integers(0, 4, 4).tolist()
    names = ("prefix_cache", "queue", "kv_cache_utilization", "running_requests")
    written = ",".join(f"{name}={weight}" for name, weight in zip(names, weights, strict=True))
    check(seed, f"weighted-scores:{written}", llm_d(*weights))


@each_of(range(60), by_default=15)
def test_the_filter_keeps_sticky_replicas_unless_others_answer_much_sooner(seed: int) -> None:
    rng = np.random.default_rng(seed)
    threshold, penalty_ms, per_s = rng.choice([0.3, 0.8]), rng.choice([0.0, 40.0, 18_000.0]), 1000.0

    def costs(replicas: list[Replica], call: Call) -> list[float]:
        calls = [[*replica.running, *replica.waiting] for replica in replicas]
        tokens = [sum(each.new for each in here if each.first is None) for here in calls]
        first_ms = [each / per_s * 1000 for each in tokens]
        sticky = [at for at, replica in enumerate(replicas) if replica.found(call) / call.prompt >= threshold]
        others = [at for at in range(len(replicas)) if at not in sticky]
        best_sticky, best_other = (min((first_ms[at] for at in part), default=math.inf) for part in (sticky, others))
        is_broken = penalty_ms > 0 and best_sticky - best_other > penalty_ms
        kept = sticky if sticky and not is_broken else range(len(replicas))
        load = [each + call.prompt - replica.found(call) for each, replica in zip(tokens, replicas, strict=True)]
        return [-(1 - min(1, load[at] / 60)) if at in kept else math.inf for at in range(len(replicas))]

    rule = f"affinity_threshold={threshold},max_ttft_penalty_ms={penalty_ms},peak_prefill_throughput={per_s}"
    check(seed, f"prefix-cache-affinity:{rule},queue_threshold_tokens=60", costs)


@each_of(range(60), by_default=15)
def test_cache_aware_takes_the_best_match_while_loads_are_balanced(seed: int) -> None:
    """As in SGLang's gateway and vLLM's router: src/policies/cache_aware.rs; ties go to the first worker."""
    rng = np.random.default_rng(seed)
    threshold, absolute, relative = float(rng.choice([0.2, 0.5])), int(rng.choice([1, 3])), 1.1

    def costs(replicas: list[Replica], call: Call) -> list[float]:
        loads = [len(replica.running) + len(replica.waiting) for replica in replicas]
        matches = [replica.found(call) / call.prompt for replica in replicas]
        is_unbalanced = max(loads) - min(loads) > absolute and max(loads) > relative * min(loads)
        by_match = not is_unbalanced and max(matches) > threshold
        chosen = matches.index(max(matches)) if by_match else loads.index(min(loads))
        return [float(at != chosen) for at in range(len(replicas))]

    rule = f"cache_threshold={threshold},balance_abs_threshold={absolute},balance_rel_threshold={relative}"
    check(seed, f"cache-aware:{rule}", costs)


def ring(sessions: int, replicas: int) -> list[list[int]]:
    """Of each session the replicas in their order on the ring, by splitmix64 in Python's own integers."""

    def mixed(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    nodes = [(mixed(number), number // 160) for number in range(160 * replicas)]
    keys = [mixed(2**63 + number) for number in range(sessions)]
    walks = [[at for _, at in sorted(((node - key) % 2**64, at) for node, at in nodes)] for key in keys]
    return [list(dict.fromkeys(walk)) for walk in walks]


@each_of(range(60), by_default=15)
def test_bounded_hashing_walks_the_ring_to_the_first_replica_below_the_bound(seed: int) -> None:
    """As SGLang's gateway: src/policies/bounded_consistent_hashing.rs."""
    orders = ring(60, len(random_case(seed).replicas))

    def costs(replicas: list[Replica], call: Call) -> list[float]:
        loads = [len(replica.running) + len(replica.waiting) for replica in replicas]
        most = 1.2 * sum(loads) / len(loads)
        chosen = next(at for at in orders[call.session] if loads[at] <= most)
        return [float(at != chosen) for at in range(len(replicas))]

    check(seed, "bounded-consistent-hashing:max_load_skew=1.2", costs)


def dynamo(weight: float, size: int) -> Costs:
    """Prefill and decode blocks with the call [ai-dynamo/dynamo, docs/components/router/router-concepts.md]."""

    def blocks(replica: Replica, calls: list[Call]) -> set[tuple[str, int, int]]:
        """Whole blocks of prompts, a block by the prefix or else by the call that has its last token."""
        unique = set()
        for call in calls:
            for number in range(call.prompt // size):
                last, owner = (number + 1) * size, ("call", id(call))
                for prefix, (begin, end) in replica.prefixes_of(call).items():
                    owner = ("prefix", prefix) if begin < last <= end else owner
                unique.add((*owner, number))
        return unique

    def costs(replicas: list[Replica], call: Call) -> list[float]:
        found = []
        for replica in replicas:
            active = [*replica.running, *replica.waiting]
            prefill = [(each.prompt, each.prompt - each.new) for each in active if each.first is None]
            prefill.append((call.prompt, replica.found(call)))
            prefill_blocks = sum(prompt - cached // size * size for prompt, cached in prefill) / size
            found.append(weight * prefill_blocks + len(blocks(replica, [*active, call])))
        return found

    return costs


@each_of(range(60), by_default=15)
def test_the_cost_of_dynamo_is_of_blocks_to_prefill_and_blocks_in_flight(seed: int) -> None:
    weight, size = [0.0, 0.5, 1.0, 4.0][seed % 4], [1, 4, 16][seed % 3]
    check(seed, f"dynamo-kv:overlap_score_weight={weight},kv_cache_block_size={size}", dynamo(weight, size))


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_dynamo_samples_by_a_softmax_of_costs_over_their_range(temperature: float) -> None:
    """The best replica and the worst one are chosen as often as the probabilities say; the seeds are fixed."""
    differ, rule = np.zeros((2, 2)), f"dynamo-kv:router_temperature={temperature},kv_cache_block_size=4"
    for seed in range(25):
        for replica, each in decisions(seed, rule, dynamo(1.0, 4)):
            costs = np.array(each)
            least, most = costs.min(), costs.max()
            if least < most < np.inf:
                weights = np.exp(-(costs - least) / (most - least) / temperature)
                for row, at in enumerate((least, most)):
                    share = weights[costs == at].sum() / weights.sum()
                    differ[row] += (each[replica] == at) - share, share * (1 - share)
    assert differ[0, 1] > 20
    assert (abs(differ[:, 0]) < 3 * np.sqrt(differ[:, 1])).all(), differ


@each_of(range(20), by_default=5)
def test_round_robin_takes_one_after_the_other(seed: int) -> None:
    turn = 0

    def costs(replicas: list[Replica], call: Call) -> list[float]:
        nonlocal turn
        chosen, turn = turn % len(replicas), turn + 1
        return [float(at != chosen) for at in range(len(replicas))]

    check(seed, "round-robin-replica", costs)


def lmetric(replicas: list[Replica], call: Call, caches: list[Replica]) -> list[float]:
    """New prefill tokens times batch, by what is known of caches."""
    return [
        (call.prompt - cache.found(call)) * (len(here.running) + len(here.waiting) + 1)
        for here, cache in zip(replicas, caches, strict=True)
    ]


@each_of(range(60), by_default=15)
def test_exact_knowledge_is_that_of_the_caches(seed: int) -> None:
    check(seed, "lmetric", lambda replicas, call: lmetric(replicas, call, replicas))


@each_of(range(60), by_default=15)
def test_own_memory_is_of_what_was_sent_where_as_much_as_fits(seed: int) -> None:
    """A cache of the independent model for each replica, whose calls are computed as they are sent and end at once."""
    memories = list[Replica]()

    def sent(case: Case, call: Call) -> None:
        if not memories:
            memories.extend(Replica(each, case.scripts.tree) for each in case.replicas)
        told = replace(call, computed=0)
        memories[call.replica].admit(told)
        told.computed = told.target
        memories[call.replica].leave(told)

    def costs(replicas: list[Replica], call: Call) -> list[float]:
        return lmetric(replicas, call, memories) if memories else [0.0] * len(replicas)

    check(seed, "lmetric", costs, "own", sent, memory=1)


@each_of(range(60), by_default=15)
def test_to_its_own_memory_all_calls_that_are_not_answered_run(seed: int) -> None:
    def costs(replicas: list[Replica], call: Call) -> list[float]:
        calls = [[*replica.running, *replica.waiting] for replica in replicas]
        running = min_max([len(each) for each in calls])
        tokens = [sum(call.prompt for call in each) for each in calls]
        return [-2 * (1 - tokens[at] / replica.facts.kv_tokens) - running[at] for at, replica in enumerate(replicas)]

    check(seed, "weighted-scores:prefix_cache=0,running_requests=1", costs, "own")


@each_of(range(60), by_default=15)
def test_caches_that_were_never_read_are_empty(seed: int) -> None:
    check(seed, "cache-aware:balance_abs_threshold=1e9", first_of_least, 1e9)


def first_of_least(replicas: list[Replica], call: Call) -> list[float]:
    loads = [len(replica.running) + len(replica.waiting) for replica in replicas]
    return [float(at != loads.index(min(loads))) for at in range(len(replicas))]


def test_the_cases_leave_a_choice() -> None:
    assert sum(check(seed, "weighted-scores", llm_d(3, 2, 2, 0)) for seed in range(15)) > 200


@pytest.mark.parametrize("rule", ["two-choices", "weighted-scores:prefix_cache=0", "least-outstanding"])
def test_replicas_that_are_alike_are_used_alike(rule: str) -> None:
    calls = played_by(rule, fleet(sessions=1, replicas=8, end_s=4000.0)).calls
    counts = Counter(calls["replica"].tolist())
    assert len(counts) == 8
    assert max(counts.values()) < 1.7 * min(counts.values()), counts
