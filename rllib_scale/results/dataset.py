"""The tables of results: rows are appended in parts, and read in place. Free of ray and torch.

A table is a folder of parts, TABLE/part-NUMBER-RANDOM.parquet. A part appears whole and never changes: who has
read it need not read it again. Rows wait in memory for a part, so that a sweep of days makes hundreds of parts. There
is no second record of what is finished: an evaluation is, if its `unit` is in a row of `episodes`, and a training, if
it has a row in `trainings`. A crash loses what waits, which is then done again. Of a key that was written twice, the
row of the newest part counts.
"""

from __future__ import annotations

import io
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from rllib_scale.errors import UserError
from rllib_scale.results.columns import (
    EPISODE_COLUMNS,
    EPISODE_KEY,
    FEATURE_COLUMNS,
    FEATURE_KEY,
    HISTORY_COLUMNS,
    PROBLEM_COLUMNS,
    PROTOCOL_COLUMNS,
    SCHEDULER_COLUMNS,
    TRAINING_COLUMNS,
    TRAININGS_COLUMNS,
)
from rllib_scale.results.storage import AT_ONCE, Location
from rllib_scale.results.tables import Columns, check_there, typed

PART = re.compile(r"part-(\d+)(-[0-9a-f]+)?\.parquet")
PART_S, PART_SHARE, LONGEST_S = 30.0, 0.01, 600.0
"""Rows wait so long for their part, or this share of the time since the first row, up to the longest."""
PART_ROWS = 50_000
"""So many rows of a table do not wait."""
_FORMAT = ds.ParquetFileFormat()
_UNITS = b"units"
_ARROW = {"string": pa.string(), "Int64": pa.int64(), "float64": pa.float64(), "boolean": pa.bool_()}


class Table(NamedTuple):
    """Columns with their types, and those that identify a row."""

    columns: Columns
    key: tuple[str, ...]


TABLES = {
    "schedulers": Table(SCHEDULER_COLUMNS, ("scheduler",)),
    "problems": Table(PROBLEM_COLUMNS, ("problem", "scenario", "number")),
    "protocols": Table(PROTOCOL_COLUMNS, ("protocol",)),
    "features": Table(FEATURE_COLUMNS, FEATURE_KEY),
    "episodes": Table(EPISODE_COLUMNS, EPISODE_KEY),
    "history": Table(HISTORY_COLUMNS, ("trial", "epoch", "setting")),
    "training": Table(TRAINING_COLUMNS, ("scheduler", "epoch")),
    "trainings": Table(TRAININGS_COLUMNS, ("name",)),
}
"""In the order of writing: dimensions before the rows that name them; `episodes` and `trainings` say what is finished,
after the rows that belong to it."""


def parts(home: Location, table: str) -> dict[str, fs.FileInfo]:
    """The parts of a table by name, the oldest first."""
    found = (home / table).files()
    return {name: found[name] for name in sorted(found) if PART.fullmatch(name)}


def read(
    home: Location, table: str, columns: Sequence[str] | None = None, rows: pc.Expression | None = None
) -> pd.DataFrame:
    """Rows of a table, typed, of each key the newest.

    Args:
        home: the results folder.
        table: its name in TABLES.
        columns: those that are read, with the key if keys may repeat; None: all.
        rows: a filter; None: all.

    Raises:
        UserError: a part cannot be read.
    """
    known = TABLES[table].columns
    scanned, _ = _scan(home, table, parts(home, table), columns, rows)
    return newest(typed(scanned.to_pandas(), known if columns is None else {n: known[n] for n in columns}), table)


def read_parts(home: Location, table: str, found: Mapping[str, fs.FileInfo]) -> tuple[pd.DataFrame, list[str]]:
    """All rows of some parts, typed and in their order, and the columns that no part has.

    Raises:
        UserError: see `read`.
    """
    rows, lacking = _scan(home, table, found)
    return typed(rows.to_pandas(), TABLES[table].columns), lacking


def newest(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """The last row of each key, if the frame has the columns of the key."""
    key = [*TABLES[table].key]
    return frame.drop_duplicates(key, keep="last", ignore_index=True) if {*key} <= {*frame} else frame


def keys(home: Location, table: str) -> set[tuple[Any, ...]]:
    """The keys of the rows of a table; None is a missing value."""
    frame = read(home, table, TABLES[table].key).astype(object)
    return {*frame.where(frame.notna(), None).itertuples(index=False, name=None)}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def units(home: Location, table: str = "episodes") -> set[str]:
    """The evaluations with rows in a table. A part's footer names those in it, which takes one request to a store."""
    known: set[str] = set()
    found = parts(home, table)
    for name, schema in zip([*found], _physical(home / table, _fragments(home / table, found)), strict=True):
        if _UNITS in (schema.metadata or {}):
            known |= set(schema.metadata[_UNITS].decode().split())
            del found[name]
    rows, _ = _scan(home, table, found, ["unit"])
    return known | set(pc.unique(rows["unit"]).to_pylist()) - {None}


def _fragments(folder: Location, found: Mapping[str, fs.FileInfo]) -> list[ds.Fragment]:
    return [
        _FORMAT.make_fragment(f"{folder.path}/{name}", folder.filesystem, file_size=info.size)
        for name, info in found.items()
    ]


def _physical(folder: Location, fragments: Sequence[ds.Fragment]) -> list[pa.Schema]:
    """The schemas of parts.

    Raises:
        UserError: one cannot be read.
    """

    def schema(fragment: ds.Fragment) -> pa.Schema:
        try:
            return fragment.physical_schema
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(folder / fragment.path.rpartition("/")[2], error) from None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(schema, fragments))


