"""What is refused before anything is trained: the parts of a plan that cannot be played or trained together."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rllib_scale.config import METHODS
from rllib_scale.config.plan import Cell, EvaluationUnit, Plan
from rllib_scale.config.rounds import without_paper_mode
from rllib_scale.errors import UserError
from rllib_scale.workloads.generators import check_source


def check_plan(plan: Plan, trust: bool = False) -> None:
    """Refuse a plan with a part that could not be carried out.

    Args:
        plan: of a sweep.
        trust: import the user code that given policies name.

    Raises:
        UserError: a scheduler cannot play its problem; no workload can be drawn; an episode would never end; or a
            policy, an encoder or a reward that a training names does not fit.
    """
    check_schedulers(plan.units, trust)
    problems = {id(unit.problem): unit.env for unit in plan.units}
    for env in {id(env): env for env in (*(cell.trial.env for cell in plan.cells), *problems.values())}.values():
        check_source(env)
    for env in problems.values():
        env.check_size()
    _check_trainings(plan.cells)


def check_schedulers(units: Iterable[EvaluationUnit], trust: bool = False) -> None:
    """Refuse evaluations whose rule, policy or method cannot play their problem; `trust` as for `load_policy`.

    Raises:
        UserError: naming the scheduler, the scenario and the setting.
    """
    from rllib_scale.policies.make import make_policy
    from rllib_scale.schedulers.dispatcher import Dispatcher

    for unit in {(u.identity["method"], u.learned, id(u.problem), u.decision): u for u in units}.values():
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
            assert unit.spec is not None
            rule = make_policy(unit.spec, unit.env)
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


def _check_trainings(cells: Iterable[Cell]) -> None:
    """Refuse trainings whose encoder, reward, initial policy or expert cannot be used.

    Raises:
        UserError: see `build_network`, `own_reward`, `initial_network` and `expert_of`.
    """
    trials = [cell.trial for cell in cells]
    distinct = {(t.method, id(t.env), id(t.network), id(t.training), id(t.imitation)): t for t in trials}
    for trial in distinct.values():
        if trial.network.encoder is not None:
            from rllib_scale.networks.build import build_network

            build_network(trial)
        if trial.training.reward is not None:
            from rllib_scale.rl.environment import own_reward

            own_reward(trial.training.reward)
        if trial.training.initial_policy is not None:
            from rllib_scale.policies.policy import initial_network

            initial_network(trial)
        if trial.imitation.expert is not None:
            from rllib_scale.rl.imitation.demonstrations import expert_of

            expert_of(trial, trial.env)
