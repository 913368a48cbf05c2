"""Settings of RLlib that our faster parts do not support: RLlib's own path does the work, or they are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_scale.config import PPO, Imitation, TrialConfig
from rllib_scale.config.algorithms import OffPolicy
from rllib_scale.errors import UserError

FOLLOWED_BY_RLLIBS_LEARNER = (
    "torch_compile_learner",
    "torch_skip_nan_gradients",
    "_torch_grad_scaler_class",
)
FOLLOWED_BY_RLLIBS_RUNNER = (
    "num_gpus_per_env_runner",
    "restart_failed_sub_environments",
    "_env_to_module_connector",
    "_module_to_env_connector",
    "_learner_connector",  # it may read each step's info, or steps before the beginning of a piece
)
STEP_CALLBACKS = ("on_episode_created", "on_episode_start", "on_episode_step")
NOT_ON_THE_NEW_API_STACK = {
    "observation_filter": "an env_to_module_connector, as RLlib's MeanStdFilter",
    "clip_rewards": "a reward function of the trial (algorithm.reward)",
    "output": "RLlib's OfflineSingleAgentEnvRunner as env_runner_cls",
}
"""RLlib itself ignores these where an environment runner is named; by each, its replacement."""
NOT_BY_PPO = {
    "use_critic": "vf_loss_coeff 0",
    "use_gae": "lambda_ 1",
    "_torch_lr_scheduler_classes": "algorithm.final_learning_rate of the trial",
}
NOT_OFF_POLICY = {
    "_learner_connector": "an env_to_module_connector",
    "_torch_lr_scheduler_classes": "",
    "batch_mode": "",
    "before_learn_on_batch": "",
    "burn_in_len": "",
    "epsilon": "algorithm.epsilon_initial, epsilon_final and epsilon_steps of the trial",
    "minibatch_size": "train_batch_size_per_learner",
    "n_step": "",
    "noisy": "epsilon of the trial",
    "num_atoms": "",
    "num_epochs": "steps_per_update of the trial",
    "num_steps_sampled_before_learning_starts": "warmup_steps of the trial",
    "rollout_fragment_length": "steps_per_round of the trial",
    "replay_buffer_config": "buffer_size of the trial",
    "target_entropy": "algorithm.target_entropy_share of the trial",
    "training_intensity": "steps_per_update of the trial",
    "twin_q": "",
}


def refuse_unfollowed(config: AlgorithmConfig, instead: Mapping[str, str]) -> None:
    """Refuse settings that would have no effect.

    Args:
        config: of an algorithm.
        instead: attributes that must have RLlib's default, each with its replacement, if any.

    Raises:
        UserError: one is set.
    """
    defaults = type(config)()
    for name, other in instead.items():
        if (value := getattr(config, name, None)) != (default := getattr(defaults, name, None)):
            use = f"; instead, use {other}" if other else ""
            raise UserError(f"{name.lstrip('_')} {value!r}: has no effect here; valid: {default!r}{use}")


def fixed_rate(config: AlgorithmConfig, name: str) -> float:
    """A learning rate of the configuration.

    Raises:
        UserError: it is a schedule, or left to others.
    """
    rate = getattr(config, name)
    if not isinstance(rate, int | float):
        raise UserError(f"{name} {rate!r}: the schedule of the rate is the trial's; valid: a number, where it begins")
    return float(rate)


def obstacle_to_lean_learner(config: AlgorithmConfig) -> str | None:
    """The setting that needs RLlib's own update; None: no setting does."""
    if config.num_learners > 1:
        return f"num_learners {config.num_learners}"
    if config.num_gpus_per_learner > 0:
        return f"num_gpus_per_learner {config.num_gpus_per_learner}"
    if config._learner_connector is not None or not config.add_default_connectors_to_learner_pipeline:
        return "learner_connector"
    if config.policies_to_train is not None:
        return "policies_to_train"
    return _set(config, FOLLOWED_BY_RLLIBS_LEARNER)


def obstacle_to_array_sampling(config: AlgorithmConfig, callbacks: Iterable[Any]) -> str | None:
    """The setting that needs RLlib's own environment runner; None: no setting does."""
    for pipeline in ("env_to_module", "module_to_env"):
        if not getattr(config, f"add_default_connectors_to_{pipeline}_pipeline"):
            return f"add_default_connectors_to_{pipeline}_pipeline False"
    if not config.episodes_to_numpy:
        return "episodes_to_numpy False"
    for name in STEP_CALLBACKS:
        if listens(config, callbacks, name):
            return f"callback {name}"
    return _set(config, FOLLOWED_BY_RLLIBS_RUNNER)


def listens(config: AlgorithmConfig, callbacks: Iterable[Any], name: str) -> bool:
    """Whether a callback of another package has a method of this name."""
    kinds = [type(each) for each in callbacks if not str(type(each).__module__).startswith("rllib_scale.")]
    own = getattr(RLlibCallback, name)
    return bool(getattr(config, f"callbacks_{name}")) or any(getattr(kind, name) is not own for kind in kinds)


def overridden(kind: type, methods: Iterable[str]) -> str | None:
    """The first of these methods that a class overrides, compared with its base in this package or RLlib."""
    ours = next(base for base in kind.__mro__ if str(base.__module__).split(".")[0] in ("rllib_scale", "ray"))
    return next((f"{kind.__name__}.{name}" for name in methods if getattr(kind, name) is not getattr(ours, name)), None)


def ppo_of(trial: TrialConfig) -> PPO:
    """The settings of PPO of a trial. Imitation has PPO's module, learner and configuration, and none of its terms."""
    if isinstance(trial.algorithm, PPO):
        return trial.algorithm
    shared = trial.algorithm.model_dump(include=set(PPO.model_fields) & set(Imitation.model_fields) - {"name"})
    return PPO(name="ppo", **shared)


def off_policy_of(trial: TrialConfig) -> OffPolicy:
    """The settings of a DQN or SAC training."""
    assert isinstance(trial.algorithm, OffPolicy)
    return trial.algorithm


def _set(config: AlgorithmConfig, names: Iterable[str]) -> str | None:
    return next((name.lstrip("_") for name in names if getattr(config, name)), None)
