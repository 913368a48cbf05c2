"""The plan of a sweep: its trainings and evaluations, each with its identity. Free of ray and torch.

`make_plan` is the only code that expands a sweep. The manifest of a results folder holds the plan as JSON; `status` and
replays read it from there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rllib_scale import zoo
from rllib_scale.config import DecisionMode, EnvConfig, TrialConfig, TrialResources, digest, identity
from rllib_scale.config.pinned import MARK, split
from rllib_scale.config.rounds import in_own_rounds
from rllib_scale.config.schedulers import PluginSpec, PolicySpec, SchedulerSpec, parse_scheduler
from rllib_scale.config.search import points
from rllib_scale.config.sweep import CELL_SECTIONS, TRAIN_SCENARIO, SweepConfig
from rllib_scale.config.trial import CELL_FORMAT
from rllib_scale.config.used_settings import UNUSED, used_settings
from rllib_scale.config.yaml_files import build_model, set_path
from rllib_scale.errors import UserError

Overrides = tuple[tuple[str, Any], ...]
"""Config path and value of each setting that a grid or a search gives a training."""
STOPPED = "stopped=asha"
"""In the label of a training that ASHA stopped: its rows are not rows of the whole training."""
PLAN_FORMAT = 1
"""Of the JSON of a plan."""


@dataclass(frozen=True)
class Cell:
    """One training of a sweep and the grid settings that distinguish it from the others."""

    trial: TrialConfig
    overrides: Overrides = ()
    stopped_epochs: int | None = None  # after which ASHA stopped the training; None: it ran to its end

    def as_trained(self, epochs: int) -> Cell:
        """The training that ran so many epochs; with fewer than planned, ASHA stopped it."""
        return replace(self, stopped_epochs=epochs) if 0 < epochs < self.trial.stop_epochs else self

    @property
    def epochs(self) -> int:
        """Epochs that it trains, or trained if it was stopped early."""
        return self.stopped_epochs or self.trial.stop_epochs

    @property
    def label(self) -> str:
        """Grid settings except the lambdas, which have columns; and whether it was stopped early."""
        parts = [f"{path}={_plain(value)}" for path, value in _apart(self.overrides) if not _is_lambda(path)]
        return "; ".join(parts + [STOPPED] * (self.stopped_epochs is not None))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity columns of its rows (`rllib_scale.results.tables`), except the sweep's name."""
        trial, steps = self.trial, self.trial.env_steps_per_epoch
        return {
            "cell": trial.cell,
            "method": trial.method,
            "kind": "learned",
            "train_seed": trial.seed,
            "lambda_decorrelation": trial.srr.lambda_decorrelation,
            "lambda_kl": trial.srr.lambda_kl,
            "overrides": self.label,
            "train_servers": trial.env.cluster.num_servers,
            "epochs": self.epochs,
            "env_steps": None if steps is None else self.epochs * steps,
        }

    @cached_property
    def name(self) -> str:
        """Of its folders: unique within a sweep."""
        return f"{self.trial.method}-s{self.trial.seed}-{self.identity['cell']}"


