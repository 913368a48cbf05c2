"""A sweep as data: what stands in its YAML, and the trainings and evaluations it expands to. Free of ray and torch."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from rllib_scale.config import (
    MAX_SERVERS,
    METHODS,
    MIN_SERVERS,
    SCENARIOS,
    Count,
    DecisionMode,
    DQNConfig,
    EnvConfig,
    MaskMode,
    Model,
    NetworkConfig,
    SACConfig,
    Seed,
    SRRConfig,
    StopConfig,
    TrainingConfig,
    TrialConfig,
    TrialResources,
    digest,
    scenario,
)
from rllib_scale.configio import build_model, set_path
from rllib_scale.errors import UserError
from rllib_scale.schedulers.heuristics import SCHEDULERS

CELL_SECTIONS = ("env", "training", "dqn", "sac", "stop", "srr", "network")
"""Sections of a sweep that every cell starts from and a grid may vary."""
TRAIN_SCENARIO = "train"
"""Evaluation on the very problem a cell was trained on, at each test scale."""

_Scale = Annotated[int, Field(ge=MIN_SERVERS, le=MAX_SERVERS)]


def _check_names(what: str, names: Iterable[str], valid: Iterable[str]) -> None:
    valid = list(valid)
    for name in names:
        if name not in valid:
            raise ValueError(f"unknown {what} {name!r}; valid: {', '.join(valid)}")


class EvaluationConfig(Model):
    """Fixed episodes on which every policy and heuristic of the sweep is evaluated."""

    scales: tuple[_Scale, ...] = Field(default=(16, 32, 48), min_length=1, description="servers")
    scenarios: tuple[str, ...] = Field(
        default=(), description="named problems, or 'train' for each cell's own; empty: the sweep's scenario"
    )
    episodes: Count = 30
    seed: Seed = Field(default=1000, description="(seed, episode) fixes a workload, the same for every method")
    masks: tuple[MaskMode, ...] = Field(default=(), description="empty: the scenario's own")
    decisions: tuple[DecisionMode, ...] = Field(default=("argmax",), min_length=1)
    features: bool = Field(default=True, description="distribution and drift of the attention feature of each policy")
    heuristics: tuple[str, ...] = ("random-feasible", "fastest-idle", "earliest-finish", "large-only")

    @model_validator(mode="after")
    def _names_are_known(self) -> EvaluationConfig:
        _check_names("scenario", self.scenarios, (*SCENARIOS, TRAIN_SCENARIO))
        _check_names("scheduler", self.heuristics, SCHEDULERS)
        return self


class CheckpointConfig(Model):
    """How often an unfinished training is saved."""

    every_epochs: Count = 25
    keep: Count = 2


class SweepResources(TrialResources):
    """What each training asks Ray for, and how many may run at once."""

    max_concurrent: Count | None = Field(default=None, description="trainings at once; unset: as many as fit")


class SweepConfig(Model):
    """A sweep: methods x seeds x grid, each cell trained once and evaluated at every scale."""

    name: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]*$")
    description: str = ""
    scenario: str = "paper"
    methods: tuple[str, ...] = Field(min_length=1)
    seeds: tuple[Seed, ...] = Field(default=(42,), min_length=1)
    grid: dict[str, tuple[Any, ...]] = Field(default={}, description="config path -> values")
    env: EnvConfig = EnvConfig()
    training: TrainingConfig = TrainingConfig()
    dqn: DQNConfig = DQNConfig()
    sac: SACConfig = SACConfig()
    stop: StopConfig = StopConfig()
    srr: SRRConfig = SRRConfig()
    network: NetworkConfig = NetworkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    resources: SweepResources = SweepResources()
    checkpoints: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="before")
    @classmethod
    def _env_builds_on_scenario(cls, data: Any) -> Any:
        """What `env` leaves out comes from the scenario."""
        if not isinstance(data, dict) or not isinstance(data.get("scenario", "paper"), str):
            return data
        base = scenario(data.get("scenario", "paper"))
        own = data.get("env", {})
        if isinstance(own, dict):
            data = data | {"env": _merged(base.model_dump(mode="json"), own)}
        return data

    @model_validator(mode="after")
    def _grid_is_sound(self) -> SweepConfig:
        _check_names("method", self.methods, METHODS)
        for path, values in self.grid.items():
            begins = path.split(".")[0] in CELL_SECTIONS
            if not begins and path not in ("resources.sampler", "resources.learner"):
                raise ValueError(
                    f"grid.{path}: must begin with {'., '.join(CELL_SECTIONS)}., "
                    "or be resources.sampler or resources.learner"
                )
            if not values:
                raise ValueError(f"grid.{path}: an empty list leaves no cell to run")
        return self

    @property
    def evaluated_scenarios(self) -> tuple[str, ...]:
        """Scenarios to evaluate on; where none is named, the one trained on."""
        if self.evaluation.scenarios:
            return self.evaluation.scenarios
        own = self.env != scenario(self.scenario) or any(path.startswith("env.") for path in self.grid)
        return (TRAIN_SCENARIO,) if own else (self.scenario,)


@dataclass(frozen=True)
class Cell:
    """One training of a sweep and the grid settings that tell it from the others."""

    trial: TrialConfig
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """Grid settings beside the lambdas, which have columns of their own."""
        return "; ".join(f"{path}={_plain(value)}" for path, value in self.overrides if not _is_lambda(path))

    @property
    def identity(self) -> dict[str, Any]:
        """The identity columns of this cell's rows (results.py), but for the sweep's name."""
        trial = self.trial
        return {
            "cell": trial.cell,
            "method": trial.method,
            "kind": "learned",
            "train_seed": trial.seed,
            "lambda_decorrelation": trial.srr.lambda_decorrelation,
            "lambda_kl": trial.srr.lambda_kl,
            "overrides": self.label,
            "train_servers": trial.env.cluster.num_servers,
            "epochs": trial.stop_epochs,
            "env_steps": trial.stop_epochs * trial.training.steps_per_epoch,
        }


@dataclass(frozen=True)
class EvaluationUnit:
    """One scheduler on one problem: the episodes of one batch, the unit that is spread over Ray tasks."""

    scheduler: str  # a heuristic's name, or the trial name of a policy
    identity: dict[str, Any]
    scenario: str
    env: EnvConfig
    decision: DecisionMode
    seed: int
    episodes: int
    features: bool = False  # whether to look at the policy's attention feature too; decides nothing about its rows

    @property
    def learned(self) -> bool:
        """Whether the scheduler is a trained policy."""
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

    @property
    def key(self) -> str:
        """Hash of all that decides its rows."""
        return digest(self.columns | {"env": self.env.model_dump(mode="json"), "episodes": self.episodes})


def expand(sweep: SweepConfig, source: str) -> list[Cell]:
    """All trainings of a sweep, in the order methods, grid, seeds; equal ones once.

    Raises:
        UserError: a grid value is not valid at its path.
    """
    base = sweep.model_dump(mode="json", include=set(CELL_SECTIONS))
    base["resources"] = sweep.resources.model_dump(include=set(TrialResources.model_fields))
    cells: dict[str, Cell] = {}
    for method, values, seed in itertools.product(sweep.methods, itertools.product(*sweep.grid.values()), sweep.seeds):
        overrides = tuple(zip(sweep.grid, values, strict=True))
        data = json.loads(json.dumps(base)) | {"method": method, "seed": seed}
        for path, value in overrides:
            set_path(data, path, value)
        trial = build_model(TrialConfig, data, f"{source}: grid")
        if not METHODS[method].srr:
            overrides = tuple((path, value) for path, value in overrides if not path.startswith("srr."))
        cells.setdefault(trial.cell, Cell(trial, overrides))
    return list(cells.values())


def evaluation_units(sweep: SweepConfig, cells: list[Cell]) -> list[EvaluationUnit]:
    """All evaluations of a sweep: heuristics first, then each cell's policy at every scale it can run at."""
    units: dict[str, EvaluationUnit] = {}
    for name, cell in itertools.chain(
        itertools.product(sweep.evaluation.heuristics, cells), ((None, cell) for cell in cells)
    ):
        for label, env in _problems(sweep, cell):
            if name is None:
                if not cell.trial.spec.any_scale and env.cluster.num_slots != cell.trial.env.cluster.num_slots:
                    continue  # an MLP policy is fixed to the number of servers it was trained at
                scheduler, identity, decisions = cell.trial.name, cell.identity, sweep.evaluation.decisions
            else:
                own = [f"{p}={_plain(v)}" for p, v in cell.overrides if p.startswith("env.")]
                own = own if label == TRAIN_SCENARIO else []
                identity = {"cell": "@".join([name, *own]), "method": name, "kind": "heuristic"}
                identity["overrides"] = "; ".join(own)
                scheduler, decisions = name, ("argmax",)
            for decision in decisions:
                unit = EvaluationUnit(
                    scheduler,
                    identity,
                    label,
                    env,
                    decision,
                    sweep.evaluation.seed,
                    sweep.evaluation.episodes,
                    features=name is None and sweep.evaluation.features,
                )
                units.setdefault(unit.key, unit)
    return list(units.values())


