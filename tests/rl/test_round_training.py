"""Small real trainings in rounds: what they learn from, what they export, and that it plays on at another scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import same, weights_of
from rllib_scale.config import DQNConfig, EnvConfig, TrainingConfig, TrialConfig

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm import Algorithm  # noqa: E402
from ray.rllib.core.learner.training_data import TrainingData  # noqa: E402
from ray.rllib.evaluation.postprocessing import Postprocessing  # noqa: E402

from rllib_scale.evaluation.play import evaluate  # noqa: E402
from rllib_scale.observation.feature_sets import ROUNDS  # noqa: E402
from rllib_scale.policies.policy import load_policy, save_policy  # noqa: E402
from rllib_scale.rl.methods import training_row  # noqa: E402
from rllib_scale.rl.ppo.lean_update import train_batch  # noqa: E402

EPOCH = 256
TRAINING = TrainingConfig(epochs=2, steps_per_epoch=EPOCH, minibatch_size=64, passes=2, num_envs=4)
COMPUTE = ROUNDS.task_column("compute")


def problem(servers: int = 8) -> EnvConfig:
    """Rounds, at a load at which tasks find no idle server now and then."""
    return EnvConfig.model_validate(
        {
            "cluster": {"servers": servers},
            "workload": {"offered_load": 1.2},
            "decision": {"on_busy": "reserve"},
            "episode": {"horizon_s": 20.0, "horizon_is_terminal": False},
            "observation": {"feature_set": "rounds"},
        }
    )


def trial(method: str = "scale", **training: Any) -> TrialConfig:
    return TrialConfig(
        method=method,
        env=problem(),
        training=TRAINING.model_copy(update=training),
        dqn=DQNConfig(warmup_steps=64, steps_per_round=32, batch_size=32, buffer_size=1024),
    )


def evaluated(algorithm: Algorithm, own: TrialConfig, folder: Path, servers: int) -> list[dict[str, Any]]:
    """The exported policy in the same mode, at that number of servers."""
    save_policy(folder, algorithm.get_module().network, own, epochs=1)
    policy = load_policy(folder)
    assert policy.observation.feature_set == "rounds"
    return evaluate(policy, problem(servers), seed=1, episodes=3)


def check(metrics: list[dict[str, Any]]) -> None:
    assert all(row["completed"] > 0 and row["decisions"] > 0 for row in metrics)
    assert sum(row["waits"] for row in metrics) > 0
    assert all(row["invalid_busy_avoidable"] == row["invalid_busy_unavoidable"] == 0 for row in metrics)


def test_rounds_are_learned_discounted_by_time(
    algorithm_of: Callable[[TrialConfig], Algorithm], tmp_path: Path
) -> None:
    own = trial(time_unit_s=10.0)
    algorithm = algorithm_of(own)
    before = weights_of(algorithm)
    rows = [training_row(algorithm.train(), epoch, EPOCH) for epoch in (1, 2)]
    assert all(np.isfinite([row["policy_loss"], row["value_loss"], row["gradient_norm"]]).all() for row in rows)
    assert not same(before, weights_of(algorithm))
    check(evaluated(algorithm, own, tmp_path / "policy", servers=16))

    # The learner discounts by the time that its trial names.
    learner, training = algorithm.learner_group._learner, own.training
    episodes = algorithm.env_runner.sample(num_timesteps=EPOCH)
    elapsed = np.concatenate([episode.get_extra_model_outputs("elapsed_s") for episode in episodes])
    assert (elapsed == 0).any()
    assert (elapsed > 0).any()
    by_time, by_decision = (
        train_batch(episodes, learner._lean.values, training.gamma, training.gae_lambda, unit) for unit in (10.0, None)
    )
    learner.update(training_data=TrainingData(episodes=episodes), num_epochs=1, minibatch_size=64)
    kept = learner._exact_batch.kept["default_policy"][Postprocessing.VALUE_TARGETS]
    assert torch.isin(kept, by_time[Postprocessing.VALUE_TARGETS]).all()
    assert not torch.isin(kept, by_decision[Postprocessing.VALUE_TARGETS]).all()


@pytest.mark.parametrize("over", ["epoch", slow("none"), slow("minibatch")])
def test_advantages_are_standardised_as_asked(algorithm_of: Callable[[TrialConfig], Algorithm], over: str) -> None:
    algorithm = algorithm_of(trial(standardise_advantages=over))
    algorithm.train()
    learner = algorithm.learner_group._learner
    advantages = learner._exact_batch.kept["default_policy"][Postprocessing.ADVANTAGES]
    is_standard = abs(advantages.mean().item()) < 1e-4 and abs(advantages.std().item() - 1) < 1e-3
    assert is_standard == (over == "epoch")
    assert learner.loss_weights().standardise == (over == "minibatch")


@pytest.mark.slow
def test_masked_dqn_learns_in_rounds(algorithm_of: Callable[[TrialConfig], Algorithm], tmp_path: Path) -> None:
    own = trial("dqn")
    algorithm = algorithm_of(own)
    before = weights_of(algorithm)
    row = training_row(algorithm.train(), 1, EPOCH)
    assert np.isfinite([row["value_loss"], row["gradient_norm"], row["q_mean"]]).all()
    assert not same(before, weights_of(algorithm))
    drawn = algorithm.local_replay_buffer.sample(2000)
    assert not drawn["terminateds"].any()
    assert (drawn["obs"][:, COMPUTE] > 0).all()
    assert (drawn["new_obs"][:, COMPUTE] > 0).all(), "also where an episode was cut"
    masks = drawn["obs"][:, -8:]
    assert masks[np.arange(2000), drawn["actions"]].all(), "only what the mask leaves open was tried"
    assert (masks == 0).any()
    check(evaluated(algorithm, own, tmp_path / "policy", servers=8))  # its network is an MLP
