"""In the paper's mode and in every other the compiled engine plays every episode exactly as the reference simulator."""

import collections
from typing import get_args

import numpy as np
import pytest

from reference.answers import RandomActions
from reference.comparison import begin, dispatch_both, play_both, random_case, reference
from reference.simulator import OUTCOMES
from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, WorkloadConfig
from rllib_scale.simulator.engine import Engine
from seeds import each_of

CASES = range(180)
STEPS = 300  # answers of an episode, at most: one that stops tasks at once again need not end


@pytest.mark.parametrize("paper", [True, False], ids=["paper", "modes"])
@each_of(CASES, by_default=60)
def test_an_episode_is_played_as_by_the_reference(case, paper):
    config, given = random_case(case, paper)
    play_both(*begin(config, case, case % 5, given), np.random.default_rng([case, 1]), STEPS)


@each_of(range(1000, 1040))
def test_an_episode_is_dispatched_as_by_the_reference(case):
    config, given = random_case(case, paper=False)
    dispatch_both(*begin(config.with_mask("none"), case, 0, given), np.random.default_rng([case, 1]), STEPS)


@pytest.mark.parametrize("paper", [True, False], ids=["paper", "modes"])
def test_one_engine_plays_episode_after_episode_like_a_new_one(paper):
    for case in (2, 4, 6):
        config, _ = random_case(case, paper)
        engine = Engine(config)
        for episode in range(4):
            engine.reset([case], [episode])
            play_both(engine, reference(config, case, episode, None), np.random.default_rng(episode), STEPS)


def choices(annotation):
    """The values that a setting may have, where they are listed."""
    if annotation is bool:
        return {True, False}
    return {value for part in get_args(annotation) for value in ({part} if isinstance(part, str) else choices(part))}


def test_the_cases_cover_every_setting():
    for paper in (True, False):
        configs = [random_case(case, paper)[0] for case in CASES]
        for section in ("episode", "reward") if paper else ("episode", "decision", "communication", "information"):
            for name, field in type(getattr(configs[0], section)).model_fields.items():
                seen = {getattr(getattr(config, section), name) for config in configs}
                assert len(seen) > 1, name
                assert seen >= choices(field.annotation), name
    rounds = {(c.decision.on_busy, c.decision.order == "open", c.episode.mask) for c in configs}
    assert len(rounds) == 8  # every kind of round
    changes = [config.cluster.changes for config in configs]
    assert {change.event for each in changes for change in each.schedule} == {"join", "drain", "fail"}
    for name in ("failures_per_1000_h", "departures_per_h", "repair_s", "return_s", "tiers"):
        assert {bool(getattr(each, name)) for each in changes if each.at_random} == {True, False}, name
    assert {tier.max_concurrent for config in configs for tier in config.cluster.tiers} == {1, 2, 3, 4}


@pytest.mark.slow
def test_the_cases_play_every_kind_of_outcome_and_event():
    outcomes, events, forced = (collections.Counter() for _ in range(3))
    for case in CASES:
        config, given = random_case(case, paper=False)
        sim = reference(config, case, case % 5, given)
        actions = RandomActions(np.random.default_rng([case, 1]))
        for _ in range(STEPS):
            if not sim.done:
                sim.step(actions(sim))
                outcomes[config.decision.on_busy, sim.outcome] += 1
        events.update(sim.handled)
        forced[config.decision.on_busy] += sim.forced
    never = {("step", "waits"), ("reserve", "busy")}
    assert outcomes.keys() == {(mode, outcome) for mode in ("step", "reserve") for outcome in OUTCOMES} - never
    assert min(outcomes.values()) > 100, outcomes
    assert min(events.values()) > 100, events
    assert min(forced["step"], forced["reserve"]) > 0  # the progress guarantee


def test_a_long_episode_with_many_workflows_at_once_is_played_as_by_the_reference():
    config = EnvConfig(
        cluster=ClusterConfig(servers=4),
        workload=WorkloadConfig(offered_load=1.5),
        episode=EpisodeConfig(horizon_s=700, arrivals_until_s=600, mask="feasible"),
    )
    engine, sim = begin(config, 0, 0, None)
    play_both(engine, sim, np.random.default_rng(0), 10_000)
    assert engine.metrics()["completed"] > 300
    assert engine.metrics()["workflows_arrived"] - engine.metrics()["workflows_completed"] > 30


def test_a_step_after_the_end_does_nothing():
    engine, _ = begin(EnvConfig(), 1, 0, None)
    while not engine.done[0]:
        engine.step([0])
    before = engine.clock.tobytes(), engine.observation.tobytes(), repr(engine.metrics())
    engine.step([0])
    assert engine.done[0]
    assert engine.reward[0] == 0
    assert (engine.clock.tobytes(), engine.observation.tobytes(), repr(engine.metrics())) == before
