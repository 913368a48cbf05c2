"""The plan of a sweep: its trials and evaluations with their identities. Free of ray and torch.

`rllib_scale.sweeps.planning.make_plan` makes it. The manifest of a results folder holds it as JSON, from which `status`
and replays read it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rllib_scale.config import DecisionMode, EnvConfig, StopConfig, TrialConfig, TrialResources
from rllib_scale.config.identity import (
    IDENTITY_FORMAT,
    Settings,
    content_id,
    difference,
    in_words,
    settings_in,
    world_of,
)
from rllib_scale.config.pinned import DIGEST_SEPARATOR
from rllib_scale.config.schedulers import PluginSpec, PolicySpec, SchedulerSpec, parse_scheduler
from rllib_scale.config.sweep import EvaluationConfig, SweepConfig
from rllib_scale.config.training import NO_SRR
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError

LAMBDAS = ("srr.lambda_decorrelation", "srr.lambda_kl")
"""Settings with a column of their own."""
PLAN_FORMAT = 2
"""Format of a plan in JSON."""


@dataclass(frozen=True)
class Trial:
    """One training of a sweep.

    Attributes:
        config: its settings. Their hash names its folders and decides what a resumed sweep skips.
        base: settings of the same method without the grid and the search, from which its label says the difference.
        varied: config paths that the grid and the search vary.
        trained: the settings as trained, where a scheduler has changed or stopped it. Their hash names its rows.
    """

    config: TrialConfig
    base: TrialConfig
    varied: tuple[str, ...] = ()
    trained: TrialConfig | None = None

    def as_trained(self, trained: TrialConfig, epochs: int) -> Trial:
        """The trial after its training: with settings from PBT or Optuna, or after fewer epochs (ASHA)."""
        # Members of a population may end with equal settings. What Optuna has suggested is a training as any other.
        if trained.population == self.config.population and trained.trial_id != self.config.trial_id:
            population = f"{self.config.population} {self.config.trial_id}"
            trained = trained.model_copy(update={"population": population})
        if 0 < epochs < trained.stop_epochs:
            trained = trained.model_copy(update={"stop": StopConfig(epochs=epochs)})
        return self if trained.trial_id == self.config.trial_id else replace(self, trained=trained)

    @property
    def final(self) -> TrialConfig:
        """The settings as trained or, before the training, as planned."""
        return self.trained or self.config

    @cached_property
    def settings(self) -> Settings:
        """The settings that differ from those of the same method without the grid and the search."""
        sections = {*(path.split(".")[0] for path in self.varied), *(["stop"] if self.trained else [])}
        own, others = (settings_in(config.settings(sections)) for config in (self.final, self.base))
        told = settings_in(self.final.settings(sections, told=True))
        found = {path: value for path, value in difference(own, others).items() if path in others or path in told}
        algorithm = self.config.algorithm.name
        named = [path for path in self.varied if path.startswith(f"{algorithm}.")]
        for path in named:  # a setting that `training` shares is shown where the grid names it
            shared = f"training.{path.partition('.')[2]}"
            found = {path if key == shared else key: value for key, value in found.items()}
        # In the order in which the grid names them.
        return dict(sorted(found.items(), key=lambda each: [not each[0].startswith(path) for path in self.varied]))

    @property
    def values(self) -> Settings:
        """The planned values of the settings that the grid and the search vary, where the method has them."""
        found = {}
        for path in self.varied:
            with suppress(KeyError):
                found[path] = self.config.setting(path)
        return found

    @property
    def label(self) -> str:
        """These settings in words, without the lambdas, which have columns."""
        return in_words({path: value for path, value in self.settings.items() if path not in LAMBDAS})

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity columns of its rows (`rllib_scale.results.columns`), except the sweep's name."""
        final, steps, srr = self.final, self.final.env_steps_per_epoch, self.final.srr or NO_SRR
        return {
            "trial_id": self.planned_id if self.trained is None else final.trial_id,
            "format": IDENTITY_FORMAT,
            "method": final.method,
            "kind": "learned",
            "train_seed": final.seed,
            "lambda_decorrelation": srr.lambda_decorrelation,
            "lambda_kl": srr.lambda_kl,
            "overrides": self.label,
            "train_servers": final.env.cluster.num_servers,
            "epochs": final.stop_epochs,
            "env_steps": None if steps is None else final.stop_epochs * steps,
        }

    @cached_property
    def name(self) -> str:
        """Name of its folders, unique within a sweep."""
        return self.config.name

    @property
    def planned_id(self) -> str:
        """Hash of its settings as planned, with which its name ends: to hash them again takes time."""
        return self.name.rpartition("-")[2]


