"""From a trial to an RLlib configuration, and from RLlib's results to rows of the training table."""

from __future__ import annotations

import math
from typing import Any

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rllib_scale.config import TrialConfig
from rllib_scale.experiments.results import TRAINING_COLUMNS
from rllib_scale.rl.algorithm import SchedulingPPO
from rllib_scale.rl.env_runner import ArrayEnvRunner
from rllib_scale.rl.environment import TRAINING_ENV, register_training_env, rllib_seed
from rllib_scale.rl.learner import SchedulingLearner
from rllib_scale.rl.modules import SchedulingModule

EPISODE_METRICS = ("episode_return", "completed", "response_mean_s")
"""Averaged over the episodes that end in an epoch."""


class EpisodeMetrics(RLlibCallback):
    """Logs sum and count of each metric that is defined: a mean over all runners needs both."""

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Read the metrics of the episode from its last info."""
        metrics = episode.get_infos(-1)["metrics"]
        for name in EPISODE_METRICS:
            if not math.isnan(metrics[name]):
                metrics_logger.log_value(("episodes", name, "sum"), float(metrics[name]), reduce="sum")
                metrics_logger.log_value(("episodes", name, "count"), 1, reduce="sum")


def build_algorithm_config(trial: TrialConfig) -> PPOConfig:
    """The RLlib configuration of a trial: PPO exactly as in the paper [SCALE, sec. 5].

    Every setting stands here or in the trial; where RLlib's default differs from the paper it is set.
    """
    register_training_env()
    training = trial.training
    plain = {"trial": trial.model_dump(mode="json")}
    return (
        PPOConfig(algo_class=SchedulingPPO)
        .framework("torch")
        .environment(TRAINING_ENV, env_config=plain)
        .env_runners(
            env_runner_cls=ArrayEnvRunner if trial.resources.sampler == "array" else SingleAgentEnvRunner,
            num_env_runners=trial.resources.env_runners,
            num_envs_per_env_runner=training.num_envs,
            gym_env_vectorize_mode="vector_entry_point",
            rollout_fragment_length="auto",
            batch_mode="truncate_episodes",
        )
        .learners(num_learners=0, learner_class=SchedulingLearner, learner_config_dict=plain)
        .training(
            train_batch_size_per_learner=training.steps_per_epoch,
            minibatch_size=training.minibatch_size,
            num_epochs=training.passes,
            shuffle_batch_per_epoch=True,
            gamma=training.gamma,
            lambda_=training.gae_lambda,
            clip_param=training.clip,
            entropy_coeff=training.entropy_coefficient,
            vf_loss_coeff=training.value_coefficient,
            vf_clip_param=math.inf,
            use_kl_loss=False,
            kl_coeff=0.0,
            grad_clip=training.gradient_clip,
            grad_clip_by="global_norm",
            lr=training.learning_rate,
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=SchedulingModule, model_config=plain))
        .callbacks(EpisodeMetrics)
        .resources(num_cpus_for_main_process=trial.resources.cpus)
        .debugging(seed=rllib_seed(trial.seed), log_level="ERROR")
    )


def training_row(result: dict[str, Any], epoch: int, steps_per_epoch: int) -> dict[str, Any]:
    """One row of the training table (TRAINING_COLUMNS) from the result of `Algorithm.train`, without its times.

    Args:
        result: what `Algorithm.train` returned.
        epoch: 1 is the first.
        steps_per_epoch: decisions that each epoch trains on.
    """
    episodes = result["env_runners"].get("episodes", {})
    learned = result.get("learners", {}).get(DEFAULT_MODULE_ID, {})
    row: dict[str, Any] = {"epoch": epoch, "env_steps": epoch * steps_per_epoch}
    for name in EPISODE_METRICS:
        ended = episodes.get(name, {})
        count = ended.get("count", 0)
        row[name] = float(ended["sum"] / count) if count > 0 else math.nan
    names = list(TRAINING_COLUMNS)
    for name in names[names.index("policy_loss") :]:
        row[name] = float(learned.get(name, math.nan))
    return row
