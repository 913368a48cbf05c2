"""The results folder and its tables: what the experiment layer writes and the analysis reads. Free of ray and torch.

A folder holds

    manifest.json           what made it: config, config hash, versions, host, dates
    episodes.parquet        one row per evaluation episode (EPISODE_COLUMNS)
    training.parquet        one row per training epoch (TRAINING_COLUMNS)
    features.parquet        one row per policy, setting and scale: its attention feature there (FEATURE_COLUMNS)
    policies/TRIAL/         policy.safetensors and policy.json of each finished training
    evaluations/HASH.parquet  the rows of one finished evaluation unit; episodes.parquet is all of them
    features/HASH.parquet   its row of features.parquet
    trials/                 Ray Tune's own folder: checkpoints, logs, TensorBoard events
    .lock.json              while a sweep runs there: its process

Every file is written under a temporary name and renamed, so that a reader never sees half of one.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from rllib_scale import __version__
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic, write_json
from rllib_scale.results.columns import RENAMED_COLUMNS
from rllib_scale.results.lock import LOCK

FORMAT = "rllib-scale-results"
VERSION = 1


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table as parquet, atomically."""
    write_atomic(path, lambda p: frame.to_parquet(p, index=False))


def typed(frame: pd.DataFrame, columns: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """The frame with `columns` first, in order and in their types; a missing column holds missing values."""
    frame = frame.reindex(columns=[*columns, *(name for name in frame.columns if name not in columns)])
    return frame.astype({name: dtype for name, (dtype, _) in columns.items()})


def read_table(path: Path, columns: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Read one of the tables, typed.

    Raises:
        UserError: the file is missing, torn or not a table.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such results table")
    try:
        return typed(pd.read_parquet(path).rename(columns=RENAMED_COLUMNS), columns)
    except Exception as error:
        raise UserError(f"{path}: not a readable results table ({type(error).__name__})") from None


def read_tables(paths: Sequence[Path], columns: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Read files of rows as one table, typed; one file may have columns that another lacks.

    Raises:
        UserError: a file is torn or not a table.
    """
    tables = []
    for path in paths:
        try:
            table = pq.ParquetFile(path).read()
            tables.append(table.rename_columns([RENAMED_COLUMNS.get(name, name) for name in table.column_names]))
        except Exception as error:
            raise UserError(f"{path}: not a readable results table ({type(error).__name__})") from None
    if not tables:
        return typed(pd.DataFrame(), columns)
    return typed(pa.concat_tables(tables, promote_options="permissive").to_pandas(), columns)


def is_there(folder: Path) -> bool:
    """Whether a results folder is still there: its disk may be lost, and a later write would make the folder anew."""
    try:
        return (folder / "manifest.json").is_file()
    except OSError:
        return False


def check_there(folder: Path) -> None:
    """Refuse to continue in a results folder that is lost.

    Raises:
        UserError: it is.
    """
    if not is_there(folder):
        raise UserError(
            f"{folder}: gone in the middle (no manifest.json); once it is back, the same command resumes the sweep"
        )


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a results folder, or None without one.

    Raises:
        UserError: it cannot be read, or is of another format or a newer version.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        known = manifest.get("format") == FORMAT
    except (OSError, ValueError, AttributeError, RecursionError):
        raise UserError(f"{path}: not a readable manifest") from None
    if not known:
        raise UserError(f"{path}: not a manifest of this program (format {manifest.get('format')!r}, not {FORMAT!r})")
    if manifest.get("version") != VERSION:
        raise UserError(f"{path}: results version {manifest.get('version')!r}; this program reads version {VERSION}")
    build_model(_Manifest, manifest, str(path))
    return dict(manifest)


class _Columns(BaseModel):
    trial_id: str
    method: str
    train_seed: int


class _Training(BaseModel):
    name: str
    epochs: int
    columns: _Columns
    settings: list[tuple[str, Any]]


class _Evaluation(BaseModel):
    key: str


class _Plan(BaseModel):
    trainings: list[_Training]
    evaluations: list[_Evaluation]


class _Manifest(BaseModel):
    """Types of the manifest's fields that are read without its plan; versions before this one wrote fewer."""

    sweep: str = ""
    config: dict[str, Any] = {}
    config_hash: str = ""
    plan: _Plan | None = None
    tables: str | None = None
    created: str = ""
    updated: str = ""
    host: dict[str, Any] = {}
    versions: dict[str, Any] = {}


def open_folder(
    folder: Path, sweep: str, config: dict[str, Any], config_hash: str, plan: dict[str, Any] | None = None
) -> str:
    """Make the results folder or open it again for the same sweep, and write its manifest; returns when it was made.

    Args:
        folder: results folder.
        sweep: name of the sweep.
        config: settings of the sweep.
        config_hash: hash of the settings.
        plan: trainings and evaluations, from `Plan.to_json`.

    Raises:
        UserError: it belongs to another sweep, holds something else, or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = read_manifest(folder)
    if manifest is None and any(path.name != LOCK for path in folder.iterdir()):
        raise UserError(f"{folder}: not empty and without a manifest.json; give another --results folder")
    if manifest is not None and manifest["sweep"] != sweep:
        raise UserError(f"{folder}: belongs to sweep {manifest['sweep']!r}, not {sweep!r}; give another --results")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    created = str(manifest["created"]) if manifest else now
    packages = ("ray", "torch", "numpy", "numba", "gymnasium", "pandas")
    write_json(
        folder / "manifest.json",
        {
            "format": FORMAT,
            "version": VERSION,
            "sweep": sweep,
            "config": config,
            "config_hash": config_hash,
            "plan": plan,
            "tables": None if manifest is None else manifest.get("tables"),
            "created": created,
            "updated": now,
            "host": {"machine": platform.machine(), "system": platform.system(), "cpus": os.cpu_count()},
            "versions": {"python": platform.python_version(), "rllib-scale": __version__}
            | {name: metadata.version(name) for name in packages},
        },
    )
    return created
