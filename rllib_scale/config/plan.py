"""The plan of a sweep: its trials and evaluations with their identities. Free of ray and torch.

`rllib_scale.sweeps.planning.make_plan` makes it. The manifest of a results folder holds it as JSON, from which `status`
and replays read it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rllib_scale.config import DecisionMode, EnvConfig, StopConfig, TrialConfig, TrialResources
from rllib_scale.config.identity import Settings, content_id, described, distinguishing, settings_in, world_of
from rllib_scale.config.schedulers import PluginSpec, PolicySpec, RuleSpec, SchedulerSpec, parse_scheduler
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError

PLAN_FORMAT = 3
"""Format of a plan in JSON."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One training of a sweep.

    Attributes:
        config: its settings. Their hash names its folders and decides what a resumed sweep skips.
        trained: its id as trained, where a scheduler has changed or stopped it; empty: as planned.
    """

    config: TrialConfig
    trained: str = ""

    @property
    def scheduler(self) -> str:
        """The id that its rows have."""
        return self.trained or self.planned_id

    @cached_property
    def name(self) -> str:
        """Name of its folders, unique within a sweep."""
        return self.config.name

    @property
    def planned_id(self) -> str:
        """Hash of its settings as planned, with which its name ends: to hash them again takes time."""
        return self.name.rpartition("-")[2]


def as_trained(config: TrialConfig, epochs: int) -> TrialConfig:
    """The settings of a training, as at its end, that may have ended after fewer epochs (ASHA)."""
    ended_early = 0 < epochs < config.stop_epochs
    return config.model_copy(update={"stop": StopConfig(epochs=epochs)}) if ended_early else config


def telling(configs: Sequence[TrialConfig], at_end: Sequence[Settings] = ()) -> list[Settings]:
    """Settings of each training that differ among those of its method, except the seed.

    Args:
        configs: the trainings as planned.
        at_end: settings, by their paths, that a scheduler or a search changed of each.
    """
    of_method: dict[str, dict[int, Settings]] = {}
    for k, (config, changed) in enumerate(zip(configs, at_end or [{}] * len(configs), strict=True)):
        own = settings_in(config.deciding(defaults=True)) | changed
        of_method.setdefault(config.method, {})[k] = {p: value for p, value in own.items() if p not in _UNTOLD}
    found = {k: settings for alike in of_method.values() for k, settings in distinguishing(alike).items()}
    return [found[k] for k in range(len(configs))]


_UNTOLD = ("seed", "population")


def training_row(scheduler: str, config: TrialConfig) -> Row:
    """The row of `schedulers` of a training, whose id takes time to compute."""
    return {"scheduler": scheduler, "kind": "training", "name": "", **described(config.deciding(defaults=True))}


def rule_row(spec: RuleSpec | PluginSpec) -> Row:
    """The row of `schedulers` of a rule, whose id is that of its name and parameters, and of a user's source."""
    if isinstance(spec, RuleSpec):
        settings = {"name": spec.name, **spec.parameters.model_dump(mode="json")}
    else:
        settings = {"name": spec.name, "arguments": spec.arguments, "source": spec.source}
    return {"scheduler": content_id(str(spec)), "kind": "rule", "name": spec.label, **described(settings)}


@dataclass(frozen=True)
class Problem:
    """A scenario at one number of servers, or a problem of a family of test problems.

    Attributes:
        scenario: its name.
        env: the problem.
        seed: of its workloads.
        family: kind of the family's problems; None: it is of none.
        number: in the family.
    """

    scenario: str
    env: EnvConfig
    seed: int
    family: str | None = None
    number: int | None = None

    @cached_property
    def id(self) -> str:
        """Digest of the world that is played."""
        return content_id(world_of(self.env))

    @property
    def row(self) -> Row:
        """Its row of `problems`."""
        origin = {"scenario": self.scenario, "family": self.family, "number": self.number}
        return {"problem": self.id, **origin, **described(world_of(self.env, defaults=True))}

    @property
    def of_family(self) -> bool:
        """Whether it is one of many problems of its scenario."""
        return self.family is not None


@dataclass(frozen=True)
class EvaluationUnit:
    """One scheduler on one problem: a batch of episodes, played by one Ray task.

    Attributes:
        name: of a trial; or a rule or a given policy, pinned if it is user-defined.
        scheduler: id.
        learned: whether the sweep trains the policy.
        problem: what is played.
        protocol: id of how the scheduler is asked.
        decision: how it decides.
        episodes: how many.
        features: whether the attention feature is measured, which rows do not depend on.
    """

    name: str
    scheduler: str
    learned: bool
    problem: Problem
    protocol: str
    decision: DecisionMode
    episodes: int
    features: bool = False

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return self.problem.scenario

    @property
    def env(self) -> EnvConfig:
        """The problem."""
        return self.problem.env

    @property
    def seed(self) -> int:
        """Seed of the workloads."""
        return self.problem.seed

    @property
    def columns(self) -> Row:
        """Columns shared by all its rows (`rllib_scale.results.columns.UNIT_COLUMNS`)."""
        how = {"protocol": self.protocol, "decision": self.decision, "eval_seed": self.seed}
        return {"scheduler": self.scheduler, "problem": self.problem.id, **how}

    @cached_property
    def spec(self) -> SchedulerSpec | None:
        """The rule or given policy; None if the sweep trains the policy."""
        return None if self.learned else parse_scheduler(self.name)

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
        return content_id([*self.columns.values(), self.episodes])


