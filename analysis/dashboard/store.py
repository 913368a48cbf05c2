"""The contents of a results folder for the dashboard, kept up to date: only changed files are read again.

No file raises an error here: files that cannot be read are left out, and a note names them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from rllib_scale.errors import UserError
from rllib_scale.results import status
from rllib_scale.results import tables as results
from rllib_scale.results.status import Training

from ..load import TRAINING_KEY, labelled, read_rows
from ..trainings import trainings_of
from .runs import RULE, runs

Stamp = tuple[int, int]
"""Modification time [ns] and size of a file; either changes with the file."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The contents of a results folder at one time.

    Attributes:
        folder: the results folder.
        sweep: its name; without a manifest the folder's name.
        episodes, curves: as `Results.episodes` and `.training`, with those of running sweeps and trainings.
        trainings: each with its state.
        runs: the table of `runs.runs`.
        notes: one sentence for each file or row that could not be used.
        stamp: changes with every file of the folder.
    """

    folder: Path
    sweep: str
    episodes: pd.DataFrame
    curves: pd.DataFrame
    trainings: tuple[Training, ...]
    runs: pd.DataFrame
    notes: tuple[str, ...]
    stamp: int

    @property
    def states(self) -> Counter[str]:
        """State -> number of trainings; those with an evaluation alone are finished."""
        return Counter(self.runs.loc[self.runs["state"] != RULE, "state"])

    @property
    def rules(self) -> int:
        """The number of runs that are rules."""
        return int((self.runs["state"] == RULE).sum())


@dataclass
class Store:
    """Reads a results folder repeatedly. Safe to share between threads.

    Args:
        folder: of a sweep or a reproduction, running or finished; may be empty.
        clock: returns the time [Unix s].
    """

    folder: Path
    clock: Callable[[], float] = time.time
    _kept: dict[Path, tuple[Stamp, Any]] = field(default_factory=dict)
    _before: dict[Path, tuple[Stamp, Any]] = field(default_factory=dict)
    _last: Snapshot | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stamp(self) -> int:
        """A number that changes with every file of the folder; far cheaper than a snapshot."""
        states = [(training.name, training.state, training.updated_s) for training in self._trainings()[0]]
        names = ("manifest.json", "training.parquet", "episodes.parquet", "evaluations/*.parquet")
        paths = sorted(path for home in status.homes(self.folder) for name in names for path in home.glob(name))
        return hash((tuple((path, _stamp(path)) for path in paths), tuple(states)))

    def snapshot(self) -> Snapshot:
        """The folder as it is now."""
        with self._lock:
            stamp = self.stamp()
            if self._last is None or self._last.stamp != stamp:
                self._last = self._read(stamp)
            return self._last

    def _trainings(self) -> tuple[list[Training], list[str]]:
        return trainings_of(self.folder, self.clock())

    def _read(self, stamp: int) -> Snapshot:
        self._before, self._kept = self._kept, {}  # forgets files that are gone
        notes: list[str] = []
        sweep = self.folder.name
        try:
            manifest = results.read_manifest(self.folder)
            if manifest is None:
                notes.append(f"{self.folder}: no manifest.json yet; a sweep writes it first.")
            else:
                sweep = str(manifest.get("sweep", sweep))
        except UserError:
            pass  # `_trainings` adds a note
        trainings, told = self._trainings()
        notes += told
        episodes = self._episodes(notes)
        curves, epochs = self._curves(trainings, notes)
        episodes, curves = labelled(episodes, curves, notes)
        table = runs(trainings, episodes, epochs)
        return Snapshot(self.folder, sweep, episodes, curves, tuple(trainings), table, tuple(notes), stamp)

    def _episodes(self, notes: list[str]) -> pd.DataFrame:
        """The rows of episodes.parquet and of units that are newer; the newest row of each key."""
        read = partial(read_rows, columns=results.EPISODE_COLUMNS, key=results.EPISODE_KEY)
        tables: list[tuple[int, Path, pd.DataFrame]] = []
        joined = 0  # age of a reproduction's joined table, which holds all older rows of its parts
        for home in status.homes(self.folder):
            path, since = home / "episodes.parquet", joined
            if path.is_file() and (age := _stamp(path)[0]) >= joined:
                rows, told = self._read_once(path, read, notes, "Its rows are missing here") or (None, [])
                notes += told
                if rows is not None:
                    tables.append((age, path, rows))
                    since = age
            for unit in home.glob("evaluations/*.parquet"):
                if (age := _stamp(unit)[0]) > since:
                    rows, _ = self._read_once(unit, read, notes, "Its rows are missing here") or (None, [])
                    tables += [(age, unit, rows)] if rows is not None else []
            joined = since if home == self.folder else joined
        tables.sort(key=lambda table: table[:2])
        frames = [results.typed(pd.DataFrame(), results.EPISODE_COLUMNS), *(table for *_, table in tables)]
        every = pd.concat(frames, ignore_index=True)
        return every.drop_duplicates(list(results.EPISODE_KEY), keep="last", ignore_index=True)

    def _curves(self, trainings: Iterable[Training], notes: list[str]) -> tuple[pd.DataFrame, dict[str, int]]:
        """The rows of training.parquet, and the curves of trainings that it does not hold yet."""
        frames = [results.typed(pd.DataFrame(), results.TRAINING_COLUMNS)]
        read = partial(results.read_table, columns=results.TRAINING_COLUMNS)
        for path in (home / "training.parquet" for home in status.homes(self.folder)):
            if path.is_file():
                table = self._read_once(path, read, notes, "Training curves come from the policies alone")
                frames += [table] if table is not None else []
        written = {
            trial_id: int(last) for trial_id, last in pd.concat(frames).groupby("trial_id")["epoch"].max().items()
        }
        epochs: dict[str, int] = {}
        for training in trainings:
            trial_id = training.identity["trial_id"]
            epochs[training.name] = written.get(trial_id, 0)
            if training.curve is None or (training.state == "finished" and trial_id in written):
                continue
            rows = self._read_once(training.curve, status.read_curve, notes, "Its epochs are missing here")
            if rows is None:
                continue
            known = {name: value for name, value in training.identity.items() if name in results.TRAINING_COLUMNS}
            known.pop("env_steps", None)
            frames.append(results.typed(pd.DataFrame(rows).assign(**known), results.TRAINING_COLUMNS))
            epochs[training.name] = len(rows)
        curves = pd.concat(frames, ignore_index=True)
        return curves.drop_duplicates(list(TRAINING_KEY), keep="last", ignore_index=True), epochs

    def _read_once(self, path: Path, read: Callable[[Path], Any], notes: list[str], lost: str) -> Any:
        """The result of `read` for a file, None if it cannot be read; a file is read again only after a change."""
        stamp = _stamp(path)
        kept = self._before.get(path)
        if kept is None or kept[0] != stamp:
            try:
                kept = stamp, read(path)
            except UserError as error:
                kept = stamp, error
        self._kept[path] = kept
        content = kept[1]
        if isinstance(content, UserError):
            notes.append(f"{content}. {lost}.")
            return None
        return content


@lru_cache(maxsize=8)
def store_of(folder: Path) -> Store:
    """The store of a folder, shared by all visits."""
    return Store(folder)


def _stamp(path: Path) -> Stamp:
    try:
        info = path.stat()
    except OSError:
        return 0, 0
    return info.st_mtime_ns, info.st_size
