"""The YAML of a sweep. Free of ray and torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rllib_scale.config import (
    MAX_SERVERS,
    METHODS,
    MIN_SERVERS,
    SCENARIOS,
    Count,
    DecisionMode,
    EnvConfig,
    MaskMode,
    Model,
    Seed,
    TrialResources,
    family,
    scenario,
)
from rllib_scale.config.base import MAX_EPISODES, merged
from rllib_scale.config.identity import settings_in
from rllib_scale.config.schedulers import parse_scheduler
from rllib_scale.config.search import SearchConfig
from rllib_scale.config.trial import Sections
from rllib_scale.config.unused import refuse_unused
from rllib_scale.config.yaml_files import explain
from rllib_scale.errors import UserError, choice_error

TRIAL_SECTIONS = tuple(Sections.model_fields)
"""Sections of a sweep that all trials share and that a grid may vary."""
TRAIN_SCENARIO = "train"
"""Evaluation of each trial on the problem of its training, at each test scale."""
EVALUATED_ALONE = (TRAIN_SCENARIO, *family.SCENARIOS)
"""Names in `evaluation.scenarios` that are no scenario to train on."""
MAX_TRIALS = 10_000
"""Trials of one sweep: more would take minutes to expand."""

Overrides = tuple[tuple[str, Any], ...]
"""Config path and value of each setting at a point of a grid or a search."""
M = TypeVar("M", bound=Model)
_Scale = Annotated[int, Field(ge=MIN_SERVERS, le=MAX_SERVERS)]


class EvaluationConfig(Model):
    """Fixed episodes on which all policies and rules of the sweep are evaluated."""

    scales: tuple[_Scale, ...] = Field(default=(16, 32, 48), min_length=1, description="servers")
    scenarios: tuple[str, ...] = Field(
        default=(),
        description="named problems, `package.module:Name`, 'train' for each trial's own, or any, any-revealed, "
        "any-agents, any-agents-revealed: problems of their own scales; empty: the sweep's scenario",
    )
    family_problems: Annotated[int, Field(ge=1, le=family.TEST_PROBLEMS)] = Field(
        default=family.TEST_PROBLEMS, description="problems of `any` and its variants"
    )
    episodes: Annotated[int, Field(ge=1, le=MAX_EPISODES)] = 30
    seed: Seed = Field(default=1000, description="(seed, episode) fixes a workload, the same for every method")
    masks: tuple[MaskMode, ...] = Field(default=(), description="empty: the scenario's own")
    decisions: tuple[DecisionMode, ...] = Field(default=("argmax",), min_length=1)
    features: bool = Field(default=True, description="distribution and drift of the attention feature of each policy")
    heuristics: tuple[str, ...] = Field(
        default=("random-feasible", "fastest-idle", "earliest-finish", "large-only"),
        description="rules, with parameters as `reserve:waiting=2`; see `rllib-scale schedulers`, or "
        "`package.module:Name`; and policies, `zoo:NAME` or a folder, whose path has a slash",
    )

    @field_validator("heuristics")
    @classmethod
    def _schedulers_differ(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        try:
            specs = list(dict.fromkeys(parse_scheduler(name) for name in names))
        except UserError as error:
            raise ValueError(str(error)) from None
        labels = [spec.label for spec in specs]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two schedulers are named {label}; give folders of policies other names")
        return tuple(map(str, specs))


class CheckpointConfig(Model):
    """How often an unfinished training is saved."""

    every_epochs: Count = 25
    keep: Count = Field(default=2, description="newest of each training; PBT keeps all, which members resume from")


class SweepResources(TrialResources):
    """Resources of each training, and how many may run at once."""

    max_concurrent: Count | None = Field(default=None, description="trainings at once; unset: as many as fit")


Grid = dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]]
"""Config path -> values."""
GRID_KEYS = ("scenario", "resources", *TRIAL_SECTIONS)
"""Keys of a sweep that a grid may vary, they or what is below them."""
_RANGE = re.compile(r"range\( *(\d+) *, *(\d+) *\)|(\d+)\.\.(\d+)")


class _AsWritten:
    """Settings as they are written, which an EnvConfig checks when they lie over a scenario."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(dict[str, Any])

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(EnvConfig.__pydantic_core_schema__)


