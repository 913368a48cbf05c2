"""The lean update: the same weights as RLlib's path, the same counts, and RLlib's path where it does not apply."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import learner_of, weights_of
from rllib_scale.config import EnvConfig, EpisodeConfig, SRRConfig, TrainingConfig, TrialConfig, TrialResources

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm import Algorithm  # noqa: E402
from ray.rllib.core.learner.training_data import TrainingData  # noqa: E402

from rllib_scale.errors import UserError  # noqa: E402
from rllib_scale.rl.ppo.lean_update import advantage_estimates, minibatches  # noqa: E402
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner  # noqa: E402

OF_RLLIBS_BATCHES = {
    "num_trainable_parameters",
    "num_non_trainable_parameters",
    "diff_num_grad_updates_vs_sampler_policy",
}
SHORT = TrainingConfig(epochs=5, steps_per_epoch=256, minibatch_size=64, passes=3, num_envs=3)


@pytest.fixture
def build(algorithm_of: Callable[[TrialConfig], Algorithm]) -> Callable[..., Algorithm]:
    """Builds algorithms by learner."""

    def build_one(learner: str, sampler: str = "array", method: str = "scale", compiled: bool = False) -> Algorithm:
        trial = TrialConfig(
            method=method,
            training=SHORT,
            env=EnvConfig(episode=EpisodeConfig(horizon_s=6.0)),
            srr=SRRConfig(ramp_start_epoch=1, ramp_epochs=2, lambda_decorrelation=0.05, lambda_kl=0.01),
            resources=TrialResources(learner=learner, sampler=sampler, compile=compiled),
        )
        return algorithm_of(trial)

    return build_one


def update(learner: SchedulingLearner, episodes: list[Any], seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    return learner.update(
        training_data=TrainingData(episodes=copy.deepcopy(episodes)),
        timesteps={},
        num_epochs=SHORT.passes,
        minibatch_size=SHORT.minibatch_size,
        shuffle_batch_per_epoch=True,
    )


@pytest.mark.parametrize(
    ("method", "sampler", "compiled"),
    [
        ("scale", "array", False),
        slow("scale", "array", True),
        slow("scale", "rllib", False),
        *(slow(m, "array", False) for m in ("ppo", "attention-model-srr", "deepsets-srr", "set-transformer")),
    ],
)
def test_five_epochs_give_the_weights_and_logs_of_rllibs_path(
    build: Any, method: str, sampler: str, compiled: bool
) -> None:
    lean, stock = build("lean", sampler, method, compiled), build("rllib", sampler, method)
    calls: list[str] = []
    compute = learner_of(lean).compute_loss_for_module
    learner_of(lean).compute_loss_for_module = lambda **kwargs: calls.append("rllib") or compute(**kwargs)
    runner = lean.env_runner
    start = weights_of(lean)
    kinds = set()
    for epoch in range(5):
        episodes = runner.sample(num_timesteps=SHORT.steps_per_epoch)
        kinds |= {episode.is_done for episode in episodes}
        ours, theirs = (
            {name: value.peek() for name, value in update(learner_of(a), episodes, epoch)["default_policy"].items()}
            for a in (lean, stock)
        )
        states = [weights_of(a) for a in (lean, stock)]
        # Only roundings differ. (With the regulariser on 256 ReLU features they grow faster: its gradient jumps at 0.)
        for name, weights in states[0].items():
            np.testing.assert_allclose(weights, states[1][name], atol=1e-5, rtol=0, err_msg=f"{epoch} {name}")
        assert ours.keys() >= theirs.keys() - OF_RLLIBS_BATCHES
        for name in ours.keys() & theirs.keys():
            if "throughput" not in name and np.isscalar(theirs[name]):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-4, nan_ok=True), name
        runner.set_state({"rl_module": {name: states[0][name] for name in runner.module.get_state()}})
    assert not calls, "the lean path did the work"
    assert kinds == {True, False}, "both whole episodes and pieces"
    assert max(abs(start[name] - states[0][name]).max() for name in start) > 1e-3


def test_falls_back_to_rllibs_path_and_says_so_once(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    lean, stock = build("lean"), build("rllib")
    episodes = lean.env_runner.sample(num_timesteps=128)
    with caplog.at_level(logging.WARNING, logger="rllib_scale.rl.ppo.ppo_learner"):
        for algorithm in (lean, stock):
            for epoch in range(2):
                update(learner_of(algorithm), episodes, epoch)
    (record,) = caplog.records
    assert "fewer than 256 steps" in record.getMessage()
    states = [weights_of(a) for a in (lean, stock)]
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


def test_compiling_without_a_compiler_is_refused(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"resources\.compile: .* g\+\+"):
        build("lean", compiled=True)


def test_a_gradient_that_is_not_finite_leaves_the_weights_finite(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    algorithm = build("lean")
    episodes = algorithm.env_runner.sample(num_timesteps=256)
    episodes[0].rewards.data[3] = np.inf
    with caplog.at_level(logging.WARNING, logger="rllib_scale.rl.ppo.ppo_learner"):
        update(learner_of(algorithm), episodes, 0)
    assert "not finite" in caplog.text
    assert all(parameter.isfinite().all() for parameter in learner_of(algorithm).module["default_policy"].parameters())


def test_advantages_are_sums_of_discounted_residuals() -> None:
    generator = np.random.default_rng(0)
    lengths, terminated = np.array([4, 1, 6]), np.array([True, False, False])
    rewards, values = generator.normal(size=11), generator.normal(size=14)
    discounts, lambdas = generator.uniform(0.5, 1, size=(2, 11))
    advantages, targets = advantage_estimates(rewards, values, lengths, terminated, discounts, lambdas)
    starts = np.cumsum(lengths) - lengths
    for e, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        v = values[start + e : start + e + length + 1].copy()
        v[-1] *= not terminated[e]
        gamma = discounts[start : start + length]
        residuals = rewards[start : start + length] + gamma * v[1:] - v[:-1]
        for t in range(length):
            powers = np.cumprod(np.append(1.0, lambdas[start + t : start + length - 1] * gamma[t:-1]))
            assert advantages[start + t] == pytest.approx(powers @ residuals[t:])
            assert targets[start + t] == pytest.approx(powers @ residuals[t:] + v[t])


def test_minibatches_are_every_row_once_a_pass_in_new_order() -> None:
    batch = {"obs": torch.arange(12.0)[:, None], "actions": torch.arange(12)}
    pieces = list(minibatches(batch, 4, 3))
    assert [len(piece["obs"]) for piece in pieces] == [4] * 9
    assert all(torch.equal(piece["obs"][:, 0].long(), piece["actions"]) for piece in pieces)
    passes = [torch.cat([piece["actions"] for piece in pieces[i : i + 3]]).tolist() for i in (0, 3, 6)]
    assert passes[0] == list(range(12))
    assert all(sorted(order) == passes[0] for order in passes)
    assert len({tuple(order) for order in passes}) == 3
