"""What each rule chooses, what a gate holds, and what fleets of sessions cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fleets import fleet, played

from rllib_scale.config import EnvConfig
from rllib_scale.config.identity import protocol_of, world_of
from rllib_scale.config.replica_rules import FLEET_RULES
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.release import ReleaseIndex
from rllib_scale.simulator.replicas import gate, rules
from rllib_scale.simulator.replicas.engine import ReplicaEngine
from rllib_scale.simulator.replicas.scripts import scripts_of


def moves(calls: pd.DataFrame) -> float:
    """Share of calls that are not where the call before them in the session was."""
    ordered = calls.sort_values(["session", "call"])
    before = ordered.groupby("session")["replica"].shift()
    return float((ordered["replica"] != before)[before.notna()].mean())


def test_rules_move_sessions_as_they_say() -> None:
    moved = {name: moves(played(name, fleet()).calls) for name in FLEET_RULES}
    assert moved["session-affinity"] == 0
    assert moved["random-replica"] == pytest.approx(2 / 3, abs=0.15)
    assert 0.4 < moved["least-outstanding"] < 0.9
    assert 0.4 < moved["two-choices"] < 0.9
    assert moved["bounded-affinity"] < moved["random-replica"]
    for name in ("lmetric", "weighted-scores", "prefix-cache-affinity", "marginal-price"):
        assert moved[name] < 0.1
    assert moves(played("bounded-affinity:bound=100", fleet()).calls) == 0
    assert moves(played("bounded-consistent-hashing:max_load_skew=100", fleet()).calls) == 0
    assert moved["round-robin-replica"] > 0.4
    assert moves(played("weighted-scores:prefix_cache=0,kv_cache_utilization=0", fleet()).calls) > 0.4, (
        "without the cache by load alone"
    )
    assert moves(played("marginal-price:answer=1e9", fleet()).calls) > 0.4, "long answers: by the length of steps alone"


def test_every_rule_has_its_code_and_its_parameters() -> None:
    assert set(FLEET_RULES) == set(rules.KINDS)
    named = {name for spec in FLEET_RULES.values() for name in spec.parameters.model_fields}
    assert named == set(rules.VALUES)


def test_least_outstanding_is_even_and_two_choices_are_between_it_and_random() -> None:
    waits = {name: played(name, fleet(sessions=8)).metrics["ttft_mean_s"] for name in ("random-replica", "two-choices")}
    counts = played("least-outstanding", fleet()).calls["replica"].value_counts()
    assert counts.min() > 0.8 * counts.max()
    assert waits["two-choices"] < waits["random-replica"]


def test_a_gate_keeps_the_working_set_in_the_memory_and_gains_past_the_cliff() -> None:
    free, gated = (played(rule, fleet(sessions=14)).metrics for rule in ("lmetric", "lmetric:gate=1"))
    assert free["working_set"] > 1.2
    assert gated["working_set"] < 1.1
    assert gated["hit_rate"] > free["hit_rate"] + 0.3
    assert gated["output_per_gpu_hour"] > 1.3 * free["output_per_gpu_hour"]
    assert free["held_calls"] == free["longest_hold_s"] == free["passed"] == 0
    assert gated["held_calls"] > 10
    assert gated["longest_hold_s"] > 10
    assert played("lmetric:gate=1", fleet(sessions=2)).metrics["held_calls"] == 0


def test_the_terms_of_a_gate_hold_and_place() -> None:
    env, gate_terms = fleet(sessions=12, end_s=1000.0), len(gate.GATE_TERMS)
    weights = np.zeros((3, ReleaseIndex.size()))
    weights[1, gate.GATE_TERMS.index("one")] = -1.5
    weights[2, gate_terms + gate.PLACE_TERMS.index("active")] = 10.0
    batch: Any = play(ReleaseIndex(weights, "lmetric:gate=1"), env, 5, [0, 0, 0])
    same, tighter, leaving = ({"calls": batch.calls(b), "metrics": batch.metrics(b)} for b in range(3))
    assert tighter["metrics"]["working_set"] < same["metrics"]["working_set"] - 0.02
    assert tighter["metrics"]["held_calls"] > same["metrics"]["held_calls"]
    assert moves(pd.DataFrame(leaving["calls"])) > moves(pd.DataFrame(same["calls"])) + 0.02
    quiet: Any = play(ReleaseIndex(weights, "lmetric:gate=1"), fleet(sessions=3, end_s=1000.0), 5, [0, 0, 0])
    for other in (1, 2):
        np.testing.assert_array_equal(quiet.calls(other), quiet.calls(0), "far below what the gate allows")


def test_caches_that_are_read_seldom_are_hit_less_and_a_memory_of_its_own_does_for_a_router() -> None:
    def known(caches: float | str) -> EnvConfig:
        env = fleet(sessions=5)
        observation = env.observation.model_copy(update={"caches": caches})
        return env.model_copy(update={"observation": observation})

    hits = {caches: played("lmetric", known(caches)).metrics["hit_rate"] for caches in ("exact", "own", 1.0, 300.0)}
    assert hits[300.0] < min(hits["exact"], hits["own"], hits[1.0]) - 0.05
    assert hits["own"] == pytest.approx(hits["exact"], abs=0.05)
    assert hits[1.0] == pytest.approx(hits["exact"], abs=0.05)


def test_what_a_rule_knows_is_part_of_the_protocol_and_refused_where_nobody_reads_it() -> None:
    env = fleet()
    own = EnvConfig.model_validate(env.model_dump(exclude_defaults=True) | {"observation": {"caches": "own"}})
    assert world_of(own) == world_of(env)
    assert protocol_of(own) == protocol_of(env) | {"observation": {"caches": "own"}}
    engine = ReplicaEngine(own)
    engine.reset([0], [0])
    with pytest.raises(UserError, match=r"observation\.caches own: only rules for replicas read it; .*: exact"):
        engine.step([0])
    with pytest.raises(ValueError, match=r"observation\.caches: has no effect with service fixed; leave it out"):
        EnvConfig.model_validate({"observation": {"caches": 5.0}})


def test_a_price_on_lost_contexts_keeps_more_of_them() -> None:
    priced, free = (played(f"marginal-price:overflow={weight}", fleet(sessions=8)).metrics for weight in ("10", "0"))
    assert priced["hit_rate"] >= free["hit_rate"]
    assert priced != free


def test_held_calls_count_from_the_moment_they_ask() -> None:
    calls = played("session-affinity:gate=0.6", fleet(sessions=8, end_s=2500.0)).calls
    held = calls[calls["placed_s"] > calls["asked_s"]]
    assert len(held) > 20
    assert (calls["asked_s"] <= calls["placed_s"]).all()
    assert (calls["placed_s"] <= calls["admitted_s"]).all()
    ordered = held.sort_values("placed_s")
    assert np.corrcoef(ordered["asked_s"], ordered["placed_s"])[0, 1] > 0.9, "the first held is offered first"


def test_the_order_of_release_gains_in_the_mean_and_a_head_of_the_line_bounds_holds() -> None:
    env, most = fleet(sessions=24, end_s=2500.0), 200.0
    line = ("", ",order=100", f",order=100,head_after_s={most:g}")
    asked, small, capped = (played(f"lmetric:gate=1{more}", env).metrics for more in line)
    assert small["response_censored_s"] < 0.9 * asked["response_censored_s"]
    assert capped["longest_hold_s"] < 0.8 * small["longest_hold_s"]


def test_the_integral_of_open_calls_is_the_sum_of_their_times() -> None:
    run = played("lmetric", fleet(warm_up_s=0.0, end_s=4000.0, sessions=1))
    done = (run.calls["end_s"] - run.calls["asked_s"]).sum()
    integral = run.metrics["response_censored_s"] * run.metrics["completed"]
    assert integral == pytest.approx(done, rel=0.02), "but for the calls that are open at the end"
    assert -run.metrics["episode_return"] == pytest.approx(integral)


def test_open_loop_turns_begin_at_their_times_and_closed_loop_sessions_follow_each_other() -> None:
    env = fleet(arrivals_per_s=0.002, warm_up_s=0.0, end_s=6000.0)
    run, scripts = played("session-affinity", env), scripts_of(env.service)
    firsts = run.calls.groupby("session")["asked_s"].min()
    assert len(firsts) == pytest.approx(0.002 * 3 * 6000, rel=0.5)
    roots = scripts.tasks["release_s"][scripts.first_task[run.calls["script"]] + run.calls["call"]]
    starts = pd.Series(run.calls["session"]).map(firsts)
    assert (run.calls["asked_s"] >= starts + roots - 1e-6)[roots > 0].all()
    assert played("session-affinity", fleet(warm_up_s=0.0, end_s=6000.0)).calls["session"].max() > 12
