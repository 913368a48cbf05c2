"""Several learners: RLlib averages their gradients, and a step of theirs is the step on all their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import SHORT, SHORT_OFF_POLICY, distance, same, train, weights_of
from rllib_scale.config import TrialConfig
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.rl.settings import obstacle_to_lean_learner

pytestmark = LOCAL_RAY
ROWS = 64
"""Of one half of the batch."""


def of_all(algorithm: Any, ask: Any) -> list[Any]:
    """What each learner answers."""
    return [result.get() for result in algorithm.learner_group.foreach_learner(ask)]


@pytest.mark.parametrize(
    ("standardise", "decorrelation"), [("minibatch", 0.1), slow("minibatch", 0.0), slow("epoch", 0.0)]
)
def test_a_step_of_two_learners_on_halves_is_that_of_one_on_the_whole_batch(
    algorithm_of: Any, standardise: str, decorrelation: float
) -> None:
    trial = TrialConfig.of(
        method="scale",
        algorithm={"steps_per_epoch": 2 * ROWS, "minibatch_size": 2 * ROWS, "passes": 1, "num_envs": 2}
        | {"standardise_advantages": standardise},
        srr={"ramp_start_epoch": 0, "ramp_epochs": 1, "lambda_decorrelation": decorrelation, "lambda_kl": 0.1},
    )
    whole = algorithm_of(build_algorithm_config(trial))
    halves = build_algorithm_config(trial).learners(num_learners=2)
    halves = algorithm_of(halves.training(train_batch_size_per_learner=ROWS, minibatch_size=ROWS))
    episodes = whole.env_runner.sample(num_timesteps=2 * ROWS)
    assert [len(episode) for episode in episodes] == [ROWS, ROWS], "no episode is cut in two, which changes advantages"
    weights = whole.learner_group.get_weights()
    halves.learner_group.set_weights(weights)
    for algorithm in (whole, halves):

        def begin(learner: Any) -> None:
            learner.epoch = 1  # the regulariser is in force

        algorithm.learner_group.foreach_learner(begin)
        size = algorithm.config.minibatch_size
        algorithm.learner_group.update(episodes=episodes, timesteps={}, num_epochs=1, minibatch_size=size)

    def gradients(learner: Any) -> dict[str, np.ndarray]:
        module = learner.module["default_policy"].unwrapped()
        return {name: parameter.grad.numpy().copy() for name, parameter in module.named_parameters()}

    (expected,), (one, other) = (of_all(algorithm, gradients) for algorithm in (whole, halves))
    assert same(one, other)
    scale = max(float(np.abs(gradient).max()) for gradient in expected.values())
    assert distance(one, expected) < 1e-5 * scale


@pytest.mark.parametrize("method", ["scale", slow("dqn"), slow("sac")])
def test_two_learners_stay_equal(algorithm_of: Any, method: str) -> None:
    trial = TrialConfig.of(method, algorithm=SHORT if method == "scale" else SHORT_OFF_POLICY)
    algorithm = algorithm_of(build_algorithm_config(trial).learners(num_learners=2))
    start = weights_of(algorithm)
    train(algorithm, 2)

    def ask(learner: Any) -> Any:
        state = learner.get_state()
        return learner._obstacle, state["rl_module"]["default_policy"], state.get("log_temperature", 0.0)

    answers = of_all(algorithm, ask)
    obstacles, (one, other), (temperature, other_temperature) = map(list, zip(*answers, strict=True))
    assert obstacles == ["num_learners 2"] * 2
    assert same(one, other)
    assert temperature == other_temperature
    assert distance(one, start) > 1e-4


def test_a_gpu_chooses_rllibs_update() -> None:
    config = build_algorithm_config(TrialConfig.of())
    assert obstacle_to_lean_learner(config) is None
    assert obstacle_to_lean_learner(config.learners(num_gpus_per_learner=1)) == "num_gpus_per_learner 1"