@dataclass(frozen=True)
class Problem:
    """A scenario at one number of servers, as an evaluation plays it."""

    scenario: str
    env: EnvConfig

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What of the problem differs from the defaults."""
        return identity(self.env)


@dataclass(frozen=True)
class EvaluationUnit:
    """One scheduler on one problem: the episodes of one batch, played by one Ray task."""

    scheduler: str  # a rule, or a policy given by name, pinned if it is user-defined; or the name of a training
    identity: dict[str, Any]
    problem: Problem
    decision: DecisionMode
    seed: int
    episodes: int
    features: bool = False  # whether to measure the policy's attention feature; its rows do not depend on it

    @property
    def scenario(self) -> str:
        """Name of the problem."""
        return self.problem.scenario

    @property
    def env(self) -> EnvConfig:
        """The problem."""
        return self.problem.env

    @property
    def learned(self) -> bool:
        """Whether the scheduler is a policy that the sweep trains."""
        return bool(self.identity["kind"] == "learned")

    @property
    def columns(self) -> dict[str, Any]:
        """Identity and evaluation columns that all its rows share."""
        return self.identity | {
            "scenario": self.scenario,
            "test_servers": self.env.cluster.num_servers,
            "mask": self.env.episode.mask,
            "decision": self.decision,
            "eval_seed": self.seed,
        }

    @cached_property
    def spec(self) -> SchedulerSpec | None:
        """What plays it; None for a policy that the sweep trains."""
        return None if self.learned else parse_scheduler(self.scheduler)

    @property
    def code(self) -> list[str]:
        """Names of user code that has to be imported to play it."""
        scheduler = self.spec.name if isinstance(self.spec, PluginSpec) else None
        return [name for name in (scheduler, self.env.workload.generator) if name is not None]

    @property
    def policy(self) -> Path | None:
        """Folder of a policy given by name; None for a rule, or a policy that the sweep trains.

        Raises:
            UserError: it is missing or has changed.
        """
        return self.spec.folder("evaluation.heuristics") if isinstance(self.spec, PolicySpec) else None

    @cached_property
    def key(self) -> str:
        """Hash of all that decides its rows."""
        own: dict[str, str] = {}
        if isinstance(self.spec, PluginSpec):
            own = {"source": self.scheduler}  # with the digest of its source
        if isinstance(self.spec, PolicySpec):
            own = {"policy": self.spec.content}  # of its description, which holds that of its weights
        problem = {"env": self.problem.identity, "episodes": self.episodes, "format": CELL_FORMAT}
        return digest(self.columns | problem | own)


@dataclass(frozen=True)
class Plan:
    """What a sweep trains and evaluates.

    Attributes:
        sweep: what was planned.
        cells: trainings, in the order methods, grid, points of the search, seeds; equal ones once.
        units: evaluations: rules and given policies first, then the policy of each training at each scale.
    """

    sweep: SweepConfig
    cells: tuple[Cell, ...]
    units: tuple[EvaluationUnit, ...]

    def units_of(self, cell: Cell) -> list[EvaluationUnit]:
        """The evaluations of the policy of a training, as it was trained."""
        return [replace(unit, identity=cell.identity) for unit in self._units_by_training.get(cell.name, ())]

    @cached_property
    def _units_by_training(self) -> dict[str, list[EvaluationUnit]]:
        units: dict[str, list[EvaluationUnit]] = {}
        for unit in self.units:
            if unit.learned:
                units.setdefault(unit.scheduler, []).append(unit)
        return units

    def as_trained(self, epochs: Mapping[str, int]) -> Plan:
        """The plan after ASHA stopped trainings early, which the identity of their rows says.

        Args:
            epochs: name of a training -> epochs that it ran, of those that are finished.
        """
        cells = tuple(cell.as_trained(epochs.get(cell.name, 0)) for cell in self.cells)
        if cells == self.cells:
            return self
        units = [unit for unit in self.units if not unit.learned]
        return replace(self, cells=cells, units=(*units, *itertools.chain.from_iterable(map(self.units_of, cells))))

    def to_json(self) -> dict[str, Any]:
        """For the manifest. A training is its settings that differ from the defaults; an evaluation refers to them."""
        problems = list({id(unit.problem): unit.problem for unit in self.units}.values())
        number = {id(problem): index for index, problem in enumerate(problems)}
        return {
            "format": PLAN_FORMAT,
            "trainings": [
                {
                    "name": cell.name,
                    "epochs": cell.trial.stop_epochs,
                    "columns": cell.identity,
                    "settings": [list(pair) for pair in cell.overrides],  # their order is that of the label
                    "trial": _without_defaults(cell.trial),
                }
                for cell in self.cells
            ],
            "problems": [{"scenario": problem.scenario, "env": _without_defaults(problem.env)} for problem in problems],
            "evaluations": [
                {
                    "key": unit.key,
                    "scheduler": unit.scheduler,
                    "problem": number[id(unit.problem)],
                    "decision": unit.decision,
                    "features": unit.features,
                    **({} if unit.learned else {"columns": unit.identity}),
                }
                for unit in self.units
            ],
        }

    @classmethod
    def from_json(cls, sweep: SweepConfig, content: Mapping[str, Any], source: str) -> Plan:
        """The plan that `to_json` wrote.

        Raises:
            UserError: it is not valid.
        """
        try:
            cells = [
                Cell(
                    build_model(TrialConfig, each["trial"], f"{source}: plan.trainings.{index}"),
                    tuple((path, _as_tuple(value)) for path, value in each["settings"]),
                )
                for index, each in enumerate(content["trainings"])
            ]
            problems = [
                Problem(
                    each["scenario"],
                    build_model(EnvConfig, each["env"], f"{source}: plan.problems.{index}"),
                )
                for index, each in enumerate(content["problems"])
            ]
            of_name = {cell.name: cell for cell in cells}
            units = [
                EvaluationUnit(
                    each["scheduler"],
                    each["columns"] if "columns" in each else of_name[each["scheduler"]].identity,
                    problems[each["problem"]],
                    each["decision"],
                    sweep.evaluation.seed,
                    sweep.evaluation.episodes,
                    each["features"],
                )
                for each in content["evaluations"]
            ]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise UserError(f"{source}: plan: not readable ({type(error).__name__}: {error})") from None
        return cls(sweep, tuple(cells), tuple(units))


def make_plan(sweep: SweepConfig, source: str) -> Plan:
    """Expand a sweep.

    Args:
        sweep: what to expand.
        source: where it came from, for messages.

    Raises:
        UserError: a value is not valid at its path, a scenario cannot be scaled to a number of servers, or a policy
            that reserves servers would be evaluated where that is invalid.
    """
    cells = _cells(sweep, source)
    # Without methods, the grid still varies problems: those of the trainings that any method would have.
    posed = cells if sweep.methods else _cells(sweep.model_copy(update={"methods": ("crossattn",)}), sweep.name)
    problems = _Problems(sweep)
    units = {unit.key: unit for unit in _rule_units(sweep, posed, problems)}
    for unit in _policy_units(sweep, cells, problems):
        units.setdefault(unit.key, unit)
    return Plan(sweep, tuple(cells), tuple(units.values()))


def _cells(sweep: SweepConfig, source: str) -> list[Cell]:
    sections: dict[str, Any] = {name: getattr(sweep, name) for name in CELL_SECTIONS}
    sections["resources"] = TrialResources(**sweep.resources.model_dump(include=set(TrialResources.model_fields)))
    plain = {name: section.model_dump(mode="json") for name, section in sections.items()}
    if sweep.search is not None and sweep.search.scheduler == "pbt":
        # The result of a member depends on the whole population, so its hash is part of the training's identity.
        content = {name: identity(getattr(sweep, name)) for name in CELL_SECTIONS}
        sections["population"] = digest(content | sweep.model_dump(mode="json", include={"methods", "seeds", "search"}))
    cells: dict[str, Cell] = {}
    for method, values, point, seed in itertools.product(
        sweep.methods, itertools.product(*sweep.grid.values()), points(sweep.search), sweep.seeds
    ):
        overrides = _used(method, plain, (*zip(sweep.grid, values, strict=True), *point.items()))
        varied = {path.split(".")[0] for path, _ in overrides}
        # Sections that do not vary are shared by all trainings, and are validated once.
        changed = {name: json.loads(json.dumps(plain[name])) for name in varied}
        for path, value in overrides:
            set_path(changed, path, value)
        data = sections | changed | {"method": method, "seed": seed}
        trial = build_model(TrialConfig, data, f"{source}: grid")
        cell = Cell(trial, overrides)
        cells.setdefault(cell.identity["cell"], cell)
    return list(cells.values())


def _used(method: str, base: Mapping[str, Any], overrides: Overrides) -> Overrides:
    """The settings of a grid and a search that a method uses."""

    def is_set(section: str, name: str) -> bool:
        value = base[section][name]
        for path, given in overrides:
            if path == f"{section}.{name}":
                value = given
            elif path == section and isinstance(given, Mapping):
                value = given.get(name)
        return value is not None

    used = used_settings(method, is_set("imitation", "expert"), is_set("network", "encoder"))
    parts = ((path, used.part(path, value)) for path, value in overrides)
    return tuple((path, part) for path, part in parts if part is not UNUSED)


class _Problems:
    """The problems that a sweep evaluates on; each exists once, however many schedulers play it."""

    def __init__(self, sweep: SweepConfig) -> None:
        self.sweep = sweep
        self.own_problems = TRAIN_SCENARIO in sweep.evaluated_scenarios
        self._known: dict[tuple[str, int], list[Problem]] = {}

    def of(self, cell: Cell) -> Iterator[Problem]:
        """For a training, or for the rules that are compared with it."""
        for label in self.sweep.evaluated_scenarios:
            own = cell.trial.env if label == TRAIN_SCENARIO else None
            if (label, id(own)) not in self._known:
                self._known[label, id(own)] = list(self._scaled(label, own or self.sweep.problem(label)))
            yield from self._known[label, id(own)]

    def _scaled(self, label: str, env: EnvConfig) -> Iterator[Problem]:
        evaluation = self.sweep.evaluation
        for servers, mask in itertools.product(evaluation.scales, evaluation.masks or (env.episode.mask,)):
            try:
                at_scale = env.at_scale(servers)
            except ValueError as error:
                raise UserError(f"evaluation.scales {servers}: scenario {label}: {error}") from None
            # The problem of a training draws from the sessions that it trains on; an evaluation must not.
            yield Problem(label, at_scale.with_mask(mask).with_part("test"))


def _rule_units(sweep: SweepConfig, cells: Iterable[Cell], problems: _Problems) -> Iterator[EvaluationUnit]:
    """Evaluations of rules and given policies."""
    posed: dict[tuple[int, str], tuple[Cell, list[str]]] = {}
    for cell in cells:
        settings = [f"{path}={_plain(value)}" for path, value in cell.overrides if path.startswith("env.")]
        key = (id(cell.trial.env), "; ".join(settings)) if problems.own_problems else (0, "")
        posed.setdefault(key, (cell, settings))
    for scheduler, (cell, settings) in itertools.product(sweep.evaluation.heuristics, posed.values()):
        for problem in problems.of(cell):
            own = settings if problem.scenario == TRAIN_SCENARIO else []
            shown = parse_scheduler(scheduler).label
            columns = {"cell": "@".join([shown, *own]), "method": shown, "kind": "heuristic"}
            columns["overrides"] = "; ".join(own)
            evaluation = sweep.evaluation
            yield EvaluationUnit(scheduler, columns, problem, "argmax", evaluation.seed, evaluation.episodes)


def _policy_units(sweep: SweepConfig, cells: Iterable[Cell], problems: _Problems) -> Iterator[EvaluationUnit]:
    """Evaluations of the policies that the sweep trains."""
    evaluation = sweep.evaluation
    for cell in cells:
        spec, own = cell.trial.spec, cell.trial.env
        decisions = evaluation.decisions if spec.network is not None else ("argmax",)  # prices are no probabilities
        features = evaluation.features and not spec.dispatches
        for problem in problems.of(cell):
            in_own_rounds(cell.name, own, problem.env)
            if not spec.any_scale and problem.env.cluster.num_slots != own.cluster.num_slots:
                continue  # an MLP policy is fixed to the number of servers it was trained at
            for decision in decisions:
                yield EvaluationUnit(
                    cell.name, cell.identity, problem, decision, evaluation.seed, evaluation.episodes, features
                )


def training_steps(cells: Iterable[Cell]) -> int:
    """Decisions to train on in all, except for searches."""
    return sum(cell.trial.stop_epochs * (cell.trial.env_steps_per_epoch or 0) for cell in cells)


def cpus_per_trial(resources: TrialResources) -> float:
    """CPUs that one training occupies: its learner and one for each environment runner."""
    return resources.cpus + resources.env_runners


def _without_defaults(model: TrialConfig | EnvConfig) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_defaults=True)


def _as_tuple(value: Any) -> Any:
    """JSON has no tuples; the values of a distribution are."""
    return tuple(value) if isinstance(value, list) else value


def _apart(overrides: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The settings of SRR one by one, where a grid varies them together."""
    for path, value in overrides:
        if path == "srr" and isinstance(value, dict):
            yield from ((f"srr.{name}", each) for name, each in value.items())
        else:
            yield path, value


def _is_lambda(path: str) -> bool:
    return path in ("srr.lambda_decorrelation", "srr.lambda_kl")


def _plain(value: Any) -> str:
    """A value in a label; of a pinned file its name and its digest, without its folder."""
    if isinstance(value, str) and MARK in value:
        place, content = split(value)
        return place if zoo.is_named(place) else f"{Path(place).name}{MARK}{content}"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