class _Product(Model):
    name: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]*$")
    description: str = ""
    scenario: str = Field(default="paper", description="a named problem, or `package.module:Name`")
    methods: tuple[str, ...] = Field(description="to train; empty: rules alone, and nothing is trained")
    seeds: tuple[Seed, ...] = Field(
        default=(42,), min_length=1, description="of trainings; also `range(1, 6)` or `1..5`, which are 1, 2, 3, 4, 5"
    )
    grid: Grid = Field(default={}, description="config path -> values; all combinations are trained")
    zip: tuple[Grid, ...] = Field(
        default=(), description="as grid, but the values of one mapping vary together; several mappings are combined"
    )
    search: SearchConfig | None = None

    @field_validator("seeds", mode="before")
    @classmethod
    def _ranges(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if (found := _RANGE.fullmatch(value.strip())) is None:
            raise ValueError(f"{value}: valid: a list, range(1, 6) or 1..5")
        start, stop, first, last = found.groups()
        seeds = range(int(start), int(stop)) if start else range(int(first), int(last) + 1)
        if len(seeds) > MAX_TRIALS:
            raise ValueError(f"{value}: are {len(seeds):,} seeds; at most {MAX_TRIALS:,}")
        return list(seeds)

    @field_validator("zip", mode="before")
    @classmethod
    def _one_mapping(cls, value: Any) -> Any:
        return (value,) if isinstance(value, Mapping) else value

    @field_validator("zip")
    @classmethod
    def _alike_long(cls, groups: tuple[Grid, ...]) -> tuple[Grid, ...]:
        for group in groups:
            lengths = {path: len(values) for path, values in group.items()}
            if len(set(lengths.values())) > 1:
                said = ", ".join(f"{path} has {count}" for path, count in lengths.items())
                raise ValueError(f"the values of a mapping vary together and must be equally many: {said}")
        return groups

    @property
    def varied(self) -> Grid:
        """Config path -> values, of all settings that vary."""
        return {path: values for group in (self.grid, *self.zip) for path, values in group.items()}

    @property
    def axes(self) -> list[list[Overrides]]:
        """The axes of the product: of each, the settings at its points."""
        groups = [{path: values} for path, values in self.grid.items()] + list(self.zip)
        return [
            [tuple(zip(group, point, strict=True)) for point in zip(*group.values(), strict=True)] for group in groups
        ]


class SweepConfig(Sections, _Product):  # fields come from right to left: name and methods first
    """A sweep: methods x seeds x grid, each trial trained once and evaluated at every scale."""

    env: Annotated[dict[str, Any], _AsWritten] = Field(  # type: ignore[assignment]
        default={}, description="settings of the problem that differ from the scenario's"
    )
    evaluation: EvaluationConfig = EvaluationConfig()
    resources: SweepResources = SweepResources()
    checkpoints: CheckpointConfig = CheckpointConfig()
    tracking: tuple[Literal["mlflow", "wandb"], ...] = Field(
        default=(), description="where training curves go, too; needs the extra `tracking`"
    )
    custom_scenarios: dict[str, EnvConfig] = Field(
        default={},
        description="user-defined problems by name; those named by import path are added on loading",
    )

    @model_validator(mode="after")
    def _scenarios_are_known(self) -> SweepConfig:
        for name in self.custom_scenarios:
            if name in (*SCENARIOS, *EVALUATED_ALONE):
                raise ValueError(f"custom_scenarios.{name}: is a shipped scenario; give yours another name")
        trained = map(str, self.varied.get("scenario", (self.scenario,)))
        for name in (self.scenario, *trained, *self.evaluation.scenarios):
            if name not in (*SCENARIOS, *self.custom_scenarios, *EVALUATED_ALONE):
                raise ValueError(
                    str(choice_error("scenario", name, (*SCENARIOS, *self.custom_scenarios, *family.SCENARIOS)))
                )
        return self

    @model_validator(mode="after")
    def _problem_is_sound(self) -> SweepConfig:
        self.problem_at(())
        return self

    @model_validator(mode="after")
    def _grid_is_sound(self) -> SweepConfig:
        for method in self.methods:
            if method not in METHODS:
                raise ValueError(str(choice_error("method", method, METHODS)))
        if not self.methods and not self.evaluation.heuristics:
            raise ValueError("methods and evaluation.heuristics are both empty: there is nothing to run")
        space = self.search.space if self.search is not None else {}
        paths = [("grid", path) for path in self.grid] + [("zip", path) for group in self.zip for path in group]
        seen: set[str] = set()
        for where, path in (*paths, *(("search.space", path) for path in space)):
            if path.split(".")[0] not in GRID_KEYS:
                raise ValueError(f"{where}.{path}: must be or begin with one of {', '.join(GRID_KEYS)}")
            if path in seen:
                raise ValueError(f"{where}.{path}: stands twice in grid, zip and search.space")
            seen.add(path)
        return self

    @model_validator(mode="after")
    def _is_not_too_large(self) -> SweepConfig:
        trials = len(self.methods) * len(self.seeds) * math.prod(map(len, self.axes))
        if self.search is not None and self.search.space:
            trials *= self.search.samples
        if max(trials, len(self.seeds)) > MAX_TRIALS:
            raise ValueError(
                f"methods x seeds x grid x search.samples are {trials:,} trainings; at most {MAX_TRIALS:,}"
            )
        return self

    @model_validator(mode="after")
    def _search_is_sound(self) -> SweepConfig:
        if self.search is None:
            return self
        if not self.methods:
            raise ValueError("search: there is nothing to search for without methods")
        if self.search.scheduler != "none" and len(self.methods) > 1:
            raise ValueError(
                f"search.scheduler {self.search.scheduler} compares all trainings of a sweep: give one method, "
                f"not {len(self.methods)}"
            )
        if self.search.scheduler == "pbt" and self.axes:
            raise ValueError("search.scheduler pbt continues trainings as copies of others: leave out grid and zip")
        if self.search.algorithm == "optuna":
            if self.axes or len(self.methods) * len(self.seeds) > 1:
                raise ValueError(
                    "search.algorithm optuna learns from every training of a sweep: give one method and one seed, and "
                    "leave out grid and zip"
                )
            for path in self.search.space:
                if path.split(".")[0] in ("env", "resources", "scenario", "stop"):
                    raise ValueError(
                        f"search.space.{path}: search.algorithm optuna suggests settings of the learner; valid: "
                        "search.algorithm random"
                    )
        return self

    def problem(self, name: str) -> EnvConfig:
        """The problem of a shipped or user-defined scenario."""
        return self.custom_scenarios[name] if name in self.custom_scenarios else scenario(name)

    def problem_at(self, point: Overrides) -> tuple[str, EnvConfig]:
        """Scenario and problem at a point of the grid: `env` lies over the scenario, the point's settings over both.

        Raises:
            ValueError: one line with the first mistakes.
        """
        name = next((str(value) for path, value in reversed(point) if path == "scenario"), self.scenario)
        own = [(path, value) for path, value in point if path.split(".")[0] == "env"]
        try:
            return name, over(self.problem(name), [("env", self.env), *own], "env")
        except UserError as error:
            raise ValueError(str(error)) from None

    @property
    def evaluated_scenarios(self) -> tuple[str, ...]:
        """Scenarios of the evaluations; by default the problem of each training."""
        return self.evaluation.scenarios or (TRAIN_SCENARIO,)


def nested(path: str, value: Any) -> Any:
    """A value at a config path as it stands in the section where the path begins.

    >>> nested("srr.lambda_kl", 0.1)
    {'lambda_kl': 0.1}
    """
    for key in reversed(path.split(".")[1:]):
        value = {key: value}
    return value


def over(base: M, settings: Iterable[tuple[str, Any]], section: str) -> M:
    """A section with settings over it, those of its own sections merged into what is there.

    Args:
        base: the section.
        settings: config path, of the section or below it, and value; null stands for the default, of the whole section
            for `base`.
        section: config path of the section.

    Raises:
        ValueError: one line with the first mistakes.
    """
    data = plain = base.model_dump(mode="json")
    for path, value in settings:
        value = nested(path, value)
        if not (value is None or isinstance(value, Mapping)):
            raise ValueError(f"{section}: must be a mapping of keys to values (got {value!r:.60})")
        data = plain if value is None else merged(type(base), data, value)
    try:
        return base if data is plain else type(base).model_validate(data)
    except ValidationError as error:
        raise ValueError(explain(error, section)) from None


def refuse_unused_settings(sweep: SweepConfig, written: Mapping[str, Any]) -> None:
    """Refuse settings that no method of a sweep uses. `written` is the sweep as in YAML.

    Raises:
        ValueError: with the setting and what is valid.
    """
    if isinstance(env := written.get("env"), Mapping):
        sweep.problem_at(())[1].check_arrivals(env)
        problems = sweep.training.problems
        if problems is not None and problems.family is not None and TRAIN_SCENARIO not in sweep.evaluated_scenarios:
            for name in ("workload", "communication", "information"):
                if name in env:
                    raise ValueError(f"env.{name}: training.problems any draws its own; leave one of the two out")
    given = [("", path, value) for path, value in settings_in(dict(written)).items() if _is_of_trials(path)]
    for where, varied in (("grid.", sweep.varied), ("search.space.", _searched(sweep))):
        for path, value in ((path, value) for path, values in varied.items() for value in values):
            given += [(where, *each) for each in settings_in({path: value}).items() if _is_of_trials(path)]
    refuse_unused(sweep.methods, sweep.problem_at(())[1], given)


def _is_of_trials(path: str) -> bool:
    return path.split(".")[0] in TRIAL_SECTIONS


def _searched(sweep: SweepConfig) -> dict[str, tuple[Any, ...]]:
    """Config path -> values of a choice, or the bounds, of what a search varies."""
    space = sweep.search.space if sweep.search is not None else {}
    return {path: values.choice or values.bounds or () for path, values in space.items()}
