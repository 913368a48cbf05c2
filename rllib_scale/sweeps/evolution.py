"""CMA-ES over the weights of `context-price`, `adaptive-price` and `adaptive-gate`.

Source: N. Hansen, The CMA evolution strategy: a tutorial, arXiv 1604.00772, by its author's library `cma`. Only the
diagonal of the covariance is learned, which needs fewer generations: R. Ros and N. Hansen, PPSN X, 2008. The means of
single generations scatter with their episodes. Validation and export therefore use their average, in which generation g
of G has a weight of about (g / G)^3: O. Shamir and T. Zhang, ICML 2013, sec. 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.config import CMAES, TrialConfig
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.evaluation.candidates import Instance, Outcomes, outcomes_of
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.policy import save_weights
from rllib_scale.schedulers.adaptive_price import SHAPE, AdaptivePrice
from rllib_scale.schedulers.adaptive_terms import THETA
from rllib_scale.schedulers.context import Floats, initial_weights
from rllib_scale.schedulers.context_price import ContextPrice
from rllib_scale.schedulers.dual_price import initial_weights_by_duals
from rllib_scale.schedulers.replicas import AdaptiveGate
from rllib_scale.simulator.replicas.gate import GATE_TERMS, PLACE_TERMS
from rllib_scale.sweeps.validated import NORMALS, ValidatedLearner, scores, seed_sequence

UNSCALED = 10.0
"""Initial steps of a row grow in proportion to its largest weight from this weight on."""
ADAPTIVE_SCALES = {"kappa": 0.5, "penalty": 0.12}
"""Of the initial steps of rows of the map of `adaptive-price`; of the others ADAPTIVE_SCALE."""
ADAPTIVE_SCALE = 0.25
GATE_SCALE = 0.2
"""Of the initial steps of the terms of a gate, whose unit is the memory: a fifth more of it costs half the speed."""
FULL = AdaptivePriceParameters(strength=1.0)
"""Of the candidates: what is exported counts less by default, as on clusters outside the family less is better."""
AVERAGE_POWER = 3
"""Power of the generation in the weight of its mean."""


class Normals:
    """Standard normal numbers from a generator that a pickle of the search includes."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed_sequence(seed, NORMALS))

    def __call__(self, *shape: int) -> Floats:
        """An array of that shape."""
        return self.generator.standard_normal(shape)


class _Searched(NamedTuple):
    """What is searched by a method: weights (R, C) to begin with, and the policy of other ones."""

    initial: Floats
    scales: Floats  # (R,) of the initial steps of each row
    player: Callable[[Floats], Policy]  # of weights (candidates, R, C)
    saved: dict[str, Floats]  # beside the weights


def _searched(trial: TrialConfig, settings: CMAES) -> _Searched:
    if settings.rule == "adaptive-price":
        scales = np.array([ADAPTIVE_SCALES.get(name, ADAPTIVE_SCALE) for name in THETA])
        return _Searched(np.zeros(SHAPE), scales, partial(AdaptivePrice, FULL), {})
    if settings.rule == "adaptive-gate":
        scales = np.repeat([GATE_SCALE, 1.0], [len(GATE_TERMS), len(PLACE_TERMS)])
        return _Searched(np.zeros((len(scales), 1)), scales, _gate, {})
    speeds = np.unique([tier.compute_gflops for tier in trial.env.cluster.tiers])
    if settings.initial == "dual-price":
        initial = initial_weights_by_duals(trial.env, speeds)
    else:
        initial = initial_weights(settings.initial, len(speeds))
    scales = np.maximum(1.0, np.abs(initial).max(axis=1) / UNSCALED)
    return _Searched(initial, scales, partial(ContextPrice, speeds=speeds), {"speeds": speeds})


def _gate(weights: Floats) -> AdaptiveGate:
    return AdaptiveGate(weights[..., 0])


class PriceSearch(ValidatedLearner):
    """CMA-ES over W of `ContextPrice`, U of `AdaptivePrice` or those of `AdaptiveGate`; an epoch is a generation."""

    state = (*ValidatedLearner.state, "_strategy", "_average")

    def __init__(self, trial: TrialConfig) -> None:
        import cma  # imports matplotlib

        assert isinstance(trial.algorithm, CMAES)
        settings, self.objective = trial.algorithm, trial.algorithm.objective
        initial, scales, self._player, self.saved = _searched(trial, settings)
        super().__init__(trial, initial)
        self._shape, self._average = initial.shape, initial.ravel()
        # cma then writes no files, reads no options from files, and leaves NumPy's global generator alone.
        options = {"popsize": settings.population, "randn": Normals(trial.seed), "seed": np.nan}
        options |= {"CMA_diagonal": True, "verbose": -10, "verb_log": 0, "verb_disp": 0}
        if (scales != 1).any():
            options["CMA_stds"] = np.repeat(scales, initial.shape[1])
        self._strategy = cma.CMAEvolutionStrategy(initial.ravel(), settings.initial_step, options)

    def train(self, number: int) -> dict[str, Any]:
        """Ask, play, tell."""
        instances = self.instances(number)
        candidates = self._strategy.ask()
        played = self._play(np.array(candidates).reshape(-1, *self._shape), instances)
        found = scores(played, self.objective, [instance.weight for instance in instances])
        self._strategy.tell(candidates, found.tolist())
        weight = (1 + AVERAGE_POWER) / (number + AVERAGE_POWER)
        self._average = self._average + weight * (self._strategy.mean - self._average)
        return {
            "decisions": sum(outcomes.decisions.sum() for outcomes in played),
            "completed": float(np.mean([outcomes.completed for outcomes in played])),
            "response_mean_s": float(np.nanmean([outcomes.response_s for outcomes in played])),
            "objective": float(found.mean()),
            "step_size": float(self._strategy.sigma),
        }

    def candidate(self) -> Floats:
        """The average of the means so far."""
        return self._average.reshape(self._shape)

    def play_validation(self, candidate: Floats, instances: Sequence[Instance]) -> list[Outcomes]:
        """Outcomes of one matrix of weights."""
        return self._play(candidate[None], instances)

    def _play(self, weights: Floats, instances: Sequence[Instance]) -> list[Outcomes]:
        player = self._player(weights)
        return self.spread(outcomes_of, [(player, len(weights), instance) for instance in instances])

    def save_policy(self, folder: Any, epochs: int) -> None:
        """Export the weights with the best validation score."""
        save_weights(folder, {"weights": self.best} | self.saved, self.trial, epochs)
