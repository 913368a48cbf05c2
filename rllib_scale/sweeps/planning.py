"""The expansion of a sweep to its plan. Free of ray and torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rllib_scale.config import EnvConfig, MaskMode, TrialConfig, family
from rllib_scale.config.identity import content_id, described, protocol_of
from rllib_scale.config.plan import EvaluationUnit, Plan, Problem, Row, Trial
from rllib_scale.config.problem import without_paper_mode
from rllib_scale.config.schedulers import ALL_RULES, PolicySpec, RuleSpec, check_planned, check_service, parse_scheduler
from rllib_scale.config.search import check_acts
from rllib_scale.config.sweep import TRAIN_SCENARIO, SweepConfig
from rllib_scale.errors import UserError
from rllib_scale.policies.description import as_played, scheduler_row, trained_in
from rllib_scale.sweeps.expansion import Expansion, GivenProblem
from rllib_scale.workloads.family import fixed_problems, fixed_seed

GIVEN = "evaluation.heuristics"
"""Config key of rules and given policies."""


def make_plan(sweep: SweepConfig, source: str) -> Plan:
    """Expand a sweep.

    Args:
        sweep: the sweep.
        source: origin of the sweep, for messages.

    Raises:
        UserError: a value is not valid at its path, two points of the grid are the same training, a scenario cannot be
            scaled to a number of servers, or a rule or a policy cannot play its problem.
    """
    expansion = Expansion(sweep, source)
    planned = expansion.trials()
    check_acts(sweep.search, [trial.config for trial, _ in planned])
    schedulers = _given(sweep)
    problems = _Problems(sweep, _trained_on(schedulers, [trial for trial, _ in planned]))
    units: dict[str, EvaluationUnit] = {}
    for unit in itertools.chain(
        _rule_units(sweep, schedulers, expansion.problems(), problems), _policy_units(sweep, planned, problems)
    ):
        units.setdefault(unit.key, unit)
    _check_played(units.values())
    dimensions = {"schedulers": [*schedulers.values()], **problems.rows()}
    return Plan(sweep, tuple(trial for trial, _ in planned), tuple(units.values()), dimensions)


class _Problems:
    """The problems of a sweep's evaluations and how they are asked, each made once for all schedulers.

    A trace that policies were trained on is played in its test part, by all that are compared.

    Args:
        sweep: the sweep.
        trained_on: by their names problems of policies that were trained on a trace.
    """

    def __init__(self, sweep: SweepConfig, trained_on: Mapping[str, EnvConfig]) -> None:
        self.sweep, self.trained_on = sweep, trained_on
        self._known: dict[tuple[str, int], list[Problem]] = {}
        self._protocols: dict[Any, str] = {}
        self._asked: dict[str, EnvConfig] = {}

    def rows(self) -> dict[str, list[Row]]:
        """The rows of `problems`, one for each origin, and of `protocols`."""
        every = itertools.chain.from_iterable(self._known.values())
        origins = {(problem.id, problem.scenario, problem.number): problem for problem in every}
        return {
            "problems": [problem.row for problem in origins.values()],
            "protocols": [
                {"protocol": protocol, **described(protocol_of(env, defaults=True))}
                for protocol, env in self._asked.items()
            ],
        }

    def of(self, own: GivenProblem) -> Iterator[Problem]:
        """The problems on which a training and the rules that are compared with it are evaluated."""
        for label in self.sweep.evaluated_scenarios:
            is_own = label == TRAIN_SCENARIO
            key = (own.scenario, id(own.env)) if is_own else (label, 0)
            if key not in self._known:
                of_family = label in family.SCENARIOS
                given = own if is_own or of_family else GivenProblem(label, self.sweep.problem(label))
                self._known[key] = list(self._of_family(label) if of_family else self._scaled(given))
            yield from self._known[key]

    def protocol(self, problem: Problem, trial: TrialConfig | None = None) -> str:
        """Id of how a rule, or the policy of a training, is asked in a problem."""
        own = None if trial is None or trial.dispatches else trial.env
        key = (id(problem), own and (own.decision, own.episode.mask, own.observation))
        if key not in self._protocols:
            env = problem.env
            if own is not None and trial is not None:
                env = env.in_rounds_of(own, trial.name).model_copy(update={"observation": own.observation})
            self._protocols[key] = content_id(protocol_of(env))
            self._asked.setdefault(self._protocols[key], env)
        return self._protocols[key]

    def _of_family(self, label: str) -> Iterator[Problem]:
        evaluation, (kind, revealed) = self.sweep.evaluation, family.SCENARIOS[label]
        for number, env in enumerate(fixed_problems(kind, revealed)[: evaluation.family_problems]):
            for mask in self._masks(env):
                yield Problem(label, env.with_mask(mask), fixed_seed(kind, number, evaluation.seed), kind, number)

    def _scaled(self, own: GivenProblem) -> Iterator[Problem]:
        evaluation = self.sweep.evaluation
        for servers, mask in itertools.product(evaluation.scales, self._masks(own.env)):
            try:
                at_scale = own.env.at_scale(servers)
            except ValueError as error:
                raise UserError(f"evaluation.scales {servers}: scenario {own.scenario}: {error}") from None
            yield Problem(own.scenario, self._unseen(own.scenario, at_scale.with_mask(mask)), evaluation.seed)

    def _unseen(self, scenario: str, env: EnvConfig) -> EnvConfig:
        """The problem on sessions that no policy was trained on."""
        for name, training in self.trained_on.items():
            own = env.recording
            if own is not None and own.part != "all" and own.is_of(training.recording):
                env = env.with_part("test")
            try:
                env.check_unseen(name, training)
            except UserError as error:
                raise UserError(f"evaluation.scenarios {scenario}: {error}") from None
        return env

    def _masks(self, env: EnvConfig) -> tuple[MaskMode, ...]:
        return self.sweep.evaluation.masks or (env.episode.mask,)


def _check_played(units: Iterable[EvaluationUnit]) -> None:
    """Refuse evaluations of rules and given policies that cannot play their problem, from their specs alone.

    What user code does shows when it plays: see `rllib_scale.sweeps.evaluations.Evaluations.rehearse`.

    Raises:
        UserError: naming the scheduler, the scenario and the setting.
    """
    policies: dict[str, TrialConfig] = {}
    for unit in distinct_of(units):
        spec = unit.spec
        assert spec is not None
        try:
            check_service(spec, unit.env)
            if isinstance(spec, RuleSpec) and ALL_RULES[spec.name].plans:
                check_planned(spec.label, unit.env)
            if isinstance(spec, PolicySpec):
                if unit.name not in policies:
                    policies[unit.name] = trained_in(spec.folder(GIVEN))
                as_played(spec.label, policies[unit.name], unit.env)
        except UserError as error:
            raise UserError(f"{GIVEN}, scenario {unit.scenario}: {error}") from None


def distinct_of(units: Iterable[EvaluationUnit]) -> list[EvaluationUnit]:
    """One evaluation of each rule and given policy on each problem; of a family on its first problem only."""
    found: dict[Any, EvaluationUnit] = {}
    for unit in units:
        problem = (unit.scenario, unit.env.episode.mask) if unit.problem.of_family else id(unit.problem)
        if not unit.learned:
            found.setdefault((unit.name, problem, unit.decision), unit)
    return list(found.values())


def _given(sweep: SweepConfig) -> dict[str, Row]:
    """The rows of `schedulers` of rules and given policies, by their text.

    Raises:
        UserError: see `scheduler_row`.
    """
    try:
        return {text: scheduler_row(parse_scheduler(text), GIVEN) for text in sweep.evaluation.heuristics}
    except UserError as error:
        raise UserError(f"{GIVEN}: {error}") from None


def _trained_on(given: Iterable[str], trials: Iterable[Trial]) -> dict[str, EnvConfig]:
    """Problems of the trainings on traces, one for each trace and split, by the names of their policies."""
    every = [(trial.name, trial.config.env) for trial in trials if trial.config.env.recording is not None]
    for text in given:
        if isinstance(spec := parse_scheduler(text), PolicySpec):
            every.append((spec.label, trained_in(spec.folder(GIVEN)).env))
    found = {env.recording: (name, env) for name, env in every if env.recording is not None}
    return dict(found.values())


def _rule_units(
    sweep: SweepConfig, schedulers: Mapping[str, Row], owns: Iterable[GivenProblem], problems: _Problems
) -> Iterator[EvaluationUnit]:
    """Evaluations of rules and given policies, on the problems of all points."""
    distinct = {id(problem): problem for own in owns for problem in problems.of(own)}
    for text, row in schedulers.items():
        for problem in distinct.values():
            protocol, episodes = problems.protocol(problem), sweep.evaluation.episodes
            yield EvaluationUnit(text, row["scheduler"], False, problem, protocol, "argmax", episodes)


def _policy_units(
    sweep: SweepConfig, trials: Iterable[tuple[Trial, GivenProblem]], problems: _Problems
) -> Iterator[EvaluationUnit]:
    """Evaluations of the policies that the sweep trains."""
    evaluation = sweep.evaluation
    for trial, own in trials:
        config, env = trial.config, trial.config.env
        trained = env.service.name
        decisions = evaluation.decisions if config.network is not None else ("argmax",)  # prices are not probabilities
        for problem in problems.of(own):
            if (played := problem.env.service.name) != trained:
                raise UserError(
                    f"evaluation.scenarios {problem.scenario}: has service {played}, and method {trial.config.method} "
                    f"is trained on {own.scenario}, with service {trained}; valid: scenarios of the same service"
                )
            if config.dispatches and problem.env.costs_time:
                raise UserError(f"evaluation.scenarios {problem.scenario}: {without_paper_mode(config.method)}")
            protocol = problems.protocol(problem, trial.config)
            if not config.any_scale and (problem.of_family or problem.env.cluster.num_rows != env.cluster.num_rows):
                continue  # the network is fixed to the number of servers of its training
            features = evaluation.features and not config.dispatches and not problem.of_family
            for decision in decisions:
                how: Any = (problem, protocol, decision, evaluation.episodes, features)
                yield EvaluationUnit(trial.name, trial.planned_id, True, *how)
