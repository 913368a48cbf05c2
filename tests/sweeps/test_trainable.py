"""A training as Tune runs it, where its environment runners die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_ray import LOCAL_RAY

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray import tune  # noqa: E402

from rllib_scale.config import TrainingConfig, TrialConfig, TrialResources  # noqa: E402
from rllib_scale.config.search import SearchConfig  # noqa: E402
from rllib_scale.rl import algorithm as algorithms  # noqa: E402
from rllib_scale.sweeps.trainable import SchedulingTrial  # noqa: E402

CELL = TrialConfig(
    training=TrainingConfig(epochs=3, steps_per_epoch=64, minibatch_size=32, passes=1, num_envs=2),
    resources=TrialResources(env_runners=2),
)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[SchedulingTrial]:
    name = CELL.name
    trainable = tune.with_parameters(
        SchedulingTrial,
        trials={name: CELL.model_dump_json()},
        targets={name: 3},
        restore={},
        folder=str(tmp_path),
        search=SearchConfig().model_dump_json(),
    )
    training = trainable({"trial": name})
    yield training
    training.stop()


@pytest.mark.parametrize("dead", [1, 2])
def test_a_training_whose_runners_stay_dead_fails_loudly(
    trial: SchedulingTrial, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "BACK_WITHIN_S", 3.0)
    assert trial.train()["epoch"] == 1
    for actor in list(trial.learner.algorithm.env_runner_group._worker_manager.actors().values())[:dead]:
        ray.kill(actor, no_restart=True)
    with pytest.raises(RuntimeError, match=f"{dead} environment runners stay dead"):
        trial.train()
    assert [row["epoch"] for row in trial.curve] == [1], "what was not trained is no epoch"


def test_a_runner_that_comes_back_is_reported_and_costs_no_epoch(trial: SchedulingTrial) -> None:
    trial.train()
    ray.kill(trial.learner.algorithm.env_runner_group._worker_manager.actors()[1], no_restart=False)
    row = trial.train()
    assert (row["epoch"], row["runners"], row["runners_healthy"], row["runner_restarts"]) == (2, 2, 2, 1)
