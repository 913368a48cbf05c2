"""Trainings of the other set encoders: reproducible, by either learner, and good for another number of servers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_ray import LOCAL_RAY
from rllib_scale.config import (
    METHODS,
    EnvConfig,
    EpisodeConfig,
    NetworkConfig,
    SRRConfig,
    TrainingConfig,
    TrialConfig,
    TrialResources,
)
from rllib_scale.evaluation.play import evaluate
from rllib_scale.policies.policy import load_policy, save_policy

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.rl.methods import build_algorithm_config  # noqa: E402

ENCODERS = [
    name for name, spec in METHODS.items() if not spec.dispatches and spec.network not in ("cross-attention", "mlp")
]
SHORT = TrainingConfig(epochs=2, steps_per_epoch=64, minibatch_size=32, passes=2, num_envs=2)
Weights = dict[str, np.ndarray]


def trained(trial: TrialConfig, epochs: int, folder: Path | None = None) -> Weights:
    """Weights of network and critic after some epochs; the policy is saved to `folder`."""
    algorithm = build_algorithm_config(trial).build_algo()
    try:
        for _ in range(epochs):
            algorithm.train()
        if folder is not None:
            save_policy(folder, algorithm.get_module().network, trial, epochs)
        weights: Weights = algorithm.learner_group._learner.get_state()["rl_module"]["default_policy"]
        return {name: value.copy() for name, value in weights.items()}
    finally:
        algorithm.stop()


@pytest.mark.parametrize("method", ENCODERS)
def test_same_seed_same_weights_and_a_policy_for_another_number_of_servers(method: str, tmp_path: Path) -> None:
    regulariser = SRRConfig(ramp_start_epoch=0, ramp_epochs=1)
    trials = [TrialConfig(method=method, seed=seed, training=SHORT, srr=regulariser) for seed in (5, 5, 6)]
    first, again, other = (trained(trial, 2, tmp_path / str(i)) for i, trial in enumerate(trials))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert any(not np.array_equal(first[name], other[name]) for name in first)
    policy = load_policy(tmp_path / "0")
    env = EnvConfig(episode=EpisodeConfig(horizon_s=5.0)).at_scale(48)
    rows = evaluate(policy, env, seed=1, episodes=2)
    assert [row["episode"] for row in rows] == [0, 1]
    assert all(row["decisions"] > 0 and math.isfinite(row["response_censored_s"]) for row in rows)


@pytest.mark.parametrize(
    ("method", "sizes"), [("attention-model-srr", {"logit_clip": 0.5}), ("deepsets-srr", {}), ("set-transformer", {})]
)
def test_our_learner_gives_the_weights_of_rllibs(method: str, sizes: dict[str, Any]) -> None:
    lean, stock, start = (
        trained(
            TrialConfig(
                method=method,
                training=SHORT,
                srr=SRRConfig(ramp_start_epoch=0, ramp_epochs=1),
                network=NetworkConfig(**sizes),
                resources=TrialResources(learner=learner),
            ),
            epochs,
        )
        for learner, epochs in (("lean", 1), ("rllib", 1), ("lean", 0))
    )
    for name, weights in lean.items():
        np.testing.assert_allclose(weights, stock[name], atol=1e-5, rtol=0, err_msg=name)
    assert max(abs(lean[name] - start[name]).max() for name in lean) > 1e-3
