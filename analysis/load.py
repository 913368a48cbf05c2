"""Reads a results folder into typed frames: columns of `rllib_scale.results.columns` and `DERIVED_COLUMNS`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from rllib_scale.errors import UserError
from rllib_scale.results import status
from rllib_scale.results import tables as results
from rllib_scale.results.columns import (
    EPISODE_COLUMNS,
    EPISODE_KEY,
    FEATURE_COLUMNS,
    FEATURE_KEY,
    RENAMED_COLUMNS,
    TRAINING_COLUMNS,
)
from rllib_scale.results.status import Training

from .variants import labelled

TRAINING_KEY = ("trial_id", "epoch")
NEVER_MISSING = ("kind", "arrived", "completed", "unfinished", "decisions")
"""Columns of episodes.parquet with a value in each row, beside its key and the method."""


Columns = Mapping[str, tuple[str, str]]
Stamp = tuple[int, int]
"""Modification time [ns] and size of a file; either changes with the file."""
_PROGRESS = ("finished", "running", "failed", "stopped", "waiting")


@dataclass(frozen=True, eq=False)
class Results:
    """The contents of a results folder at one time.

    Attributes:
        folder: the results folder.
        episodes: one row per evaluation episode: EPISODE_COLUMNS, a utilisation_TIER per tier, DERIVED_COLUMNS.
        training: one row per training epoch: TRAINING_COLUMNS and "variant".
        features: one row per (trial, setting, scale): FEATURE_COLUMNS and "variant"; empty if none were computed.
        manifest: sweep, config, config_hash, created, updated, host, versions; empty before a sweep has written it.
        trainings: each with its state.
        notes: one sentence for each file, column or row that could not be used.
        stamp: changes with every file of the folder.
    """

    folder: Path
    episodes: pd.DataFrame
    training: pd.DataFrame
    features: pd.DataFrame
    manifest: dict[str, Any]
    trainings: tuple[Training, ...] = ()
    notes: tuple[str, ...] = ()
    stamp: int = 0

    @property
    def sweep(self) -> str:
        """Its name; without a manifest the folder's name."""
        return str(self.manifest.get("sweep", self.folder.name))


def load(folder: str | Path) -> Results:
    """Read a results folder, of a finished sweep or of one that runs: see `Reader`.

    Raises:
        UserError: the folder, its manifest or its evaluation rows are missing or unreadable.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such results folder")
    if results.read_manifest(folder) is None:
        raise UserError(f"{folder}: not a results folder (no manifest.json)")
    reader, table = Reader(folder), folder / "episodes.parquet"
    found = reader.read()
    if found.episodes.empty or isinstance(reader.content_of(table), UserError):
        read_rows(table, EPISODE_COLUMNS, EPISODE_KEY)  # raises the error of the table
    return found


class Reader:
    """Reads a results folder, as often as it is asked; only files that changed are read again. Safe between threads.

    A resumed run may have written an episode or an epoch twice: the last row counts. Rows of evaluations that finished
    after the table was written, and curves of trainings that it does not hold yet, are read from their own files. A
    file that cannot be read raises no error: it is left out, and a note names it. Variants with several trials of one
    training seed are left out as well.

    Args:
        folder: of a sweep or a reproduction, running or finished; may be empty.
        clock: returns the time [Unix s].
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock
        self._kept: dict[Path, tuple[Stamp, Any]] = {}
        self._before = self._kept
        self._last: Results | None = None
        self._lock = threading.Lock()

    def stamp(self) -> int:
        """A number that changes with every file of the folder; far cheaper than `read`."""
        return self._stamp_of(self._trainings([]))

    def _stamp_of(self, trainings: Iterable[Training]) -> int:
        states = [(training.name, training.state, training.updated_s) for training in trainings]
        names = ("manifest.json", "*.parquet", "evaluations/*.parquet")
        paths = sorted(path for home in status.homes(self.folder) for name in names for path in home.glob(name))
        return hash((tuple((path, _stamp(path)) for path in paths), tuple(states)))

    def read(self) -> Results:
        """The folder as it is now."""
        with self._lock:
            notes: list[str] = []
            trainings = self._trainings(notes)
            stamp = self._stamp_of(trainings)
            if self._last is None or self._last.stamp != stamp:
                self._before, self._kept = self._kept, {}  # forgets files that are gone
                self._last = self._read(stamp, trainings, notes)
            return self._last

    def content_of(self, path: Path) -> Any:
        """What the last `read` found in a file: an error if it could not be read, None if it did not need the file."""
        return self._kept.get(path, (None, None))[1]

    def _read(self, stamp: int, trainings: tuple[Training, ...], notes: list[str]) -> Results:
        manifest = None
        try:
            manifest = results.read_manifest(self.folder)
            if manifest is None:
                notes.append(f"{self.folder}: no manifest.json yet; a sweep writes it first.")
        except UserError:
            pass  # `_trainings` has added a note
        features = self._table(self.folder / "features.parquet", FEATURE_COLUMNS, FEATURE_KEY, notes)
        frames = self._episodes(notes), self._curves(trainings, notes), features
        episodes, training, features = labelled(*frames, notes)
        return Results(self.folder, episodes, training, features, manifest or {}, trainings, tuple(notes), stamp)

    def _trainings(self, notes: list[str]) -> tuple[Training, ...]:
        """Every training once: parts of a reproduction reuse each other's, and the furthest counts."""
        found: list[Training] = []
        for home in status.homes(self.folder):
            try:
                found += status.trainings(home, self._clock())
            except UserError as error:
                notes.append(f"{error}. Trainings that have not begun are not listed.")
                found += status.found_trainings(home, self._clock())
        furthest = sorted(found, key=lambda training: _PROGRESS.index(training.state))
        chosen = {training.name: training for training in reversed(furthest)}
        return tuple(chosen[name] for name in dict.fromkeys(training.name for training in found))

    def _episodes(self, notes: list[str]) -> pd.DataFrame:
        """The rows of episodes.parquet and of evaluations that are newer; the newest row of each key."""
        tables: list[tuple[int, Path, pd.DataFrame]] = []
        joined = 0  # age of a reproduction's joined table, which holds all older rows of its parts
        for home in status.homes(self.folder):
            path, since = home / "episodes.parquet", joined
            if (age := _stamp(path)[0]) > joined:
                rows = self._table(path, EPISODE_COLUMNS, EPISODE_KEY, notes)
                tables.append((age, path, rows))
                since = age if len(rows) else joined
            for unit in home.glob("evaluations/*.parquet"):
                if (age := _stamp(unit)[0]) > since:
                    rows = self._table(unit, EPISODE_COLUMNS, EPISODE_KEY, notes, is_unit=True)
                    tables.append((age, unit, rows))
            joined = since if home == self.folder else joined
        tables.sort(key=lambda table: table[:2])
        return _newest([rows for *_, rows in tables], EPISODE_COLUMNS, EPISODE_KEY)

    def _curves(self, trainings: Iterable[Training], notes: list[str]) -> pd.DataFrame:
        """The rows of training.parquet, and the curves of trainings that it does not hold yet."""
        frames = [
            self._table(home / "training.parquet", TRAINING_COLUMNS, TRAINING_KEY, notes)
            for home in status.homes(self.folder)
        ]
        written = {trial_id for frame in frames for trial_id in frame["trial_id"].unique()}
        for training in trainings:
            if training.curve is None or (training.state == "finished" and training.identity["trial_id"] in written):
                continue
            rows = self._content(training.curve, status.read_curve, notes)
            if rows is not None:
                known = {name: value for name, value in training.identity.items() if name in TRAINING_COLUMNS}
                known.pop("env_steps", None)
                frames.append(results.typed(pd.DataFrame(rows).assign(**known), TRAINING_COLUMNS))
        return _newest(frames, TRAINING_COLUMNS, TRAINING_KEY)

    def _table(
        self, path: Path, columns: Columns, key: Sequence[str], notes: list[str], is_unit: bool = False
    ) -> pd.DataFrame:
        """The rows of a table, none if it is missing or cannot be read. The file of a unit may lack columns."""
        read = partial(read_rows, columns=columns, key=key)
        rows, said = (self._content(path, read, notes) if path.is_file() else None) or (None, [])
        notes += [] if is_unit else said
        return results.typed(pd.DataFrame(), columns) if rows is None else rows

    def _content(self, path: Path, read: Callable[[Path], Any], notes: list[str]) -> Any:
        """The result of `read` for a file, None if it cannot be read; a file is read again only after a change."""
        stamp = _stamp(path)
        kept = self._before.get(path)
        if kept is None or kept[0] != stamp:
            try:
                kept = stamp, read(path)
            except UserError as error:
                kept = stamp, error
        self._kept[path] = kept
        if isinstance(kept[1], UserError):
            notes.append(f"{kept[1]}. Its content is left out.")
            return None
        return kept[1]


