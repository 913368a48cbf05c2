"""Which held call goes: compiled code against the independent model, and what it leaves as it was."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from fleets import fleet
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from replica_cases import assert_same, random_case
from test_published_rules import ring

from reference.release import ReleasingGate
from reference.replica import simulate
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy
from rllib_scale.schedulers.release import ReleaseIndex
from rllib_scale.simulator.replicas.gate import GATE_TERMS
from rllib_scale.simulator.replicas.rules import run
from rllib_scale.simulator.replicas.state import CALL_TERMS, FLEET_TERMS, new_fleet
from rllib_scale.workloads.random_numbers import new_generator

TERMS = len(CALL_TERMS) + len(FLEET_TERMS)
COUNTED = ("new", "new_held", "calls", "active", "one", "held", "waited", "working_set", "prompt")
"""Terms of the gate that the independent model has."""


def index_of(rule: str, **weights: float) -> ReleaseIndex:
    """A policy with weights of some terms of the index."""
    values = np.zeros(ReleaseIndex.size())
    for name, weight in weights.items():
        values[-TERMS + (*CALL_TERMS, *FLEET_TERMS).index(name)] = weight
    return ReleaseIndex(values, rule)


@settings(max_examples=2, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_the_call_of_the_largest_index_goes(seed: int) -> None:
    agree(seed)


@pytest.mark.slow
@settings(max_examples=300, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_the_call_of_the_largest_index_goes_in_many_fleets(seed: int) -> None:
    agree(seed)


def agree(seed: int) -> tuple[int, int]:
    """All calls of a random fleet are as the independent model has them; how often it was asked, and none went."""
    case, rng = random_case(seed), np.random.default_rng(seed)
    weights = rng.normal(size=TERMS) * (rng.random(TERMS) < 0.7)
    gate_weights = rng.normal(size=len(COUNTED)) * 0.2 * (rng.random(len(COUNTED)) < 0.5 * (rng.random() < 0.5))
    of, walks = replace(case.gate, caches=rng.choice(["exact", "own"])), ring(60, len(case.replicas))
    kind = partial(ReleasingGate, gate=gate_weights.tolist(), weights=weights.tolist())
    world = case.replicas, case.scripts, case.starts, case.live, case.closed_loop, case.until_s
    calls, gate = simulate(
        *world, lambda gate, call, is_open: [at for at in walks[call.session] if at in is_open], of, kind=kind
    )
    line = f"gate={of.gate},order={of.k},head_after_s={of.head_after_s or 1e9}"
    line += f",active_for_s={of.active_for_s}" if of.active_for_s > 0 else ""  # in place of the problem's
    policy = ReleaseIndex(np.zeros(ReleaseIndex.size()), f"bounded-consistent-hashing:max_load_skew=1e9,{line}")
    policy.weights[-TERMS:] = weights
    policy.weights[[GATE_TERMS.index(name) for name in COUNTED]] = gate_weights
    arrays, times = case.scripts.arrays, (1e3 if of.active_for_s > 0 else 0.0, of.ends_told)
    empty = new_fleet(case.replicas, arrays, case.starts, case.live, case.closed_loop, *times)
    parts = list[Any]()
    played = run(empty, case.until_s, policy.values, new_generator(seed, 0), parts, of.caches)
    assert_same(np.concatenate(parts), calls)
    assert isinstance(gate, ReleasingGate)
    assert played.now[0]["held"] == len(gate.held)
    return gate.asked_about, gate.refused


def test_the_cases_ask_and_hold() -> None:
    counts = np.array([agree(seed) for seed in range(12)])
    asked, refused = counts.sum(axis=0)
    assert asked > 200
    assert 20 < refused < asked - 20


def calls_of(policy: Any, env: Any) -> Any:
    engine: Any = play(policy, env, 5, [0])
    return engine.calls(), engine.metrics()


def test_below_the_cliff_nothing_changes_and_past_it_an_index_orders_and_holds() -> None:
    rule = "lmetric:gate=0.95,order=3"
    quiet, full = fleet(sessions=2, end_s=1500.0), fleet(sessions=16, end_s=1500.0)
    ruled, ruled_metrics = calls_of(make_policy(rule, quiet), quiet)
    assert ruled_metrics["held_calls"] == 0
    wild, _ = calls_of(index_of(rule, one=-5.0, prompt=3.0), quiet)
    np.testing.assert_array_equal(wild, ruled)
    small, large, closed = (
        calls_of(index_of(rule, one=one, prompt=prompt), full)[1]
        for one, prompt in ((50.0, -1.0), (50.0, 1.0), (-50.0, 0.0))
    )
    assert small["response_censored_s"] < 0.9 * large["response_censored_s"]
    assert closed["response_censored_s"] > 1.2 * small["response_censored_s"], "only beside idle replicas"
    assert closed["utilisation"] > 0.5
