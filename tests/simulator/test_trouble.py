"""The scenarios of trouble: what they say happens, alike for every scheduler, and is played by engine and reference."""

from __future__ import annotations

import numpy as np
import pytest

from reference.answers import RandomActions
from reference.changes import change_events
from reference.comparison import begin, play_both
from reference.factors import straggler_factors
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.config.scenarios import TROUBLE
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.observation.snapshot import UP
from rllib_scale.schedulers.planning import PlanningDispatcher
from rllib_scale.schedulers.rules import SCHEDULERS, make_scheduler
from rllib_scale.workloads.generators import generate

SERVERS, STEPS = 6, 600
CHANGING = {"failures-1", "failures-10", "failures-often", "spot", "grow-shrink"}


def toy(name: str) -> tuple[EnvConfig, int]:
    """A scenario of 6 servers, and the first episode in which a server changes, where any does at random."""
    env = scenario(name).at_scale(SERVERS)
    episode = 0
    while env.cluster.changes.at_random and not change_events(env.cluster, 1, episode, 60.0):
        episode += 1
    return env, episode


@pytest.mark.parametrize("name", TROUBLE)
def test_an_episode_is_played_as_by_the_reference(name: str) -> None:
    env, episode = toy(name)
    engine, sim = begin(env, 1, episode, None)
    actions = RandomActions(np.random.default_rng(1))
    actions.shares = np.array([0.96, 0.01, 0.01, 0.02])
    play_both(engine, sim, actions, STEPS)
    assert sim.done
    if name in CHANGING:
        assert sim.handled["join"] > 0
        assert sim.handled["fail"] + sim.handled["drain"] > 0


@pytest.mark.parametrize("name", TROUBLE)
def test_every_rule_plays_it_and_nothing_is_lost(name: str) -> None:
    env, episode = toy(name)
    workload = generate(env, 1, episode)
    for rule in SCHEDULERS:
        scheduler = make_scheduler(rule, env.observation, env.episode.mask)
        if name in CHANGING and isinstance(scheduler, PlanningDispatcher):
            with pytest.raises(UserError, match=r"cluster\.changes"):
                play(scheduler, env, 1, [episode])
            continue
        metrics = play(scheduler, env, 1, [episode]).metrics()
        assert metrics["arrived"] == workload.num_tasks == metrics["completed"] + metrics["unfinished"], rule


def test_what_fails_when_and_who_is_slow_is_the_same_under_two_schedulers() -> None:
    env, episode = toy("failures-often")
    env = env.model_copy(update={"information": scenario("stragglers").information})
    changes = change_events(env.cluster, 1, episode, env.episode.horizon_s)
    workload = generate(env, 1, episode)
    demand = workload.compute_gflop * straggler_factors(env, 1, episode, workload)
    assert (demand > workload.compute_gflop).any()
    for rule in ("fastest-idle", "price"):
        attempts = play(make_scheduler(rule, env.observation, "feasible"), env, 1, [episode]).schedule()
        failed = attempts[attempts["outcome"] == "failed"]
        assert len(failed) > 0
        fails = {(time, server) for time, event, server in changes if event == "fail"}
        assert set(zip(failed["finish_s"].tolist(), failed["server"].tolist(), strict=True)) <= fails
        for time, server in fails:  # nothing runs on it until it is back
            back = min((t for t, event, s in changes if event == "join" and s == server and t > time), default=np.inf)
            there = attempts[attempts["server"] == server]
            assert not ((there["start_s"] >= time) & (there["start_s"] < back)).any()
        finished = attempts[attempts["outcome"] == "finished"]
        rows = workload.task_offsets[finished["workflow"]] + finished["task"]
        assert finished["work_gflop"] == pytest.approx(demand[rows])


def test_a_third_all_and_a_third_of_the_servers_are_there() -> None:
    env, there = scenario("grow-shrink").at_scale(48), []
    rule = make_scheduler("fastest-idle", env.observation, "feasible")
    play(rule, env, 0, [0], watch=lambda now: there.append((now.clock[0], int((now.snapshot().status == UP).sum()))))
    assert {count for time, count in there if time < 50} == {16}
    assert {count for time, count in there if 50 < time < 100} == {48}
    assert {count for time, count in there if time > 100} == {16}


def test_a_burst_is_ten_times_the_arrivals() -> None:
    env, steady = scenario("burst"), scenario("steady-0.7")
    at = np.concatenate([generate(env, 0, episode).arrival_s for episode in range(60)])
    calm = np.concatenate([generate(steady, 0, episode).arrival_s for episode in range(60)])
    inside = ((at > 50) & (at <= 70)).sum() / ((calm > 50) & (calm <= 70)).sum()
    outside = ((at <= 50) | (at > 70)).sum() / ((calm <= 50) | (calm > 70)).sum()
    assert inside == pytest.approx(10, rel=0.15)
    assert outside == pytest.approx(1, rel=0.1)
