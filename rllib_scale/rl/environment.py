"""The environments that RLlib trains on, and their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from ray.tune.registry import register_env

from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.envs.scheduling import SchedulingEnv
from rllib_scale.envs.vector import SchedulingVectorEnv

TRAINING_ENV = "rllib_scale/Training"

_TRAINING_STREAM = 1
"""Spawn key that keeps these seeds apart from any other use of the same numbers."""


def rllib_seed(trial_seed: int) -> int:
    """Seed of RLlib's own generators, which add a worker index and take 32 bits."""
    return int(np.random.SeedSequence(trial_seed).generate_state(1)[0]) >> 1


def workload_seed(trial_seed: int, worker: int, index: int) -> int:
    """Seed of environment `index` of environment runner `worker`.

    A mixed number of 63 bits: no evaluation seed that a person writes down, and no neighbour's.
    """
    # SeedSequence joins the 32-bit words of its numbers: a fixed count for each keeps different triples apart.
    words = (trial_seed % 2**32, trial_seed >> 32, worker, index)
    sequence = np.random.SeedSequence(words, spawn_key=(_TRAINING_STREAM,))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


class TrainingVectorEnv(SchedulingVectorEnv):
    """The vector environment of one environment runner.

    RLlib seeds it once, by `rllib_seed` + worker index; that number becomes one workload seed for each environment.
    """

    def __init__(self, num_envs: int, config: EnvConfig, trial_seed: int) -> None:
        super().__init__(num_envs, config)
        self.trial_seed = trial_seed

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """See `SchedulingVectorEnv.reset`."""
        if isinstance(seed, int):
            worker = seed - rllib_seed(self.trial_seed)
            seed = [workload_seed(self.trial_seed, worker, index) for index in range(self.num_envs)]
        return super().reset(seed=seed, options=options)


def make_env(context: Mapping[str, Any]) -> gymnasium.Env[Any, Any] | SchedulingVectorEnv:
    """RLlib's creator: a vector environment where RLlib asks for one, else a single one to read spaces from.

    Args:
        context: "trial", a TrialConfig as plain data, and "num_envs" for a vector environment.
    """
    trial = TrialConfig.model_validate(context["trial"])
    if "num_envs" in context:
        return TrainingVectorEnv(context["num_envs"], trial.env, trial.seed)
    return SchedulingEnv(trial.env)


def register_training_env() -> None:
    """Make TRAINING_ENV known to Ray: to the session under way, whose end forgets it, or else to the next one."""
    register_env(TRAINING_ENV, make_env)