@dataclass(frozen=True)
class Problem:
    """A scenario at one number of servers, or a problem of a family of test problems.

    Attributes:
        scenario: its name.
        env: the problem.
        changes: in words what of its world differs from the scenario at that number of servers.
        seed: of the workloads of a family's problem; None: that of the evaluation.
    """

    scenario: str
    env: EnvConfig
    changes: str = ""
    seed: int | None = None

    @cached_property
    def id(self) -> str:
        """Digest of the world that is played."""
        return content_id(world_of(self.env))

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Columns of the rows of all its evaluations."""
        return {
            "scenario": self.scenario,
            "changes": self.changes,
            "problem": self.id,
            "test_servers": self.env.cluster.num_servers,
            "mask": self.env.episode.mask,
        }

    @property
    def of_family(self) -> bool:
        """Whether it is one of many problems of its scenario."""
        return self.seed is not None

    def seed_in(self, evaluation: EvaluationConfig) -> int:
        """Seed of its workloads."""
        return evaluation.seed if self.seed is None else self.seed


@dataclass(frozen=True)
class Asked:
    """How a policy is asked: the digest of a protocol, and in words what differs from the scenario's."""

    protocol: str
    asked: str = ""


@dataclass(frozen=True)
class EvaluationUnit:
    """One scheduler on one problem: a batch of episodes, played by one Ray task."""

    scheduler: str  # a rule or a given policy, pinned if it is user-defined, or the name of a trial
    identity: dict[str, Any]
    problem: Problem
    asked: Asked
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
        how = {"protocol": self.asked.protocol, "asked": self.asked.asked, "decision": self.decision}
        return self.identity | self.problem.columns | how | {"eval_seed": self.seed}

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
        how = [self.asked.protocol, self.decision, self.seed, self.episodes]
        return content_id([self.identity["trial_id"], self.problem.id, *how])


def rule_identity(spec: SchedulerSpec) -> dict[str, Any]:
    """The identity columns of the rows of a rule or a given policy: its name with the digest of its content."""
    name = str(spec)
    if isinstance(spec, PolicySpec):
        name = f"{spec.label}{DIGEST_SEPARATOR}{spec.content}" if spec.content else spec.label
    return {"trial_id": name, "format": IDENTITY_FORMAT, "method": spec.label, "kind": "heuristic", "overrides": ""}


@dataclass(frozen=True)
class Plan:
    """The trials and evaluations of a sweep.

    Attributes:
        sweep: the planned sweep.
        trials: in the order of methods, grid, points of the search, and seeds; equal ones stand once.
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

    def as_trained(self, trained: Mapping[str, tuple[TrialConfig, int]]) -> Plan:
        """The plan after a scheduler changed or stopped trials, which changes the identity of their rows.

        Args:
            trained: name of a finished trial -> its settings at the end and the epochs that it ran.
        """
        trials = tuple(t.as_trained(*trained[t.name]) if t.name in trained else t for t in self.trials)
        if trials == self.trials:
            return self
        units = [unit for unit in self.units if not unit.learned]
        return replace(self, trials=trials, units=(*units, *itertools.chain.from_iterable(map(self.units_of, trials))))

    def to_json(self) -> dict[str, Any]:
        """JSON of the manifest: settings that differ from the defaults; evaluations refer to trials and problems."""
        problems = list({id(unit.problem): unit.problem for unit in self.units}.values())
        number = {id(problem): index for index, problem in enumerate(problems)}
        bases = list({id(trial.base): trial.base for trial in self.trials}.values())
        base_number = {id(base): index for index, base in enumerate(bases)}
        return {
            "format": PLAN_FORMAT,
            "varied": list(self.trials[0].varied) if self.trials else [],
            "bases": [_without_defaults(base) for base in bases],
            "trainings": [
                {
                    "name": trial.name,
                    "epochs": trial.config.stop_epochs,
                    "columns": trial.identity,
                    "base": base_number[id(trial.base)],
                    "trial": _without_defaults(trial.config),
                }
                for trial in self.trials
            ],
            "problems": [
                {"scenario": problem.scenario, "env": _without_defaults(problem.env)}
                | ({"changes": problem.changes} if problem.changes else {})
                | ({} if problem.seed is None else {"seed": problem.seed})
                for problem in problems
            ],
            "evaluations": [
                {
                    "key": unit.key,
                    "scheduler": unit.scheduler,
                    "problem": number[id(unit.problem)],
                    "protocol": unit.asked.protocol,
                    "asked": unit.asked.asked,
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
            varied = tuple(content["varied"])
            bases = [
                build_model(TrialConfig, each, f"{source}: plan.bases.{index}")
                for index, each in enumerate(content["bases"])
            ]
            trials = [
                Trial(
                    build_model(TrialConfig, each["trial"], f"{source}: plan.trainings.{k}"),
                    bases[each["base"]],
                    varied,
                )
                for k, each in enumerate(content["trainings"])
            ]
            problems = [
                Problem(
                    each["scenario"],
                    build_model(EnvConfig, each["env"], f"{source}: plan.problems.{index}"),
                    each.get("changes", ""),
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
                    Asked(each["protocol"], each["asked"]),
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
