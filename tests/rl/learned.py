"""Training for a while, and what has been learned so far."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from rllib_scale.config import TrialConfig
from rllib_scale.rl.methods import training_row

Weights = dict[str, np.ndarray]
SHORT = {"epochs": 4, "steps_per_epoch": 64, "minibatch_size": 32, "passes": 2, "num_envs": 2}
"""Settings of `ppo`."""
SHORT_OFF_POLICY = {"epochs": 4, "steps_per_epoch": 64, "num_envs": 2, "warmup_steps": 32}
"""Settings of `dqn` and `sac`."""


def train(algorithm: Any, epochs: int) -> list[dict[str, Any]]:
    """Rows of the training table, counted from this call on."""
    steps = trial_of(algorithm).env_steps_per_epoch
    return [training_row(algorithm.train(), epoch, steps) for epoch in range(1, epochs + 1)]


def update(learner: Any, episodes: list[Any], seed: int = 0) -> dict[str, Any]:
    """One epoch of a PPO learner as RLlib calls for it, the one after `seed` others, by random numbers of its own."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    config = learner.config
    return learner.update(
        training_data=TrainingData(episodes=copy.deepcopy(episodes)),
        timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: (seed + 1) * config.train_batch_size_per_learner},
        num_epochs=config.num_epochs,
        minibatch_size=config.minibatch_size,
        shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
    )


def trial_of(algorithm: Any) -> TrialConfig:
    """What it trains."""
    return TrialConfig.model_validate(algorithm.config.learner_config_dict["trial"])


def learner_of(algorithm: Any) -> Any:
    """Its learner, in this process."""
    return algorithm.learner_group._learner


def module_of(algorithm: Any) -> Any:
    """The module that learns."""
    return learner_of(algorithm).module["default_policy"].unwrapped()


def weights_of(algorithm: Any) -> Weights:
    """Of network and critic, by name."""
    return algorithm.learner_group.get_weights()["default_policy"]


def same(one: Weights, other: Weights) -> bool:
    """To the last bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def distance(one: Weights, other: Weights) -> float:
    """The largest of all weights' differences."""
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)
