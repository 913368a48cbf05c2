"""A configuration that a user writes, as on docs/library.md, trains what a sweep trains."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from local_ray import LOCAL_RAY
from rl.learned import distance, learner_of, same, trial_of, update, weights_of
from rllib_scale.rl.env_runner import ArrayEnvRunner
from rllib_scale.rl.environment import TRAINING_ENV
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner
from rllib_scale.rl.ppo.ppo_module import SchedulingModule

pytestmark = LOCAL_RAY
ROWS = 256


def test_five_epochs_by_a_users_configuration_give_the_weights_of_a_sweeps_and_of_rllibs_path(
    build: Any, algorithm_of: Any
) -> None:
    settings = {"training": {"epochs": 5, "steps_per_epoch": ROWS, "minibatch_size": 64, "passes": 3, "num_envs": 3}}
    sweeps, rllibs = (build("scale", resources=each, **settings) for each in ({}, {"learner": "rllib"}))
    trial = trial_of(sweeps)
    plain, ppo = {"trial": trial.model_dump(mode="json")}, trial.algorithm
    users = algorithm_of(
        PPOConfig()
        .environment(TRAINING_ENV, env_config=plain)
        .env_runners(
            env_runner_cls=ArrayEnvRunner,
            num_env_runners=0,
            num_envs_per_env_runner=3,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=SchedulingModule, model_config=plain))
        .learners(learner_class=SchedulingLearner, learner_config_dict=plain)
        .training(
            train_batch_size_per_learner=ROWS,
            minibatch_size=64,
            num_epochs=3,
            gamma=ppo.gamma,
            lr=ppo.learning_rate,
            lambda_=ppo.gae_lambda,
            clip_param=ppo.clip,
            entropy_coeff=ppo.entropy_coefficient,
            vf_loss_coeff=ppo.value_coefficient,
            vf_clip_param=math.inf,
            use_kl_loss=False,
            grad_clip=ppo.gradient_clip,
        )
    )
    start = sweeps.learner_group.get_weights()
    rates = []
    for algorithm in (users, rllibs):
        algorithm.learner_group.set_weights(start)
    for epoch in range(5):
        episodes = sweeps.env_runner.sample(num_timesteps=ROWS)
        for algorithm in (sweeps, users, rllibs):
            result = update(learner_of(algorithm), episodes, epoch)["default_policy"]
        rates.append(result["learning_rate"].peek())
        assert same(weights_of(users), weights_of(sweeps)), epoch
        # Only roundings differ, which grow with the epochs: the gradient of SRR jumps where a covariance is 0.
        assert distance(weights_of(rllibs), weights_of(sweeps)) < 1e-5, epoch
    assert distance(weights_of(sweeps), start["default_policy"]) > 1e-3
    assert rates[0] == pytest.approx(ppo.learning_rate)
    assert rates == sorted(rates, reverse=True), "the cosine is the trial's"
