"""What does the work of a training, epoch by epoch: an RLlib algorithm, a search, or a policy gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import ray

from rllib_scale.config import CMAES, Reinforce, TrialConfig
from rllib_scale.policies.policy import save_policy

EMPTY_ITERATIONS = 20


class Learner(Protocol):
    """What a training as Tune runs it asks of whatever learns."""

    @property
    def runners(self) -> tuple[int, int]:
        """Remote processes that play for it, and how many of them are well."""

    @property
    def restarts(self) -> int:
        """How often one was lost and came back."""

    def epoch(self, number: int) -> dict[str, Any]:
        """Train one epoch, 1 being the first; its row of the training table, `wall_s` for this epoch alone."""

    def save(self, folder: Path) -> None:
        """Write all that decides how it goes on."""

    def load(self, folder: Path) -> None:
        """Go on from a folder that `save` wrote."""

    def save_policy(self, folder: Path, epochs: int) -> None:
        """Export the policy so far, after so many epochs."""

    def places(self) -> dict[str, Any]:
        """Ray nodes of `learner` and of its `env_runners`."""

    def stop(self) -> None:
        """Free what it holds."""


def make_learner(trial: TrialConfig, storage: Any) -> Learner:
    """The learner of a trial, untrained; `storage` is Tune's."""
    if isinstance(trial.algorithm, CMAES):
        from rllib_scale.sweeps.evolution import PriceSearch

        return PriceSearch(trial)
    if isinstance(trial.algorithm, Reinforce):
        from rllib_scale.sweeps.policy_gradient import PolicyGradient

        return PolicyGradient(trial)
    return RLlibLearner(trial, storage)


class RLlibLearner:
    """An RLlib algorithm as a `Learner`."""

    def __init__(self, trial: TrialConfig, storage: Any) -> None:
        from rllib_scale.rl.methods import build_algorithm_config

        self.trial = trial
        config = build_algorithm_config(trial)
        # As `build_algo` does, but with Tune's storage: without, RLlib leaves an empty folder in ~/ray_results.
        self.algorithm: Any = config.algo_class(config=config, storage=storage)

    @property
    def runners(self) -> tuple[int, int]:
        """See `Learner`."""
        group = self.algorithm.env_runner_group
        return group.num_remote_workers(), group.num_healthy_remote_workers()

    @property
    def restarts(self) -> int:
        """See `Learner`."""
        return int(self.algorithm.runner_restarts)

    def epoch(self, number: int) -> dict[str, Any]:
        """See `Learner`."""
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
        """See `Learner`."""
        self.algorithm.save_to_path(str(folder))

    def load(self, folder: Path) -> None:
        """See `Learner`."""
        self.algorithm.restore_from_path(str(folder))

    def save_policy(self, folder: Path, epochs: int) -> None:
        """See `Learner`."""
        save_policy(folder, self.algorithm.get_module().network, self.trial, epochs)

    def places(self) -> dict[str, Any]:
        """See `Learner`."""
        runners = self.algorithm.env_runner_group.foreach_env_runner(
            lambda _: ray.get_runtime_context().get_node_id(), local_env_runner=False
        )
        return {"learner": ray.get_runtime_context().get_node_id(), "env_runners": list(runners)}

    def stop(self) -> None:
        """See `Learner`."""
        self.algorithm.stop()
