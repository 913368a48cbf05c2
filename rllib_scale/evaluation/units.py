"""One evaluation unit of a sweep, played where it happens to run: its rows depend on nothing but the unit."""

from __future__ import annotations

from typing import Any, NamedTuple

from rllib_scale.config.plan import EvaluationUnit
from rllib_scale.config.schedulers import observability
from rllib_scale.evaluation.play import evaluate
from rllib_scale.policies.make import make_policy
from rllib_scale.results.columns import OBSERVABILITY


class UnitResult(NamedTuple):
    """Rows of one evaluation unit, without the columns that they share."""

    episodes: list[dict[str, Any]]
    features: dict[str, Any] | None  # of a learned scheduler, where the unit asks for them


def evaluate_unit(
    unit: EvaluationUnit, policy: dict[str, bytes] | None, trust: bool | str | None = False
) -> UnitResult:
    """Play one evaluation unit. `policy` holds the files of a policy by name; `trust` as for `load_policy`."""
    if policy is None:
        assert unit.spec is not None, "a trained policy comes with its files"
        scheduler: Any = make_policy(unit.spec, unit.env)
    else:
        from rllib_scale.policies.policy import policy_from_bytes

        source = unit.name if unit.spec is None else unit.spec.label
        scheduler = policy_from_bytes(policy, source, unit.env.episode.mask, unit.decision, trust)
    if unit.features and scheduler.per_task:
        from rllib_scale.evaluation.feature_drift import evaluate_with_features

        episodes, features = evaluate_with_features(scheduler, unit.env, unit.seed, unit.episodes)
    else:
        episodes, features = evaluate(scheduler, unit.env, unit.seed, unit.episodes), None
    observes = {OBSERVABILITY: observability(scheduler.sees, unit.env.information)}
    return UnitResult([observes | row for row in episodes], features)
