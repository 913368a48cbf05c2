"""Reads results into typed frames: the columns of `rllib_scale.results.columns` and DERIVED_COLUMNS."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rllib_scale.config.identity import distinguishing, settings_in
from rllib_scale.errors import UserError
from rllib_scale.results import dataset, status
from rllib_scale.results import tables as results
from rllib_scale.results.columns import TRAINING_COLUMNS
from rllib_scale.results.dataset import TABLES
from rllib_scale.results.status import Training
from rllib_scale.results.storage import Location

from .variants import DIMENSIONS, labelled

NEVER_MISSING = ("arrived", "completed", "unfinished", "decisions")
"""Columns of `episodes` with a value in each row, beside its key."""

_READ = ("schedulers", "problems", "protocols", "episodes", "training", "features")
_PROGRESS = ("finished", "running", "failed", "stopped", "waiting")


@dataclass(frozen=True, eq=False)
class Results:
    """The contents of one or several results folders at one time.

    Attributes:
        homes: the results folders.
        episodes: one row per evaluation episode: EPISODE_COLUMNS, a utilisation_TIER per tier, DERIVED_COLUMNS.
        training: one row per training epoch: TRAINING_COLUMNS and those of the training.
        features: one row per (training, problem, protocol): FEATURE_COLUMNS and DERIVED_COLUMNS but for the metrics;
            empty if none were computed.
        schedulers: what each id of them stands for, by id: SCHEDULER_COLUMNS of `names`.
        manifest: of the first folder: sweep, config, config_hash, created, updated, host, versions; empty before a
            sweep has written it.
        trainings: each with its state.
        notes: one sentence for each part, column or row that could not be used.
        stamp: changes with what was read.
    """

    homes: tuple[Location, ...]
    episodes: pd.DataFrame
    training: pd.DataFrame
    features: pd.DataFrame
    schedulers: pd.DataFrame
    manifest: dict[str, Any]
    trainings: tuple[Training, ...] = ()
    notes: tuple[str, ...] = ()
    stamp: int = 0

    @property
    def sweep(self) -> str:
        """Its name; without a manifest the folder's name."""
        return str(self.manifest.get("sweep", self.homes[0].name))


def load(*folders: str | Path | Location) -> Results:
    """Read results, of finished sweeps or of ones that run, on this machine or in a store: see `Reader`.

    Raises:
        UserError: a folder or a manifest is missing or unreadable, a part of the evaluation rows or of what they name
            is unreadable, or two folders say different things of one id.
    """
    homes = [Location(str(folder)) for folder in folders]
    for home in homes:
        if home.local is not None and not home.local.is_dir():
            raise UserError(f"{home}: no such results folder")
        if results.read_manifest(home) is None:
            raise UserError(f"{home}: no results folder (it has no manifest.json)")
    reader = Reader(*homes)
    found = reader.read()
    if "episodes" in reader.errors:
        raise reader.errors["episodes"]
    return found


