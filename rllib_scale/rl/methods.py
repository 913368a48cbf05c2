"""From a trial to an RLlib configuration, and from RLlib's results to rows of the training table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec

from rllib_scale.config import DQN, SAC, TrialConfig
from rllib_scale.config.algorithms import Rewarded
from rllib_scale.results.columns import TRAINING_COLUMNS
from rllib_scale.rl.algorithm import SchedulingPPO
from rllib_scale.rl.copies import CopiesLearner, CopiesModule, CopiesRunner
from rllib_scale.rl.env_runner import ArrayEnvRunner
from rllib_scale.rl.environment import TRAINING_ENV, register_training_env
from rllib_scale.rl.imitation.cloning import CloningLearner, SchedulingBC
from rllib_scale.rl.off_policy.dqn_and_sac import NEVER, OffPolicy, SchedulingDQN, SchedulingSAC
from rllib_scale.rl.off_policy.off_policy_learner import TOTALS, DQNLearner, SACLearner
from rllib_scale.rl.off_policy.off_policy_modules import DQNModule, SACModule
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner
from rllib_scale.rl.ppo.ppo_module import SchedulingModule
from rllib_scale.rl.settings import off_policy_of, ppo_of
from rllib_scale.rl.vector_env import rllib_seed

EPISODE_METRICS = ("episode_return", "completed", "response_mean_s")
"""Averaged over the episodes that end in an epoch."""


class EpisodeMetrics(RLlibCallback):
    """Logs each metric that is defined, of each episode.

    No sums: the order in which RLlib adds depends on when its process began, and a resumed training had other digits.
    """

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Read the metrics of the episode from its last info."""
        metrics = episode.get_infos(-1)["metrics"]
        for name in EPISODE_METRICS:
            if not math.isnan(metrics[name]):
                metrics_logger.log_value(("episodes", name, "each"), float(metrics[name]), reduce="item_series")


def build_algorithm_config(trial: TrialConfig) -> AlgorithmConfig:
    """The RLlib configuration of a trial.

    Every setting is given here or by the trial; where RLlib's default differs from the paper it is set.
    """
    register_training_env()
    algorithms: dict[str, Callable[[TrialConfig], AlgorithmConfig]] = {
        "ppo": _ppo,
        "dqn": _dqn,
        "sac": _sac,
        "imitation": _bc,
    }
    copies = trial.copies
    # An expert samples where a training imitates one.
    sampled = trial.algorithm if isinstance(trial.algorithm, Rewarded) else ppo_of(trial)
    plain = {"trial": trial.model_dump(mode="json")}
    return (
        algorithms[trial.algorithm.name](trial)
        .framework("torch")
        .training(grad_clip=sampled.gradient_clip, grad_clip_by="global_norm")
        .environment(TRAINING_ENV, env_config=plain)
        .env_runners(
            env_runner_cls=ArrayEnvRunner if copies is None else CopiesRunner,
            num_env_runners=trial.resources.env_runners if sampled is trial.algorithm else 0,
            num_envs_per_env_runner=copies or sampled.num_envs,
            gym_env_vectorize_mode="vector_entry_point",
            # A runner that is slow must be neither left out nor left with old weights: results would depend on it.
            # With RLlib's limit of one request in flight it drops newer weights while older ones are on their way.
            sample_timeout_s=600,
            max_requests_in_flight_per_env_runner=64,
        )
        .learners(num_learners=trial.resources.learners, num_cpus_per_learner=1, learner_config_dict=plain)
        .callbacks(EpisodeMetrics)
        .resources(num_cpus_for_main_process=trial.resources.cpus)
        # RLlib's monitor of the machine is a thread for whose end a process waits 0.7 s before the next training.
        .debugging(seed=rllib_seed(trial.seed), log_level="ERROR", log_sys_usage=False)
    )


def _network_of(kind: type[RLModule], trial: TrialConfig) -> RLModuleSpec:
    return RLModuleSpec(module_class=kind, model_config={"trial": trial.model_dump(mode="json")})


def _ppo(trial: TrialConfig) -> AlgorithmConfig:
    """PPO exactly as in the paper [SCALE, sec. 5]."""
    training, learners = ppo_of(trial), max(1, trial.resources.learners)
    return (
        PPOConfig(algo_class=SchedulingPPO)
        .learners(learner_class=SchedulingLearner if training.copies is None else CopiesLearner)
        .training(
            train_batch_size_per_learner=training.steps_per_epoch // learners,
            minibatch_size=training.minibatch_size // learners,
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
            lr=training.learning_rate,
        )
        .rl_module(rl_module_spec=_network_of(SchedulingModule if training.copies is None else CopiesModule, trial))
    )


