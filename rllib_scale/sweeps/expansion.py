"""The trainings of a sweep and their problems: methods x grid x search x seeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rllib_scale.config import METHODS, EnvConfig, TrialConfig, digest
from rllib_scale.config.identity import in_words, settings_in
from rllib_scale.config.inert import Replaced
from rllib_scale.config.methods import SECTIONS
from rllib_scale.config.pinned import without_places
from rllib_scale.config.plan import Trial
from rllib_scale.config.search import check_one_problem, integers_of, points
from rllib_scale.config.sweep import TRAIN_SCENARIO, Point, SweepConfig, layers
from rllib_scale.errors import UserError

Entry = tuple[str, Mapping[str, Any]]
"""A method and the sections given for it alone."""
T = TypeVar("T")


@dataclass(frozen=True)
class GivenProblem:
    """The problem of a training as a sweep describes it, before its algorithm replaces what it decides by."""

    scenario: str
    env: EnvConfig


class Expansion:
    """The points of a sweep's grid and search, and the trainings there.

    Args:
        sweep: the sweep.
        source: origin of the sweep, for messages.
    """

    def __init__(self, sweep: SweepConfig, source: str) -> None:
        self.sweep = sweep
        self.source = source
        self._sections = sweep.sections
        self._known: dict[str, GivenProblem] = {}
        self._grid: list[Point] = [
            tuple(itertools.chain.from_iterable(point)) for point in itertools.product(*sweep.axes)
        ]
        self._drawn = self._points_of_search()

    def trials(self) -> list[tuple[Trial, GivenProblem]]:
        """The trainings and their problems, equal ones once.

        Raises:
            UserError: a value is not valid at its path; a setting has no effect; or two points of the grid are the same
                training.
        """
        found: dict[str, tuple[Trial, GivenProblem]] = {}
        of_points: list[set[str]] = [set() for _ in self._grid]  # trainings of all methods and seeds at each point
        replaced = Replaced(evaluates_own=TRAIN_SCENARIO in self.sweep.evaluated_scenarios)
        self._refuse_unused()
        for entry in self.sweep.entries:
            for (at, grid), (drawn, population) in itertools.product(enumerate(self._grid), self._drawn):
                point = (*grid, *drawn)
                asked = self._asked(entry, point)
                for seed in self.sweep.seeds:
                    config = self._trial(entry, seed, point, population)
                    trial = Trial(config)
                    of_points[at].add(trial.planned_id)
                    found.setdefault(trial.planned_id, (trial, asked))
                if written := list(self._written(entry, point)):
                    replaced.add(written, asked.env, config)
        self._made(lambda point: replaced.refuse(), ())
        self._refuse_equal(of_points)
        return list(found.values())

    def problems(self) -> list[GivenProblem]:
        """The distinct problems of the points."""
        entries: Sequence[Entry] = self.sweep.entries or [("", {})]
        drawn = [each for each, _ in self._drawn] if self.sweep.methods else [()]
        every = itertools.product(entries, self._grid, drawn)
        found = [self._asked(entry, (*point, *settings)) for entry, point, settings in every]
        return list({id(asked): asked for asked in found}.values())

    def _points_of_search(self) -> list[tuple[Point, str]]:
        """The settings of each point, and the `population` of its trainings.

        The result of a member of PBT depends on the whole population, so its hash is part of the training's identity,
        and members that end with equal settings differ in their number. What Optuna will suggest is not known: a
        training is planned by its number.

        Raises:
            UserError: see `integers_of`; or Optuna could suggest a value that is not valid.
        """
        search, sweep = self.sweep.search, self.sweep
        if search is not None and search.algorithm == "optuna":
            for path, values in search.space.items():
                ends = [((path, value),) for value in values.ends(path in integers_of(search))]
                trainings = [self._trial(sweep.entries[0], sweep.seeds[0], point) for point in ends]
                check_one_problem(f"search.space.{path}: search.algorithm optuna", trainings, "search.algorithm random")
            content = search.model_dump(mode="json", exclude_defaults=True, exclude={"samples"})
            return [((), f"optuna {digest(content)} {number}") for number in range(search.samples)]
        drawn: list[Point] = [tuple(point.items()) for point in points(search)]
        if search is None or search.scheduler != "pbt":
            return [(point, "") for point in drawn]
        kept = {*SECTIONS, "env", "scenario", "custom_scenarios", "methods", "seeds", "search"}
        content = {key: value for key, value in sweep.written().items() if key in kept}
        population = digest(without_places(content))
        return [(point, f"pbt {population} {number}") for number, point in enumerate(drawn)]

    def _trial(self, entry: Entry, seed: int, point: Point, population: str = "") -> TrialConfig:
        method, own = entry

        def make(point: Point) -> TrialConfig:
            rest = {"seed": seed, "population": population, "env": self._asked(entry, point).env}
            return TrialConfig.of(method, self._sections, own, *layers(point), **rest)

        return self._made(make, point)

    def _asked(self, entry: Entry, point: Point) -> GivenProblem:
        """The problem at a point, made once."""
        own = {"env": entry[1].get("env", {})}
        settings = tuple(each for each in point if each[0].split(".")[0] in ("env", "scenario"))
        key = json.dumps([own, settings], sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = GivenProblem(*self._made(lambda point: self.sweep.problem_at(point, own), settings))
        return self._known[key]

    def _made(self, make: Callable[[Point], T], point: Point) -> T:
        """The result of `make` at a point; an error that occurs without the point, too, is not blamed on the grid.

        Raises:
            UserError: the settings are not valid.
        """
        try:
            return make(point)
        except ValueError as error:
            said = str(error)
        if point:
            try:
                make(())
            except (ValueError, UserError) as error:
                point = () if str(error).endswith(said) else point
        places = {path: where for where, path, _ in self.sweep.varied}
        where = next((f"{places[path]}: " for path, _ in sorted(point, key=lambda each: each[0] not in said)), "")
        raise UserError(f"{self.source}: {where}{said}")

    def _written(self, entry: Entry, point: Point) -> Iterator[tuple[str, str]]:
        """Place and config path of each setting of the problem that is given at a point."""
        places = {path: f"{where}." for where, path, _ in self.sweep.varied}
        given = [("", "env", self.sweep.env), (f"methods.{entry[0]}.", "env", entry[1].get("env", {}))]
        given += [(places[path], path, value) for path, value in point if path.split(".")[0] == "env"]
        for place, path, value in given:
            settings = settings_in(value, path) if isinstance(value, Mapping) else {path: value}
            yield from ((place, each) for each, found in settings.items() if found is not None)

    def _refuse_unused(self) -> None:
        """Refuse settings of trainings that there are none of, and of SRR where no method has it."""
        sections = {name: section for name, section in self._sections.items() if name != "env"}
        every = [("", path, (value,)) for path, value in settings_in(sections).items()]
        every += [(f"{where}.", path, values) for where, path, values in self.sweep.varied]
        given = [(place, path) for place, path, values in every if any(value not in (None, {}) for value in values)]
        names = ", ".join(dict.fromkeys(name for name, _ in self.sweep.entries))
        for place, path in given:
            section = path.split(".")[0]
            if not names and section in ("algorithm", "network", "srr", "stop"):
                raise UserError(f"{self.source}: {place}{path}: nothing is trained, so nothing uses it; leave it out")
            if section == "srr" and all(METHODS[name].srr is None for name, _ in self.sweep.entries):
                having = ", ".join(name for name, preset in METHODS.items() if preset.srr is not None)
                raise UserError(
                    f"{self.source}: {place}{path}: no method of the sweep ({names}) has SRR; valid: a method that "
                    f"has, as {having}"
                )

    def _refuse_equal(self, of_points: Sequence[set[str]]) -> None:
        """Refuse two points of the grid at which every method is trained alike."""
        first: dict[frozenset[str], Point] = {}
        for point, trainings in zip(self._grid, of_points, strict=True):
            other = first.setdefault(frozenset(trainings), point)
            if other is not point and self.sweep.methods:
                one, two = in_words(dict(other)), in_words(dict(point))
                raise UserError(f"{self.source}: grid: {one} and {two} are the same training; leave out one of them")
