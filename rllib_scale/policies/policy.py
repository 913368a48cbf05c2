"""Trained policies as files: weights in safetensors, the rest in JSON, no pickle; and as schedulers.

A policy folder holds::

    policy.safetensors   parameters and standardisation constants of the network, without the critic (decima and deeprm
                         have none); of context-price weights (5 + K, 10 + K) and speeds (K,) in GFLOPS, of
                         adaptive-price weights (8, 13), as `ContextPrice` and `AdaptivePrice` take them, of
                         release weights (31, 1), or (0, 1): its base;
                         the network of scale-release has the weights of its gate beside it
    policy.json          {"format", "version", "method", "seed", "trial_id", "feature_set", "train_servers", "epochs",
                          "trial": the TrialConfig without defaults, "sha256": of policy.safetensors}

policy.json is written last and names the other's hash, so that a folder is either whole or refused.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from rllib_scale.config import PPO, DecisionMode, Imitation, MaskMode, TrialConfig
from rllib_scale.config.network import DecimaConfig, DeepRMConfig
from rllib_scale.config.pinned import split
from rllib_scale.config.schedulers import PolicySpec
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic, write_json
from rllib_scale.networks.build import Network, build_network
from rllib_scale.networks.compiled.inference import compile_network
from rllib_scale.observation.answers import TAKEN
from rllib_scale.policies.description import check_trusted, described, facts, policy_files
from rllib_scale.policies.dispatch_policy import DispatchPolicy, build_dispatch_network
from rllib_scale.policies.pointed_policy import PointedPolicy
from rllib_scale.policies.price_policy import AdaptivePolicy, PricePolicy, ReleasePolicy
from rllib_scale.policies.shared import Exported
from rllib_scale.policies.visiting_policy import VisitingPolicy
from rllib_scale.schedulers.base import Scheduler
from rllib_scale.zoo import DESCRIPTION, TENSORS


class TrainedPolicy(Exported, Scheduler):
    """A trained network as a scheduler: its logits are the scores.

    A policy that reserves decides in rounds of its own, as rules that reserve do.

    Args:
        network: as `build_network` makes it; a copy is kept.
        trial: what trained it.
        epochs: epochs it was trained for.
        mask: as for `Scheduler`; it replaces the mask of the training. A policy that reserves has none: it may wait.
        decision: as for `Scheduler`.
    """

    def __init__(
        self,
        network: Network,
        trial: TrialConfig,
        epochs: int,
        mask: MaskMode = "none",
        decision: DecisionMode = "argmax",
    ) -> None:
        self.reserves = trial.env.decision.on_busy == "reserve"
        super().__init__(trial.env.observation, "none" if self.reserves else mask, decision)
        self.trained_by(trial, epochs)
        self.network = copy.deepcopy(network).eval()
        self._forward = compile_network(self.network)

    def scores(self, observation: np.ndarray, fit: np.ndarray | None = None) -> np.ndarray:
        """Logits (B, N) of observations (B, W). A policy that was trained in rounds names only servers that fit.

        Raises:
            UserError: an MLP policy at another number of servers than it was trained at.
        """
        logits = self._forward(observation)
        if fit is None or not self.reserves:
            return logits
        fits = fit[:, 0] >= TAKEN  # as in training: a task that waits does so for a server that it fits
        return np.where(fits | ~fits.any(axis=1, keepdims=True), logits, -np.inf)


ExportedPolicy = (
    TrainedPolicy | PricePolicy | AdaptivePolicy | ReleasePolicy | DispatchPolicy | VisitingPolicy | PointedPolicy
)


def new_network(trial: TrialConfig) -> Any:
    """The untrained network of a trial of any kind; see `build_network` and `build_dispatch_network`."""
    decides_by_states = isinstance(trial.network, DecimaConfig | DeepRMConfig)
    return build_dispatch_network(trial) if decides_by_states else build_network(trial)


def policy_of(
    network: Any, trial: TrialConfig, epochs: int, mask: MaskMode = "none", decision: DecisionMode = "argmax"
) -> TrainedPolicy | DispatchPolicy | VisitingPolicy | PointedPolicy:
    """The policy that a network of a trial is; a mask is nothing to one that decides for all waiting tasks."""
    if trial.rule is not None:
        return PointedPolicy([network], trial, epochs)
    if trial.visits:
        return VisitingPolicy(network, trial, epochs, decision)
    if trial.dispatches:
        return DispatchPolicy(network, trial, epochs, decision)
    return TrainedPolicy(network, trial, epochs, mask, decision)


def save_policy(folder: Path, network: torch.nn.Module, trial: TrialConfig, epochs: int) -> None:
    """Write a policy folder, or replace the policy in one.

    Args:
        folder: made where it is missing.
        network: as `new_network` makes it, trained.
        trial: what trained it.
        epochs: epochs it was trained for.
    """
    _write(folder, network.state_dict(), trial, epochs)


def save_weights(folder: Path, named: Mapping[str, np.ndarray], trial: TrialConfig, epochs: int) -> None:
    """`save_policy` for `context-price` or `adaptive-price`; arrays by name, as the classes take them."""
    _write(folder, {name: torch.from_numpy(array) for name, array in named.items()}, trial, epochs)


def _write(folder: Path, named: Mapping[str, torch.Tensor], trial: TrialConfig, epochs: int) -> None:
    tensors = save_tensors({name: tensor.contiguous() for name, tensor in named.items()})
    write_atomic(folder / TENSORS, lambda path: path.write_bytes(tensors))
    write_json(folder / DESCRIPTION, facts(trial) | {"epochs": epochs, "sha256": hashlib.sha256(tensors).hexdigest()})


def load_policy(
    folder: str | Path, mask: MaskMode = "none", decision: DecisionMode = "argmax", trust: bool | str | None = False
) -> ExportedPolicy:
    """Read a policy folder, or `zoo:NAME`; a mask is nothing to price rules, `decima` and `deeprm`.

    Args:
        folder: see `save_policy`.
        mask: see `TrainedPolicy`.
        decision: see `TrainedPolicy`.
        trust: import the encoder that its files name, where they name one: any, or this pinned name alone.

    Raises:
        UserError: a file is missing, torn, foreign or does not belong to the other; or it cannot decide in that way; or
            its encoder would have to be imported without trust.
    """
    return policy_from_bytes(policy_files(folder), str(folder), mask, decision, trust)


def policy_from_bytes(
    files: Mapping[str, bytes],
    source: str,
    mask: MaskMode = "none",
    decision: DecisionMode = "argmax",
    trust: bool | str | None = False,
) -> ExportedPolicy:
    """The policy in the files that `policy_files` read; `source` names it in errors.

    Raises:
        UserError: see `load_policy`.
    """
    trial, description = described(files[DESCRIPTION], source)
    epochs = description["epochs"]
    if hashlib.sha256(files[TENSORS]).hexdigest() != description.get("sha256"):
        raise UserError(f"{source}: {TENSORS} is damaged or is not the one that {DESCRIPTION} describes (sha256)")
    if trial.rule is not None and decision != "argmax":
        raise UserError(f"decision {decision}: {trial.method} has no probabilities to sample from; valid: argmax")
    if trial.network is None:
        return _searched(files[TENSORS], trial, epochs, f"{source}: {TENSORS}")
    check_trusted(trial, source, trust)
    network = new_network(trial)
    _load_weights(network, files[TENSORS], source, trial.method)
    return policy_of(network, trial, epochs, mask, decision)


def _load_weights(network: torch.nn.Module, content: bytes, source: str, method: str) -> None:
    """Put weights into a network.

    Raises:
        UserError: they are those of another, or no finite numbers.
    """
    try:
        found, wanted = load_tensors(content), network.state_dict()
        network.load_state_dict(found)
        # Torch would convert: whole numbers under the name of weights are other weights.
        relabelled = sorted(name for name, tensor in found.items() if tensor.dtype != wanted[name].dtype)
        if relabelled:
            raise UserError(f"{source}: {TENSORS}: {relabelled[0]} holds {found[relabelled[0]].dtype}, not weights")
        if bad := sorted(name for name, tensor in found.items() if not torch.isfinite(tensor).all()):
            raise UserError(f"{source}: {TENSORS}: {bad[0]} is not finite; valid: numbers")
    except (SafetensorError, RuntimeError):
        raise UserError(f"{source}: {TENSORS} does not hold the weights of a {method} network") from None


def initial_network(trial: TrialConfig) -> Network | None:
    """The network that a training begins with: that of `initial_policy`; None: a new one.

    Raises:
        UserError: that policy is not there, has changed, or has another network or another observation.
    """
    place = trial.algorithm.initial_policy if isinstance(trial.algorithm, PPO | Imitation) else None
    if place is None:
        return None
    key = "algorithm.initial_policy"
    folder = PolicySpec(*split(place)).folder(key)
    initial: Any = load_policy(folder, trust=trial.encoder)
    ours, theirs = (_shape(t) for t in (trial, initial.trial))
    for name, value in ours.items():
        if theirs.get(name) != value:
            raise UserError(f"{key}: {folder}: its {name} is {theirs.get(name)}, that of this training {value}")
    network: Network = initial.network  # a policy without one has another shape, and is refused above
    return network


def _shape(trial: TrialConfig) -> dict[str, Any]:
    """Settings, by name in a config, that two trainings must share for one to continue with the other's network."""
    sizes = {} if trial.network is None else trial.network.model_dump(mode="json", exclude={"name", "skip_sharpness"})
    facts: dict[str, Any] = {"network": None if trial.network is None else trial.network.name}
    facts |= {f"network.{name}": value for name, value in sizes.items()}
    observation = trial.env.observation.model_dump(mode="json")
    facts |= {f"env.observation.{name}": value for name, value in observation.items()}
    if not trial.any_scale:
        facts["number of servers"] = trial.env.cluster.num_rows
    return facts


def _searched(
    content: bytes, trial: TrialConfig, epochs: int, source: str
) -> PricePolicy | AdaptivePolicy | ReleasePolicy:
    """A searched rule.

    Raises:
        UserError: the content is not its weights.
    """
    try:
        named = {name: tensor.numpy() for name, tensor in load_tensors(content).items()}
        if not all(np.isfinite(array).all() for array in named.values()):
            raise ValueError
        if trial.rule == "adaptive-price":
            return AdaptivePolicy(named["weights"], trial, epochs)
        if trial.rule == "release-index":
            return ReleasePolicy(named["weights"], trial, epochs)
        if named["speeds"][0] <= 0:
            raise ValueError
        return PricePolicy(named["weights"], named["speeds"], trial, epochs)
    except (SafetensorError, KeyError, ValueError, IndexError, TypeError):
        raise UserError(f"{source} does not hold the weights of {trial.method}") from None
