"""The expansion of a sweep to its plan. Free of ray and torch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_scale.config import EnvConfig, MaskMode, TrialConfig, TrialResources, digest, family
from rllib_scale.config.base import Model, merged
from rllib_scale.config.identity import content_id, described, in_words, protocol_of
from rllib_scale.config.pinned import without_places
from rllib_scale.config.plan import EvaluationUnit, Plan, Problem, Row, Trial
from rllib_scale.config.rounds import in_own_rounds, without_paper_mode
from rllib_scale.config.schedulers import ALL_RULES, PolicySpec, RuleSpec, check_planned, check_service, parse_scheduler
from rllib_scale.config.search import check_acts, integers_of, points
from rllib_scale.config.sweep import TRAIN_SCENARIO, TRIAL_SECTIONS, Overrides, SweepConfig, nested, over
from rllib_scale.config.trial import Sections
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.policies.description import as_played, scheduler_row, trained_in
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
    grid = _Grid(sweep, source)
    planned = grid.trials()
    check_acts(sweep.search, [trial.config for trial, _ in planned])
    problems = _Problems(sweep)
    schedulers = _given(sweep)
    units: dict[str, EvaluationUnit] = {}
    for unit in itertools.chain(
        _rule_units(sweep, schedulers, grid.problems(), problems), _policy_units(sweep, planned, problems)
    ):
        units.setdefault(unit.key, unit)
    _check_played(units.values())
    dimensions = {"schedulers": [*schedulers.values()], **problems.rows()}
    return Plan(sweep, tuple(trial for trial, _ in planned), tuple(units.values()), dimensions)


@dataclass(frozen=True)
class _Own:
    """The problem of a training as a sweep describes it, before its method replaces what it decides by."""

    scenario: str
    env: EnvConfig


class _Grid:
    """The points of a sweep's grid and search, and the trainings there."""

    def __init__(self, sweep: SweepConfig, source: str) -> None:
        self.sweep = sweep
        self.source = source
        self._sections: dict[str, Any] = {name: getattr(sweep, name) for name in TRIAL_SECTIONS if name != "env"}
        kept = set(TrialResources.model_fields)
        self._sections["resources"] = TrialResources(**sweep.resources.model_dump(include=kept))
        self._known: dict[str, Any] = {}
        self._drawn = self._points_of_search()

    def trials(self) -> list[tuple[Trial, _Own]]:
        """The trainings and their problems: methods x grid x search x seeds, equal ones once.

        Raises:
            UserError: see `make_plan`.
        """
        sweep = self.sweep
        found: dict[str, tuple[Trial, _Own]] = {}
        grid = list(self._points())
        of_points: list[set[str]] = [set() for _ in grid]  # trainings of all methods and seeds at each point
        for method in sweep.methods:
            for (at, point), (drawn, population), seed in itertools.product(enumerate(grid), self._drawn, sweep.seeds):
                config = self._trial(method, seed, (*point, *drawn.items()), population)
                trial = Trial(config)
                of_points[at].add(trial.planned_id)
                found.setdefault(trial.planned_id, (trial, self._own((*point, *drawn.items()))))
        self._refuse_equal(grid, of_points)
        return list(found.values())

    def problems(self) -> list[_Own]:
        """The distinct problems of the points."""
        drawn = [each for each, _ in self._drawn] if self.sweep.methods else [{}]
        owns = (self._own((*point, *each.items())) for point, each in itertools.product(self._points(), drawn))
        return list({(own.scenario, id(own.env)): own for own in owns}.values())

    def _points(self) -> Iterator[Overrides]:
        return (tuple(itertools.chain(*point)) for point in itertools.product(*self.sweep.axes))

    def _points_of_search(self) -> list[tuple[dict[str, Any], str]]:
        """The settings of each point, and the `population` of its trainings.

        The result of a member of PBT depends on the whole population, so its hash is part of the training's identity.
        What Optuna will suggest is not known: a training is planned by its number.

        Raises:
            UserError: see `integers_of`; or Optuna could suggest a value that is not valid.
        """
        search, sweep = self.sweep.search, self.sweep
        if search is not None and search.algorithm == "optuna":
            for path, values in search.space.items():
                for value in values.ends(path in integers_of(search, Sections)):
                    self._trial(sweep.methods[0], sweep.seeds[0], ((path, value),))
            content = search.model_dump(mode="json", exclude_defaults=True, exclude={"samples"})
            return [({}, f"optuna {digest(content)} {number}") for number in range(search.samples)]
        population = ""
        if search is not None and search.scheduler == "pbt":
            kept = {*TRIAL_SECTIONS, "scenario", "custom_scenarios", "methods", "seeds", "search"}
            content = sweep.model_dump(mode="json", exclude_defaults=True, include=kept)
            population = digest(without_places(content))
        return [(point, population) for point in points(search, Sections)]

    def _trial(self, method: str, seed: int, settings: Overrides, population: str = "") -> TrialConfig:
        changed = {"env": self._own(settings).env}
        for section in {path.split(".")[0] for path, _ in settings} - {"env", "scenario"}:
            changed[section] = self._section(section, [each for each in settings if each[0].split(".")[0] == section])
        data = self._sections | changed | {"method": method, "seed": seed, "population": population}
        return build_model(TrialConfig, data, f"{self.source}: grid")

    def _section(self, name: str, settings: Sequence[tuple[str, Any]]) -> Any:
        """A section with some settings over it, made once."""
        own = self._sections[name]
        if isinstance(own, Model):
            written = [(name, own.model_dump(mode="json")), *settings]
            return self._once([name, settings], lambda: over(type(own)(), written, name))
        for path, value in settings:
            own = {} if value is None else merged(None, own, nested(path, value))
        return own

    def _own(self, settings: Overrides) -> _Own:
        """The problem at a point, made once."""
        own = tuple(each for each in settings if each[0].split(".")[0] in ("env", "scenario"))
        return self._once(["env", own], lambda: _Own(*self.sweep.problem_at(own)))

    def _once(self, content: Any, make: Any) -> Any:
        key = json.dumps(content, sort_keys=True, default=str)
        if key not in self._known:
            try:
                self._known[key] = make()
            except ValueError as error:
                raise UserError(f"{self.source}: grid: {error}") from None
        return self._known[key]

    def _refuse_equal(self, grid: Sequence[Overrides], of_points: Sequence[set[str]]) -> None:
        """Refuse two points of the grid at which every method is trained alike."""
        first: dict[frozenset[str], Overrides] = {}
        for point, trainings in zip(grid, of_points, strict=True):
            other = first.setdefault(frozenset(trainings), point)
            if other is not point and self.sweep.methods:
                one, two = in_words(dict(other)), in_words(dict(point))
                raise UserError(f"{self.source}: grid: {one} and {two} are the same training; leave out one of them")


