"""Checks of a plan before anything is trained."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from rllib_scale.config import PPO, Imitation, TrialConfig
from rllib_scale.config.plan import EvaluationUnit, Plan, Trial
from rllib_scale.config.schedulers import PluginSpec, PolicySpec
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.errors import UserError, extra
from rllib_scale.policies.description import check_trusted, trained_in
from rllib_scale.policies.make import make_policy
from rllib_scale.sweeps.planning import GIVEN, distinct_of
from rllib_scale.workloads.generators import check_source


def check_plan(plan: Plan, trust: bool = False) -> None:
    """Refuse a plan with a part that cannot be carried out.

    Args:
        plan: the plan of a sweep.
        trust: import the user code that given policies name.

    Raises:
        UserError: a package of an extra is missing; a scheduler cannot be made; no workload can be drawn; an episode
            would be too long; or a policy, an encoder or a reward that a training names does not fit.
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
    """Refuse user-defined schedulers that cannot be made, and policies with code that is not trusted.

    Raises:
        UserError: naming the scheduler and the scenario.
    """
    for unit in distinct_of(units):
        try:
            if isinstance(unit.spec, PluginSpec):
                make_policy(unit.spec, unit.env, unit.decision, trust, GIVEN).problem(unit.env)
            if isinstance(unit.spec, PolicySpec):
                check_trusted(trained_in(unit.spec.folder(GIVEN)), unit.spec.label, trust)
        except UserError as error:
            raise UserError(f"{GIVEN}, scenario {unit.scenario}: {error}") from None


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
            from rllib_scale.rl.vector_env import own_reward

            own_reward(reward)
        if isinstance(trial.algorithm, PPO | Imitation):
            from rllib_scale.policies.policy import initial_network

            initial_network(trial)
        if isinstance(trial.algorithm, Imitation):
            from rllib_scale.rl.imitation.demonstrations import expert_of

            expert_of(trial, trial.env)
