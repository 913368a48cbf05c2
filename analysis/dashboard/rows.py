"""Evaluation rows of a parquet file, summed up to one row for each cell, setting and scale.

A million rows are read by column, with strings as dictionary codes, and no frame of them is ever made. The sums are
those of `analysis.stats`, in the same order, so that the digits are.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rllib_scale.errors import UserError
from rllib_scale.results import tables as results

KEY = ("cell", "scenario", "test_servers", "mask", "decision")
"""What an evaluation unit is: one policy or heuristic, at one scale of one setting."""
METRICS = (
    *("completed", "unfinished", "response_mean_s", "response_censored_s", "above_bound_percent"),
    *("episode_return", "invalid_share", "utilisation", "energy_j"),
)
IDENTITY = (
    *("cell", "method", "kind", "train_seed", "lambda_decorrelation", "lambda_kl", "overrides"),
    *("train_servers", "epochs"),
)
_INVALID = ("invalid_no_fit", "invalid_busy_avoidable", "invalid_busy_unavoidable")
_READ = (
    *dict.fromkeys((*IDENTITY, *KEY, results.INFORMATION, "eval_seed", "episode")),
    *(name for name in METRICS if name in results.METRIC_COLUMNS),
    *("bound_capacity_s", "decisions", *_INVALID),
)
_REQUIRED = ("method", "kind", *KEY, "eval_seed", "episode")
_STRINGS = [name for name in _READ if results.EPISODE_COLUMNS[name][0] == "string"]
_TYPES = {"string": pa.dictionary(pa.int32(), pa.string()), "Int64": pa.int64(), "float64": pa.float64()}
_SCHEMA = pa.schema(
    [(name, pa.string() if name in _STRINGS else _TYPES[results.EPISODE_COLUMNS[name][0]]) for name in _READ]
)
SOURCE = "source"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def is_whole(path: Path) -> bool:
    """Whether the end of a parquet file, which is written last, is there."""
    try:
        pq.ParquetFile(path).close()
    except (OSError, pa.ArrowException):
        return False
    return True


def read_rows(path: Path) -> pa.Table:
    """The columns of a table of evaluation rows that `sum_up` needs, typed; one that the file lacks is null.

    Raises:
        UserError: the file is torn or not a table of evaluation rows.
    """
    try:
        present = [name for name in _READ if name in pq.read_schema(path).names]
        strings = [name for name in present if name in _STRINGS]
        table = pq.ParquetFile(path, read_dictionary=strings).read(columns=present)
        typed = pa.table({name: _typed(table, name) for name in _READ})
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: not a readable results table ({type(error).__name__})") from None
    for name in _REQUIRED:
        if typed[name].null_count:
            raise UserError(f"{path}: column {name!r} has missing values; not a table of this program")
    return typed


def read_many(paths: Sequence[Path]) -> tuple[pa.Table, list[UserError]]:
    """The rows of many small files with the file of each in the column "source", and why files were left out.

    All of them are one dataset, which takes a fifth of the time, unless one of them is torn.
    """
    columns = {name: ds.field(name) for name in _READ} | {SOURCE: ds.field("__filename")}
    try:
        table = ds.dataset([str(path) for path in paths], schema=_SCHEMA, format="parquet").to_table(columns=columns)
        if not any(table[name].null_count for name in _REQUIRED):
            return table, []
    except (OSError, pa.ArrowException):
        pass
    tables, refusals = [], []
    for path in paths:
        try:
            rows = read_rows(path)
            tables.append(rows.append_column(SOURCE, pa.array([str(path)] * rows.num_rows, pa.string())))
        except UserError as error:
            refusals.append(error)
    if not tables:
        return _SCHEMA.append(pa.field(SOURCE, pa.string())).empty_table(), refusals
    return pa.concat_tables(tables).unify_dictionaries(), refusals


def _typed(table: pa.Table, name: str) -> pa.ChunkedArray:
    dtype = results.EPISODE_COLUMNS[name][0]
    kind = _TYPES[dtype]
    if name not in table.column_names or pa.types.is_null(table.schema.field(name).type):
        return pa.chunked_array([pa.nulls(table.num_rows, kind)])
    column = table[name]
    if dtype != "string":
        return column.cast(kind, safe=False)
    chunks = [chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in column.chunks]
    same = [pa.DictionaryArray.from_arrays(c.indices.cast(pa.int32()), c.dictionary.cast(pa.string())) for c in chunks]
    return pa.chunked_array(same, kind).unify_dictionaries()


def select_rows(units: pd.DataFrame) -> pd.DataFrame:
    """The evaluation rows behind some units, typed as by `rllib_scale.results.tables.read_table`, in no order.

    Args:
        units: rows of `sum_up` with their source, the one file of which each counts.

    Raises:
        UserError: a file cannot be read any more.
    """
    frames = [results.typed(pd.DataFrame(), results.EPISODE_COLUMNS)]
    for source, wanted in units.groupby(SOURCE):
        columns = [ds.field(name).isin(wanted[name].unique().tolist()) for name in KEY]
        chosen = columns[0]
        for column in columns[1:]:
            chosen &= column
        try:
            rows = ds.dataset(str(source), format="parquet").to_table(filter=chosen).to_pandas()
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{source}: not a readable results table ({type(error).__name__})") from None
        rows = results.typed(rows, results.EPISODE_COLUMNS).drop_duplicates(list(results.EPISODE_KEY), keep="last")
        frames.append(rows.merge(wanted[list(KEY)], on=list(KEY)))
    return pd.concat(frames, ignore_index=True)


def sum_up(table: pa.Table) -> tuple[pd.DataFrame, int]:
    """The evaluation units of rows in any order, and how many rows stood there twice: the last of each counts.

    Returns:
        One row per unit (and source, where there is such a column): IDENTITY, KEY, what it was told; rows: its
        different episodes; episodes_hash: the same for the same episodes; of each of the METRICS the mean over the
        episodes with a value, METRIC_var their variance (n - 1), NaN with less than two, and METRIC_n their number.
    """
    key = [name for name in (*KEY, SOURCE) if name in table.column_names]
    kept = list(dict.fromkeys((*IDENTITY, *key, results.INFORMATION)))
    if not table.num_rows:
        metrics = [f"{metric}{end}" for metric in METRICS for end in ("", "_var", "_n")]
        return pd.DataFrame(columns=[*kept, "rows", "episodes_hash", *metrics]), 0
    unit = np.zeros(table.num_rows, dtype=np.int64)
    for name in key:
        codes = _codes(table[name])
        unit = _compressed(unit * (int(codes.max()) + 1) + codes)
    seed, episode = (table[name].to_numpy() for name in ("eval_seed", "episode"))
    order = np.lexsort((episode, seed, unit))
    unit, seed, episode = unit[order], seed[order], episode[order]
    new_unit = unit[1:] != unit[:-1]
    last = np.ones(len(order), dtype=bool)  # of the rows with one key
    last[:-1] = new_unit | (seed[1:] != seed[:-1]) | (episode[1:] != episode[:-1])
    order, unit, seed, episode = order[last], unit[last], seed[last], episode[last]
    first = np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]])
    sizes = np.diff(np.r_[first, len(unit)])
    lead = table.select(kept).take(pa.array(order[first])).to_pandas()
    dtypes = {name: results.EPISODE_COLUMNS[name][0] for name in kept if name != SOURCE}
    columns: dict[str, Any] = {name: column for name, column in lead.astype(dtypes).items()}
    columns |= {"rows": sizes, "episodes_hash": np.add.reduceat(_scrambled(seed, episode), first)}
    for name, values in _metrics(table).items():
        columns |= _moments(name, values[order], first, sizes)
    columns["overrides"] = columns["overrides"].fillna("")
    columns[results.INFORMATION] = results.filled_information(lead)
    return pd.DataFrame(columns), int((~last).sum())


def _scrambled(seed: Ints, episode: Ints) -> NDArray[np.uint64]:
    """A number for each (seed, episode) whose sums tell sets of them apart (the mixing steps of splitmix64)."""
    mixed = seed.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + episode.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def _codes(column: pa.ChunkedArray) -> Ints:
    """Whole numbers from 0 that tell the values of a column apart."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return np.asarray(column.combine_chunks().indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _compressed(values: Ints) -> Ints:
    return np.asarray(pc.dictionary_encode(pa.array(values)).indices, dtype=np.int64)