class _Problems:
    """The problems of a sweep's evaluations and how they are asked, each made once for all schedulers."""

    def __init__(self, sweep: SweepConfig) -> None:
        self.sweep = sweep
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

    def of(self, own: _Own) -> Iterator[Problem]:
        """The problems on which a training and the rules that are compared with it are evaluated."""
        for label in self.sweep.evaluated_scenarios:
            is_own = label == TRAIN_SCENARIO
            key = (own.scenario, id(own.env)) if is_own else (label, 0)
            if key not in self._known:
                of_family = label in family.SCENARIOS
                given = own if is_own or of_family else _Own(label, self.sweep.problem(label))
                self._known[key] = list(self._of_family(label) if of_family else self._scaled(given))
            yield from self._known[key]

    def protocol(self, problem: Problem, trial: TrialConfig | None = None) -> str:
        """Id of how a rule, or the policy of a training, is asked in a problem."""
        own = None if trial is None or trial.dispatches else trial.env
        key = (id(problem), own and (own.decision, own.episode.mask, own.observation))
        if key not in self._protocols:
            env = problem.env
            if own is not None and trial is not None:
                env = in_own_rounds(trial.name, own, env).model_copy(update={"observation": own.observation})
            self._protocols[key] = content_id(protocol_of(env))
            self._asked.setdefault(self._protocols[key], env)
        return self._protocols[key]

    def _of_family(self, label: str) -> Iterator[Problem]:
        evaluation, (kind, revealed) = self.sweep.evaluation, family.SCENARIOS[label]
        for number, env in enumerate(fixed_problems(kind, revealed)[: evaluation.family_problems]):
            for mask in self._masks(env):
                yield Problem(label, env.with_mask(mask), kind, number, fixed_seed(kind, number, evaluation.seed))

    def _scaled(self, own: _Own) -> Iterator[Problem]:
        evaluation = self.sweep.evaluation
        for servers, mask in itertools.product(evaluation.scales, self._masks(own.env)):
            try:
                at_scale = own.env.at_scale(servers)
            except ValueError as error:
                raise UserError(f"evaluation.scales {servers}: scenario {own.scenario}: {error}") from None
            # A trial's problem draws from training sessions, an evaluation from test sessions.
            yield Problem(own.scenario, at_scale.with_mask(mask).with_part("test"))

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
    """One evaluation of each rule and given policy on each problem; of a family the first problem stands for all."""
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


def _rule_units(
    sweep: SweepConfig, schedulers: Mapping[str, Row], owns: Iterable[_Own], problems: _Problems
) -> Iterator[EvaluationUnit]:
    """Evaluations of rules and given policies, on the problems of all points."""
    evaluation = sweep.evaluation
    distinct = {id(problem): problem for own in owns for problem in problems.of(own)}
    for text, row in schedulers.items():
        for problem in distinct.values():
            how: Any = (problem, problems.protocol(problem), "argmax", problem.seed_in(evaluation), evaluation.episodes)
            yield EvaluationUnit(text, row["scheduler"], False, *how)


def _policy_units(
    sweep: SweepConfig, trials: Iterable[tuple[Trial, _Own]], problems: _Problems
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
            seed = problem.seed_in(evaluation)
            for decision in decisions:
                how: Any = (problem, protocol, decision, seed, evaluation.episodes, features)
                yield EvaluationUnit(trial.name, trial.planned_id, True, *how)
