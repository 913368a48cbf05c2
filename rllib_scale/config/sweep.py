"""The YAML of a sweep. Free of ray and torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial, reduce
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

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
    SRRConfig,
    StopConfig,
    TrialResources,
    family,
    scenario,
)
from rllib_scale.config.algorithms import ALGORITHM_MODELS
from rllib_scale.config.base import MAX_EPISODES, Some, merged
from rllib_scale.config.methods import SECTIONS, preset_of
from rllib_scale.config.network import NETWORK_MODELS
from rllib_scale.config.paths import ByPath, Refers
from rllib_scale.config.schedulers import parse_scheduler
from rllib_scale.config.search import SearchConfig
from rllib_scale.config.yaml_files import explain
from rllib_scale.errors import UserError, choice_error

TRAIN_SCENARIO = "train"
"""Evaluation of each trial on the problem of its training, at each test scale."""
EVALUATED_ALONE = (TRAIN_SCENARIO, *family.SCENARIOS)
"""Names in `evaluation.scenarios` that are no scenario to train on."""
MAX_TRIALS = 10_000
"""Trials of one sweep: more would take minutes to expand."""
VARIED = ("scenario", "env", *SECTIONS)
"""Keys of a sweep that a grid may vary, they or what is below them."""
FORMER = dict.fromkeys(("training", *ALGORITHM_MODELS), "algorithm") | dict.fromkeys(("decima", "deeprm"), "network")
"""Sections of 0.3, and what has their settings now."""

Point = tuple[tuple[str, Any], ...]
"""Config path and value of each setting at a point of a grid or a search."""
Grid = Annotated[dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]], ByPath()]
"""Config path -> values."""
_Scale = Annotated[int, Field(ge=MIN_SERVERS, le=MAX_SERVERS)]
_RANGE = re.compile(r"range\( *(\d+) *, *(\d+) *\)|(\d+)\.\.(\d+)")


class EvaluationConfig(Model):
    """Fixed episodes on which all policies and rules of the sweep are evaluated."""

    scales: tuple[_Scale, ...] = Field(default=(16, 32, 48), min_length=1, description="servers")
    scenarios: tuple[Annotated[str, Refers("scenario")], ...] = Field(
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
    heuristics: tuple[Annotated[str, Refers("scheduler")], ...] = Field(
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
    """Checkpoint frequency of unfinished trainings."""

    every_epochs: Count = 25
    keep: Count = Field(default=2, description="newest of each training; PBT keeps all, which members resume from")


class SweepResources(TrialResources):
    """Resources of each training, and how many may run at once."""

    max_concurrent: Count | None = Field(default=None, description="trainings at once; unset: as many as fit")


_Algorithm = Annotated[dict[str, Any], Some(*ALGORITHM_MODELS.values())]
_Network = Annotated[dict[str, Any], Some(*NETWORK_MODELS.values())]
_Env = Annotated[dict[str, Any], Some(EnvConfig)]


class Own(Model):
    """Settings that one of several methods has over those of its sweep."""

    algorithm: _Algorithm = Field(default={})
    network: _Network = Field(default={})
    srr: SRRConfig = SRRConfig()
    env: _Env = Field(default={})
    stop: StopConfig = StopConfig()
    resources: TrialResources = TrialResources()


_Own = Annotated[Own, BeforeValidator(lambda value: {} if value is None else value)]
_Method = Annotated[
    Annotated[str, Tag("name")] | Annotated[dict[str, _Own], Field(min_length=1, max_length=1), Tag("settings")],
    Discriminator(lambda value: "settings" if isinstance(value, Mapping) else "name"),
]


class Varied(NamedTuple):
    """A setting that varies: the key that says so, its config path, and its values, or the bounds of a search."""

    where: str
    path: str
    values: tuple[Any, ...]


class SweepConfig(Model):
    """A sweep: methods x seeds x grid, each trial trained once and evaluated at every scale.

    Its sections have the shape of a trial, with some settings each, which lie over the presets of all its methods.
    """

    name: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]*$")
    description: str = ""
    scenario: Annotated[str, Refers("scenario")] = Field(
        default="paper", description="a named problem, or `package.module:Name`"
    )
    methods: tuple[_Method, ...] = Field(
        description="to train: names, or names with settings of their own, as `{scale: {algorithm: {passes: 2}}}`; "
        "empty: rules alone, and nothing is trained"
    )
    seeds: tuple[Seed, ...] = Field(
        default=(42,), min_length=1, description="of trainings; also `range(1, 6)` or `1..5`, which are 1, 2, 3, 4, 5"
    )
    grid: Grid = Field(default={}, description="config path -> values; all combinations are trained")
    zip: tuple[Grid, ...] = Field(
        default=(), description="as grid, but the values of one mapping vary together; several mappings are combined"
    )
    search: SearchConfig | None = None
    algorithm: _Algorithm = Field(default={}, description="settings of the algorithms; `name` replaces a method's")
    network: _Network = Field(default={}, description="settings of the networks; `name` replaces a method's")
    srr: SRRConfig = Field(default=SRRConfig(), description="settings of the methods that have SRR")
    env: _Env = Field(default={}, description="settings of the problem that differ from the scenario's")
    stop: StopConfig = StopConfig()
    resources: SweepResources = SweepResources()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    tracking: tuple[Literal["mlflow", "wandb"], ...] = Field(
        default=(), description="where training curves go, too; needs the extra `tracking`"
    )
    custom_scenarios: dict[str, EnvConfig] = Field(
        default={},
        description="user-defined problems by name; those named by import path are added on loading",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_not_of_0_3(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for section in (key for key in data if key in FORMER):
                settings = data[section]
                below = f".{next(iter(settings))}" if settings and isinstance(settings, Mapping) else ""
                _refuse_former("", f"{section}{below}")
        return data

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

    @model_validator(mode="after")
    def _scenarios_are_known(self) -> SweepConfig:
        for name in self.custom_scenarios:
            if name in (*SCENARIOS, *EVALUATED_ALONE):
                raise ValueError(f"custom_scenarios.{name}: is a shipped scenario; give yours another name")
        for name in map(str, (*self.trained_scenarios, *self.evaluation.scenarios)):
            if name not in (*SCENARIOS, *self.custom_scenarios, *EVALUATED_ALONE):
                raise ValueError(
                    str(choice_error("scenario", name, (*SCENARIOS, *self.custom_scenarios, *family.SCENARIOS)))
                )
        return self

    @model_validator(mode="after")
    def _methods_are_known(self) -> SweepConfig:
        for name, own in self.entries:
            if preset_of(name).srr is None and own.get("srr"):
                having = ", ".join(other for other, preset in METHODS.items() if preset.srr is not None)
                raise ValueError(f"methods.{name}.srr: {name} has no SRR; valid: a method that has, as {having}")
        if not self.methods and not self.evaluation.heuristics:
            raise ValueError("methods and evaluation.heuristics are both empty: there is nothing to run")
        return self

    @model_validator(mode="after")
    def _grid_is_sound(self) -> SweepConfig:
        seen: set[str] = set()
        for where, path, _ in self.varied:
            _refuse_former(f"{where}.", path)
            section, _, below = path.partition(".")
            if section not in VARIED or (section == "scenario" and below):
                raise ValueError(f"{where}.{path}: must be or begin with one of {', '.join(VARIED)}")
            if path in seen:
                raise ValueError(f"{where}.{path}: is set twice in grid, zip and search.space")
            seen.add(path)
        return self

    @model_validator(mode="after")
    def _is_not_too_large(self) -> SweepConfig:
        trials = self.most_trainings
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

    @property
    def entries(self) -> list[tuple[str, dict[str, Any]]]:
        """Name of each method, and the sections that it has of its own."""
        entries: list[tuple[str, dict[str, Any]]] = []
        for method in self.methods:
            if isinstance(method, str):
                entries.append((method, {}))
            else:
                entries += [(name, own.model_dump(exclude_unset=True)) for name, own in method.items()]
        return entries

    @property
    def most_trainings(self) -> int:
        """Methods x seeds x grid x samples of the search."""
        samples = self.search.samples if self.search is not None and self.search.space else 1
        return len(self.methods) * len(self.seeds) * math.prod(map(len, self.axes)) * samples

    @property
    def sections(self) -> dict[str, Any]:
        """The sections that all methods share, as they are written."""
        found = self.model_dump(mode="json", include={"env", *SECTIONS}, exclude_unset=True)
        found.get("resources", {}).pop("max_concurrent", None)
        return found

    @property
    def varied(self) -> list[Varied]:
        """All settings that vary."""
        groups = [("grid", self.grid), *(("zip", group) for group in self.zip)]
        space = self.search.space.items() if self.search is not None else ()
        return [Varied(where, path, values) for where, group in groups for path, values in group.items()] + [
            Varied("search.space", path, values.choice or values.bounds or ()) for path, values in space
        ]

    @property
    def axes(self) -> list[list[Point]]:
        """The axes of the product: of each, the settings at its points."""
        groups = [{path: values} for path, values in self.grid.items()] + list(self.zip)
        return [
            [tuple(zip(group, point, strict=True)) for point in zip(*group.values(), strict=True)] for group in groups
        ]

    @property
    def trained_scenarios(self) -> list[str]:
        """The scenarios that are trained on."""
        varied = [values for _, path, values in self.varied if path == "scenario"]
        return list(varied[0]) if varied else [self.scenario]

    def problem(self, name: str) -> EnvConfig:
        """The problem of a shipped or user-defined scenario."""
        return self.custom_scenarios[name] if name in self.custom_scenarios else scenario(name)

    def problem_at(self, point: Point, own: Mapping[str, Any] | None = None) -> tuple[str, EnvConfig]:
        """Scenario and problem at a point: over the scenario lie `env`, that of a method, and the point's settings.

        Raises:
            ValueError: one line with the first mistakes.
        """
        name = next((str(value) for path, value in reversed(point) if path == "scenario"), self.scenario)
        written = [layer["env"] for layer in ({"env": self.env}, own or {}, *layers(point)) if layer.get("env")]
        for env in written:
            if not isinstance(env, Mapping):
                raise ValueError(f"env: must be a mapping of keys to values (got {env!r:.60})")
        found = self.problem(name)
        if not written:
            return name, found
        settings = reduce(partial(merged, EnvConfig), written, found.model_dump(mode="json"))
        try:
            found = EnvConfig.model_validate(settings)
            for env in written:
                found.check_arrivals(env)
        except ValidationError as error:
            raise ValueError(explain(error, "env", settings)) from None
        except ValueError as error:
            raise ValueError(f"env: {error}") from None
        return name, found

    @property
    def evaluated_scenarios(self) -> tuple[str, ...]:
        """Scenarios of the evaluations; by default the problem of each training."""
        return self.evaluation.scenarios or (TRAIN_SCENARIO,)

    def written(self) -> dict[str, Any]:
        """JSON content as in YAML, what it refers to resolved; it makes the same sweep."""
        return self.model_dump(mode="json", exclude_unset=True)


def path_of(former: str) -> str:
    """The config path of a setting of 0.3.

    >>> path_of("ppo.gamma"), path_of("training"), path_of("deeprm.width"), path_of("srr.lambda_kl")
    ('algorithm.gamma', 'algorithm', 'network.width', 'srr.lambda_kl')
    """
    section, dot, rest = former.partition(".")
    return FORMER.get(section, section) + dot + rest


def _refuse_former(place: str, path: str) -> None:
    if path.split(".")[0] in FORMER:
        raise ValueError(f"{place}{path}: a key of 0.3; valid: {path_of(path)}; `rllib-scale convert` converts sweeps")


def layers(point: Point) -> Iterator[dict[str, Any]]:
    """The settings of a point as sections; a setting overrides its section, whichever comes first.

    >>> list(layers((("srr.lambda_kl", 0.1), ("srr", {"lambda_kl": 0, "ramp_epochs": 3}))))
    [{'srr': {'lambda_kl': 0, 'ramp_epochs': 3}}, {'srr': {'lambda_kl': 0.1}}]
    """
    for path, value in sorted(point, key=lambda setting: setting[0].count(".")):
        for key in reversed(path.split(".")):
            value = {key: value}
        yield value
