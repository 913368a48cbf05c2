"""The environment of a trial, as RLlib asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from ray.tune.registry import register_env

from rllib_scale.config import TrialConfig
from rllib_scale.config.algorithms import Rewarded
from rllib_scale.envs.scheduling import SchedulingEnv
from rllib_scale.rl.copies_env import CopiesVectorEnv
from rllib_scale.rl.drawn_problems import largest
from rllib_scale.rl.vector_env import TrainingVectorEnv, training_rows, training_space

TRAINING_ENV = "rllib_scale/Training"


class TrainingEnv(SchedulingEnv):
    """A single environment with the rows of `training_space`."""

    def _spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.spaces.Discrete]:
        return training_space(self.config), super()._spaces()[1]

    def _shown(self) -> np.ndarray:
        return training_rows(self._engine)


def make_env(context: Mapping[str, Any]) -> gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]:
    """RLlib's creator: a vector environment where RLlib asks for one, else a single one to read spaces from.

    Args:
        context: "trial", a TrialConfig as plain data, and "num_envs" for a vector environment.
    """
    trial = TrialConfig.model_validate(context["trial"])
    settings = trial.algorithm
    problems = settings.problems
    if trial.visits:
        return CopiesVectorEnv(context.get("num_envs", 1), trial.env, trial.seed, problems, trial.visits_by)
    if "num_envs" in context:
        rewards = (settings.reward_unit, settings.reward) if isinstance(settings, Rewarded) else ()
        return TrainingVectorEnv(context["num_envs"], trial.env, trial.seed, problems, *rewards)
    return TrainingEnv(trial.env if problems is None else largest(problems, trial.env))


def register_training_env() -> None:
    """Make TRAINING_ENV known to Ray: to the session under way, whose end forgets it, or else to the next one."""
    register_env(TRAINING_ENV, make_env)
