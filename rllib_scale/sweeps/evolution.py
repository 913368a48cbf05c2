"""Searches over the weights of `context-price`, `adaptive-price` and `release`, by RLlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rllib_scale.config import TrialConfig
from rllib_scale.config.algorithms import Searched
from rllib_scale.config.pinned import split
from rllib_scale.config.schedulers import AdaptivePriceParameters, PolicySpec
from rllib_scale.errors import UserError
from rllib_scale.evaluation.candidates import Instance, Outcomes, outcomes_of, play_base
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.pointed_policy import PointedNetworks
from rllib_scale.policies.policy import load_policy, save_weights
from rllib_scale.policies.price_policy import ReleasePolicy
from rllib_scale.rl.evolution.algorithm import EvolutionConfig
from rllib_scale.rl.vector_env import rllib_seed
from rllib_scale.schedulers.adaptive_price import SHAPE, AdaptivePrice
from rllib_scale.schedulers.adaptive_terms import THETA
from rllib_scale.schedulers.context import Floats, initial_weights
from rllib_scale.schedulers.context_price import ContextPrice
from rllib_scale.schedulers.dual_price import initial_weights_by_duals
from rllib_scale.schedulers.release import ReleaseIndex
from rllib_scale.simulator.replicas.gate import GATE_TERMS
from rllib_scale.sweeps.constrained import MULTIPLIERS, Compared, is_allowed, penalised, raised, ratios
from rllib_scale.sweeps.learners import RLlibLearner
from rllib_scale.sweeps.selected import TrainedByRLlib
from rllib_scale.sweeps.validated import NORMALS, TRAINING, Played, draw_instances, scores, seed_sequence

UNSCALED = 10.0
"""Initial steps of a row grow in proportion to its largest weight from this weight on."""
ADAPTIVE_SCALES = {"kappa": 0.5, "penalty": 0.12}
"""Factors of the initial steps of rows of the map of `adaptive-price`; of the others ADAPTIVE_SCALE."""
ADAPTIVE_SCALE = 0.25
GATE_SCALE = 0.2
"""Factor of the initial steps of the terms of a gate, whose unit is the memory: a fifth more halves the speed."""
TYPICAL = {
    "new": (2.2, 0.9),
    "new_held": (5.7, 2.5),
    "calls": (2.0, 0.5),
    "backlog": (0.0, 1.0),
    "pinned": (0.4, 0.2),
    "step": (0.03, 1.0),
    "active": (0.0, 1.0),
    "one": (0.0, 1.0),
    "held": (2.5, 0.5),
    "waited": (4.6, 1.7),
    "working_set": (0.0, 0.1),
    "prompt": (0.75, 0.45),
}
"""Typical value and standard deviation of each of GATE_TERMS past the cliff, measured on 4 replicas with 24 to 40
sessions of kv-cache-tester each. Searched from 0, most candidates have a gate that is open or closed to all."""
INDEX_SCALE = 0.1
"""Factor of those of the other terms of `release`, which begins in the order of the rule."""
NETWORK_SCALES = {"gate": GATE_SCALE, "skip.weight": 1.0, "skip.bias": 1.0, "pointer_query.weight": 2.0}
NETWORK_SCALE = 0.3
"""Factor of the initial steps of a network's other parameters."""
FULL = AdaptivePriceParameters(strength=1.0)
"""Parameters of the candidates: an exported map counts less by default, which is better outside the family."""
LONGEST_S = 86_400.0
"""A generation: a runner that is slow must not be left out."""


class _Weights(NamedTuple):
    """The search space of a method: initial weights (R, C), and the policy of other ones."""

    initial: Floats
    scales: Floats  # (R,) of the initial steps of each row
    player: Callable[[Floats], Policy]  # of weights (candidates, R, C)
    named: Callable[[Floats], Mapping[str, NDArray[Any]]]  # what is exported of weights (R, C)


