"""Training environments: workloads that no other runner, trial or evaluation sees, and the last rows of episodes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rllib_scale.config import ClusterConfig, EnvConfig, TrialConfig
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.rl.environment import make_env
from rllib_scale.rl.vector_env import TrainingVectorEnv, rllib_seed, workload_seed

NUM_ENVS = 4
CUTS: dict[str, dict[str, Any]] = {
    "terminal": {"horizon_s": 3.0},
    "horizon": {"horizon_s": 3.0, "horizon_is_terminal": False},
    "decisions": {"max_decisions": 5},
    "last arrivals": {"horizon_s": 8.0, "arrivals_until_s": 4.0, "horizon_is_terminal": False},
}
MODES: dict[str, dict[str, Any]] = {
    "paper": {},
    "masked": {"episode": {"mask": "feasible"}},
    "reserve": {"decision": {"on_busy": "reserve"}, "observation": {"feature_set": "rounds"}},
}


def problem(mode: str, **episode: Any) -> EnvConfig:
    settings = MODES[mode]
    return EnvConfig.model_validate(
        settings | {"episode": {"first_arrival": "at-zero"} | episode | settings.get("episode", {})}
    )


def last_rows(config: EnvConfig, steps: int = 400) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, bool]]:
    """Of each episode that ended: last row, the row before it, what the plain environment shows, whether terminal."""
    training, plain = TrainingVectorEnv(NUM_ENVS, config, trial_seed=1), SchedulingVectorEnv(NUM_ENVS, config)
    seeds = list(range(NUM_ENVS))
    (before, _), (shown, infos) = training.reset(seed=seeds), plain.reset(seed=seeds)
    rng, ended = np.random.default_rng(0), []
    for _ in range(steps):
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in infos["action_mask"]])
        rows, _, terminated, truncated, _ = training.step(actions)
        shown, _, _, _, infos = plain.step(actions)
        for b in np.flatnonzero(terminated | truncated):
            ended.append((rows[b], before[b], shown[b], bool(terminated[b])))
        going_on = ~(terminated | truncated)
        np.testing.assert_array_equal(rows[going_on][:, : shown.shape[1]], shown[going_on])
        before = rows
    return ended


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("mode", MODES)
def test_the_last_row_of_a_cut_episode_has_a_task(mode: str, cut: str) -> None:
    config = problem(mode, **CUTS[cut])
    features, width = FEATURE_SETS[config.observation.feature_set], config.cluster.num_rows
    compute = features.context_dim + [feature.name for feature in features.task].index("compute")
    task = slice(features.context_dim, features.head())
    nothing_waited = 0
    ended = last_rows(config)
    assert len(ended) > 10
    for row, before, shown, is_terminal in ended:
        observation = row[: len(shown)]
        if is_terminal:
            np.testing.assert_array_equal(observation, shown)
            assert not observation[task].any()
            continue
        assert observation[compute] > 0
        if config.masked:
            assert row[-width:].any()
        if shown[compute] > 0:
            np.testing.assert_array_equal(observation, shown)
        else:
            np.testing.assert_array_equal(row, before)
            nothing_waited += 1
    assert all(is_terminal for *_, is_terminal in ended) == (cut == "terminal")
    assert nothing_waited > 0 or cut != "horizon"


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
    trial = TrialConfig.of(seed=42, env=EnvConfig(cluster=ClusterConfig().scaled(8)))
    context = {"trial": trial.model_dump(mode="json")}
    single, env = make_env(context), make_env(context | {"num_envs": 3})
    assert isinstance(env, TrainingVectorEnv)
    assert single.observation_space == env.single_observation_space
    assert single.action_space == env.single_action_space
    plain = SchedulingVectorEnv(3, trial.env)
    for worker in (0, 2):
        observed, _ = env.reset(seed=rllib_seed(42) + worker)
        expected, _ = plain.reset(seed=[workload_seed(42, worker, index) for index in range(3)])
        np.testing.assert_array_equal(observed, expected)
    observed, _ = env.reset()
    expected, _ = plain.reset()
    np.testing.assert_array_equal(observed, expected)
