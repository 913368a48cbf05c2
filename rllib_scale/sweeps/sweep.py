"""A sweep in its results folder: its plan, which parts are finished, and its tables. Imports no ray."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rllib_scale.config import digest
from rllib_scale.config.pinned import without_places
from rllib_scale.config.plan import EvaluationUnit, Plan, Trial
from rllib_scale.config.search import SearchConfig, recent
from rllib_scale.config.sweep import TRIAL_SECTIONS
from rllib_scale.errors import UserError
from rllib_scale.files import write_json
from rllib_scale.results.columns import EPISODE_COLUMNS, EPISODE_KEY, FEATURE_COLUMNS, FEATURE_KEY, TRAINING_COLUMNS
from rllib_scale.results.status import as_trained, published_epochs, stopped_at
from rllib_scale.results.storage import Location, Mirror
from rllib_scale.results.tables import (
    check_there,
    open_folder,
    read_manifest,
    read_table,
    read_tables,
    typed,
    write_table,
)
from rllib_scale.results.trust import is_own, remember
from rllib_scale.sweeps.checkpoints import epoch_of, latest_checkpoint, publish
from rllib_scale.sweeps.history import measured, settings_after

SHOWN_TIES = 4
"""Settings with the same score that `Sweep.best` names; it counts the others."""


class Sweep:
    """A planned sweep and its results folder.

    Each question about finished parts reads the folder: the object caches nothing that a file says.

    Args:
        plan: the trainings and evaluations.
        folder: results folder; `open` creates it.
        say: receives lines of progress.
        mirror: copies `folder` to a bucket, which also receives the checkpoints; None if every node sees `folder`.

    Attributes:
        plan: with the epochs of trainings that ASHA stopped, as of the last `refresh`.
        home: the results folder as every node sees it.
        trials: Tune's folder in it.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        say: Callable[[str], None],
        mirror: Mirror | None = None,
    ) -> None:
        self.planned = self.plan = plan
        self.config = plan.sweep
        self.search = self.config.search or SearchConfig()
        self.folder = folder.absolute()
        self.say = say
        self.mirror = mirror
        self.home = mirror.storage if mirror else Location(str(self.folder))
        self.tune_folder = self.home / "trials"
        self._of_name = {trial.name: trial for trial in plan.trials}

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Its trainings."""
        return self.plan.trials

    def open(self) -> bool:
        """Create or reopen the results folder; returns whether this account created it.

        Raises:
            UserError: it belongs to another sweep or to other settings that its rows do not name, holds other files,
                or cannot be written.
        """
        content, manifest = self.config.model_dump(mode="json"), read_manifest(self.folder)
        if manifest is not None and manifest["sweep"] == self.config.name:
            self._refuse_other_settings(manifest["config"], content)
        created = open_folder(self.folder, self.config.name, content, digest(content), self.planned.to_json())
        if manifest is None:
            remember(str(self.home), created)
        if self.mirror:
            self.mirror.save()  # refuses a bucket that cannot be written before anything is trained
        return is_own(str(self.home), created)

    def refresh(self) -> None:
        """Read from the folder which trainings ASHA stopped."""
        self.plan = as_trained(self.folder, self.planned)

    def is_complete(self) -> bool:
        """Whether all trainings and evaluations are finished and the tables hold their rows."""
        manifest = read_manifest(self.folder)
        if manifest is None or manifest.get("tables") is None or not (self.folder / "episodes.parquet").is_file():
            return False
        self.refresh()
        return (
            manifest["tables"] == self._tables_digest()
            and all(map(self.is_finished, self.plan.trials))
            and all(map(self.is_evaluated, self.plan.units))
        )

    def save(self) -> None:
        """Copy new files to the bucket, if there is one; the next call retries what fails."""
        try:
            if self.mirror:
                self.mirror.save()
        except UserError as error:
            self.say(f"Copy postponed: {error}")

    def _refuse_other_settings(self, earlier: dict[str, Any], content: dict[str, Any]) -> None:
        """Refuse rows of two values of a setting that rows do not name."""
        for path, old, new in _differing("", _unnamed(earlier), _unnamed(content)):
            raise UserError(
                f"{self.folder}: its rows are of {path} {json.dumps(old)}, not {json.dumps(new)}; give the sweep "
                "another name or another --results"
            )

    # ------------------------------------------------------------------ trainings

    def trial(self, name: str) -> Trial:
        """The training of that name."""
        return self._of_name[name]

    def policy(self, name: str) -> Path:
        """Folder of the policy of a finished training."""
        return self.folder / "policies" / name

    def curve(self, trial: Trial) -> list[dict[str, Any]]:
        """The training curve of a finished trial; empty for an unfinished one."""
        path = self.policy(trial.name) / "curve.json"
        return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []

    def note_stop(self, name: str, epoch: int) -> None:
        """Note that ASHA stopped a training for good after an epoch."""
        write_json(self.folder / "stopped" / f"{name}.json", {"epoch": epoch})
        self.save()

    def target_epochs(self, trial: Trial) -> int:
        """Epochs of the finished trial: those of its config, or fewer if ASHA stopped it."""
        stopped = stopped_at(self.folder, trial.name) if self.search.scheduler == "asha" else None
        return trial.config.stop_epochs if stopped is None else stopped

    def is_finished(self, trial: Trial) -> bool:
        """Whether the policy of a trial is published."""
        return published_epochs(self.policy(trial.name)) >= self.target_epochs(trial)

    def checkpoint(self, trial: Trial) -> Location | None:
        """The complete checkpoint of a trial with the highest epoch."""
        return latest_checkpoint(self.tune_folder, trial.name)

    def publish(self, trial: Trial) -> bool:
        """Copy the policy of a finished training to the results; returns whether the training is finished."""
        checkpoint = self.checkpoint(trial)
        if checkpoint is None or epoch_of(checkpoint) < self.target_epochs(trial):
            return False
        publish(checkpoint, self.policy(trial.name))
        self.save()
        return True

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
        for trial in self.trials:
            settings = settings_after(trial, self.curve(trial)).items()
            shown = ", ".join([trial.config.method, *(f"{path}={value}" for path, value in settings)])
            whole = of_settings.setdefault(shown, [])
            whole += [trial] * (trial.stopped_epochs is None)
        scores = {shown: self._mean_score(whole) for shown, whole in of_settings.items()}
        best = self.search.best(scores)
        if not best or len(scores) == 1:
            return None
        tie = f", a tie of {len(best)} settings" if len(best) > 1 else ""
        more = [f"{len(best) - SHOWN_TIES} more"] if len(best) > SHOWN_TIES else []
        seeds = max(len(of_settings[shown]) for shown in best)
        mean = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
        score = f"{self.search.metric} {scores[best[0]]:.4g}"
        return f"best in training{tie}: {'; '.join([*best[:SHOWN_TIES], *more])}: {score} ({mean})"

    def _mean_score(self, trials: list[Trial]) -> float:
        scores = [recent(self.curve(trial), self.search.metric, self.search.window) for trial in trials]
        return sum(scores) / len(scores) if scores else math.nan

    # ------------------------------------------------------------------ evaluations and tables

    def units_of(self, name: str) -> list[EvaluationUnit]:
        """The evaluations of the policy of a finished training."""
        return self.planned.units_of(self._of_name[name].as_trained(published_epochs(self.policy(name))))

    def rows_file(self, unit: EvaluationUnit) -> Path:
        """Rows of a finished unit, one for each episode."""
        return self.folder / "evaluations" / f"{unit.key}.parquet"

    def features_file(self, unit: EvaluationUnit) -> Path:
        """The row of feature statistics of a finished unit."""
        return self.folder / "features" / f"{unit.key}.parquet"

    def is_evaluated(self, unit: EvaluationUnit) -> bool:
        """Whether the rows of a unit, and its feature statistics if planned, are there."""
        return self.rows_file(unit).is_file() and (not unit.features or self.features_file(unit).is_file())

    def write_tables(self) -> None:
        """Write the tables of the finished parts.

        Raises:
            UserError: a table cannot be written, or the results folder is gone.
        """
        check_there(self.folder)
        self.refresh()
        self._write_training()
        self._write_units()
        self._write_manifest()

    def _write_training(self) -> None:
        rows: list[dict[str, Any]] = []
        for trial in self.trials:
            identity = {k: v for k, v in trial.identity.items() if k in TRAINING_COLUMNS and k != "env_steps"}
            rows += [row | {"sweep": self.config.name, **identity} for row in measured(self.curve(trial))]
        frames = [typed(pd.DataFrame(rows), TRAINING_COLUMNS)]
        if (self.folder / "training.parquet").is_file():
            earlier = read_table(self.folder / "training.parquet", TRAINING_COLUMNS)
            frames.append(earlier[~earlier["trial_id"].isin({trial.identity["trial_id"] for trial in self.trials})])
        write_table(self.folder / "training.parquet", typed(pd.concat(frames, ignore_index=True), TRAINING_COLUMNS))

    def _write_units(self) -> None:
        """Write the rows of all finished units as one table, and their feature statistics as another.

        Rows of earlier runs with other seeds, grids or evaluations stay; the current plan wins for the same key.
        """
        for name, folder, columns, key, file_of in (
            ("episodes", "evaluations", EPISODE_COLUMNS, EPISODE_KEY, self.rows_file),
            ("features", "features", FEATURE_COLUMNS, FEATURE_KEY, self.features_file),
        ):
            own = sorted({file_of(unit) for unit in self.plan.units})
            files = dict.fromkeys([*own, *sorted((self.folder / folder).glob("*.parquet"))])
            rows = read_tables([path for path in files if path.is_file()], columns).assign(sweep=self.config.name)
            table = typed(rows.drop_duplicates(list(key)), columns)
            write_table(self.folder / f"{name}.parquet", table.sort_values(list(key), ignore_index=True))

    def _write_manifest(self) -> None:
        """Note in the manifest which plan the tables hold completely."""
        manifest = read_manifest(self.folder) or {}
        whole = all(map(self.is_finished, self.trials)) and all(map(self.is_evaluated, self.plan.units))
        tables = self._tables_digest() if whole else None
        write_json(self.folder / "manifest.json", manifest | {"tables": tables})

    def _tables_digest(self) -> str:
        return digest([[trial.name for trial in self.trials], [[unit.key, unit.features] for unit in self.plan.units]])


def _unnamed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a sweep that affect its rows and that no column names."""
    population = (config.get("search") or {}).get("scheduler") == "pbt"  # PBT results depend on all members
    sections = {name: config[name] for name in ("scenario", *TRIAL_SECTIONS, "custom_scenarios") if name in config}
    resources = config.get("resources", {})
    chosen = {name: resources[name] for name in ("env_runners", "learners") if name in resources}
    members = {name: config.get(name) if population else None for name in ("search", "methods", "seeds")}
    return dict(without_places(sections | {"resources": chosen} | members))


def _differing(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Config path and both values of each difference; settings that only one of them has are skipped."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in (name for name in one if name in other):
            yield from _differing(f"{path}.{name}".lstrip("."), one[name], other[name])
    elif one != other:
        yield path, one, other
