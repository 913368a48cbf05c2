"""One evaluation unit of a sweep, played where it happens to run: its rows depend on nothing but the unit."""

from __future__ import annotations

from typing import Any, NamedTuple

from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import EvaluationUnit
from rllib_scale.config.schedulers import PluginSpec, observability
from rllib_scale.evaluation.play import evaluate
from rllib_scale.loading import load_scheduler
from rllib_scale.policies.description import trained_in
from rllib_scale.policies.make import make_policy


class UnitResult(NamedTuple):
    """What one evaluation unit gives, without the columns that its rows share."""

    episodes: list[dict[str, Any]]
    features: dict[str, Any] | None  # of a learned scheduler, where the unit asks for them


def evaluate_unit(
    unit: EvaluationUnit, policy: dict[str, bytes] | None, trust: bool | str | None = False
) -> UnitResult:
    """Play one evaluation unit. `policy` holds the files of a policy by name; `trust` as for `load_policy`."""
    if policy is None:
        assert unit.spec is not None, "a trained policy comes with its files"
        scheduler = make_policy(unit.spec, unit.env)
        return UnitResult(evaluate(scheduler, unit.env, unit.seed, unit.episodes), None)
    from rllib_scale.evaluation.feature_drift import evaluate_with_features
    from rllib_scale.policies.policy import policy_from_bytes

    source = unit.scheduler if unit.spec is None else unit.spec.label
    trained: Any = policy_from_bytes(policy, source, unit.env.episode.mask, unit.decision, trust)
    if not unit.features or not trained.per_task:
        return UnitResult(evaluate(trained, unit.env, unit.seed, unit.episodes), None)
    return UnitResult(*evaluate_with_features(trained, unit.env, unit.seed, unit.episodes))


def observability_of(unit: EvaluationUnit, trained: TrialConfig | None) -> str:
    """What the scheduler of a unit observes; `trained`: what the sweep has trained, where it is that."""
    method, sees = str(unit.identity["method"]), "tasks"
    if unit.policy is not None:
        trained = trained_in(unit.policy)
    if trained is not None:
        sees = trained.sees
    elif isinstance(unit.spec, PluginSpec):
        sees = load_scheduler(unit.spec)[0].sees
    return observability(method, unit.env.information, sees)
