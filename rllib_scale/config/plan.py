"""The trainings and evaluations that a sweep expands to. Free of ray and torch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllib_scale.config import DecisionMode, EnvConfig, TrialConfig, TrialResources, digest, identity
from rllib_scale.config.heuristics import information, spec_of
from rllib_scale.config.pinned import split
from rllib_scale.config.policies import names_policy, player_label, policy_folder
from rllib_scale.config.rounds import in_own_rounds
from rllib_scale.config.search import points
from rllib_scale.config.sweep import CELL_SECTIONS, TRAIN_SCENARIO, SweepConfig
from rllib_scale.config.trial import CELL_FORMAT
from rllib_scale.config.used_settings import UNUSED, used_settings
from rllib_scale.config.yaml_files import build_model, set_path
from rllib_scale.errors import UserError
from rllib_scale.plugins import MARK

Overrides = tuple[tuple[str, Any], ...]
"""Config path and value of each setting that a grid or a search gives a training."""
STOPPED = "stopped=asha"
"""In the label of a cell that a scheduler stopped: its rows are no rows of the whole training's."""


@dataclass(frozen=True)
class Cell:
    """One training of a sweep and the grid settings that tell it from the others."""

    trial: TrialConfig
    overrides: Overrides = ()
    stopped_epochs: int | None = None  # after which a scheduler stopped the training for good; None: it ran to its end

    @property
    def epochs(self) -> int:
        """Epochs that it trains, or trained where it was stopped early."""
        return self.stopped_epochs or self.trial.stop_epochs

    @property
    def label(self) -> str:
        """Grid settings beside the lambdas, which have columns of their own; and whether it was stopped early."""
        parts = [f"{path}={_plain(value)}" for path, value in _apart(self.overrides) if not _is_lambda(path)]
        return "; ".join(parts + [STOPPED] * (self.stopped_epochs is not None))

    @property
    def identity(self) -> dict[str, Any]:
        """The identity columns of this cell's rows (`rllib_scale.results.tables`), but for the sweep's name."""
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


@dataclass(frozen=True)
class EvaluationUnit:
    """One scheduler on one problem: the episodes of one batch, the unit that is spread over Ray tasks."""

    scheduler: str  # a heuristic's name, or a given policy's, pinned where it is of one's own; or a policy's trial name
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
    def code(self) -> list[str]:
        """What has to be imported to play it, pinned names of code of one's own."""
        return [name for name in (self.scheduler, self.env.workload.generator) if name and MARK in name]

    @property
    def information(self) -> str:
        """What the scheduler is told, the column of that name; it follows from the others."""
        if self.policy is not None:
            method = json.loads((self.policy / "policy.json").read_text(encoding="utf-8"))["method"]
            return information(method, self.env.information)
        sees = "tasks" if self.learned else spec_of(self.scheduler).sees
        return information(str(self.identity["method"]), self.env.information, sees)

    @property
    def policy(self) -> Path | None:
        """Folder of the policy that it was given by name; None: a rule, or a policy of the sweep's own.

        Raises:
            UserError: it is missing or has changed.
        """
        if self.learned or not names_policy(self.scheduler):
            return None
        return policy_folder(self.scheduler, "evaluation.heuristics")

    @property
    def key(self) -> str:
        """Hash of all that decides its rows."""
        own = {"source": self.scheduler} if MARK in self.scheduler else {}  # with the digest of its source
        if not self.learned and names_policy(self.scheduler):
            own = {"policy": split(self.scheduler)[1]}  # of its description, which holds that of its weights
        problem = {"env": identity(self.env), "episodes": self.episodes, "format": CELL_FORMAT}
        return digest(self.columns | problem | own)


