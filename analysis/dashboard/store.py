"""What the dashboard shows of a results folder, kept up to date: only files that have changed are read again.

Nothing here raises because of a file: what cannot be read is left out, and a note says so.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from rllib_scale.errors import UserError
from rllib_scale.results import status
from rllib_scale.results import tables as results
from rllib_scale.results.status import Training

from ..load import TRAINING_KEY, lacking_note, variant_labels
from ..trainings import renamed, renamed_note, trainings_of
from .rows import IDENTITY, KEY, SOURCE, is_whole, read_many, read_rows, sum_up
from .runs import RULE, runs

Stamp = tuple[int, int]
"""Modification time [ns] and size of a file: what tells that it has changed."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A results folder at one moment.

    Attributes:
        folder: where it is.
        sweep: its name; the folder's, where there is no manifest.
        units: one row per evaluation unit, as by `sum_up`, with its source and variant.
        curves: one row per training epoch, TRAINING_COLUMNS and variant; those of running trainings too.
        trainings: what has become of each.
        runs: what was trained, is being trained or was evaluated, see `runs.runs`.
        notes: what a reader should know about the reading, one sentence each.
        stamp: changes with every file it was read from.
    """

    folder: Path
    sweep: str
    units: pd.DataFrame
    curves: pd.DataFrame
    trainings: tuple[Training, ...]
    runs: pd.DataFrame
    notes: tuple[str, ...]
    stamp: int

    @property
    def rows(self) -> int:
        """Evaluation episodes."""
        return int(self.units["rows"].sum())

    @property
    def states(self) -> Counter[str]:
        """State -> number of trainings, those of which only the evaluation is here among the finished."""
        return Counter(self.runs.loc[self.runs["state"] != RULE, "state"])

    @property
    def rules(self) -> int:
        """How many of the runs are rules."""
        return int((self.runs["state"] == RULE).sum())


@dataclass
class Store:
    """Reads a results folder again and again. Safe to share between threads.

    Args:
        folder: of a sweep or a reproduction, running or finished; it may still be empty.
        clock: the time, Unix seconds.
    """

    folder: Path
    clock: Callable[[], float] = time.time
    _kept: dict[Path, tuple[Stamp, Any]] = field(default_factory=dict)
    _last: Snapshot | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stamp(self) -> int:
        """A number that changes when a file of the folder does; far cheaper than a snapshot."""
        states = [(training.name, training.state, training.updated_s) for training in self._trainings()[0]]
        return hash((tuple((path, _stamp(path)) for path in self._tables()), tuple(states)))

    def snapshot(self) -> Snapshot:
        """The folder as it is now."""
        with self._lock:
            stamp = self.stamp()
            if self._last is None or self._last.stamp != stamp:
                self._last = self._read(stamp)
            return self._last

    # ------------------------------------------------------------------ which files

    def _tables(self) -> list[Path]:
        """Every table and manifest that counts, in the order in which later ones replace earlier ones."""
        homes = status.homes(self.folder)
        paths = [home / name for home in homes for name in ("manifest.json", "training.parquet")]
        return [*paths, *_evaluations(homes)]

    def _trainings(self) -> tuple[list[Training], list[str]]:
        return trainings_of(self.folder, self.clock())

    # ------------------------------------------------------------------ reading

    def _read(self, stamp: int) -> Snapshot:
        notes: list[str] = []
        sweep = self.folder.name
        try:
            manifest = results.read_manifest(self.folder)
            if manifest is None:
                notes.append(f"{self.folder}: no manifest.json yet; a sweep writes it first.")
            else:
                sweep = str(manifest.get("sweep", sweep))
        except UserError:
            pass  # `_trainings` says it, of this folder and of its parts
        trainings, told = self._trainings()
        notes += told
        units = self._units(notes)
        curves, epochs = self._curves(trainings, notes)
        units, curves = _labelled(units, curves)
        if other := renamed(trainings, units):
            notes.append(renamed_note(other))
        table = runs([one for one in trainings if one not in other], units, epochs)
        return Snapshot(self.folder, sweep, units, curves, tuple(trainings), table, tuple(notes), stamp)

    def _units(self, notes: list[str]) -> pd.DataFrame:
        homes = status.homes(self.folder)
        for path in (home / "episodes.parquet" for home in homes):
            if path.is_file() and not is_whole(path):
                notes.append(f"{path}: not a readable results table; rows come from {path.parent}/evaluations instead.")
        paths = [path for path in _evaluations(homes) if _stamp(path) is not None]
        new = [path for path in paths if self._known(path) is None]
        for path in (path for path in new if path.name == "episodes.parquet"):
            try:
                units, repeated = sum_up(read_rows(path))
                note = next(iter(lacking_note(path, results.EPISODE_COLUMNS)), None)
                self._keep(path, (units.assign(**{SOURCE: str(path)}), repeated, note))
            except UserError as error:
                self._keep(path, (None, 0, f"{error}. Its rows are missing here."))
        small = [path for path in new if path.name != "episodes.parquet"]
        if small:
            self._read_small(small)
        read = [self._known(path) for path in paths]
        notes += [note for _, _, note in read if note is not None]
        for path, (_, repeated, _) in zip(paths, read, strict=True):
            if repeated:
                notes.append(f"{path.name}: {repeated} rows stood there twice; the last of each counts.")
        frames = [frame for frame, _, _ in read if frame is not None]
        every = pd.concat(frames or [sum_up(_no_rows())[0].assign(**{SOURCE: ""})], ignore_index=True)
        return every.drop_duplicates(list(KEY), keep="last", ignore_index=True)

    def _read_small(self, paths: list[Path]) -> None:
        table, refusals = read_many(paths)
        units, _ = sum_up(table)
        by_source = dict(iter(units.groupby(SOURCE)))
        said = {str(error).partition(": ")[0]: str(error) for error in refusals}
        for path in paths:
            note = f"{said[str(path)]}. Its rows are missing here." if str(path) in said else None
            self._keep(path, (by_source.get(str(path)), 0, note))

    def _curves(self, trainings: Iterable[Training], notes: list[str]) -> tuple[pd.DataFrame, dict[str, int]]:
        """training.parquet, and the curves of the trainings that it does not hold yet."""
        frames = [results.typed(pd.DataFrame(), results.TRAINING_COLUMNS)]
        for home in status.homes(self.folder):
            path = home / "training.parquet"
            if path.is_file():
                try:
                    frames.append(self._read_once(path, lambda p: results.read_table(p, results.TRAINING_COLUMNS)))
                except UserError as error:
                    notes.append(f"{error}. Training curves come from the policies alone.")
        written = {cell: int(last) for cell, last in pd.concat(frames).groupby("cell")["epoch"].max().items()}
        epochs: dict[str, int] = {}
        for training in trainings:
            cell = training.identity["cell"]
            epochs[training.name] = written.get(cell, 0)
            if training.curve is None or (training.state == "finished" and cell in written):
                continue
            try:
                rows = self._read_once(training.curve, status.read_curve)
            except UserError as error:
                notes.append(f"{error}. Its epochs are missing here.")
                continue
            known = {name: value for name, value in training.identity.items() if name in results.TRAINING_COLUMNS}
            known.pop("env_steps", None)
            frames.append(results.typed(pd.DataFrame(rows).assign(**known), results.TRAINING_COLUMNS))
            epochs[training.name] = len(rows)
        curves = pd.concat(frames, ignore_index=True)
        return curves.drop_duplicates(list(TRAINING_KEY), keep="last", ignore_index=True), epochs

    # ------------------------------------------------------------------ what is kept of files

    def _read_once(self, path: Path, read: Callable[[Path], Any]) -> Any:
        if self._known(path) is None:
            self._keep(path, read(path))
        return self._known(path)

    def _known(self, path: Path) -> Any:
        stamp, content = self._kept.get(path, (None, None))
        return content if stamp is not None and stamp == _stamp(path) else None

    def _keep(self, path: Path, content: Any) -> None:
        stamp = _stamp(path)
        if stamp is not None:
            self._kept[path] = stamp, content


@lru_cache(maxsize=8)
def store_of(folder: Path) -> Store:
    """The store that all visitors of a folder's page share."""
    return Store(folder)


