"""One evaluation unit of a sweep, played where it happens to run: its rows depend on nothing but the unit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rllib_scale.config import METHODS
from rllib_scale.config.plan import EvaluationUnit
from rllib_scale.config.rounds import without_paper_mode
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate


class UnitResult(NamedTuple):
    """What one evaluation unit gives, without the columns that its rows share."""

    episodes: list[dict[str, Any]]
    features: dict[str, Any] | None  # of a learned scheduler, where the unit asks for them


def check_rules(units: Iterable[EvaluationUnit], trust: bool = False) -> None:
    """Refuse units whose rule, policy or method cannot play their problem, before anything is trained.

    Args:
        units: of a sweep.
        trust: as for `load_policy`.

    Raises:
        UserError: naming the rule, the scenario and the setting.
    """
    from rllib_scale.schedulers.dispatcher import Dispatcher
    from rllib_scale.schedulers.rules import make_scheduler

    for unit in units:
        if unit.learned:
            method = unit.identity["method"]
            if METHODS[method].dispatches and unit.env.costs_time:
                reason = without_paper_mode(method, method)
                raise UserError(f"evaluation.scenarios {unit.scenario}: {reason}")
            continue
        try:
            if unit.policy is not None:
                _check_policy(unit, unit.policy, trust)
                continue
            rule = make_scheduler(unit.scheduler, unit.env.observation, unit.env.episode.mask)
            if isinstance(rule, Dispatcher):
                rule.check(unit.env)
        except UserError as error:
            raise UserError(f"evaluation.heuristics, scenario {unit.scenario}: {error}") from None


def _check_policy(unit: EvaluationUnit, folder: Path, trust: bool) -> None:
    from rllib_scale.policies.policy import TrainedPolicy, load_policy

    policy = load_policy(folder, unit.env.episode.mask, unit.decision, trust)
    slots, own = unit.env.cluster.num_slots, policy.trial.env.cluster.num_slots
    if not policy.trial.spec.any_scale and slots != own:
        raise UserError(f"{folder.name}: was trained at {own} server slots and knows no other number (got {slots})")
    if isinstance(policy, TrainedPolicy):
        policy.problem(unit.env)
    else:
        policy.check(unit.env)


def evaluate_unit(
    unit: EvaluationUnit, policy: dict[str, bytes] | None, trust: bool | str | None = False
) -> UnitResult:
    """Play one evaluation unit. `policy` holds the files of a policy by name; `trust` as for `load_policy`."""
    if policy is None:
        from rllib_scale.schedulers.rules import make_scheduler

        scheduler = make_scheduler(unit.scheduler, unit.env.observation, unit.env.episode.mask)
        return UnitResult(evaluate(scheduler, unit.env, unit.seed, unit.episodes), None)
    from rllib_scale.evaluation.feature_drift import evaluate_with_features
    from rllib_scale.policies.policy import TrainedPolicy, policy_from_bytes

    trained = policy_from_bytes(policy, unit.scheduler, unit.env.episode.mask, unit.decision, trust)
    if not unit.features or not isinstance(trained, TrainedPolicy):
        return UnitResult(evaluate(trained, unit.env, unit.seed, unit.episodes), None)
    return UnitResult(*evaluate_with_features(trained, unit.env, unit.seed, unit.episodes))
