"""Rows of a masked trial: every module cuts the mask off, and closes what it closes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from networks.observations import random_mask, random_observations
from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.networks.inputs import MASKED

pytest.importorskip("ray")

from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT

from rllib_scale.rl.off_policy.off_policy_modules import FEATURES, Scores
from rllib_scale.rl.ppo.lean_update import LeanPass
from rllib_scale.rl.ppo.loss import Rows, Weights
from rllib_scale.rl.ppo.ppo_module import SchedulingModule

B, N = 12, 16
OBS, MASK = random_observations(B, N), random_mask(B, N)
ROWS = torch.cat((OBS, MASK.float()), 1)
WEIGHTS = Weights(0.2, 0.5, 0.01, 0.1, 0.1, "sum", standardise=True, regularise=True)
methods = pytest.mark.parametrize("method", ["scale", "set-transformer", "ppo"])


def trial(method: str, mask: str) -> TrialConfig:
    return TrialConfig(method=method, env=EnvConfig().with_mask(mask))


def module_of(method: str, mask: str) -> Any:
    torch.manual_seed(0)
    space = gymnasium.spaces.Box(-np.inf, np.inf, ROWS.shape[1:])
    settings = {"trial": trial(method, mask).model_dump(mode="json")}
    return SchedulingModule(
        observation_space=space, action_space=gymnasium.spaces.Discrete(N), inference_only=False, model_config=settings
    )


@methods
def test_ppo_module(method: str) -> None:
    module, free = module_of(method, "feasible"), module_of(method, "none")
    f, logits = module.network(OBS, MASK)
    assert torch.equal(logits[1:] < MASKED / 2, ~MASK[1:])
    trained = module.forward_train({Columns.OBS: ROWS})
    assert torch.equal(trained[Columns.ACTION_DIST_INPUTS], logits)
    assert torch.equal(trained[Columns.EMBEDDINGS], f)
    assert torch.equal(module.forward_exploration({Columns.OBS: ROWS})[Columns.ACTION_DIST_INPUTS], logits)
    assert torch.equal(module.compute_values({Columns.OBS: ROWS}), module.critic(f))
    unmasked = free.forward_train({Columns.OBS: OBS})[Columns.ACTION_DIST_INPUTS]
    assert torch.equal(unmasked, free.network(OBS)[1])
    assert (unmasked > MASKED / 2).all()


@methods
def test_lean_pass(method: str) -> None:
    module = module_of(method, "feasible")
    lean = LeanPass(module, compiled=False)
    expected = module.outputs(ROWS)
    torch.testing.assert_close(lean.outputs(ROWS), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lean.values(ROWS), module.critic(expected[0]), atol=1e-5, rtol=1e-5)
    generator = torch.Generator().manual_seed(0)
    actions = torch.multinomial(torch.softmax(expected[1], -1), 1, generator=generator)[:, 0]
    logp, advantages, targets = torch.rand(3, B, generator=generator)
    _, terms = lean.loss(ROWS, Rows(actions, -logp, advantages, targets), WEIGHTS)
    p = torch.softmax(expected[1].double(), -1)
    entropy = torch.special.entr(p).sum(1).mean()
    assert terms[2].item() == pytest.approx(entropy.item(), rel=1e-4), "over the servers that the mask leaves open"


@methods
def test_scores_of_the_off_policy_modules(method: str) -> None:
    scores = Scores(trial(method, "feasible"))
    f, expected = scores.network(OBS, MASK)
    encoded = scores({Columns.OBS: ROWS})
    assert torch.equal(encoded[ENCODER_OUT], expected)
    assert torch.equal(encoded[FEATURES], f)
