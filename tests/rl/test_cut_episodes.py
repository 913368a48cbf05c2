"""The last row of an episode that is cut is one that a value can be learned from; that of one that ends is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.observation.feature_sets import FEATURE_SETS

pytest.importorskip("ray")

from rllib_scale.rl.environment import TrainingVectorEnv

NUM_ENVS = 4
CUTS: dict[str, dict[str, Any]] = {
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
    features, width = FEATURE_SETS[config.observation.feature_set], config.cluster.num_slots
    compute = features.task_column("compute")
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
    assert {terminal for *_, terminal in ended} >= {False}
    if cut == "horizon":
        assert nothing_waited > 0


@pytest.mark.parametrize("mode", MODES)
def test_the_last_row_of_a_terminal_end_is_what_there_is(mode: str) -> None:
    config = problem(mode, horizon_s=3.0)
    features = FEATURE_SETS[config.observation.feature_set]
    ended = last_rows(config, steps=150)
    assert len(ended) > 4
    for row, _, shown, is_terminal in ended:
        assert is_terminal
        np.testing.assert_array_equal(row[: len(shown)], shown)
        assert not row[features.context_dim : features.head()].any()