@dataclass(frozen=True)
class Plan:
    """The trials and evaluations of a sweep.

    Attributes:
        sweep: the planned sweep.
        trials: in the order of methods, grid, points of the search, and seeds; equal ones once.
        units: evaluations, rules and given policies first, then the policy of each trial.
        dimensions: rows of `problems`, `protocols` and, of rules and given policies, `schedulers`; a plan that is read
            from a manifest has none.
    """

    sweep: SweepConfig
    trials: tuple[Trial, ...]
    units: tuple[EvaluationUnit, ...]
    dimensions: Mapping[str, Sequence[Row]] = field(default_factory=dict, compare=False)

    def units_of(self, trial: Trial) -> list[EvaluationUnit]:
        """The evaluations of a trial's policy, with the id of the trial."""
        return [replace(unit, scheduler=trial.scheduler) for unit in self._units_by_training.get(trial.name, ())]

    @cached_property
    def _units_by_training(self) -> dict[str, list[EvaluationUnit]]:
        units: dict[str, list[EvaluationUnit]] = {}
        for unit in self.units:
            if unit.learned:
                units.setdefault(unit.name, []).append(unit)
        return units

    def as_trained(self, trained: Mapping[str, str]) -> Plan:
        """The plan after a scheduler changed or stopped trials, which changes the ids of their rows.

        Args:
            trained: name of a finished trial -> its id as trained.
        """
        trials = tuple(replace(t, trained=trained[t.name]) if t.name in trained else t for t in self.trials)
        units = [unit for unit in self.units if not unit.learned]
        return replace(self, trials=trials, units=(*units, *itertools.chain.from_iterable(map(self.units_of, trials))))

    def to_json(self) -> dict[str, Any]:
        """JSON of the manifest: settings that differ from the defaults; evaluations refer to trials and problems."""
        problems = list({id(unit.problem): unit.problem for unit in self.units}.values())
        number = {id(problem): index for index, problem in enumerate(problems)}
        return {
            "format": PLAN_FORMAT,
            "trainings": [
                {"name": trial.name, "epochs": trial.config.stop_epochs, "trial": _without_defaults(trial.config)}
                for trial in self.trials
            ],
            "problems": [
                {name: value for name, value in vars(problem).items() if name in _ORIGIN and value is not None}
                | {"env": _without_defaults(problem.env)}
                for problem in problems
            ],
            "evaluations": [
                {
                    "key": unit.key,
                    "name": unit.name,
                    "problem": number[id(unit.problem)],
                    "protocol": unit.protocol,
                    "decision": unit.decision,
                    "features": unit.features,
                    **({} if unit.learned else {"scheduler": unit.scheduler}),
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
                Trial(build_model(TrialConfig, each["trial"], f"{source}: plan.trainings.{k}"))
                for k, each in enumerate(content["trainings"])
            ]
            problems = [
                Problem(
                    env=build_model(EnvConfig, each["env"], f"{source}: plan.problems.{index}"),
                    **{"seed": sweep.evaluation.seed} | {name: each[name] for name in _ORIGIN if name in each},
                )
                for index, each in enumerate(content["problems"])
            ]
            ids = {trial.name: trial.planned_id for trial in trials}
            units = [
                EvaluationUnit(
                    each["name"],
                    ids[each["name"]] if learned else each["scheduler"],
                    learned,
                    problem,
                    each["protocol"],
                    each["decision"],
                    sweep.evaluation.episodes,
                    each["features"],
                )
                for each in content["evaluations"]
                for problem, learned in [(problems[each["problem"]], "scheduler" not in each)]
            ]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise UserError(f"{source}: plan: not readable ({type(error).__name__}: {error})") from None
        return cls(sweep, tuple(trials), tuple(units))


_ORIGIN = ("scenario", "family", "number", "seed")
"""Fields of a problem besides its settings."""


def training_steps(trials: Iterable[Trial]) -> int:
    """Decisions of all trials, without those of CMA-ES and REINFORCE."""
    return sum(trial.config.stop_epochs * (trial.config.env_steps_per_epoch or 0) for trial in trials)


def cpus_per_trial(resources: TrialResources) -> float:
    """CPUs of one training: those of its process, and one for each environment runner and remote learner."""
    return resources.cpus + resources.env_runners + resources.learners


def needs(trainings: Iterable[TrialResources]) -> str:
    """The CPUs that trainings need, in words.

    >>> needs([TrialResources()]), needs([TrialResources(), TrialResources(env_runners=2)])
    ('1 CPU', '1 to 3 CPUs')
    """
    cpus = sorted(map(cpus_per_trial, trainings))
    if cpus[0] == cpus[-1]:
        return f"{cpus[0]:g} CPU{'' if cpus[0] == 1 else 's'}"
    return f"{cpus[0]:g} to {cpus[-1]:g} CPUs"


def _without_defaults(model: TrialConfig | EnvConfig) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_defaults=True)
