"""The plan of a sweep: its trials and evaluations with their identities. Free of ray and torch.

`rllib_scale.config.planning.make_plan` makes it. The manifest of a results folder holds it as JSON, from which `status`
and replays read it.
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
from rllib_scale.config.pinned import DIGEST_SEPARATOR, split
from rllib_scale.config.schedulers import PluginSpec, PolicySpec, SchedulerSpec, parse_scheduler
from rllib_scale.config.sweep import EvaluationConfig, SweepConfig
from rllib_scale.config.training import NO_SRR
from rllib_scale.config.trial import TRIAL_FORMAT
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError

Overrides = tuple[tuple[str, Any], ...]
"""Config path and value of each setting from a grid or a search."""
LAMBDAS = ("srr.lambda_decorrelation", "srr.lambda_kl")
"""Settings with a column of their own."""
STOPPED = "stopped=asha"
"""Label of a trial that ASHA stopped: its rows are not those of a whole training."""
PLAN_FORMAT = 1
"""Format of a plan in JSON."""


@dataclass(frozen=True)
class Trial:
    """One training of a sweep and its settings from the grid and the search."""

    config: TrialConfig
    overrides: Overrides = ()
    stopped_epochs: int | None = None  # ASHA stopped it after them; None: it ran to its end

    def as_trained(self, epochs: int) -> Trial:
        """The trial after `epochs` epochs; ASHA stopped it if they are fewer than planned."""
        return replace(self, stopped_epochs=epochs) if 0 < epochs < self.config.stop_epochs else self

    @property
    def epochs(self) -> int:
        """Planned epochs, or those that it ran before ASHA stopped it."""
        return self.stopped_epochs or self.config.stop_epochs

    @property
    def label(self) -> str:
        """Grid settings except the lambdas, which have columns, and whether ASHA stopped it."""
        parts = [f"{path}={shown(value)}" for path, value in _apart(self.overrides) if path not in LAMBDAS]
        return "; ".join(parts + [STOPPED] * (self.stopped_epochs is not None))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity columns of its rows (`rllib_scale.results.columns`), except the sweep's name."""
        config, steps, srr = self.config, self.config.env_steps_per_epoch, self.config.srr or NO_SRR
        return {
            "trial_id": config.trial_id,
            "method": config.method,
            "kind": "learned",
            "train_seed": config.seed,
            "lambda_decorrelation": srr.lambda_decorrelation,
            "lambda_kl": srr.lambda_kl,
            "overrides": self.label,
            "train_servers": config.env.cluster.num_servers,
            "epochs": self.epochs,
            "env_steps": None if steps is None else self.epochs * steps,
        }

    @cached_property
    def name(self) -> str:
        """Name of its folders, unique within a sweep."""
        return f"{self.config.method}-s{self.config.seed}-{self.identity['trial_id']}"


