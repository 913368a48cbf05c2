"""A gate and its line by what a router knows: a rule on random fleets against the independent model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from fleets import fleet
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from replica_cases import random_case

from reference.gate import Gate
from reference.replica import Call, simulate
from rllib_scale.config.replica_rules import FLEET_RULES
from rllib_scale.config.schedulers import RuleSpec, parse_scheduler
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy
from rllib_scale.schedulers.replicas import REPLICA_RULES
from rllib_scale.simulator.replicas.gate import GATE_TERMS, PLACE_TERMS
from rllib_scale.simulator.replicas.rules import run
from rllib_scale.simulator.replicas.state import new_fleet
from rllib_scale.workloads.random_numbers import new_generator

SAME = {"rel": 1e-9, "abs": 1e-9}
THRESHOLD, ABSOLUTE, RELATIVE = 0.3, 2, 1.2


def best_match(gate: Gate, call: Call, openings: list[int]) -> list[int]:
    """`cache-aware`, which draws nothing, among the replicas that are open."""
    if not openings:
        return []
    loads = {at: len(gate.replicas[at].running) + len(gate.replicas[at].waiting) for at in openings}
    matches = {at: gate.known[at].found(call) / call.prompt for at in openings}
    least, most = min(loads.values()), max(loads.values())
    best = max(openings, key=lambda at: matches[at])
    if not (most - least > ABSOLUTE and most > RELATIVE * least) and matches[best] > THRESHOLD:
        return [best]
    return [min(openings, key=lambda at: loads[at])]


class Following(Gate):
    """Adds a term to the room that it sees: ln(1 + seconds of the prefill that a call needs there), weighted.

    The weight counts from .9 of the tokens that the gate allows on, in full at all of them.
    """

    def __init__(self, *of: Any, weight: float) -> None:
        super().__init__(*of)
        self.weight = weight

    def passes(self, call: Call, at: int) -> bool:
        agent, facts = self.agents.get((call.session, call.agent)), self.replicas[at].facts
        is_here = agent is not None and agent.at == at
        room = 1.0 if is_here else self.settings.gate - self.count(at, (call, call.prompt)) / facts.kv_tokens
        hit = self.replicas[at].found(call)
        new = call.target - hit
        new_s = facts.prefill_s * new + facts.attention_s * new * (hit + new / 2)
        allowed = self.settings.gate * sum(replica.facts.kv_tokens for replica in self.replicas)
        filled = sum(self.count(at) for at in range(len(self.replicas))) / allowed
        return bool(room + self.weight * np.clip((filled - 0.9) / 0.1, 0, 1) * np.log1p(new_s) >= 0)


def agree(seed: int, caches: float | str, weight: float | None = None) -> int:
    """All calls of a random fleet behind a gate are those of the independent model; returns how many were held.

    `weight` is that of the prefill's term, where the gate follows the state.
    """
    case = random_case(seed)
    # Turns that begin as soon as another ends could ask together, and calls that do have no order in the models.
    case.scripts.tasks["release_s"][case.scripts.tasks["needs"] > 0] = -1.0
    gate = replace(case.gate, gate=max(0.2, case.gate.gate), caches=caches)
    of = case.replicas, case.scripts, case.starts, case.live, case.closed_loop
    kind: Any = Gate if weight is None else partial(Following, weight=weight)
    expected, after = simulate(*of, case.until_s, best_match, gate, kind=kind)
    line = f"gate={gate.gate},order={gate.k},offers={gate.offers}"
    line += f",head_after_s={gate.head_after_s}" if gate.head_after_s is not None else ""
    balance = f"balance_abs_threshold={ABSOLUTE},balance_rel_threshold={RELATIVE}"
    spec = parse_scheduler(f"cache-aware:{line},cache_threshold={THRESHOLD},{balance}")
    assert isinstance(spec, RuleSpec)
    rule: Any = REPLICA_RULES[spec.name](spec.parameters)
    empty = new_fleet(
        case.replicas, case.scripts.arrays, case.starts, case.live, case.closed_loop, gate.active_for_s, gate.ends_told
    )
    parts = list[np.ndarray]()
    weights = [] if weight is None else [weight] + [0.0] * (len(GATE_TERMS) + len(PLACE_TERMS) - 1)
    played = run(empty, case.until_s, np.append(rule.values, weights), new_generator(seed, 0), parts, caches)
    rows = np.concatenate(parts)
    by_call = {(int(row["session"]), int(row["call"])): row for row in rows}
    assert len(rows) == len(by_call) == len(expected)
    for call in expected:
        row = by_call[call.session, call.number]
        assert (row["replica"], row["hit"]) == (call.replica, call.hit)
        times = [row[name] for name in ("asked_s", "placed_s", "end_s")]
        assert times == pytest.approx((call.asked, call.placed, call.end), **SAME)
    assert played.replicas["active"].tolist() == [after.count(at) for at in range(len(case.replicas))]
    assert played.now[0]["held"] == len(after.held)
    return int((rows["placed_s"] > rows["asked_s"]).sum())


@settings(max_examples=2, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_a_gate_reads_the_memory_of_its_router(seed: int) -> None:
    agree(seed, "own")


# An emptied replica takes a call beyond the offers; two agents are idle since one step; a context is evicted between
# two ends of planned steps, which the rule sees, or the gate.
@pytest.mark.parametrize(
    ("seed", "caches", "weight"),
    [(500100, "own", None), (500360, "own", None), (12713012, "exact", None), (325, "exact", -2.0), (47, "exact", 2.0)],
)
def test_rare_events_are_those_of_the_independent_model(seed: int, caches: str, weight: float | None) -> None:
    agree(seed, caches, weight)


@pytest.mark.slow
@settings(max_examples=300, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_300_gates_read_the_memory_of_their_routers(seed: int) -> None:
    agree(seed, "own")


@pytest.mark.slow
@settings(max_examples=300, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1), st.sampled_from(["exact", 0.3, 2.0, 1e9]))
def test_300_gates_read_the_caches_as_they_were_read(seed: int, caches: float | str) -> None:
    agree(seed, caches)


@pytest.mark.slow
@settings(max_examples=300, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1), st.floats(-3.0, 3.0))
def test_300_gates_that_follow_the_state_read_the_caches_of_now(seed: int, weight: float) -> None:
    agree(seed, "exact", weight)


def test_the_cases_hold_calls() -> None:
    assert sum(agree(seed, "own") for seed in range(5)) > 10


@pytest.mark.parametrize("rule", FLEET_RULES)
def test_under_its_own_memory_a_rule_plays_behind_a_gate_or_is_refused_as_by_a_router(rule: str) -> None:
    env = fleet(sessions=14, end_s=400.0)
    own = env.model_copy(update={"observation": env.observation.model_copy(update={"caches": "own"})})
    if FLEET_RULES[rule].no_router:
        with pytest.raises(UserError, match=rf"caches own: {rule}: {FLEET_RULES[rule].no_router}; valid: .*two-ch"):
            play(make_policy(rule, own), own, 5, [0])
    else:
        played: Any = play(make_policy(f"{rule}:gate=1,order=3", own), own, 5, [0])
        assert played.metrics()["held_calls"] > 0
