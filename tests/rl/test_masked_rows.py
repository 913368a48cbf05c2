"""Rows of a masked trial: every module cuts the mask off, and closes what it closes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns

from networks.observations import random_mask, random_observations
from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.networks.compiled.fused import fuse
from rllib_scale.networks.inputs import MASKED
from rllib_scale.rl.ppo.ppo_module import SchedulingModule

B, N = 12, 16
OBS, MASK = random_observations(B, N), random_mask(B, N)
ROWS = torch.cat((OBS, MASK.float()), 1)
methods = pytest.mark.parametrize("method", ["scale", "set-transformer", "ppo"])


def module_of(method: str, mask: str = "feasible") -> Any:
    torch.manual_seed(0)
    trial = TrialConfig.of(method, env=EnvConfig().with_mask(mask))
    return SchedulingModule(
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, ROWS.shape[1:]),
        action_space=gymnasium.spaces.Discrete(N),
        inference_only=False,
        model_config={"trial": trial.model_dump(mode="json")},
    )


@methods
def test_ppo_module(method: str) -> None:
    module, free = module_of(method), module_of(method, "none")
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
def test_fused_network(method: str) -> None:
    module = module_of(method)
    f, logits = module.outputs(ROWS)
    module.fused = fuse(module.network)
    assert (module.fused is not None) == (method == "scale")
    torch.testing.assert_close(module.outputs(ROWS), (f, logits), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(module.compute_values({Columns.OBS: ROWS}), module.critic(f), atol=1e-5, rtol=1e-5)
