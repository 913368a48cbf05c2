"""Real trainings on a local Ray: the paper's update, its schedules, determinism, restore, every method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import learner_of, same, weights_of
from rllib_scale.config import (
    METHODS,
    EnvConfig,
    EpisodeConfig,
    SRRConfig,
    TrainingConfig,
    TrialConfig,
    TrialResources,
)
from rllib_scale.results.tables import TRAINING_COLUMNS

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm import Algorithm  # noqa: E402

from rllib_scale.rl.methods import training_row  # noqa: E402

SHORT = TrainingConfig(epochs=4, steps_per_epoch=64, minibatch_size=32, passes=2, num_envs=2)
PPO = [name for name, spec in METHODS.items() if spec.algorithm == "ppo"]
OF_OTHERS = {"q_mean", "epsilon", "temperature", "reference_kl", "imitation_loss", "agreement"}
OF_OTHERS |= {"objective", "objective_validation", "step_size"}
"""Columns that PPO fills with nothing."""
SRR_FROM_SECOND_EPOCH = {"ramp_start_epoch": 0, "ramp_epochs": 1}


@pytest.fixture
def build(algorithm_of: Callable[[TrialConfig], Algorithm]) -> Callable[..., Algorithm]:
    """Builds short trainings by their settings."""
    return lambda **settings: algorithm_of(TrialConfig(**({"training": SHORT} | settings)))


def train(algorithm: Algorithm, epochs: int) -> list[dict[str, Any]]:
    first = learner_of(algorithm).epoch + 1
    return [training_row(algorithm.train(), first + i, SHORT.steps_per_epoch) for i in range(epochs)]


@pytest.mark.parametrize("kind", ["lean", slow("rllib")])
def test_a_training_that_can_learn_nothing_fails(build: Any, kind: str) -> None:
    of_no_use = SHORT.model_copy(update={"value_coefficient": 1e300})
    algorithm = build(training=of_no_use, resources=TrialResources(learner=kind))
    with pytest.raises(FloatingPointError, match="no gradient of the epoch's 4 updates is finite"):
        algorithm.train()


@pytest.mark.parametrize("kind", ["lean", "rllib"])
def test_one_epoch_is_the_papers_update(build: Any, kind: str) -> None:
    algorithm = build(training=TrainingConfig(), resources=TrialResources(learner=kind))
    learner = learner_of(algorithm)
    minibatches: list[torch.Tensor] = []

    def record(obs: torch.Tensor, action_logp: torch.Tensor) -> None:
        minibatches.append(torch.cat((obs, action_logp[:, None]), 1))

    if kind == "lean":
        lean_loss = learner._lean.loss
        learner._lean.loss = lambda obs, rows, weights: record(obs, rows.action_logp) or lean_loss(obs, rows, weights)
    else:
        loss = learner.compute_loss_for_module
        learner.compute_loss_for_module = lambda batch, **kwargs: (
            record(batch["obs"], batch["action_logp"]) or loss(batch=batch, **kwargs)
        )
    before = weights_of(algorithm)
    result = algorithm.train()
    assert result["learners"]["default_policy"]["num_module_steps_trained"] == 8192
    (optimizer,) = learner._named_optimizers.values()
    assert {int(state["step"]) for state in optimizer.state.values()} == {32}
    assert [len(rows) for rows in minibatches] == [256] * 32
    passes = [torch.cat(minibatches[i : i + 4]) for i in range(0, 32, 4)]
    everything = passes[0].unique(dim=0, return_counts=True)
    for one, other in itertools.pairwise(passes):
        assert not torch.equal(one, other), "every pass has an order of its own"
        again = other.unique(dim=0, return_counts=True)
        assert all(torch.equal(*pair) for pair in zip(everything, again, strict=True))
    # Consecutive decisions of one environment differ little in remaining time; shuffled rows are strangers.
    remaining = [rows[:, 7 : 5 + 80 : 5] for rows in passes]
    jumps = [(rows[1:] - rows[:-1]).abs().mean().item() for rows in remaining]
    assert jumps[0] == pytest.approx(np.mean(jumps[1:]), rel=0.1), "the first pass is shuffled like the others"
    assert not same(before, weights_of(algorithm))


def test_row_of_the_training_table(build: Any) -> None:
    algorithm = build(training=TrainingConfig())
    result = algorithm.train()
    row = training_row(result, 1, 1024)
    names = list(TRAINING_COLUMNS)
    assert set(names[names.index("episode_return") :]) | {"epoch", "env_steps"} == set(row)
    assert (row["epoch"], row["env_steps"]) == (1, 1024)
    assert {name for name, value in row.items() if not math.isfinite(value)} == OF_OTHERS
    # RLlib's own mean is over the same episodes, this being the first epoch.
    assert row["episode_return"] == pytest.approx(result["env_runners"]["episode_return_mean"], rel=1e-5)
    assert 0 < row["completed"] < 50
    assert 2.5 < row["response_mean_s"] < 12
    assert row["entropy"] == pytest.approx(math.log(16), abs=0.5)
    assert 0 <= row["kl"] < 0.1
    assert 1 <= row["feature_effective_rank"] <= 16
    assert row["gradient_norm"] > 0
    assert row["srr_decorrelation"] == pytest.approx(240 * row["feature_covariance"], rel=0.3)


def test_one_compute_thread_a_process(build: Any) -> None:
    torch.set_num_threads(2)
    build()
    assert torch.get_num_threads() == 1


def test_an_epoch_in_which_no_episode_ends_has_no_return() -> None:
    row = training_row({"env_runners": {}}, 3, 64)
    assert math.isnan(row["episode_return"])
    assert math.isnan(row["policy_loss"])


def test_masked_rows_do_not_count(build: Any) -> None:
    learner = learner_of(build(srr=SRRConfig(**SRR_FROM_SECOND_EPOCH)))
    learner.epoch = 1
    module = learner.module["default_policy"]
    torch.manual_seed(0)
    size = 16
    batch = {
        "obs": torch.rand(size, 85),
        "actions": torch.randint(16, (size,)),
        "action_logp": -2.7 + 0.1 * torch.randn(size),
        "advantages": torch.randn(size),
        "value_targets": torch.randn(size),
    }

    def loss(rows: dict[str, torch.Tensor]) -> float:
        return learner.compute_loss_for_module(
            module_id="default_policy", config=None, batch=rows, fwd_out=module.forward_train(rows)
        ).item()

    mask = torch.arange(size) < 12
    wrong = {name: torch.where(mask.view(-1, *[1] * (v.ndim - 1)), v, 7 * v) for name, v in batch.items()}
    wrong["actions"] = batch["actions"]
    expected = loss({name: v[mask] for name, v in batch.items()})
    assert loss(wrong | {"loss_mask": mask}) == pytest.approx(expected, rel=1e-5)
    assert loss(wrong) != pytest.approx(expected, rel=1e-2)


def test_learning_rate_is_the_cosine(build: Any) -> None:
    algorithm = build()
    (optimizer,) = learner_of(algorithm)._named_optimizers.values()
    for epoch in range(5):
        (row,) = train(algorithm, 1)
        expected = 5e-5 + 2.5e-4 * (1 + math.cos(math.pi * epoch / 4)) / 2
        assert row["learning_rate"] == pytest.approx(expected, abs=1e-7)
        assert [group["lr"] for group in optimizer.param_groups] == [pytest.approx(expected, abs=1e-7)]


def test_gradients_are_clipped_by_their_global_norm(build: Any) -> None:
    algorithm = build(training=SHORT.model_copy(update={"gradient_clip": 0.01}))
    (row,) = train(algorithm, 1)
    gradients = [parameter.grad for parameter in learner_of(algorithm).module["default_policy"].parameters()]
    assert torch.nn.utils.get_total_norm(gradients).item() == pytest.approx(0.01, rel=1e-3)
    assert row["gradient_norm"] > 0.02, "the norm before clipping is logged"


def test_lambdas_reach_the_loss(build: Any) -> None:
    regulariser = SRRConfig(lambda_decorrelation=3.0, lambda_kl=0.5, **SRR_FROM_SECOND_EPOCH)
    weights, first, last = [], [], []
    for method in ("crossattn", "scale"):  # one after the other: they share the generators of the process
        algorithm = build(method=method, srr=regulariser)
        first += train(algorithm, 1)
        weights.append(weights_of(algorithm))
        last.append(train(algorithm, 3)[-1])
    assert same(*weights), "no regularisation in the first epoch: the ramp is 0"
    assert [row["srr_ramp"] for row in first] == [0, 0]
    assert [row["srr_lambda_decorrelation"] for row in last] == [0, 3.0]
    assert [row["srr_lambda_kl"] for row in last] == [0, 0.5]
    assert last[1]["srr_ramp"] == 1
    assert last[1]["feature_covariance"] < 0.8 * last[0]["feature_covariance"]


@pytest.mark.slow
def test_same_seed_same_weights(build: Any) -> None:
    weights, rows = [], []
    for seed in (5, 5, 6):
        algorithm = build(seed=seed)
        rows.append(repr(train(algorithm, 2)))  # repr: a NaN equals itself
        weights.append(weights_of(algorithm))
    assert same(weights[0], weights[1])
    assert rows[0] == rows[1]
    assert not same(weights[0], weights[2])


@pytest.mark.parametrize("resources", [{}, slow({"learner": "rllib"}), slow({"env_runners": 2})], ids=str)
def test_restored_training_is_the_uninterrupted_one(build: Any, tmp_path: Path, resources: dict[str, Any]) -> None:
    settings = {
        "resources": TrialResources(**resources),
        "env": EnvConfig(episode=EpisodeConfig(horizon_s=3.0)),
        "srr": SRRConfig(**SRR_FROM_SECOND_EPOCH),
    }
    algorithm = build(**settings)
    train(algorithm, 2)
    algorithm.save_to_path(str(tmp_path / "checkpoint"))
    expected, weights = train(algorithm, 2), weights_of(algorithm)
    algorithm.stop()  # its runners' CPUs are needed
    restored = build(**settings)
    train(restored, 1)  # whatever it did before must not matter
    restored.restore_from_path(str(tmp_path / "checkpoint"))
    assert repr(train(restored, 2)) == repr(expected)
    assert same(weights_of(restored), weights)


@pytest.mark.parametrize(
    "method",
    [
        "scale",
        "ppo",
        *(slow(n) for n, spec in METHODS.items() if spec.algorithm == "ppo" and n not in ("scale", "ppo")),
    ],
)
def test_every_method_trains(build: Any, method: str) -> None:
    algorithm = build(method=method, srr=SRRConfig(**SRR_FROM_SECOND_EPOCH))
    before = weights_of(algorithm)
    for row in train(algorithm, 2):
        columns = list(TRAINING_COLUMNS)[list(TRAINING_COLUMNS).index("policy_loss") :]
        losses = {name: row[name] for name in columns if name not in OF_OTHERS}
        assert all(math.isfinite(value) for value in losses.values()), losses
    after = weights_of(algorithm)
    learned = [name for name in before if ".inputs." not in name]
    assert all(not np.array_equal(before[name], after[name]) for name in learned)
    assert all(np.array_equal(before[name], after[name]) for name in before if ".inputs." in name)
    assert (row["srr_lambda_decorrelation"] > 0) == METHODS[method].srr
