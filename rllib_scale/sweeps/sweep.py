"""A sweep in its results: its plan, which parts are finished, and the rows that it appends. Imports no ray."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from rllib_scale.config import TrialConfig, digest
from rllib_scale.config.pinned import shown
from rllib_scale.config.plan import EvaluationUnit, Plan, Trial, as_trained, telling, training_row
from rllib_scale.config.search import SearchConfig
from rllib_scale.errors import UserError, counted
from rllib_scale.results import dataset
from rllib_scale.results.status import finished_trainings, published_policy
from rllib_scale.results.storage import AT_ONCE, Location
from rllib_scale.results.tables import is_own, open_folder
from rllib_scale.sweeps.checkpoints import Checkpoint, reading
from rllib_scale.sweeps.history import SETTINGS, history, measured, settings_at_end
from rllib_scale.zoo import DESCRIPTION, POLICY_FILES

SHOWN_TIES = 4
"""Settings with the same score that `Sweep.best` names; it counts the others."""


class Sweep:
    """A planned sweep and its results, which this process alone writes.

    `open` reads once which parts are finished; later the object adds those that this process finishes.

    Args:
        plan: the trainings and evaluations.
        home: the results folder, visible to every node; `open` creates it.
        say: receives lines of progress.

    Attributes:
        tune_folder: Tune's folder in it.
        rows: appends to its tables.
    """

    def __init__(self, plan: Plan, home: Location | Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.config = plan.sweep
        self.search = self.config.search or SearchConfig()
        place = Location(str(home))
        self.home = place if place.local is None else Location(str(place.local))
        self.say = say
        self.tune_folder = self.home / "trials"
        self.rows = dataset.Rows(self.home)
        self._of_name = {trial.name: trial for trial in plan.trials}
        self._finished: dict[str, dict[str, Any]] = {}  # their rows of `trainings`
        self._stopped: dict[str, int] = {}
        self._evaluated: set[str] = set()
        self._measured: set[str] = set()
        self._described: set[str] = set()  # schedulers whose row is written

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Its trainings."""
        return self.plan.trials

    @property
    def folder(self) -> Path:
        """A folder on this machine for the files of trackers: the results, or one of the sweep's name."""
        return self.home.local or Path("results").absolute() / self.config.name

    def open(self) -> bool:
        """Create or reopen the results, and read which parts are finished; returns whether this account created them.

        Raises:
            UserError: they are of another sweep, hold other files, or cannot be written.
        """
        content = self.config.written()
        created = open_folder(self.home, self.config.name, content, digest(content), self.plan.to_json())
        self._write_dimensions()
        self._finished = finished_trainings(self.home)
        self._evaluated = dataset.units(self.home)
        self._measured = dataset.units(self.home, "features")
        return is_own(str(self.home), created)

    def _write_dimensions(self) -> None:
        """Write the planned rows of dimensions that are missing, before any row that names them.

        The settings of a member of a population, and those that Optuna suggests, are known at the end of the training.
        """
        for table, rows in self.plan.dimensions.items():
            there, key = dataset.keys(self.home, table), dataset.TABLES[table].key
            new = [row for row in rows if tuple(row[name] for name in key) not in there]
            if table == "schedulers":
                self._described = {scheduler for (scheduler,) in there}
                new += self._undescribed({t.planned_id: t.config for t in self.trials if not t.config.population})
            if new:
                self.rows.write(table, pd.DataFrame(new))

    def _undescribed(self, trainings: Mapping[str, TrialConfig]) -> list[dict[str, Any]]:
        """Missing rows of `schedulers` of some trainings, by id; the caller writes them next."""
        rows = [training_row(name, trainings[name]) for name in trainings if name not in self._described]
        self._described |= trainings.keys()
        return rows

    def is_complete(self) -> bool:
        """Whether all trainings and evaluations are finished."""
        own = [unit for unit in self.plan.units if not unit.learned]
        return all(map(self.is_finished, self.trials)) and all(
            map(self.is_evaluated, [*own, *(unit for trial in self.trials for unit in self.units_of(trial.name))])
        )

    def save(self) -> None:
        """Append the rows that have waited long enough; a store that refuses them is asked again later.

        Raises:
            UserError: the results are gone, or cannot be written on this machine.
        """
        if not self.rows.is_due:
            return
        try:
            self.rows.flush()
        except UserError as error:
            if self.home.local is not None:
                raise
            self.say(f"Rows are kept in memory for now: {error}")

    def close(self) -> None:
        """Append all pending rows.

        Raises:
            UserError: they cannot be written; what they say is done again by the next run.
        """
        self.rows.flush()

    # ------------------------------------------------------------------ trainings

    def trial(self, name: str) -> Trial:
        """The training of that name."""
        return self._of_name[name]

    def curve(self, trial: Trial) -> list[dict[str, Any]]:
        """Epochs, env steps and metric of a finished trial, with its last settings; empty for an unfinished one."""
        return self._curves.get(trial.name, [])

    @cached_property
    def _curves(self) -> dict[str, list[dict[str, Any]]]:
        columns = ["scheduler", "epoch", "env_steps", *self.search.metrics]
        frame = dataset.read(self.home, "training", columns).sort_values("epoch")
        rows = {str(scheduler): dataset.records(own) for scheduler, own in frame.groupby("scheduler")}
        curves = {name: rows.get(finished["scheduler"], []) for name, finished in self._finished.items()}
        for change in dataset.records(dataset.read(self.home, "history").sort_values("epoch")):
            if curve := curves.get(change["trial"]):
                curve[-1].setdefault(SETTINGS, {})[change["setting"]] = json.loads(change["value"])
        return curves

    def note_stop(self, name: str, epoch: int) -> None:
        """Note that ASHA stopped a training for good after an epoch, before its policy is published."""
        self._stopped[name] = epoch

    def target_epochs(self, trial: Trial) -> int:
        """Epochs of the finished trial: those of its config, or fewer if ASHA stopped it."""
        finished = self._finished.get(trial.name)
        if self.search.scheduler == "asha" and finished is not None and finished["stopped"]:
            return int(finished["epochs"])
        return self._stopped.get(trial.name, trial.config.stop_epochs)

    def is_finished(self, trial: Trial) -> bool:
        """Whether the policy of a trial is published."""
        finished = self._finished.get(trial.name)
        return finished is not None and bool(finished["epochs"] >= self.target_epochs(trial))

    def publish(self, trial: Trial, checkpoint: Checkpoint | None) -> bool:
        """Copy the policy of a finished training to the results; returns whether the training is finished.

        Args:
            trial: the training.
            checkpoint: its newest one, if there is one.
        """
        if checkpoint is None or checkpoint.epoch < self.target_epochs(trial):
            return False
        with reading(checkpoint) as folder:
            files = {name: (folder / "policy" / name).read_bytes() for name in POLICY_FILES}
            curve = json.loads((folder / "curve.json").read_text(encoding="utf-8"))
        self._write_policy(trial.name, files)
        ended = _ended(files)
        scheduler = ended.trial_id
        self.rows.add("schedulers", self._undescribed({scheduler: ended}))
        self.rows.add("history", history(curve, trial.name))
        self.rows.add("training", [row | {"scheduler": scheduler} for row in measured(curve)])
        self._add_training(trial.name, ended, files, curve[-1])
        if self.config.search is not None:
            self._curves[trial.name] = curve
        self.save()
        return True

    def reuse(self, others: Sequence[Location]) -> int:
        """Take finished trainings of the same configs from other results; returns how many.

        Raises:
            UserError: they cannot be read, or the results cannot be written.
        """
        before = len(self._finished)
        for home in others:
            found = finished_trainings(home)
            wanted = [
                trial
                for trial in self.trials
                if not self.is_finished(trial)
                and trial.name in found
                and found[trial.name]["epochs"] >= trial.config.stop_epochs
            ]
            if wanted:
                self._take(home, {trial.name: trial for trial in wanted})
        return len(self._finished) - before

    def _take(self, home: Location, taken: Mapping[str, Trial]) -> None:
        """Copy policies and curves. `taken`: name -> trial."""

        def copy(name: str) -> dict[str, bytes]:
            files = published_policy(home, name)
            self._write_policy(name, files)
            return files

        with ThreadPoolExecutor(AT_ONCE) as pool:
            files = dict(zip(taken, pool.map(copy, taken), strict=True))
        ended = {name: _ended(files[name]) for name in taken}
        ids = {name: config.trial_id for name, config in ended.items()}
        described = pd.DataFrame(self._undescribed({ids[name]: config for name, config in ended.items()}))
        changes = dataset.read(home, "history", rows=pc.field("trial").isin([*taken]))
        curves = dataset.read(home, "training", rows=pc.field("scheduler").isin([*ids.values()]))
        for table, rows in (("schedulers", described), ("history", changes), ("training", curves)):
            if len(rows):
                self.rows.write(table, rows)
        last = {row["scheduler"]: row for row in dataset.records(curves.sort_values("epoch"))}
        for name, config in ended.items():
            self._add_training(name, config, files[name], last.get(ids[name], {}))
        self.close()

    def _write_policy(self, name: str, files: Mapping[str, bytes]) -> None:
        for file in POLICY_FILES:
            (self.home / "policies" / name / file).write(files[file])

    def _add_training(self, name: str, ended: TrialConfig, files: Mapping[str, bytes], last: Mapping[str, Any]) -> None:
        """Add the row that says that a training is finished; its policy is written and its curve is added."""
        row = {"name": name, "scheduler": ended.trial_id, "epochs": ended.stop_epochs, "stopped": name in self._stopped}
        row |= {"published_s": time.time(), "policy_bytes": sum(map(len, files.values()))}
        row |= {column: last.get(column) for column in ("episode_return", "response_mean_s")}
        self.rows.add("trainings", [row])
        self._finished[name] = row

    # ------------------------------------------------------------------ search

    def best(self) -> str | None:
        """One line about the best settings of a search; None without one, or if the problems of its trainings differ.

        The settings are those at the end of a training: PBT changes them on the way. The score of a training is the
        mean over its last epochs, and that of settings the mean over their seeds. Evaluation episodes do not count:
        choosing by them would bias their results.
        """
        problems = [(trial.config.env, trial.config.algorithm.problems) for trial in self.trials]
        if self.config.search is None or any(problem != problems[0] for problem in problems):
            return None
        of_settings: dict[str, list[Trial]] = {}
        at_end = [settings_at_end(self.curve(trial)) for trial in self.trials]
        differing = telling([trial.config for trial in self.trials], at_end)
        for trial, settings in zip(self.trials, differing, strict=True):
            said = ", ".join([trial.config.method, *(f"{path}={shown(value)}" for path, value in settings.items())])
            finished, whole = self._finished.get(trial.name), of_settings.setdefault(said, [])
            whole += [trial] * (finished is None or not finished["stopped"])
        scores = {said: self._mean_scores(whole) for said, whole in of_settings.items()}
        best = self.search.best(scores)
        if not best or len(scores) == 1:
            return None

        def score(said: str) -> str:
            return ", ".join(
                f"{name} {value:.4g}" for name, value in zip(self.search.metrics, scores[said], strict=True)
            )

        more = [f"{len(best) - SHOWN_TIES} more"] if len(best) > SHOWN_TIES else []
        seeds = max(len(of_settings[said]) for said in best)
        mean = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
        if len(self.search.metrics) > 1:
            found = "; ".join([*(f"{said}: {score(said)}" for said in best[:SHOWN_TIES]), *more])
            return f"best in training, {counted(len(best), 'setting')} that no other beats in all: {found} ({mean})"
        tie = f", a tie of {len(best)} settings" if len(best) > 1 else ""
        return f"best in training{tie}: {'; '.join([*best[:SHOWN_TIES], *more])}: {score(best[0])} ({mean})"

    def _mean_scores(self, trials: list[Trial]) -> list[float]:
        """The score by each metric, the mean over trainings."""
        scores = [self.search.scores(self.curve(trial)).values() for trial in trials]
        return [sum(values) / len(values) for values in zip(*scores, strict=True)] or [math.nan] * len(
            self.search.metrics
        )

    # ------------------------------------------------------------------ evaluations

    def units_of(self, name: str) -> list[EvaluationUnit]:
        """The evaluations of the policy of a finished training."""
        return self.plan.units_of(replace(self._of_name[name], trained=self._finished[name]["scheduler"]))

    def is_evaluated(self, unit: EvaluationUnit) -> bool:
        """Whether the rows of a unit, and its feature statistics if planned, are written."""
        return unit.key in self._evaluated and (not unit.features or unit.key in self._measured)

    def add_rows(
        self, unit: EvaluationUnit, episodes: Sequence[dict[str, Any]], features: dict[str, Any] | None
    ) -> None:
        """Add the rows of a finished unit, one for each episode, and that of its feature statistics."""
        shared = {"unit": unit.key} | unit.columns
        if features is not None:
            self.rows.add("features", [shared | features])
            self._measured.add(unit.key)
        self.rows.add("episodes", [shared | row for row in episodes])
        self._evaluated.add(unit.key)


def _ended(files: Mapping[str, bytes]) -> TrialConfig:
    """The settings of a training as its published policy says that it was trained."""
    description = json.loads(files[DESCRIPTION])
    return as_trained(TrialConfig.model_validate(description["trial"]), int(description["epochs"]))
