"""The compiled engine plays every episode exactly as the reference simulator does."""

import math

import numpy as np
import pytest

from reference.cases import TOPOLOGIES, RandomActions, on_a_grid, random_config, random_workload
from reference.comparison import FLOAT32, assert_same_totals
from reference.simulator import ReferenceSimulator
from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, WorkloadConfig
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from seeds import each_of

GENERATED = range(240)
GIVEN = range(240, 400)


def problem(case):
    """The random problem of a case; every second one with a given workload has times that coincide."""
    config = random_config(np.random.default_rng(case))
    return on_a_grid(config) if case in GIVEN and case % 2 else config


def play_both(engine, reference, rng):
    """Same actions to both until the end, everything compared after each."""
    actions = RandomActions(rng)
    assert_same_state(engine, reference)
    while not reference.done:
        action = actions(reference)
        reference.step(action)
        engine.step(np.array([action]))
        assert engine.reward[0] == pytest.approx(reference.reward, rel=1e-9, abs=1e-9)
        assert_same_state(engine, reference)
    assert_same_totals(engine, reference)


def assert_same_state(engine, reference):
    assert engine.clock[0] == pytest.approx(reference.clock, rel=1e-12, abs=1e-12)
    assert bool(engine.done[0]) == reference.done
    np.testing.assert_allclose(engine.observation[0], reference.observation(), **FLOAT32)


@each_of(GENERATED)
def test_a_generated_workload_is_played_as_by_the_reference(case):
    config = problem(case)
    seed, episode = 1000 + case, case % 7
    reference = ReferenceSimulator(
        config, generate(config, seed, episode), open_ended=config.episode.arrivals_until_s is None
    )
    engine = Engine(config)
    engine.reset(np.array([seed]), np.array([episode]))
    play_both(engine, reference, np.random.default_rng([case, 1]))


@each_of(GIVEN)
def test_a_given_workload_is_played_as_by_the_reference(case):
    config = problem(case)
    rng = np.random.default_rng([case, 1])
    workload = Workload.from_dict(random_workload(rng, config, grid=case % 2 == 1), "case")
    engine = Engine(config)
    engine.reset(np.array([0]), np.array([0]), workload=workload)
    play_both(engine, ReferenceSimulator(config, workload, open_ended=False), rng)


def test_the_cases_cover_every_setting():
    configs = [problem(case) for case in [*GENERATED, *GIVEN]]
    assert len(configs) >= 200
    sizes = [config.cluster.num_servers for config in configs]
    assert min(sizes) == 4
    assert max(sizes) >= 60
    seen = {
        "topology": {config.workload.topology for config in configs},
        "own tiers": {config.cluster.tiers[0].name == "small" for config in configs},
        "empty slots": {config.cluster.empty_slots > 0 for config in configs},
        "offered load": {config.workload.offered_load is None for config in configs},
        "drained": {config.episode.arrivals_until_s is None for config in configs},
        "max_decisions": {config.episode.max_decisions is None for config in configs},
        "energy": {config.reward.energy_weight > 0 for config in configs},
    }
    assert seen.pop("topology") == set(TOPOLOGIES)
    assert all(values == {True, False} for values in seen.values()), seen
    modes = {(c.episode.mask, c.episode.idle_advance, c.episode.first_arrival, c.reward.name) for c in configs}
    assert len(modes) == 16


def test_one_engine_plays_episode_after_episode_like_a_new_one():
    config = problem(3)
    engine = Engine(config)
    for episode in range(5):
        reference = ReferenceSimulator(
            config, generate(config, 9, episode), open_ended=config.episode.arrivals_until_s is None
        )
        engine.reset(np.array([9]), np.array([episode]))
        play_both(engine, reference, np.random.default_rng(episode))


def test_a_long_episode_with_many_workflows_at_once_is_played_as_by_the_reference():
    config = EnvConfig(
        cluster=ClusterConfig(servers=4),
        workload=WorkloadConfig(offered_load=1.5),
        episode=EpisodeConfig(horizon_s=700, arrivals_until_s=600, mask="feasible"),
    )
    reference = ReferenceSimulator(config, generate(config, 0, 0), open_ended=False)
    engine = Engine(config)
    engine.reset(np.array([0]), np.array([0]))
    play_both(engine, reference, np.random.default_rng(0))
    assert engine.metrics()["completed"] > 300
    assert engine.metrics()["workflows_arrived"] - engine.metrics()["workflows_completed"] > 30


def test_a_given_workflow_may_be_larger_than_any_drawn_one():
    config = EnvConfig(episode=EpisodeConfig(horizon_s=100))
    wide = config.model_copy(
        update={"workload": WorkloadConfig(min_tasks=150, max_tasks=200, topology="erdos-renyi", edge_probability=0.1)}
    )
    workload = generate(wide, 0, 0)
    engine = Engine(config)
    engine.reset(np.array([0]), np.array([0]), workload=workload)
    play_both(engine, ReferenceSimulator(config, workload, open_ended=False), np.random.default_rng(0))
    assert engine.metrics()["completed"] > 100


def test_a_step_after_the_end_does_nothing():
    config = problem(0)
    engine = Engine(config)
    engine.reset(np.array([1]), np.array([0]))
    while not engine.done[0]:
        engine.step(np.array([0]))
    clock, observation, metrics = engine.clock.copy(), engine.observation.copy(), engine.metrics()
    engine.step(np.array([0]))
    assert engine.done[0]
    assert engine.reward[0] == 0
    assert engine.clock[0] == clock[0]
    np.testing.assert_array_equal(engine.observation, observation)
    assert {k: v for k, v in engine.metrics().items() if not math.isnan(v)} == {
        k: v for k, v in metrics.items() if not math.isnan(v)
    }
