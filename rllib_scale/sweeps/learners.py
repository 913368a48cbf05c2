"""Learners train a trial epoch by epoch: their interface, and the learner that is an RLlib algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from rllib_scale.config import TrialConfig
from rllib_scale.policies.policy import save_policy

EMPTY_ITERATIONS = 20
"""RLlib iterations without samples after which a training fails."""


class Learner(ABC):
    """Interface of a training method for `SchedulingTrial`.

    Args:
        trial: the trial to train.
    """

    def __init__(self, trial: TrialConfig) -> None:
        self.trial = trial

    @abstractmethod
    def epoch(self, number: int) -> dict[str, Any]:
        """Train epoch `number`, from 1, and return its row of the training table; `wall_s` is of this epoch alone."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the complete training state."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Restore the state that `save` wrote."""

    @abstractmethod
    def save_policy(self, folder: Path, epochs: int) -> None:
        """Export the policy after `epochs` epochs."""

    def runners(self) -> dict[str, int]:
        """Remote environment runners: their number, how many are healthy, and restarts so far."""
        return {"runners": 0, "runners_healthy": 0, "runner_restarts": 0}

    def stop(self) -> None:
        """Stop the processes that the learner holds."""
        return


class RLlibLearner(Learner):
    """An RLlib algorithm.

    Args:
        trial: the trial to train.
        storage: Tune's.
        config: of the algorithm; by default that of the trial.
    """

    def __init__(self, trial: TrialConfig, storage: Any, config: Any = None) -> None:
        from rllib_scale.rl.methods import build_algorithm_config

        super().__init__(trial)
        config = config or build_algorithm_config(trial)
        # `build_algo` passes no storage, and RLlib then leaves an empty folder in ~/ray_results.
        self.algorithm: Any = config.algo_class(config=config, storage=storage)

    def epoch(self, number: int) -> dict[str, Any]:
        """Train RLlib until its iterations complete an epoch."""
        from rllib_scale.rl.methods import is_epoch, training_row

        for _ in range(EMPTY_ITERATIONS):
            result = self.algorithm.train()
            if is_epoch(self.algorithm, result, number):
                break
        else:
            raise RuntimeError(f"no samples in {EMPTY_ITERATIONS} iterations: the environment runners stay dead")
        steps, wall_s = self.trial.env_steps_per_epoch, result["time_this_iter_s"]
        assert steps is not None
        return training_row(result, number, steps) | {"wall_s": wall_s, "env_steps_per_s": steps / wall_s}

    def save(self, folder: Path) -> None:
        """Write RLlib's checkpoint."""
        self.algorithm.save_to_path(str(folder))

    def load(self, folder: Path) -> None:
        """Restore RLlib's checkpoint."""
        self.algorithm.restore_from_path(str(folder))

    def save_policy(self, folder: Path, epochs: int) -> None:
        """Export the network of the RLModule."""
        save_policy(folder, self.algorithm.get_module().network, self.trial, epochs)

    def runners(self) -> dict[str, int]:
        """RLlib's counts; the algorithm counts restarts."""
        group = self.algorithm.env_runner_group
        return {
            "runners": group.num_remote_workers(),
            "runners_healthy": group.num_healthy_remote_workers(),
            "runner_restarts": int(self.algorithm.runner_restarts),
        }

    def stop(self) -> None:
        """Stop RLlib's processes."""
        self.algorithm.stop()