def _problems(sweep: SweepConfig, cell: Cell) -> Iterable[tuple[str, EnvConfig]]:
    for label in sweep.evaluated_scenarios:
        problem = cell.trial.env if label == TRAIN_SCENARIO else scenario(label)
        for servers, mask in itertools.product(
            sweep.evaluation.scales, sweep.evaluation.masks or (problem.episode.mask,)
        ):
            yield label, problem.at_scale(servers).with_mask(mask)


def training_steps(cells: list[Cell]) -> int:
    """Decisions to train on in all."""
    return sum(cell.trial.stop_epochs * cell.trial.training.steps_per_epoch for cell in cells)


def cpus_per_trial(resources: TrialResources) -> float:
    """CPUs one training occupies: its learner and one for each environment runner."""
    return resources.cpus + resources.env_runners


def check_fits(resources: TrialResources, largest_node_cpus: float) -> None:
    """Refuse a sweep no trial of which could ever start.

    Raises:
        UserError: with the numbers.
    """
    if resources.cpus > largest_node_cpus:
        raise UserError(
            f"resources.cpus: a training needs {resources.cpus:g} CPUs on one node, "
            f"the largest node has {math.floor(largest_node_cpus)}"
        )


def _is_lambda(path: str) -> bool:
    return path in ("srr.lambda_decorrelation", "srr.lambda_kl")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, mapping by mapping; anything that is no mapping is replaced."""
    both = dict(base)
    for key, value in over.items():
        inner = both.get(key)
        both[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both
