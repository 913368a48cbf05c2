"""Environments that play one workload side by side: what happens to all of them alike is no advantage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from local_ray import LOCAL_RAY
from rllib_scale.config import SCENARIOS, TrialConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm import Algorithm  # noqa: E402
from ray.rllib.evaluation.postprocessing import Postprocessing  # noqa: E402

from rllib_scale.rl.environment import TrainingVectorEnv, rllib_seed  # noqa: E402
from rllib_scale.rl.ppo.lean_update import train_batch  # noqa: E402
from rllib_scale.rl.ppo.siblings import common_part  # noqa: E402

TRAINING = {"steps_per_epoch": 512, "minibatch_size": 128, "passes": 1, "num_envs": 4, "siblings": 2}


def trial(**training: object) -> TrialConfig:
    env = SCENARIOS["steady-0.9"][0].at_scale(8)
    return build_model(TrialConfig, {"method": "crossattn-r", "env": env, "training": TRAINING | training}, "trial")


# One piece decides at 0 (twice), 2 and 5 and ends at 6; the other at 0, 3 and 5 and is cut at 5.
RESIDUALS = np.array([9.0, 1.0, 2.0, 4.0, 10.0, 20.0])
CLOCKS = np.array([0.0, 2.0, 5.0, 6.0, 3.0, 5.0])
ELAPSED = np.array([0.0, 2.0, 3.0, 1.0, 3.0, 2.0])
LENGTHS = np.array([4, 2])


def common(workloads: list[int], done: list[bool]) -> list[float]:
    return common_part(RESIDUALS, CLOCKS, ELAPSED, LENGTHS, workloads, done).tolist()


def test_a_step_is_compared_with_what_others_met_in_its_time() -> None:
    # From 0 to 2 the other met nothing, from 2 to 5 both of its residuals; at 6 nothing is known of it. From 0 to 3 the
    # first met 1, from 3 to 5 it met 2. What it answered at once, 9, is nobody's fortune.
    assert common([7, 7], [False, False]) == [0, 0, 30, 0, 1, 2]


def test_nothing_happens_any_more_to_whom_has_ended() -> None:
    assert common([7, 7], [False, True]) == common([7, 7], [False, False])
    three = common_part(
        np.append(RESIDUALS, 8.0),
        np.append(CLOCKS, 6.0),
        np.append(ELAPSED, 6.0),
        np.append(LENGTHS, 1),
        [7, 7, 7],
        [True, True, True],
    )
    assert three.tolist() == [0, 0, 15, 4, 0.5, 1, 18.5]
    cut = common_part(RESIDUALS[:5], CLOCKS[:5], ELAPSED[:5], np.array([4, 1]), [7, 7], [True, False])
    assert cut.tolist() == [0, 0, 0, 0, 1], "of who was cut at 3 nothing is known at 5"


def test_other_workloads_have_no_part() -> None:
    assert common([7, 8], [True, True]) == [0] * 6


def test_siblings_play_the_same_workloads_and_begin_together() -> None:
    env = TrainingVectorEnv(6, trial().env, 42, siblings=3)
    env.reset(seed=rllib_seed(42))
    assert len(set(env.workload[:3].tolist())) == len(set(env.workload[3:].tolist())) == 1
    assert env.workload[0] != env.workload[3]
    first = env.workload[0]
    env._episodes[1] = 4  # has ended more episodes than its siblings
    rows, _ = env.reset()
    assert env._episodes.tolist() == [5, 5, 5, 1, 1, 1]
    assert len(set(env.workload[:3].tolist())) == 1
    assert env.workload[0] != first
    np.testing.assert_array_equal(rows[0], rows[2])
    assert (rows[0] != rows[3]).any()


def test_advantages_scatter_less_without_what_is_common(algorithm_of: Callable[[TrialConfig], Algorithm]) -> None:
    own = trial(siblings=4)
    algorithm = algorithm_of(own)
    algorithm.train()
    training, learner = own.training, algorithm.learner_group._learner
    episodes = algorithm.env_runner.sample(num_timesteps=512)
    assert len({int(e.get_extra_model_outputs("workload")[0]) for e in episodes}) < len(episodes)
    plain, compared = (
        train_batch(episodes, learner._lean.values, training.gamma, 0.99, training.time_unit_s, True, siblings)
        for siblings in (False, True)
    )
    name = Postprocessing.ADVANTAGES
    assert compared[name].std() < 0.8 * plain[name].std()
    np.testing.assert_array_equal(compared[Postprocessing.VALUE_TARGETS], plain[Postprocessing.VALUE_TARGETS])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training": {"siblings": 3}}, "num_envs 4 is not a multiple of siblings 3"),
        ({"method": "dqn", "training": {"siblings": 2}}, "training.siblings 2: method dqn, .*valid: 1, or a method"),
    ],
)
def test_siblings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        build_model(TrialConfig, settings, "trial")
    assert "\n" not in str(refused.value)