def expand(sweep: SweepConfig, source: str) -> list[Cell]:
    """All trainings of a sweep, in the order methods, grid, points of its search, seeds; equal ones once.

    Args:
        sweep: what to expand.
        source: where it came from, for messages.

    Raises:
        UserError: a value is not valid at its path.
    """
    base = sweep.model_dump(mode="json", include=set(CELL_SECTIONS))
    base["resources"] = sweep.resources.model_dump(include=set(TrialResources.model_fields))
    if sweep.search is not None and sweep.search.scheduler == "pbt":
        # Who trains beside it decides what becomes of a member: another population, another cell.
        sections = {name: identity(getattr(sweep, name)) for name in CELL_SECTIONS}
        base["population"] = digest(sections | sweep.model_dump(mode="json", include={"methods", "seeds", "search"}))
    cells: dict[str, Cell] = {}
    for method, values, point, seed in itertools.product(
        sweep.methods, itertools.product(*sweep.grid.values()), points(sweep.search), sweep.seeds
    ):
        overrides = _used(method, base, (*zip(sweep.grid, values, strict=True), *point.items()))
        data = json.loads(json.dumps(base)) | {"method": method, "seed": seed}
        for path, value in overrides:
            set_path(data, path, value)
        trial = build_model(TrialConfig, data, f"{source}: grid", foreign=True)  # what the sweep imports, it has
        cells.setdefault(trial.cell, Cell(trial, overrides))
    return list(cells.values())


def _used(method: str, base: Mapping[str, Any], overrides: Overrides) -> Overrides:
    """What of the settings of a grid and a search a method uses."""

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


def evaluation_units(sweep: SweepConfig, cells: list[Cell]) -> list[EvaluationUnit]:
    """All evaluations of a sweep: heuristics first, then each cell's policy at every scale it can run at.

    Raises:
        UserError: a policy that reserves would be evaluated where that is invalid.
    """
    units: dict[str, EvaluationUnit] = {}
    # Without methods the problems of its grid are still there, those of the trainings that any method would have.
    posed = cells if sweep.methods else expand(sweep.model_copy(update={"methods": ("crossattn",)}), sweep.name)
    for name, cell in itertools.chain(
        itertools.product(sweep.evaluation.heuristics, posed), ((None, cell) for cell in cells)
    ):
        for label, env in _problems(sweep, cell):
            if name is None:
                in_own_rounds(cell.trial.name, cell.trial.env, env)
                if not cell.trial.spec.any_scale and env.cluster.num_slots != cell.trial.env.cluster.num_slots:
                    continue  # an MLP policy is fixed to the number of servers it was trained at
                scheduler, identity, decisions = cell.trial.name, cell.identity, sweep.evaluation.decisions
                if cell.trial.spec.network is None:
                    decisions = ("argmax",)  # prices are no probabilities
            else:
                own = [f"{p}={_plain(v)}" for p, v in cell.overrides if p.startswith("env.")]
                own = own if label == TRAIN_SCENARIO else []
                shown = player_label(name)
                identity = {"cell": "@".join([shown, *own]), "method": shown, "kind": "heuristic"}
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
                    features=name is None and not cell.trial.spec.dispatches and sweep.evaluation.features,
                )
                units.setdefault(unit.key, unit)
    return list(units.values())


def _problems(sweep: SweepConfig, cell: Cell) -> Iterable[tuple[str, EnvConfig]]:
    for label in sweep.evaluated_scenarios:
        problem = cell.trial.env if label == TRAIN_SCENARIO else sweep.problem(label)
        for servers, mask in itertools.product(
            sweep.evaluation.scales, sweep.evaluation.masks or (problem.episode.mask,)
        ):
            # A cell's own problem draws from the sessions that it trains on; an evaluation must not.
            try:
                at_scale = problem.at_scale(servers)
            except ValueError as error:
                raise UserError(f"evaluation.scales {servers}: scenario {label}: {error}") from None
            yield label, at_scale.with_mask(mask).with_part("test")


def training_steps(cells: list[Cell]) -> int:
    """Decisions to train on in all, but for searches."""
    return sum(cell.trial.stop_epochs * (cell.trial.env_steps_per_epoch or 0) for cell in cells)


def cpus_per_trial(resources: TrialResources) -> float:
    """CPUs one training occupies: its learner and one for each environment runner."""
    return resources.cpus + resources.env_runners


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
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