def _evaluations(homes: list[Path]) -> list[Path]:
    """The tables of evaluation rows: episodes.parquet, and the units that were evaluated after it was written.

    The rows of a reproduction's parts count until they are joined, which is later than any of them.
    """
    paths: list[Path] = []
    joined = 0
    for home in homes:
        table = home / "episodes.parquet"
        stamp = _stamp(table)
        since = joined
        if stamp is not None and stamp[0] >= joined and is_whole(table):
            paths.append(table)
            since = stamp[0]
        try:
            units = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(home / "evaluations"))
        except OSError:
            units = []
        paths += [Path(path) for age, path in units if age > since and path.endswith(".parquet")]
        joined = since if home is homes[0] else joined
    return paths


def _labelled(units: pd.DataFrame, curves: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both with their variants, as `analysis.load.derive` names them."""
    columns = list(IDENTITY)
    trained = curves.drop_duplicates("cell").assign(
        kind="learned", epochs=pd.array([pd.NA] * curves["cell"].nunique(), dtype="Int64")
    )
    cells = pd.concat([units[columns], trained[columns].assign(overrides=trained["overrides"].fillna(""))])
    labels = variant_labels(cells.drop_duplicates("cell"))
    return tuple(frame.assign(variant=frame["cell"].map(labels).astype("string")) for frame in (units, curves))  # type: ignore[return-value]


def _no_rows() -> Any:
    return read_many([])[0]


def _stamp(path: Path) -> Stamp | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size