class Reader:
    """Reads results as often as it is asked, new parts alone. Safe between threads.

    Of rows with the same key, in one folder or in several, the last counts. Curves of unfinished trainings are read
    from Ray Tune's logs. A part that cannot be read raises no error, unless rows name what it has: it is left out, and
    a note names it.

    Args:
        homes: results folders, running or finished; they may be empty.
        clock: returns the time [Unix s].

    Attributes:
        errors: table -> the last error of the last `read`.
    """

    def __init__(self, *homes: Location, clock: Callable[[], float] = time.time) -> None:
        self.homes = homes
        self.errors: dict[str, UserError] = {}
        self._clock = clock
        self._kept: dict[tuple[Location, str], _Part] = {}
        self._curves: dict[tuple[tuple[Location, ...], float | None], pd.DataFrame] = {}
        self._last: Results | None = None
        self._lock = threading.Lock()

    def stamp(self) -> int:
        """A number that changes with the results; far cheaper than `read`."""
        return self._look().stamp

    def _look(self) -> _Seen:
        notes: list[str] = []
        manifests = {home: self._manifest(home, notes) for home in self.homes}
        trainings = self._trainings(manifests, notes)
        parts = {(home, table): dataset.parts(home, table) for home in self.homes for table in _READ}
        states = tuple((training.name, training.state, training.updated_s) for training in trainings)
        names = tuple((str(home), table, tuple(found)) for (home, table), found in parts.items())
        stamp = hash((states, names, tuple(manifest.get("updated") for manifest in manifests.values())))
        return _Seen(manifests, trainings, parts, tuple(notes), stamp)

    def read(self) -> Results:
        """The results as they are now."""
        with self._lock:
            seen = self._look()
            if self._last is None or self._last.stamp != seen.stamp:
                self._last = self._read(seen)
            return self._last

    def _read(self, seen: _Seen) -> Results:
        self.errors, notes = {}, [*seen.notes]
        tables = {name: self._table(name, seen.parts, notes) for name in _READ}
        for table in DIMENSIONS.values():
            if table in self.errors:  # rows name what is left out
                raise self.errors[table]
        curves = self._logged(seen.trainings, notes)
        tables["schedulers"] = _with_planned(tables["schedulers"], seen.manifests.values(), curves)
        known = _described(curves, tables["schedulers"], notes)
        tables["training"] = _joined([tables["training"], *known], "training")
        frames = labelled(tables, notes)
        manifest = seen.manifests[self.homes[0]]
        return Results(
            self.homes, **frames, manifest=manifest, trainings=seen.trainings, notes=tuple(notes), stamp=seen.stamp
        )

    def _manifest(self, home: Location, notes: list[str]) -> dict[str, Any]:
        """The manifest; empty with a note if there is none, or if it cannot be read."""
        try:
            manifest = results.read_manifest(home)
        except UserError as error:
            notes.append(f"{error}. Trainings that have not begun are not listed.")
            return {}
        if manifest is None:
            notes.append(f"{home}: no manifest.json yet; a sweep writes it first.")
        return manifest or {}

    def _trainings(self, manifests: Mapping[Location, dict[str, Any]], notes: list[str]) -> tuple[Training, ...]:
        """Every training once: sweeps reuse each other's, and the furthest counts."""
        found: list[Training] = []
        for home, manifest in manifests.items():
            try:
                found += (status.trainings if manifest else status.found_trainings)(home, self._clock())
            except UserError as error:
                notes.append(f"{error}. No training is listed.")
        furthest = sorted(found, key=lambda training: _PROGRESS.index(training.state))
        chosen = {training.name: training for training in reversed(furthest)}
        return tuple(chosen[name] for name in dict.fromkeys(training.name for training in found))

    def _table(
        self, table: str, parts: Mapping[tuple[Location, str], Mapping[str, Any]], notes: list[str]
    ) -> pd.DataFrame:
        """The rows of a table in all folders; parts that were read before are not read again."""
        frames = []
        for home in self.homes:
            found, kept = parts[home, table], self._kept.get((home, table))
            if kept is None or not kept.names <= found.keys():
                kept = _Part(frozenset(), results.typed(pd.DataFrame(), TABLES[table].columns), ())
            if new := {name: info for name, info in found.items() if name not in kept.names}:
                kept = self._with(kept, home, table, new)
            self._kept[home, table] = kept
            notes += kept.notes
            frames.append(kept.rows)
        return _joined(frames, table)

    def _with(self, kept: _Part, home: Location, table: str, new: Mapping[str, Any]) -> _Part:
        """The kept part with new ones: read all at once, or one by one if one of them cannot be read."""
        try:
            rows, notes = read_rows(home, table, new)
        except UserError as error:
            if len(new) > 1:
                for name, info in new.items():
                    kept = self._with(kept, home, table, {name: info})
                return kept
            self.errors[table] = error
            rows, notes = kept.rows.iloc[:0], [f"{error}. Its content is left out."]
        return _Part(kept.names.union(new), _joined([kept.rows, rows], table), (*kept.notes, *notes))

    def _logged(self, trainings: Iterable[Training], notes: list[str]) -> dict[str, pd.DataFrame]:
        """Name -> curve of unfinished trainings; logs are read again only after a change."""
        before, self._curves = self._curves, {}
        for training in (training for training in trainings if training.logs):
            key = (training.logs, training.updated_s)
            try:
                self._curves[key] = before[key] if key in before else _curve(training)
            except UserError as error:
                notes.append(f"{error}. Its content is left out.")
        named = {training.name: (training.logs, training.updated_s) for training in trainings}
        return {name: self._curves[key] for name, key in named.items() if key in self._curves}


class _Seen(NamedTuple):
    """State of the folders without their rows."""

    manifests: dict[Location, dict[str, Any]]
    trainings: tuple[Training, ...]
    parts: dict[tuple[Location, str], dict[str, Any]]
    notes: tuple[str, ...]
    stamp: int