@lru_cache(maxsize=8)
def reader_of(folder: Path) -> Reader:
    """The reader of a folder, shared by all visits of the dashboard."""
    return Reader(folder)


def _stamp(path: Path) -> Stamp:
    try:
        info = path.stat()
    except OSError:
        return 0, 0
    return info.st_mtime_ns, info.st_size


def _newest(frames: Sequence[pd.DataFrame], columns: Columns, key: Sequence[str]) -> pd.DataFrame:
    """The rows of some tables, of each key the last."""
    frames = [frame for frame in frames if len(frame)] or [results.typed(pd.DataFrame(), columns)]
    if len(frames) == 1:
        return frames[0]
    return pd.concat(frames, ignore_index=True).drop_duplicates(list(key), keep="last", ignore_index=True)


def read_rows(path: Path, columns: Columns, key: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a table, each key once, and notes on them, one sentence each.

    Raises:
        UserError: the table is missing or unreadable, or lacks values of its key.
    """
    frame = results.read_table(path, columns)
    always = NEVER_MISSING if "arrived" in columns else ()  # an epoch of a training may end no episode
    for name in (*key, "method", *always):
        if frame[name].isna().any():
            raise UserError(f"{path}: column {name!r} has missing values; not a table of this program")
    learned = frame["train_servers"].notna() if "kind" not in columns else frame["kind"] == "learned"
    if (frame["train_seed"].isna() & learned).any():
        raise UserError(f"{path}: column 'train_seed' has missing values of learned methods; each training has a seed")
    for name in (name for name, (kind, _) in columns.items() if kind == "string"):
        if odd := [text for text in frame[name].dropna().unique() if not text.isprintable()]:
            raise UserError(f"{path}: column {name!r} has a character that cannot be printed: {odd[0]!r:.60}")
    notes = []
    present = {RENAMED_COLUMNS.get(name, name) for name in pq.read_schema(path).names}
    if lacking := [name for name in columns if name not in present]:
        notes.append(f"{path.name}: without {', '.join(lacking)}; these are shown as missing.")
    kept = frame.drop_duplicates(list(key), keep="last", ignore_index=True)
    if len(kept) < len(frame):
        notes.append(f"{path.name}: {len(frame) - len(kept)} duplicate rows; the last of each counts.")
    return kept, notes
