"""What a step discounts, and over which rows advantages are standardised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rllib_scale.config import TrialConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError

pytest.importorskip("ray")

from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing

from rllib_scale.rl.env_runner import ELAPSED
from rllib_scale.rl.ppo.exact_batch import ExactBatch
from rllib_scale.rl.ppo.lean_update import train_batch

GAMMA, LAMBDA, UNIT = 0.9, 0.7, 4.0
WEIGHT = torch.tensor([0.3, -0.2, 0.5])


def values_of(observations: torch.Tensor) -> torch.Tensor:
    return observations @ WEIGHT


def episode(seed: int, elapsed: list[float], terminated: bool) -> SingleAgentEpisode:
    rng, length = np.random.default_rng(seed), len(elapsed)
    return SingleAgentEpisode(
        observations=list(rng.normal(size=(length + 1, 3)).astype(np.float32)),
        actions=list(rng.integers(4, size=length)),
        rewards=list(rng.normal(size=length)),
        infos=[{}] * (length + 1),
        extra_model_outputs={
            Columns.ACTION_LOGP: list(rng.normal(size=length)),
            Columns.ACTION_DIST_INPUTS: list(rng.normal(size=(length, 4))),
            ELAPSED: list(elapsed),
        },
        terminated=terminated,
        len_lookback_buffer=0,
    )


EPISODES = [episode(0, [0, 0, 3.5, 0, 1.25], True), episode(1, [0, 8, 0.5], False), episode(2, [2], False)]


def plain_advantages(one: SingleAgentEpisode, unit: float | None, lambda_by_time: bool = False) -> list[float]:
    rewards, elapsed = one.get_rewards(), one.get_extra_model_outputs(ELAPSED)
    values = values_of(torch.from_numpy(np.array(one.get_observations()))).double().tolist()
    if one.is_terminated:
        values[-1] = 0.0
    advantages, following = [], 0.0
    for t in reversed(range(len(one))):
        discount = GAMMA if unit is None else GAMMA ** (float(elapsed[t]) / unit)
        share = LAMBDA ** (float(elapsed[t]) / unit) if unit is not None and lambda_by_time else LAMBDA
        following = rewards[t] + discount * values[t + 1] - values[t] + discount * share * following
        advantages.insert(0, following)
    return advantages


@pytest.mark.parametrize("unit", [UNIT, 1.0, None])
def test_advantages_by_plain_python(unit: float | None) -> None:
    batch = train_batch(EPISODES, values_of, GAMMA, LAMBDA, unit)
    expected = np.concatenate([plain_advantages(one, unit) for one in EPISODES])
    np.testing.assert_allclose(batch[Postprocessing.ADVANTAGES].numpy(), expected, rtol=1e-5, atol=1e-6)
    values = values_of(batch[Columns.OBS]).numpy()
    np.testing.assert_allclose(batch[Postprocessing.VALUE_TARGETS].numpy(), expected + values, rtol=1e-5, atol=1e-6)


def test_lambda_counts_by_time_where_asked() -> None:
    by_time, by_decision = (train_batch(EPISODES, values_of, GAMMA, LAMBDA, UNIT, each) for each in (True, False))
    expected = np.concatenate([plain_advantages(one, UNIT, lambda_by_time=True) for one in EPISODES])
    np.testing.assert_allclose(by_time[Postprocessing.ADVANTAGES].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(by_time[Postprocessing.ADVANTAGES], by_decision[Postprocessing.ADVANTAGES])


def test_answers_within_a_round_are_not_discounted() -> None:
    inside = episode(5, [0, 0, 0, 0], True)
    batch = train_batch([inside], lambda rows: torch.zeros(len(rows)), GAMMA, 1.0, UNIT)
    sums = np.cumsum(inside.get_rewards()[::-1])[::-1]
    np.testing.assert_allclose(batch[Postprocessing.ADVANTAGES].numpy(), sums, rtol=1e-5)
    by_decision = train_batch([inside], lambda rows: torch.zeros(len(rows)), GAMMA, 1.0)
    powers = [float(GAMMA ** np.arange(4 - t) @ inside.get_rewards()[t:]) for t in range(4)]
    np.testing.assert_allclose(by_decision[Postprocessing.ADVANTAGES].numpy(), powers, rtol=1e-5)


def test_a_unit_that_passes_with_every_step_is_the_discount_by_decision() -> None:
    even = [episode(7, [UNIT] * 6, False)]
    one, other = train_batch(even, values_of, GAMMA, LAMBDA, UNIT), train_batch(even, values_of, GAMMA, LAMBDA)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "settings",
    [{"method": "dqn"}, {"method": "sac"}, {"resources": {"sampler": "rllib"}}, {"resources": {"learner": "rllib"}}],
)
def test_time_is_discounted_by_our_own_parts_alone(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"training\.time_unit_s: .*valid: ") as error:
        build_model(TrialConfig, settings | {"training": {"time_unit_s": 10}}, "trial")
    assert "\n" not in str(error.value)
    assert next(iter((settings.get("resources") or settings).values())) in str(error.value)
    build_model(TrialConfig, settings, "trial")


# ---------------------------------------------------------------------- standardised advantages


def test_an_epoch_is_standardised_over_the_rows_that_are_kept() -> None:
    torch.manual_seed(0)
    batch = {Columns.OBS: torch.arange(50.0), Postprocessing.ADVANTAGES: 3 + 2 * torch.randn(50)}
    kept = ExactBatch(40, standardise=True).select(batch, torch.arange(50))
    advantages, chosen = kept[Postprocessing.ADVANTAGES], kept[Columns.OBS].long()
    own = batch[Postprocessing.ADVANTAGES][chosen]
    torch.testing.assert_close(advantages, (own - own.mean()) / own.std(), rtol=1e-5, atol=1e-5)
    assert len(advantages) == 40
    plain = ExactBatch(40).select(batch, torch.arange(50))
    assert torch.equal(plain[Postprocessing.ADVANTAGES], batch[Postprocessing.ADVANTAGES][plain[Columns.OBS].long()])