def _unreadable(place: Location, error: Exception) -> UserError:
    return UserError(f"{place}: not a readable results table ({type(error).__name__})")


def _scan(
    home: Location,
    table: str,
    found: Mapping[str, fs.FileInfo],
    columns: Sequence[str] | None = None,
    rows: pc.Expression | None = None,
) -> tuple[pa.Table, list[str]]:
    """Columns of some parts; one that a part lacks holds missing values there. And those that no part has."""
    folder, lacking = home / table, set[str]()
    schema, fragments = _schema(TABLES[table].columns), _fragments(home / table, found)
    if columns is None and fragments:  # the columns of tiers are in the parts alone
        physical = _physical(folder, fragments)
        lacking = set(schema.names).difference(*(part.names for part in physical))
        beyond = [_beyond(part.remove_metadata(), schema) for part in physical]
        schema = pa.unify_schemas([schema, *beyond], promote_options="permissive")
    try:
        data = ds.FileSystemDataset(fragments, schema, _FORMAT, folder.filesystem)
        names = None if columns is None else [*columns]
        scanned = data.to_table(columns=names, filter=rows, fragment_readahead=AT_ONCE)
    except (OSError, pa.ArrowException) as error:
        torn = next((name for name in found if len(found) == 1 or not _is_readable(folder / name)), "")
        raise _unreadable(folder / torn, error) from None
    return scanned, [name for name in schema.names if name in lacking]


def _beyond(part: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """The columns of a part that a schema lacks."""
    return pa.schema([field for field in part if field.name not in schema.names])


def _is_readable(part: Location) -> bool:
    try:
        with part.filesystem.open_input_file(part.path) as file:
            pq.ParquetFile(file).read()
    except (OSError, pa.ArrowException):
        return False
    return True


def _schema(columns: Columns) -> pa.Schema:
    return pa.schema([(name, _ARROW[dtype]) for name, (dtype, _) in columns.items()])


def append(home: Location | Path, **tables: pd.DataFrame | Iterable[Mapping[str, Any]]) -> None:
    """Append rows to tables at once, a part to each that receives any.

    Raises:
        UserError: a part cannot be written.
    """
    rows = Rows(Location(str(home)), lambda home: None)
    for table, found in tables.items():
        frame = found if isinstance(found, pd.DataFrame) else pd.DataFrame(list(found))
        if len(frame):
            rows.write(table, frame)


class Rows:
    """Appends rows to the tables of a results folder, in parts. One process appends to a folder at a time.

    Args:
        home: the results folder.
        check: refuses to write where the folder is lost, which a write would recreate.
        clock: returns a time that grows [s].
    """

    def __init__(
        self,
        home: Location,
        check: Callable[[Location], None] = check_there,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.home = home
        self._check = check
        self._clock = clock
        self._waiting: dict[str, list[Mapping[str, Any]]] = {name: [] for name in TABLES}
        self._number: dict[str, int] = {}
        self._first: float | None = None  # time of the first row of all
        self._since = 0.0  # time since which rows wait
        self._lock = threading.RLock()

    def add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Let rows of a table wait for their part."""
        with self._lock:
            if not any(self._waiting.values()):
                self._since = self._clock()
                self._first = self._since if self._first is None else self._first
            self._waiting[table] += rows

    @property
    def is_due(self) -> bool:
        """Whether rows have waited long enough, or are many."""
        if self._first is None or not any(self._waiting.values()):
            return False
        now = self._clock()
        wait_s = min(LONGEST_S, max(PART_S, PART_SHARE * (now - self._first)))
        return now - self._since >= wait_s or max(map(len, self._waiting.values())) >= PART_ROWS

    def flush(self) -> None:
        """Write the rows that wait, a part of each table; those of a part that fails keep waiting.

        Raises:
            UserError: a part cannot be written, or the folder is lost.
        """
        with self._lock:
            for table, rows in self._waiting.items():
                if rows:
                    self.write(table, pd.DataFrame(rows))
                    rows.clear()

    def write(self, table: str, frame: pd.DataFrame) -> None:
        """Write rows as a part of their own, at once.

        Raises:
            UserError: see `flush`.
        """
        self._check(self.home)
        columns = TABLES[table].columns
        content = pa.Table.from_pandas(typed(frame, columns), preserve_index=False)
        schema = pa.unify_schemas([_schema(columns), _beyond(content.schema.remove_metadata(), _schema(columns))])
        if "unit" in columns:
            schema = schema.with_metadata(
                {_UNITS: " ".join(frame["unit"].dropna().unique()) if "unit" in frame else ""}
            )
        buffer = io.BytesIO()
        pq.write_table(content.cast(schema), buffer)
        if table not in self._number:  # of this process alone, which holds the folder
            numbers = [int(match[1]) for match in map(PART.fullmatch, parts(self.home, table)) if match]
            self._number[table] = max(numbers, default=-1)
        self._number[table] += 1
        name = f"part-{self._number[table]:06d}-{secrets.token_hex(2)}.parquet"
        (self.home / table / name).write(buffer.getvalue())
