"""The YAML of a sweep. Free of ray and torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

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
from rllib_scale.config.base import MAX_EPISODES, settings_of
from rllib_scale.config.schedulers import parse_scheduler
from rllib_scale.config.search import SearchConfig
from rllib_scale.config.trial import Sections
from rllib_scale.config.unused import refuse_unused
from rllib_scale.config.yaml_files import build_model, merged
from rllib_scale.errors import UserError, choice_error

TRIAL_SECTIONS = tuple(Sections.model_fields)
"""Sections of a sweep that all trials share and that a grid may vary."""
TRAIN_SCENARIO = "train"
"""Evaluation of each trial on the problem of its training, at each test scale."""
EVALUATED_ALONE = (TRAIN_SCENARIO, *family.SCENARIOS)
"""Names in `evaluation.scenarios` that are no scenario to train on."""
MAX_TRIALS = 10_000
"""Trials of one sweep: more would take minutes to expand."""

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


class _Product(Model):
    name: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]*$")
    description: str = ""
    scenario: str = Field(default="paper", description="a named problem, or `package.module:Name`")
    methods: tuple[str, ...] = Field(description="to train; empty: rules alone, and nothing is trained")
    seeds: tuple[Seed, ...] = Field(default=(42,), min_length=1)
    grid: dict[str, tuple[Any, ...]] = Field(default={}, description="config path -> values")
    search: SearchConfig | None = None


class SweepConfig(Sections, _Product):  # fields come from right to left: name and methods first
    """A sweep: methods x seeds x grid, each trial trained once and evaluated at every scale."""

    evaluation: EvaluationConfig = EvaluationConfig()
    resources: SweepResources = SweepResources()
    checkpoints: CheckpointConfig = CheckpointConfig()
    tracking: tuple[Literal["mlflow", "wandb"], ...] = Field(
        default=(), description="where training curves go, too; `pip install rllib-scale[tracking]`"
    )
    custom_scenarios: dict[str, EnvConfig] = Field(
        default={},
        description="user-defined problems by name; those named by import path are added on loading",
    )

    @model_validator(mode="before")
    @classmethod
    def _env_builds_on_scenario(cls, data: Any) -> Any:
        """Settings that `env` leaves out come from the scenario."""
        if not isinstance(data, dict):
            return data
        name, own, evaluation = data.get("scenario", "paper"), data.get("custom_scenarios", {}), data.get("evaluation")
        if not isinstance(name, str) or not isinstance(own, dict):
            return data
        listed = evaluation.get("scenarios") if isinstance(evaluation, dict) else None
        for each in (name, *(listed if isinstance(listed, list | tuple) else ())):
            if isinstance(each, str) and each not in (*SCENARIOS, *own, *EVALUATED_ALONE):
                raise ValueError(str(choice_error("scenario", each, (*SCENARIOS, *own, *family.SCENARIOS))))
        try:
            base = scenario(name) if name not in own else build_model(EnvConfig, own[name], f"custom_scenarios.{name}")
        except UserError as error:
            raise ValueError(str(error)) from None
        if isinstance(data.get("env", {}), dict):
            data = data | {"env": merged(base.model_dump(mode="json"), data.get("env", {}))}
        return data

    @model_validator(mode="after")
    def _scenarios_are_known(self) -> SweepConfig:
        for name in self.custom_scenarios:
            if name in (*SCENARIOS, *EVALUATED_ALONE):
                raise ValueError(f"custom_scenarios.{name}: is a shipped scenario; give yours another name")
        return self

    @model_validator(mode="after")
    def _grid_is_sound(self) -> SweepConfig:
        for method in self.methods:
            if method not in METHODS:
                raise ValueError(str(choice_error("method", method, METHODS)))
        if not self.methods and not self.evaluation.heuristics:
            raise ValueError("methods and evaluation.heuristics are both empty: there is nothing to run")
        for path, values in self.grid.items():
            if path.split(".")[0] not in TRIAL_SECTIONS:
                raise ValueError(f"grid.{path}: must begin with {'., '.join(TRIAL_SECTIONS)}.")
            if not values:
                raise ValueError(f"grid.{path}: an empty list leaves no trial to run")
        return self

    @model_validator(mode="after")
    def _is_not_too_large(self) -> SweepConfig:
        trials = len(self.methods) * len(self.seeds) * math.prod(len(values) for values in self.grid.values())
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
        for path in self.search.space:
            if path.split(".")[0] not in TRIAL_SECTIONS:
                raise ValueError(f"search.space.{path}: must begin with {'., '.join(TRIAL_SECTIONS)}.")
            if path in self.grid:
                raise ValueError(f"search.space.{path}: stands in grid, too")
        if self.search.scheduler != "none" and len(self.methods) > 1:
            raise ValueError(
                f"search.scheduler {self.search.scheduler} compares all trainings of a sweep: give one method, "
                f"not {len(self.methods)}"
            )
        for method in self.methods:
            if self.search.scheduler != "none" and METHODS[method].dispatches:
                raise ValueError(
                    f"search.scheduler {self.search.scheduler}: method {method} has no env steps to compare at"
                )
        if self.search.scheduler == "pbt" and self.grid:
            raise ValueError("search.scheduler pbt continues trainings as copies of others: leave out grid")
        return self

    def problem(self, name: str) -> EnvConfig:
        """The problem of a shipped or user-defined scenario."""
        return self.custom_scenarios[name] if name in self.custom_scenarios else scenario(name)

    @property
    def evaluated_scenarios(self) -> tuple[str, ...]:
        """Scenarios of the evaluations; by default that of the trainings."""
        if self.evaluation.scenarios:
            return self.evaluation.scenarios
        own = self.env != self.problem(self.scenario) or any(path.startswith("env.") for path in self.grid)
        return (TRAIN_SCENARIO,) if own else (self.scenario,)


def refuse_unused_settings(sweep: SweepConfig, written: Mapping[str, Any]) -> None:
    """Refuse settings that no method of a sweep uses. `written` is the sweep as in YAML.

    Raises:
        ValueError: with the setting and what is valid.
    """
    if isinstance(env := written.get("env"), Mapping):
        sweep.env.check_arrivals(env)
        problems = sweep.training.problems
        if problems is not None and problems.family is not None and TRAIN_SCENARIO not in sweep.evaluated_scenarios:
            for name in ("workload", "communication", "information"):
                if name in env:
                    raise ValueError(f"env.{name}: training.problems any draws its own; leave one of the two out")
    given = [("", *each) for name in TRIAL_SECTIONS if name in written for each in settings_of(name, written[name])]
    given += [
        ("grid.", *each) for path, values in sweep.grid.items() for one in values for each in settings_of(path, one)
    ]
    for path, values in (sweep.search.space if sweep.search is not None else {}).items():
        given += [
            ("search.space.", *each) for one in values.choice or values.bounds or () for each in settings_of(path, one)
        ]
    refuse_unused(sweep.methods, sweep.env, given)