@dataclass(frozen=True)
class Problem:
    """A scenario at one number of servers, or a problem of a family of test problems.

    Attributes:
        seed: of the workloads of a family's problem; None: that of the evaluation.
    """

    scenario: str
    env: EnvConfig
    seed: int | None = None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Settings that differ from the defaults."""
        return identity(self.env)

    @property
    def of_family(self) -> bool:
        """Whether it is one of many problems of its scenario."""
        return self.seed is not None

    def seed_in(self, evaluation: EvaluationConfig) -> int:
        """Seed of its workloads."""
        return evaluation.seed if self.seed is None else self.seed


@dataclass(frozen=True)
class EvaluationUnit:
    """One scheduler on one problem: a batch of episodes, played by one Ray task."""

    scheduler: str  # a rule or a given policy, pinned if it is user-defined, or the name of a trial
    identity: dict[str, Any]
    problem: Problem
    decision: DecisionMode
    seed: int
    episodes: int
    features: bool = False  # whether the attention feature is measured, which rows do not depend on

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return self.problem.scenario

    @property
    def env(self) -> EnvConfig:
        """The problem."""
        return self.problem.env

    @property
    def learned(self) -> bool:
        """Whether the sweep trains the policy."""
        return bool(self.identity["kind"] == "learned")

    @property
    def columns(self) -> dict[str, Any]:
        """Identity and evaluation columns of all its rows."""
        return self.identity | {
            "scenario": self.scenario,
            "test_servers": self.env.cluster.num_servers,
            "mask": self.env.episode.mask,
            "decision": self.decision,
            "eval_seed": self.seed,
        }

    @cached_property
    def spec(self) -> SchedulerSpec | None:
        """The rule or given policy; None if the sweep trains the policy."""
        return None if self.learned else parse_scheduler(self.scheduler)

    @property
    def code(self) -> list[str]:
        """Names of user code that it imports."""
        scheduler = self.spec.name if isinstance(self.spec, PluginSpec) else None
        return [name for name in (scheduler, self.env.workload.generator) if name is not None]

    @property
    def policy(self) -> Path | None:
        """Folder of a given policy; None for a rule, and for a policy that the sweep trains.

        Raises:
            UserError: it is missing or has changed.
        """
        return self.spec.folder("evaluation.heuristics") if isinstance(self.spec, PolicySpec) else None

    @cached_property
    def key(self) -> str:
        """Hash of everything that decides its rows."""
        own: dict[str, str] = {}
        if isinstance(self.spec, PluginSpec):
            own = {"source": self.scheduler}  # includes the digest of its source
        if isinstance(self.spec, PolicySpec):
            own = {"policy": self.spec.content}  # digest of its description, which holds the digest of its weights
        problem = {"env": self.problem.identity, "episodes": self.episodes, "format": TRIAL_FORMAT}
        return digest(self.columns | problem | own)


@dataclass(frozen=True)
class Plan:
    """The trials and evaluations of a sweep.

    Attributes:
        sweep: the planned sweep.
        trials: in the order of methods, grid, points of the search, and seeds; equal trials stand once.
        units: evaluations, rules and given policies first, then the policy of each trial.
    """

    sweep: SweepConfig
    trials: tuple[Trial, ...]
    units: tuple[EvaluationUnit, ...]

    def units_of(self, trial: Trial) -> list[EvaluationUnit]:
        """The evaluations of a trial's policy, with the identity of the trial."""
        return [replace(unit, identity=trial.identity) for unit in self._units_by_training.get(trial.name, ())]

    @cached_property
    def _units_by_training(self) -> dict[str, list[EvaluationUnit]]:
        units: dict[str, list[EvaluationUnit]] = {}
        for unit in self.units:
            if unit.learned:
                units.setdefault(unit.scheduler, []).append(unit)
        return units

    def as_trained(self, epochs: Mapping[str, int]) -> Plan:
        """The plan after ASHA stopped trials, which changes the identity of their rows.

        Args:
            epochs: name of a finished trial -> epochs that it ran.
        """
        trials = tuple(trial.as_trained(epochs.get(trial.name, 0)) for trial in self.trials)
        if trials == self.trials:
            return self
        units = [unit for unit in self.units if not unit.learned]
        return replace(self, trials=trials, units=(*units, *itertools.chain.from_iterable(map(self.units_of, trials))))

    def to_json(self) -> dict[str, Any]:
        """JSON of the manifest: settings that differ from the defaults; evaluations refer to trials and problems."""
        problems = list({id(unit.problem): unit.problem for unit in self.units}.values())
        number = {id(problem): index for index, problem in enumerate(problems)}
        return {
            "format": PLAN_FORMAT,
            "trainings": [
                {
                    "name": trial.name,
                    "epochs": trial.config.stop_epochs,
                    "columns": trial.identity,
                    "settings": [list(pair) for pair in trial.overrides],  # in the order of the label
                    "trial": _without_defaults(trial.config),
                }
                for trial in self.trials
            ],
            "problems": [
                {"scenario": problem.scenario, "env": _without_defaults(problem.env)}
                | ({} if problem.seed is None else {"seed": problem.seed})
                for problem in problems
            ],
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
        """The plan in the JSON of `to_json`.

        Raises:
            UserError: the JSON is not valid.
        """
        try:
            if content["format"] != PLAN_FORMAT:
                raise UserError(f"{source}: plan: format {content['format']!r}; this program reads {PLAN_FORMAT}")
            trials = [
                Trial(
                    build_model(TrialConfig, each["trial"], f"{source}: plan.trainings.{index}"),
                    tuple((path, _as_tuple(value)) for path, value in each["settings"]),
                )
                for index, each in enumerate(content["trainings"])
            ]
            problems = [
                Problem(
                    each["scenario"],
                    build_model(EnvConfig, each["env"], f"{source}: plan.problems.{index}"),
                    each.get("seed"),
                )
                for index, each in enumerate(content["problems"])
            ]
            of_name = {each["name"]: trial for each, trial in zip(content["trainings"], trials, strict=True)}
            units = [
                EvaluationUnit(
                    trial.name if trial is not None else each["scheduler"],
                    trial.identity if trial is not None else each["columns"],
                    problem,
                    each["decision"],
                    problem.seed_in(sweep.evaluation),
                    sweep.evaluation.episodes,
                    each["features"],
                )
                for each in content["evaluations"]
                for problem in [problems[each["problem"]]]
                for trial in [None if "columns" in each else of_name[each["scheduler"]]]
            ]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise UserError(f"{source}: plan: not readable ({type(error).__name__}: {error})") from None
        return cls(sweep, tuple(trials), tuple(units))


def training_steps(trials: Iterable[Trial]) -> int:
    """Decisions of all trials, without those of CMA-ES and REINFORCE."""
    return sum(trial.config.stop_epochs * (trial.config.env_steps_per_epoch or 0) for trial in trials)


def cpus_per_trial(resources: TrialResources) -> float:
    """CPUs of one training: those of its process, and one for each environment runner and remote learner."""
    return resources.cpus + resources.env_runners + resources.learners


def _without_defaults(model: TrialConfig | EnvConfig) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_defaults=True)


def _as_tuple(value: Any) -> Any:
    """JSON has no tuples, and values of a choice are tuples."""
    return tuple(value) if isinstance(value, list) else value


def _apart(overrides: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The overrides, with the settings of SRR one by one where a grid varies them together."""
    for path, value in overrides:
        if path == "srr" and isinstance(value, dict):
            yield from ((f"srr.{name}", each) for name, each in value.items())
        else:
            yield path, value


def shown(value: Any) -> str:
    """A value in a label; a pinned file is shown by name and digest, without its folder."""
    if isinstance(value, str) and DIGEST_SEPARATOR in value:
        place, content = split(value)
        return place if zoo.is_named(place) else f"{Path(place).name}{DIGEST_SEPARATOR}{content}"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
