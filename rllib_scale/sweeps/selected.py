"""An RLlib training of which the best policy is exported, chosen by how its argmax plays validation episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rllib_scale.config import TrialConfig
from rllib_scale.evaluation.candidates import Instance, Outcomes, outcomes_of
from rllib_scale.networks.build import Network, build_network
from rllib_scale.policies.policy import TrainedPolicy, save_policy
from rllib_scale.policies.visiting_policy import VisitingPolicy
from rllib_scale.sweeps.learners import RLlibLearner
from rllib_scale.sweeps.reinforce import Weights, with_weights
from rllib_scale.sweeps.validated import ValidatedLearner


def network_of(weights: Weights, trial: TrialConfig) -> Network:
    """The network of a trial with these weights."""
    return with_weights(build_network(trial), weights)


def play_network(weights: Weights, trial: TrialConfig, instance: Instance) -> Outcomes:
    """(1,) outcomes of the argmax of a network on one instance."""
    policy = VisitingPolicy if trial.visits else TrainedPolicy
    return outcomes_of(policy(network_of(weights, trial), trial, 0), 1, instance)


class SelectedLearner(ValidatedLearner):
    """An RLlib algorithm, validated before the first epoch and at intervals. The untrained policy is the fallback."""

    def __init__(self, trial: TrialConfig, storage: Any) -> None:
        self.inner = RLlibLearner(trial, storage)
        super().__init__(trial, self.candidate())
        self.workers = 0  # the environment runners hold the CPUs

    def train(self, number: int) -> dict[str, Any]:
        """See `RLlibLearner.epoch`."""
        return self.inner.epoch(number) | {"decisions": self.settings.steps_per_epoch}

    def candidate(self) -> Weights:
        """A copy of the network's weights by name."""
        network = self.inner.algorithm.get_module().network
        return {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}

    def play_validation(self, candidate: Weights, instances: Sequence[Instance]) -> list[Outcomes]:
        """Outcomes of the argmax."""
        return self.spread(play_network, [(candidate, self.trial, instance) for instance in instances])

    def save(self, folder: Path) -> None:
        """Write what selects, and RLlib's checkpoint."""
        super().save(folder)
        self.inner.save(folder / "rllib")

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""
        super().load(folder)
        self.inner.load(folder / "rllib")

    def save_policy(self, folder: Path, epochs: int) -> None:
        """Export the network with the best validation score."""
        save_policy(folder, network_of(self.best, self.trial), self.trial, epochs)

    def runners(self) -> dict[str, int]:
        """See `RLlibLearner.runners`."""
        return self.inner.runners()

    def stop(self) -> None:
        """Stop RLlib's processes."""
        self.inner.stop()
