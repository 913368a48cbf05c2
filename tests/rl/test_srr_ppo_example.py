"""`examples/srr_ppo.py`, on RLlib's own parts, learns from the same rows what our learner does."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from local_ray import LOCAL_RAY
from rl.learned import distance, learner_of, trial_of, weights_of
from rllib_scale.config import TrialConfig
from rllib_scale.rl.ppo.loss import standardised

pytestmark = LOCAL_RAY
EXAMPLE = Path(__file__).parents[2] / "examples" / "srr_ppo.py"
PPO = {"epochs": 4, "final_learning_rate": 3e-4, "adam_epsilon": 1e-8, "num_envs": 1}


def rows_of(learner: Any, episodes: list[Any]) -> dict[str, torch.Tensor]:
    """The rows that RLlib makes of episodes, without those that only bootstrap."""
    made = learner._learner_connector(
        rl_module=learner.module, batch={}, episodes=copy.deepcopy(episodes), shared_data={}, metrics=learner.metrics
    )["default_policy"]
    rows = {name: column[made[Columns.LOSS_MASK]] for name, column in made.items() if isinstance(column, torch.Tensor)}
    return rows | {Postprocessing.ADVANTAGES: standardised(rows[Postprocessing.ADVANTAGES])}


def updated(learner: Any, rows: dict[str, torch.Tensor]) -> None:
    batch = MultiAgentBatch({"default_policy": SampleBatch(rows)}, env_steps=len(rows[Columns.OBS]))
    steps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
    learner.update(training_data=TrainingData(batch=batch), timesteps=steps, num_epochs=1)


def test_an_update_of_the_example_is_one_of_ours(build: Any, algorithm_of: Any) -> None:
    ours = build("scale", algorithm=PPO | {"steps_per_epoch": 128, "minibatch_size": 128, "passes": 1})
    trial: TrialConfig = trial_of(ours)
    example = algorithm_of(runpy.run_path(str(EXAMPLE))["config_of"](trial))
    start = ours.learner_group.get_weights()
    example.learner_group.set_weights(start)
    rows = rows_of(learner_of(example), example.env_runner.sample(num_timesteps=128))
    without_srr = None
    learner_of(ours)._exact_batch.kept = {"default_policy": rows}  # on which it measures what it has learned
    for _ in range(2):  # SRR is in force from the second epoch on
        for algorithm in (ours, example):
            updated(learner_of(algorithm), rows)
        assert distance(weights_of(example), weights_of(ours)) < 1e-6
        without_srr = without_srr or weights_of(ours)
    assert learner_of(example).epoch == learner_of(ours).epoch == 2
    assert distance(weights_of(ours), without_srr) > 1e-4
    assert trial.srr is not None
    assert trial.srr.lambda_decorrelation > 0
