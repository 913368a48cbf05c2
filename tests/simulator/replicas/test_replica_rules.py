"""What each rule chooses, what a gate holds, and what fleets of sessions cannot do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rllib_scale.evaluation.fleets import Played, play_fleet
from rllib_scale.simulator.replicas import rules
from rllib_scale.simulator.replicas.arrivals import Load
from rllib_scale.simulator.replicas.presets import Replica
from rllib_scale.simulator.replicas.rules import NAMES, Rule, parse_rule
from rllib_scale.simulator.replicas.scripts import drawn_scripts
from rllib_scale.simulator.replicas.state import RECORD, Fleet

SCRIPTS = drawn_scripts(60)
SMALL = Replica(kv_tokens=500_000, step_s=0.04, prefill_s=1e-4)
"""Holds about six of the sessions."""


def played(rule: str, sessions: int = 4, replicas: int = 3, **load: float) -> Played:
    facts = {"duration_s": 900.0, "warm_up_s": 100.0} | load
    return play_fleet([SMALL] * replicas, SCRIPTS, Load(sessions=sessions, **facts), parse_rule(rule), seed=5)


def moves(calls: pd.DataFrame) -> float:
    """Share of calls that are not where the call before them in the session was."""
    ordered = calls.sort_values(["session", "call"])
    before = ordered.groupby("session")["replica"].shift()
    return float((ordered["replica"] != before)[before.notna()].mean())


def test_rules_move_sessions_as_they_say() -> None:
    moved = {name: moves(played(name).calls) for name in NAMES}
    assert moved["sticky"] == 0
    assert moved["random"] == pytest.approx(2 / 3, abs=0.15)
    assert 0.4 < moved["least-outstanding"] < 0.9
    assert 0.4 < moved["power-of-two"] < 0.9
    assert 0 < moved["lmetric"] < 0.1
    assert moved["lmetric"] < moved["weighted-scores"] < moved["prefix-affinity"] < moved["random"]
    assert moves(played("prefix-affinity:bound=100").calls) == 0
    assert moves(played("weighted-scores:prefix=0,memory=0").calls) > 0.4, "without the cache by load alone"


def test_least_outstanding_is_even_and_power_of_two_between_it_and_random() -> None:
    waits = {name: played(name, sessions=8).metrics["ttft_mean_s"] for name in ("random", "power-of-two", "sticky")}
    counts = played("least-outstanding").calls["replica"].value_counts()
    assert counts.min() > 0.8 * counts.max()
    assert waits["power-of-two"] < waits["random"]


def test_a_gate_keeps_the_working_set_in_the_memory_and_gains_past_the_cliff() -> None:
    free, gated = played("lmetric", sessions=14).metrics, played("lmetric:gate=1", sessions=14).metrics
    assert free["working_set"] > 1.2
    assert gated["working_set"] < 1.1
    assert gated["hit_rate"] > free["hit_rate"] + 0.3
    assert gated["output_per_gpu_hour"] > 1.3 * free["output_per_gpu_hour"]
    assert free["held_calls"] == free["longest_hold_s"] == 0
    assert gated["held_calls"] > 10
    assert gated["longest_hold_s"] > 10
    below = played("lmetric:gate=1", sessions=2).metrics
    assert below["held_calls"] == 0


def test_held_calls_count_from_the_moment_they_ask() -> None:
    calls = played("sticky:gate=0.6", sessions=8).calls
    held = calls[calls["placed_s"] > calls["asked_s"]]
    assert len(held) > 20
    assert (calls["asked_s"] <= calls["placed_s"]).all()
    assert (calls["placed_s"] <= calls["admitted_s"]).all()
    ordered = held.sort_values("placed_s")
    assert np.corrcoef(ordered["asked_s"], ordered["placed_s"])[0, 1] > 0.9, "the first held is offered first"


def test_the_integral_of_open_calls_is_the_sum_of_their_times() -> None:
    run = played("lmetric", warm_up_s=0.0, duration_s=4000.0, sessions=1)
    done = (run.calls["end_s"] - run.calls["asked_s"]).sum()
    integral = run.metrics["call_little_s"] * run.metrics["calls"]
    assert integral == pytest.approx(done, rel=0.02), "but for the calls that are open at the end"


def test_open_loop_turns_begin_at_their_times_and_closed_loop_sessions_follow_each_other() -> None:
    run = played("sticky", arrivals_per_s=0.002, warm_up_s=0.0, duration_s=6000.0)
    firsts = run.calls.groupby("session")["asked_s"].min()
    assert len(firsts) == pytest.approx(0.002 * 3 * 6000, rel=0.5)
    roots = SCRIPTS.tasks["release_s"][SCRIPTS.first_task[run.calls["script"]] + run.calls["call"]]
    starts = pd.Series(run.calls["session"]).map(firsts)
    assert (run.calls["asked_s"] >= starts + roots - 1e-6)[roots > 0].all()
    closed = played("sticky", warm_up_s=0.0, duration_s=6000.0)
    assert closed.calls["session"].max() > 12


def test_tables_that_grow_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = played("lmetric:gate=1", sessions=8, arrivals_per_s=0.01)
    made = rules.grown

    def counted(fleet: Fleet) -> Fleet:
        grows.append(1)
        return made(fleet)

    grows: list[int] = []
    monkeypatch.setattr(rules, "grown", counted)
    import rllib_scale.evaluation.fleets as fleets

    new = fleets.new_fleet

    def small(*arguments: object) -> Fleet:
        fleet = new(*arguments)  # type: ignore[arg-type]
        return fleet._replace(records=np.zeros(int(fleet.spare[0]) + 5, RECORD))

    monkeypatch.setattr(fleets, "new_fleet", small)
    again = played("lmetric:gate=1", sessions=8, arrivals_per_s=0.01)
    assert len(grows) > 20
    pd.testing.assert_frame_equal(whole.calls, again.calls)


def test_a_rule_is_written_as_it_is_read() -> None:
    for text in ("lmetric", "sticky:gate=0.8", "prefix-affinity:bound=2", "weighted-scores:gate=1,prefix=1,queue=0"):
        assert str(parse_rule(text)) == text
    assert parse_rule("lmetric:gate=1") == Rule(name="lmetric", gate=1)
