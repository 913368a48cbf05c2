"""A trained `scale-release` as a policy: a rule for replicas, behind a gate, whose held calls a network releases."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rllib_scale.config import TrialConfig
from rllib_scale.config.algorithms import Searched
from rllib_scale.networks.build import build_network
from rllib_scale.networks.compiled.inference import pointer_weights
from rllib_scale.policies.shared import Exported
from rllib_scale.schedulers.base import BasePolicy
from rllib_scale.schedulers.context import Floats
from rllib_scale.schedulers.release import ReleaseIndex
from rllib_scale.simulator.replicas.pointed import pointing
from rllib_scale.simulator.replicas.state import CALL_TERMS, FLEET_TERMS


class PointedPolicy(Exported, BasePolicy):
    """The exported policy of a training of `scale-release`; it plays in compiled code.

    Args:
        networks: as `build_network` makes it; or one for each fleet.
        trial: what trained it.
        epochs: that it was trained for.

    Attributes:
        kept: decisions of each fleet to keep.
        pointed: (B,) `Pointing` of the fleets that were played last, with the decisions that were kept.
    """

    kept = 0

    def __init__(self, networks: Sequence[Any], trial: TrialConfig, epochs: int) -> None:
        super().__init__()
        self.trained_by(trial, epochs)
        assert isinstance(trial.algorithm, Searched)
        rule = ReleaseIndex(np.zeros(0), trial.algorithm.base).values
        self.values = np.stack([np.concatenate([rule, each.gate.detach().double().numpy()]) for each in networks])
        self.weights = [pointer_weights(each) for each in networks]

    def advance(self, batch: Any) -> None:
        """Decide in every fleet until its episode ends."""
        which = np.arange(batch.num_envs) % len(self.weights)
        self.pointed = [pointing(self.weights[k], self.kept) for k in which]
        batch.play(self.values[which], self.pointed)


class PointedNetworks:
    """Networks of a training by their parameters; the first one is drawn by torch's generator.

    Args:
        trial: the training.

    Attributes:
        parts: name and length of each part of the parameters (W,).
    """

    def __init__(self, trial: TrialConfig) -> None:
        self.trial = trial
        self._network: Any = build_network(trial)
        self.parts = [(name, tensor.numel()) for name, tensor in self._network.named_parameters()]

    @torch.no_grad()
    def begin_as(self, weights: Floats) -> None:
        """Let the first network decide as an index with such weights, see `ReleaseIndex`."""
        network, spec, calls = self._network, self._network.inputs.spec, len(CALL_TERMS)
        gate, of_call, of_fleet = torch.from_numpy(weights).split([len(network.gate), calls, len(FLEET_TERMS)])
        network.gate.copy_(gate)
        network.skip.bias[-calls:] = of_call * torch.tensor(spec.server_std[-calls:])
        # What the index has beside the call's own terms is the logit of "none", less.
        none = spec.server_dim - calls - 1
        network.skip.bias[none] = -of_fleet[0] - of_fleet[1:] @ torch.tensor(spec.task_mean, dtype=of_fleet.dtype)
        network.skip.weight[none] = -of_fleet[1:] * torch.tensor(spec.task_std)

    @property
    def initial(self) -> Floats:
        """Parameters of the first network."""
        parameters: Floats = parameters_to_vector(self._network.parameters()).detach().double().numpy()
        return parameters

    def at(self, parameters: Floats) -> Any:
        """The network with such parameters."""
        network = copy.deepcopy(self._network)
        vector_to_parameters(torch.from_numpy(parameters).float(), network.parameters())
        return network

    def policy(self, weights: Floats) -> PointedPolicy:
        """That of each candidate, side by side; (C, W, 1)."""
        return PointedPolicy([self.at(each) for each in weights[..., 0]], self.trial, 0)

    def named(self, weights: Floats) -> dict[str, Any]:
        """Arrays of the network with parameters (W, 1)."""
        return {name: tensor.numpy() for name, tensor in self.at(weights[:, 0]).state_dict().items()}
