"""The lean update gives the weights and logs of RLlib's path."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from ray.rllib.evaluation.postprocessing import Postprocessing

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import distance, learner_of, module_of, update, weights_of

pytestmark = LOCAL_RAY
OF_RLLIBS_BATCHES = {
    "num_trainable_parameters",
    "num_non_trainable_parameters",
    "diff_num_grad_updates_vs_sampler_policy",
}


SETTINGS = {
    "algorithm": {"epochs": 5, "steps_per_epoch": 256, "minibatch_size": 64, "passes": 3, "num_envs": 3},
    "env": {"episode": {"horizon_s": 6.0}},
    "srr": {"ramp_start_epoch": 1, "ramp_epochs": 2, "lambda_decorrelation": 0.05, "lambda_kl": 0.01},
}


@pytest.mark.parametrize(
    ("method", "runner"),
    [("scale", ()), slow("scale", ("runner",)), slow("deepsets-srr", ()), slow("ppo", ())],
    ids=str,
)
def test_five_epochs_give_the_weights_and_logs_of_rllibs_path(build: Any, method: str, runner: tuple[str, ...]) -> None:
    lean, stock = (build(method, rllibs=each, **SETTINGS) for each in (runner, ("update",)))
    calls: list[str] = []
    compute = learner_of(lean).compute_gradients
    learner_of(lean).compute_gradients = lambda *args: calls.append("rllib") or compute(*args)
    sampler, start, kinds = lean.env_runner, weights_of(lean), set()
    for epoch in range(5):
        episodes = sampler.sample(num_timesteps=256)
        kinds |= {episode.is_done for episode in episodes}
        ours, theirs = (
            {name: value.peek() for name, value in update(learner_of(a), episodes, epoch)["default_policy"].items()}
            for a in (lean, stock)
        )
        weights, expected = weights_of(lean), weights_of(stock)
        # Only roundings differ. (With the regulariser on 256 ReLU features they grow faster: its gradient jumps at 0.)
        assert distance(weights, expected) < 1e-5, epoch
        assert ours.keys() >= theirs.keys() - OF_RLLIBS_BATCHES
        for name in ours.keys() & theirs.keys():
            if "throughput" not in name and np.isscalar(theirs[name]):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-4, nan_ok=True), name
        sampler.set_state({"rl_module": {name: weights[name] for name in sampler.module.get_state()}})
    assert not calls, "the lean path did the work"
    assert kinds == {True, False}, "both whole episodes and pieces"
    assert distance(start, weights) > 1e-3


def test_a_gradient_that_is_not_finite_leaves_the_weights_finite(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    algorithm = build(**SETTINGS)
    episodes = algorithm.env_runner.sample(num_timesteps=256)
    episodes[0].rewards.data[3] = np.inf
    with caplog.at_level(logging.WARNING, logger="rllib_scale.rl.gradients"):
        update(learner_of(algorithm), episodes)
    assert "not finite" in caplog.text
    assert all(parameter.isfinite().all() for parameter in module_of(algorithm).parameters())


def test_advantages_are_standardised_over_the_epoch(build: Any) -> None:
    algorithm = build("crossattn", algorithm={"standardise_advantages": "epoch", "steps_per_epoch": 256})
    learner = learner_of(algorithm)
    update(learner, algorithm.env_runner.sample(num_timesteps=256))
    kept = learner._exact_batch.kept["default_policy"]
    advantages = kept[Postprocessing.ADVANTAGES]
    assert [advantages.mean().item(), advantages.std().item()] == pytest.approx([0, 1], abs=1e-3)
    assert not learner.loss_weights().standardise