def _searched(trial: TrialConfig, settings: Searched) -> _Weights:
    if settings.rule == "adaptive-price":
        scales = np.array([ADAPTIVE_SCALES.get(name, ADAPTIVE_SCALE) for name in THETA])
        return _Weights(np.zeros(SHAPE), scales, partial(AdaptivePrice, FULL), _named)
    if settings.rule == "release-index":
        scales = np.full(ReleaseIndex.size(), INDEX_SCALE)
        scales[: len(GATE_TERMS)] = [GATE_SCALE / TYPICAL[term][1] for term in GATE_TERMS]
        return _Weights(
            ReleaseIndex.initial()[:, None],
            scales,
            lambda weights: ReleaseIndex(_uncentred(weights)[..., 0], settings.base),
            lambda weights: _named(_uncentred(weights)),
        )
    if settings.rule == "scale-release":
        networks = _pointers(trial, settings)
        ends = [number for _, number in networks.parts]
        scales = np.repeat([NETWORK_SCALES.get(name, NETWORK_SCALE) for name, _ in networks.parts], ends)
        return _Weights(networks.initial[:, None], scales, networks.policy, networks.named)
    speeds = np.unique([tier.compute_gflops for tier in trial.env.cluster.tiers])
    if settings.initial == "dual-price":
        initial = initial_weights_by_duals(trial.env, speeds)
    else:
        initial = initial_weights(settings.initial, len(speeds))
    scales = np.maximum(1.0, np.abs(initial).max(axis=1) / UNSCALED)
    return _Weights(initial, scales, partial(ContextPrice, speeds=speeds), partial(_named, speeds=speeds))


def _named(weights: Floats, **beside: Floats) -> Mapping[str, Floats]:
    return {"weights": weights, **beside}


