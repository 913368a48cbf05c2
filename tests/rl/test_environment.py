"""Training environments: spaces, and workloads that no other runner, trial or evaluation sees."""

from __future__ import annotations

import itertools

import numpy as np

from rllib_scale.config import ClusterConfig, EnvConfig, TrialConfig
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.rl.environment import TrainingVectorEnv, make_env, rllib_seed, workload_seed


def test_workload_seeds_never_meet() -> None:
    # Trial seeds, their neighbours, and ones whose 32-bit words are those of other triples.
    trials = (0, 1, 42, 43, 2**31, 2**32, 2**32 + 1, 2**63 - 1)
    seeds = [workload_seed(*key) for key in itertools.product(trials, range(5), range(16))]
    assert len(set(seeds)) == len(seeds)
    assert all(2**32 < seed < 2**63 for seed in seeds), "small seeds are what people give to evaluations"


def test_rllib_seed_leaves_room_for_its_offsets() -> None:
    for seed in (0, 42, 2**63 - 1):
        assert 0 <= rllib_seed(seed) + 1_000_000 + 10_000 < 2**32
    assert rllib_seed(1) != rllib_seed(2)


def test_reset_by_rllib_gives_each_environment_its_own_workload() -> None:
    trial = TrialConfig(seed=42, env=EnvConfig(cluster=ClusterConfig().scaled(8)))
    env = make_env({"trial": trial.model_dump(mode="json"), "num_envs": 3})
    assert isinstance(env, TrainingVectorEnv)
    plain = SchedulingVectorEnv(3, trial.env)
    for worker in (0, 2):
        observed, _ = env.reset(seed=rllib_seed(42) + worker)
        expected, _ = plain.reset(seed=[workload_seed(42, worker, index) for index in range(3)])
        np.testing.assert_array_equal(observed, expected)
    observed, _ = env.reset()
    expected, _ = plain.reset()
    np.testing.assert_array_equal(observed, expected)


def test_a_single_environment_has_the_same_spaces() -> None:
    trial = TrialConfig(env=EnvConfig(cluster=ClusterConfig().scaled(8)))
    context = {"trial": trial.model_dump(mode="json")}
    single, vector = make_env(context), make_env(context | {"num_envs": 2})
    assert single.observation_space == vector.single_observation_space
    assert single.action_space == vector.single_action_space
    assert single.observation_space.shape == (5 + 5 * 8,)
