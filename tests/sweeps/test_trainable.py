"""A training as Tune runs it: its environment runners die, and its process was used before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_ray import LOCAL_RAY
from marks import slow

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray import tune  # noqa: E402

from rllib_scale.config import TrialConfig, TrialResources  # noqa: E402
from rllib_scale.config.search import SearchConfig  # noqa: E402
from rllib_scale.rl import algorithm as algorithms  # noqa: E402
from rllib_scale.sweeps.checkpoints import newest_in, reading  # noqa: E402
from rllib_scale.sweeps.trainable import SchedulingTrial  # noqa: E402

SMALL = {"epochs": 2, "steps_per_epoch": 64, "num_envs": 2}
PPO = SMALL | {"minibatch_size": 32, "passes": 1}
TRIAL = TrialConfig.of(algorithm=PPO, resources=TrialResources(env_runners=2))


def trainable_of(folder: Path, *trials: TrialConfig) -> Any:
    return tune.with_parameters(
        SchedulingTrial,
        trials={trial.name: trial.model_dump_json() for trial in trials},
        targets={trial.name: 2 for trial in trials},
        restore={},
        folder=str(folder),
        search=SearchConfig().model_dump_json(),
    )


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[SchedulingTrial]:
    training = trainable_of(tmp_path, TRIAL)({"trial": TRIAL.name})
    yield training
    training.stop()


def kill(trial: SchedulingTrial, count: int, no_restart: bool) -> None:
    """End the processes of the first environment runners."""
    for actor in list(trial.learner.algorithm.env_runner_group._worker_manager.actors().values())[:count]:
        ray.kill(actor, no_restart=no_restart)


@pytest.mark.parametrize("dead", [1, slow(2)])
def test_a_runner_that_comes_back_costs_no_epoch_and_a_training_whose_runners_stay_dead_fails_loudly(
    trial: SchedulingTrial, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trial.train()["epoch"] == 1
    kill(trial, 1, no_restart=False)
    row = trial.train()
    assert (row["epoch"], row["runners"], row["runners_healthy"], row["runner_restarts"]) == (2, 2, 2, 1)
    monkeypatch.setattr(algorithms, "RESTART_TIMEOUT_S", 3.0)
    kill(trial, dead, no_restart=True)
    with pytest.raises(RuntimeError, match=f"{dead} environment runners stay dead"):
        trial.train()
    assert [row["epoch"] for row in trial.curve] == [1, 2], "what was not trained is no epoch"


def test_a_training_in_a_process_used_before_is_the_one_in_a_new_process_to_the_bit(tmp_path: Path) -> None:
    before = TrialConfig.of("dqn", algorithm=SMALL | {"warmup_steps": 32, "steps_per_round": 32})
    trial = TrialConfig.of("scale", seed=2, algorithm=PPO)

    def trained(actor: Any) -> tuple[str, list[dict[str, str]]]:
        """The policy.json, which has the hash of the weights, and the curve but for what was measured."""
        assert [ray.get(actor.train.remote())["done"] for _ in range(2)] == [False, True]
        folder = tmp_path / actor._actor_id.hex()
        ray.get(actor.save.remote(str(folder)))
        checkpoint = newest_in(folder)
        assert checkpoint is not None
        with reading(checkpoint) as saved:
            curve = json.loads((saved / "curve.json").read_text())
            policy = (saved / "policy" / "policy.json").read_text()
        rows = [{key: repr(row[key]) for key in row.keys() - {"wall_s", "env_steps_per_s"}} for row in curve]
        return policy, rows

    new = ray.remote(num_cpus=0)(trainable_of(tmp_path, before, trial)).remote
    used, fresh = new({"trial": before.name}), new({"trial": trial.name})
    trained(used)
    assert ray.get(used.reset.remote({"trial": trial.name}))
    assert trained(used) == trained(fresh)
    for actor in (used, fresh):
        ray.kill(actor)
