"""Searched rules as policies: their weights as files, and as the dispatchers that play them."""

from __future__ import annotations

from rllib_scale.config import EnvConfig, ProblemsConfig, TrialConfig
from rllib_scale.policies.description import as_played
from rllib_scale.policies.shared import as_html
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.context import Floats
from rllib_scale.schedulers.context_price import ContextPrice
from rllib_scale.schedulers.replicas import AdaptiveGate

EXTRAPOLATION = 1 / 3
"""By how much of the range of sizes that was searched, in doublings, `size` follows its line beyond either end."""


class PricePolicy(ContextPrice):
    """What a training of the method `context-price` exports.

    Args:
        weights: as for `ContextPrice`.
        speeds: as for `ContextPrice`.
        trial: what trained it.
        epochs: generations it was searched for.
    """

    def __init__(self, weights: Floats, speeds: Floats, trial: TrialConfig, epochs: int) -> None:
        searched = (trial.algorithm.problems or ProblemsConfig()).all(trial.env)
        places = [env.cluster.num_places for env in searched]
        beyond = (max(places) / min(places)) ** EXTRAPOLATION
        super().__init__(weights, speeds, (min(places) / beyond, max(places) * beyond))
        self.name, self.description = trial.name, trial.description
        self.trial, self.epochs = trial, epochs

    _repr_html_ = as_html

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`: the paper's mode is refused."""
        return as_played(self.name, self.trial, env)


class AdaptivePolicy(AdaptivePrice):
    """What a training of the method `adaptive-price` exports; it plays any problem, as the rule does.

    Args:
        weights: as for `AdaptivePrice`.
        trial: what trained it.
        epochs: generations it was searched for.
    """

    def __init__(self, weights: Floats, trial: TrialConfig, epochs: int) -> None:
        super().__init__(weights=weights)
        self.name, self.description = trial.name, trial.description
        self.trial, self.epochs = trial, epochs

    _repr_html_ = as_html


class GatePolicy(AdaptiveGate):
    """What a training of the method `adaptive-gate` exports.

    Args:
        weights: (W, 1) as for `AdaptiveGate`.
        trial: what trained it.
        epochs: generations it was searched for.
    """

    def __init__(self, weights: Floats, trial: TrialConfig, epochs: int) -> None:
        super().__init__(weights[:, 0])
        self.name, self.description = trial.name, trial.description
        self.trial, self.epochs = trial, epochs

    _repr_html_ = as_html

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`."""
        return as_played(self.name, self.trial, env)
