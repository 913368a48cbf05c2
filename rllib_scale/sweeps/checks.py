"""Checks of a plan before anything is trained."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from rllib_scale.config import METHODS, PPO, Imitation, TrialConfig
from rllib_scale.config.plan import EvaluationUnit, Plan, Trial
from rllib_scale.config.rounds import without_paper_mode
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.errors import UserError, extra
from rllib_scale.policies.make import make_policy
from rllib_scale.workloads.generators import check_source


def check_plan(plan: Plan, trust: bool = False) -> None:
    """Refuse a plan with a part that cannot be carried out.

    Args:
        plan: the plan of a sweep.
        trust: import the user code that given policies name.

    Raises:
        UserError: a package of an extra is missing; a scheduler cannot play its problem; no workload can be drawn; an
            episode would be too long; or a policy, an encoder or a reward that a training names does not fit.
    """
    _check_installed(plan.sweep)
    check_schedulers(plan.units, trust)
    problems = {id(unit.problem): unit.env for unit in plan.units}
    for env in {id(env): env for env in (*(trial.config.env for trial in plan.trials), *problems.values())}.values():
        check_source(env)
    for env in problems.values():
        env.check_size()
    _check_trainings(plan.trials)


def _check_installed(sweep: SweepConfig) -> None:
    """Refuse a sweep that needs a package which is not installed.

    Raises:
        UserError: with the extra that brings it.
    """
    needed = [("tracking", str(name), "tracking") for name in sweep.tracking]
    if sweep.search is not None and sweep.search.algorithm == "optuna":
        needed.append(("search.algorithm", "optuna", "search"))
    for key, name, part in needed:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"{key}: {name} is not installed; {extra(part)}")


def check_schedulers(units: Iterable[EvaluationUnit], trust: bool = False) -> None:
    """Refuse evaluations whose rule, policy or method cannot play their problem; `trust` as for `load_policy`.

    Of a family the first problem stands for all.

    Raises:
        UserError: naming the scheduler, the scenario and the setting.
    """
    distinct: dict[Any, EvaluationUnit] = {}
    for unit in units:
        problem = (unit.scenario, unit.env.episode.mask) if unit.problem.of_family else id(unit.problem)
        distinct.setdefault((unit.identity["method"], unit.learned, problem, unit.decision), unit)
    for unit in distinct.values():
        if unit.learned:
            method = unit.identity["method"]
            if METHODS[method].dispatches and unit.env.costs_time:
                raise UserError(f"evaluation.scenarios {unit.scenario}: {without_paper_mode(method)}")
            continue
        assert unit.spec is not None, "only policies that the sweep trains have no spec"
        try:
            make_policy(unit.spec, unit.env, unit.decision, trust, "evaluation.heuristics").problem(unit.env)
        except UserError as error:
            raise UserError(f"evaluation.heuristics, scenario {unit.scenario}: {error}") from None


def _check_trainings(trials: Iterable[Trial]) -> None:
    """Refuse trainings whose encoder, reward, initial policy or expert cannot be used.

    Raises:
        UserError: see `build_network`, `own_reward`, `initial_network` and `expert_of`.
    """
    distinct: dict[Any, TrialConfig] = {}
    for config in (trial.config for trial in trials):
        named = [getattr(config.algorithm, name, None) for name in ("reward", "initial_policy", "expert")]
        if config.encoder is not None or any(named):
            distinct.setdefault((config.method, id(config.env), config.network, *named), config)
    for trial in distinct.values():
        if trial.encoder is not None:
            from rllib_scale.networks.build import build_network

            build_network(trial)
        if (reward := getattr(trial.algorithm, "reward", None)) is not None:
            from rllib_scale.rl.environment import own_reward

            own_reward(reward)
        if isinstance(trial.algorithm, PPO | Imitation):
            from rllib_scale.policies.policy import initial_network

            initial_network(trial)
        if isinstance(trial.algorithm, Imitation):
            from rllib_scale.rl.imitation.demonstrations import expert_of

            expert_of(trial, trial.env)