def _pointers(trial: TrialConfig, settings: Searched) -> PointedNetworks:
    """Networks of `scale-release`.

    Raises:
        UserError: the policy as which they begin is not there, has changed, or is none of `release`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rllib_seed(trial.seed))
        networks = PointedNetworks(trial)
    if settings.initial_policy is not None:
        key = "algorithm.initial_policy"
        folder = PolicySpec(*split(settings.initial_policy)).folder(key)
        index = load_policy(folder)
        if not isinstance(index, ReleasePolicy):
            raise UserError(f"{key} {folder}: is a policy of {index.trial.method}; valid: one of release")
        networks.begin_as(index.weights)
    return networks


def _uncentred(weights: Floats) -> Floats:
    """Weights (..., W, 1) of `release`, given those of terms that are measured from their TYPICAL value; W may be 0."""
    found, terms = weights.copy(), len(GATE_TERMS)
    if weights.shape[-2]:
        typical = [TYPICAL[term][0] for term in GATE_TERMS]
        found[..., GATE_TERMS.index("one"), 0] -= weights[..., :terms, 0] @ typical
    return found


class RuleSearch:
    """The search of a trial for `EvolutionStrategies`: weights of its rule on the episodes that the trial draws."""

    memory: Any = None

    def __init__(self, trial: TrialConfig) -> None:
        assert isinstance(trial.algorithm, Searched)
        self.trial, self.settings = trial, trial.algorithm
        initial, scales, self.player, self.named = _searched(trial, self.settings)
        self.shape = initial.shape
        self.initial, self.steps = initial.ravel(), np.repeat(scales, initial.shape[1])

    def jobs(self, generation: int) -> list[Instance]:
        """Instances of a generation."""
        return draw_instances(self.trial, self.settings.instances, TRAINING, generation)

    def play(self, weights: Floats, job: Instance) -> Outcomes:
        """Outcomes of candidates on an instance."""
        return outcomes_of(self.player(weights.reshape(-1, *self.shape)), len(weights), job)

    def judge(self, played: list[Outcomes], jobs: list[Instance]) -> tuple[Floats, dict[str, float]]:
        """See `scores`."""
        return scores(played, self.settings.objective, [job.weight for job in jobs]), self.logged(played)

    def logged(self, played: list[Outcomes]) -> dict[str, float]:
        """Values of a generation for the training table."""
        return {
            "decisions": float(sum(outcomes.decisions.sum() for outcomes in played)),
            "completed": float(np.mean([outcomes.completed for outcomes in played])),
            "response_mean_s": float(np.nanmean([outcomes.response_s for outcomes in played])),
        }


class ConstrainedSearch(RuleSearch):
    """A search of what releases by the objective of `constrained`, whose multipliers it remembers."""

    def __init__(self, trial: TrialConfig) -> None:
        super().__init__(trial)
        self.memory: Floats = MULTIPLIERS

    def play(self, weights: Floats, job: Instance) -> Any:
        """Outcomes of candidates on an instance, and of the rule."""
        return Compared(super().play(weights, job), play_base(job, self.settings.compared_with))

    def judge(self, played: list[Any], jobs: list[Instance]) -> tuple[Floats, dict[str, float]]:
        """See `penalised`."""
        found = ratios(played, [job.weight for job in jobs])
        score, self.memory = penalised(found, self.memory), raised(found, self.memory)
        return score, self.logged([each.own for each in played])


def algorithm_config(trial: TrialConfig, search: RuleSearch) -> EvolutionConfig:
    """The RLlib configuration of a search."""
    settings = search.settings
    return (
        EvolutionConfig()
        .training(
            search=search,
            update=settings.name,
            population=settings.population,
            step=settings.initial_step,
            update_settings=settings.model_dump(include={"learning_rate", "ranks"}),
            entropy=seed_sequence(trial.seed, NORMALS),
        )
        .env_runners(num_env_runners=trial.resources.env_runners, sample_timeout_s=LONGEST_S)
        .resources(num_cpus_for_main_process=trial.resources.cpus)
        .debugging(seed=rllib_seed(trial.seed), log_level="ERROR", log_sys_usage=False)
    )


class PriceSearch(TrainedByRLlib):
    """Evolution strategies over W of `ContextPrice`, U of `AdaptivePrice`, or weights of gate and release.

    An epoch is a generation; validation and export use the average of the means so far.
    """

    def __init__(self, trial: TrialConfig, storage: Any = None) -> None:
        settings: Any = trial.algorithm
        self.objective, self.is_constrained = settings.objective, settings.releases
        self.search = ConstrainedSearch(trial) if self.is_constrained else RuleSearch(trial)
        inner = RLlibLearner(trial, storage, algorithm_config(trial, self.search))
        super().__init__(trial, inner, self.search.initial.reshape(self.search.shape))
        if settings.rule == "release-index":
            self.best, self.best_score = np.zeros((0, 1)), 0.0  # the rule itself

    def train(self, number: int) -> dict[str, Any]:
        """A generation."""
        self.inner.algorithm.train()
        logged: dict[str, Any] = self.inner.algorithm.logged
        return dict(logged)

    def candidate(self) -> Floats:
        """The average of the means so far."""
        average: Floats = self.inner.algorithm.average
        return average.reshape(self.search.shape)

    def play_validation(self, candidate: Floats, instances: Sequence[Instance]) -> list[Outcomes]:
        """Outcomes of one matrix of weights."""
        weights = candidate.reshape(1, -1)
        return self.spread(partial(RuleSearch.play, self.search, weights), [(instance,) for instance in instances])

    def play_rule(self, instances: Sequence[Instance]) -> list[Outcomes]:
        """Outcomes of what one that releases is compared with."""
        rule = self.search.settings.compared_with if self.is_constrained else None
        return self.spread(partial(play_base, rule=rule), [(instance,) for instance in instances])

    def compared(
        self, played: Sequence[Outcomes], base: Sequence[Outcomes], weights: Sequence[float]
    ) -> tuple[float, bool]:
        """See `ValidatedLearner.compared`; with a constraint only what keeps it may be chosen."""
        if not self.is_constrained:
            return super().compared(played, base, weights)
        found = ratios([Compared(*each) for each in zip(played, base, strict=True)], weights)[:, 0]
        return float(found[0]), is_allowed(found)

    def spread(self, play: Callable[..., Played], jobs: Sequence[tuple[Any, ...]]) -> list[Played]:
        """See `EvolutionStrategies.spread`."""
        found: list[Played] = self.inner.algorithm.spread(lambda job: play(*job), jobs)
        return found

    def save_policy(self, folder: Any, epochs: int) -> None:
        """Export the weights with the best validation score."""
        save_weights(folder, self.search.named(self.best), self.trial, epochs)