def _metrics(table: pa.Table) -> dict[str, Floats]:
    """The METRICS of each row (R,), NaN where there is no value; derived ones as in `analysis.load.derive`."""

    def floats(name: str) -> Floats:
        return np.asarray(table[name].cast(pa.float64()).to_numpy(), dtype=np.float64)

    invalid, decisions, bound = sum(floats(name) for name in _INVALID), floats("decisions"), floats("bound_capacity_s")
    values = {name: floats(name) for name in METRICS if name in table.column_names}
    with np.errstate(divide="ignore", invalid="ignore"):
        values["invalid_share"] = np.where(decisions > 0, invalid / decisions, np.nan)
        above = 100 * (values["response_censored_s"] / bound - 1)
        values["above_bound_percent"] = np.where(bound > 0, above, np.nan)
    return {name: values[name] for name in METRICS}


def _moments(name: str, values: Floats, first: Ints, sizes: Ints) -> dict[str, NDArray[np.generic]]:
    """Mean, variance and number of the values of each unit. Units of one size are summed together, row by row."""
    mean, variance, known = np.full(len(sizes), np.nan), np.full(len(sizes), np.nan), np.zeros(len(sizes), np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a unit without a value, or with one: NaN
        for size in np.unique(sizes):
            same = np.flatnonzero(sizes == size)
            grid = values[first[same, None] + np.arange(size)]
            known[same] = (~np.isnan(grid)).sum(axis=1)
            mean[same], variance[same] = np.nanmean(grid, axis=1), np.nanvar(grid, axis=1, ddof=1)
    return {name: mean, f"{name}_var": variance, f"{name}_n": known}