@dataclass(frozen=True, eq=False)
class _Part:
    """Parts of a table that have been read."""

    names: frozenset[str]
    rows: pd.DataFrame
    notes: tuple[str, ...]


def _curve(training: Training) -> pd.DataFrame:
    rows = pd.DataFrame(status.read_curve(training.logs))
    return results.typed(rows.assign(scheduler=training.scheduler), TRAINING_COLUMNS)


def _with_planned(schedulers: pd.DataFrame, manifests: Iterable[dict[str, Any]], curves: Iterable[str]) -> pd.DataFrame:
    """The schedulers with those of unfinished trainings as planned, where only their end says how they were trained."""
    planned = [each for manifest in manifests for each in (manifest.get("plan") or {}).get("trainings", ())]
    rows = [
        {"scheduler": each["name"].rpartition("-")[2], "kind": "training", "settings": json.dumps(each["trial"])}
        for each in planned
        if each["name"] in curves
    ]
    new = results.typed(pd.DataFrame(rows), TABLES["schedulers"].columns)
    return pd.concat([schedulers, new[~new["scheduler"].isin(schedulers["scheduler"])]], ignore_index=True)


def _described(curves: dict[str, pd.DataFrame], schedulers: pd.DataFrame, notes: list[str]) -> list[pd.DataFrame]:
    """The curves whose settings are known; notes the others, of a sweep whose file has been changed since."""
    known = {name: curve for name, curve in curves.items() if curve["scheduler"].isin(schedulers["scheduler"]).all()}
    notes += [
        f"training {name}: the sweep's plan does not have it, so its settings are not known; its curve is left out."
        for name in curves
        if name not in known
    ]
    return list(known.values())


@lru_cache(maxsize=8)
def reader_of(*homes: Location) -> Reader:
    """The reader of results, shared by all visits of the dashboard."""
    return Reader(*homes)


def _joined(frames: Sequence[pd.DataFrame], table: str) -> pd.DataFrame:
    """The rows of some frames, of each key the last."""
    frames = [frame for frame in frames if len(frame)] or [results.typed(pd.DataFrame(), TABLES[table].columns)]
    if len(frames) == 1:
        return frames[0]
    every = pd.concat(frames, ignore_index=True)
    if "settings" in every:
        _check_alike(every, TABLES[table].key[0])
    return dataset.newest(every, table)


def _check_alike(rows: pd.DataFrame, key: str) -> None:
    """Refuse rows of a dimension that say different things of one id.

    Raises:
        UserError: naming the id and a setting.
    """
    different = rows.drop_duplicates([key, "settings"])
    for one, of_id in different[different.duplicated(key, keep=False)].groupby(key):
        contents = (json.loads(text) for text in of_id["settings"])
        told = distinguishing({k: settings_in(content) for k, content in enumerate(contents)})
        for path in (path for own in told.values() for path in own if not path.endswith(".share")):
            raise UserError(f"{key} {one}: {path} is not the same everywhere; these are no results of one program")


def read_rows(home: Location, table: str, parts: Mapping[str, Any]) -> tuple[pd.DataFrame, list[str]]:
    """The rows of some parts, each key once, and notes on them, one sentence each.

    Raises:
        UserError: a part is unreadable or lacks values of its key.
    """
    frame, lacking = dataset.read_parts(home, table, parts)
    columns = TABLES[table].columns
    key = [name for name in TABLES[table].key if name != "number"]  # of a problem that is of no family
    place = home / table / (next(iter(parts)) if len(parts) == 1 else "")
    always = NEVER_MISSING if "arrived" in columns else ()  # an epoch of a training may end no episode
    of_dimension = [name for name in ("settings", "version", "kind") if name in columns]
    for name in (*key, *of_dimension, *always):
        if frame[name].isna().any():
            raise UserError(f"{place}: column {name!r} has missing values; not a table of this program")
    for name in (name for name, (kind, _) in columns.items() if kind == "string"):
        if odd := [text for text in frame[name].dropna().unique() if not text.isprintable()]:
            raise UserError(f"{place}: column {name!r} has a character that cannot be printed: {odd[0]!r:.60}")
    for text in frame["settings"].unique() if "settings" in columns else ():
        if not _is_mapping(text):
            raise UserError(f"{place}: column 'settings' has no mapping in JSON: {text!r:.60}")
    notes = [f"{table}: without {', '.join(lacking)}; these are shown as missing."] if lacking else []
    return dataset.newest(frame, table), notes


def _is_mapping(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
