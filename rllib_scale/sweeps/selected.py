"""Trainings that export the network whose argmax is best on validation episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rllib_scale.config import TrialConfig
from rllib_scale.evaluation.candidates import Instance, Outcomes, outcomes_of
from rllib_scale.policies.policy import policy_of, save_policy
from rllib_scale.sweeps.learners import RLlibLearner
from rllib_scale.sweeps.reinforce import Weights, network_of
from rllib_scale.sweeps.validated import ValidatedLearner


def play_network(weights: Weights, trial: TrialConfig, instance: Instance) -> Outcomes:
    """(1,) outcomes of the argmax of a network on one instance."""
    torch.set_num_threads(1)
    return outcomes_of(policy_of(network_of(weights, trial), trial, 0), 1, instance)


class TrainedByRLlib(ValidatedLearner):
    """An RLlib algorithm, validated before the first epoch and at intervals. The untrained policy is the fallback.

    Args:
        trial: the trial to train.
        inner: its algorithm.
        initial: see `ValidatedLearner`.
    """

    def __init__(self, trial: TrialConfig, inner: RLlibLearner, initial: Any) -> None:
        self.inner = inner
        super().__init__(trial, initial)
        self.workers = 0  # the environment runners hold the CPUs

    def save(self, folder: Path) -> None:
        """Write the state of the selection, and RLlib's checkpoint."""
        super().save(folder)
        self.inner.save(folder / "rllib")

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""
        super().load(folder)
        self.inner.load(folder / "rllib")

    def runners(self) -> dict[str, int]:
        """See `RLlibLearner.runners`."""
        return self.inner.runners()

    def stop(self) -> None:
        """Stop RLlib's processes."""
        self.inner.stop()


class NetworkLearner(ValidatedLearner):
    """Trains `network`, and exports the weights with the best validation score."""

    network: Any

    def candidate(self) -> Weights:
        """A copy of the network's weights by name."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self.network.state_dict().items()}

    def play_validation(self, candidate: Weights, instances: Sequence[Instance]) -> list[Outcomes]:
        """Outcomes of the argmax."""
        return self.spread(play_network, [(candidate, self.trial, instance) for instance in instances])

    def save_policy(self, folder: Path, epochs: int) -> None:
        """Export the network with the best validation score."""
        save_policy(folder, network_of(self.best, self.trial), self.trial, epochs)


class SelectedLearner(TrainedByRLlib, NetworkLearner):
    """An RLlib algorithm that trains a network."""

    def __init__(self, trial: TrialConfig, storage: Any) -> None:
        self.inner = RLlibLearner(trial, storage)
        super().__init__(trial, self.inner, self.candidate())

    @property
    def network(self) -> Any:
        """That of RLlib's module."""
        return self.inner.algorithm.get_module().network

    def train(self, number: int) -> dict[str, Any]:
        """See `RLlibLearner.epoch`."""
        return self.inner.epoch(number) | {"decisions": self.settings.steps_per_epoch}