def _bc(trial: TrialConfig) -> AlgorithmConfig:
    """PPO's module, and a learner that imitates. PPO's settings for samples and loss keep RLlib's defaults."""
    training = ppo_of(trial)
    return (
        PPOConfig(algo_class=SchedulingBC)
        .learners(learner_class=CloningLearner)
        .training(
            train_batch_size_per_learner=training.steps_per_epoch,
            minibatch_size=training.minibatch_size,
            lr=training.learning_rate,
        )
        .rl_module(rl_module_spec=_network_of(SchedulingModule, trial))
    )


def _dqn(trial: TrialConfig) -> AlgorithmConfig:
    """DQN by its settings of the trial."""
    settings = trial.algorithm
    assert isinstance(settings, DQN)
    return _off_policy(
        DQNConfig(algo_class=SchedulingDQN).learners(learner_class=DQNLearner),
        DQNModule,
        trial,
        double_q=settings.double,
        dueling=settings.dueling,
        num_atoms=1,
        td_error_loss_fn="huber",
        target_network_update_freq=settings.target_update_steps,
        tau=1.0,
        lr=settings.learning_rate,
    )


def _sac(trial: TrialConfig) -> AlgorithmConfig:
    """SAC by its settings of the trial."""
    settings = trial.algorithm
    assert isinstance(settings, SAC)
    return _off_policy(
        SACConfig(algo_class=SchedulingSAC).learners(learner_class=SACLearner),
        SACModule,
        trial,
        twin_q=True,
        initial_alpha=settings.initial_temperature,
        target_network_update_freq=NEVER,  # SACLearner moves them at every gradient step
        tau=settings.target_rate,
        lr=None,
        actor_lr=settings.learning_rate,
        critic_lr=settings.learning_rate,
        alpha_lr=settings.learning_rate,
    )


def _off_policy(
    config: AlgorithmConfig, module: type[RLModule], trial: TrialConfig, **training: Any
) -> AlgorithmConfig:
    """Settings that DQN and SAC share, and others in `training`. `OffPolicy` decides when and on what they update."""
    settings = off_policy_of(trial)
    return (
        config.training(
            n_step=1,
            gamma=settings.gamma,
            train_batch_size_per_learner=settings.batch_size // max(1, trial.resources.learners),
            **training,
        )
        .reporting(min_sample_timesteps_per_iteration=0, min_time_s_per_iteration=None)
        .rl_module(rl_module_spec=_network_of(module, trial))
    )


def is_epoch(algorithm: Algorithm, result: dict[str, Any], epoch: int) -> bool:
    """Whether `Algorithm.train` finished an epoch (1 is the first): it also returns without samples."""
    if isinstance(algorithm, OffPolicy):  # nothing is learned from before the warm-up ends
        return algorithm.env_steps >= epoch * algorithm.settings.steps_per_epoch
    return DEFAULT_MODULE_ID in result.get("learners", {})


def training_row(result: dict[str, Any], epoch: int, steps_per_epoch: int) -> dict[str, Any]:
    """One row of the training table (TRAINING_COLUMNS) from the result of `Algorithm.train`, without its times.

    Args:
        result: what `Algorithm.train` returned.
        epoch: 1 is the first.
        steps_per_epoch: decisions that each epoch trains on.
    """
    episodes = result.get("env_runners", {}).get("episodes", {})
    learned = result.get("learners", {}).get(DEFAULT_MODULE_ID, {})
    totals = dict(learned.get(TOTALS, {}))
    updates = totals.pop("updates", 0)
    # Means over the updates of the epoch; see `off_policy_learner.TOTALS`.
    learned = learned | {name: total / updates for name, total in totals.items()}
    row: dict[str, Any] = {"epoch": epoch, "env_steps": epoch * steps_per_epoch}
    for name in EPISODE_METRICS:
        ended = episodes.get(name, {}).get("each", [])
        ended = ended if isinstance(ended, list) else [ended]  # of one value RLlib makes that value, of none NaN
        row[name] = math.fsum(ended) / len(ended) if ended else math.nan
    names = list(TRAINING_COLUMNS)
    for name in names[names.index("policy_loss") :]:
        row[name] = float(learned.get(name, math.nan))
    return row
