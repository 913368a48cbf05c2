"""A configuration that a user writes, as on docs/library.md, trains what a sweep trains."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.agreement import users_config
from local_ray import LOCAL_RAY
from rl.learned import distance, learner_of, same, trial_of, update, weights_of
from rllib_scale.rl.settings import ppo_of

pytestmark = LOCAL_RAY
ROWS = 256


def test_five_epochs_by_a_users_configuration_give_the_weights_of_a_sweeps_and_of_rllibs_path(
    build: Any, algorithm_of: Any
) -> None:
    settings = {"algorithm": {"epochs": 5, "steps_per_epoch": ROWS, "minibatch_size": 64, "passes": 3, "num_envs": 3}}
    sweeps, rllibs = (build("scale", rllibs=each, **settings) for each in ((), ("update",)))
    trial = trial_of(sweeps)
    users = algorithm_of(users_config(trial))
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
    assert rates[0] == pytest.approx(ppo_of(trial).learning_rate)
    assert rates == sorted(rates, reverse=True), "the cosine is the trial's"
