"""Searched rules as policies: their weights as files, and as the dispatchers that play them."""

from __future__ import annotations

from rllib_scale.config import ProblemsConfig, TrialConfig
from rllib_scale.config.algorithms import Searched
from rllib_scale.policies.shared import Exported
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.context import Floats
from rllib_scale.schedulers.context_price import ContextPrice
from rllib_scale.schedulers.release import ReleaseIndex

EXTRAPOLATION = 1 / 3
"""Share of the searched range of sizes, in doublings, by which `size` is extrapolated beyond either end."""


class PricePolicy(Exported, ContextPrice):
    """The exported policy of a training of `context-price`: weights and speeds as for `ContextPrice`."""

    def __init__(self, weights: Floats, speeds: Floats, trial: TrialConfig, epochs: int) -> None:
        searched = (trial.algorithm.problems or ProblemsConfig()).all(trial.env)
        places = [env.cluster.num_places for env in searched]
        beyond = (max(places) / min(places)) ** EXTRAPOLATION
        super().__init__(weights, speeds, (min(places) / beyond, max(places) * beyond))
        self.trained_by(trial, epochs)


class AdaptivePolicy(Exported, AdaptivePrice):
    """The exported policy of a training of `adaptive-price`; it plays any problem, as the rule does."""

    def __init__(self, weights: Floats, trial: TrialConfig, epochs: int) -> None:
        super().__init__(weights=weights)
        self.trained_by(trial, epochs)


class ReleasePolicy(Exported, ReleaseIndex):
    """The exported policy of a training of `release`: weights (W, 1), or (0, 1), which is its base."""

    def __init__(self, weights: Floats, trial: TrialConfig, epochs: int) -> None:
        assert isinstance(trial.algorithm, Searched)
        super().__init__(weights[:, 0], trial.algorithm.base)
        self.trained_by(trial, epochs)
