"""The results folder: its manifest, its lock, and single tables as files. Free of ray and torch.

A folder, on a disk or in an object store, holds

    manifest.json           what made it: config, config hash, plan, versions, host, dates
    schedulers/             one row per training, rule and given policy, with its settings (SCHEDULER_COLUMNS)
    problems/               one row per problem and its origin (PROBLEM_COLUMNS)
    protocols/              one row per way of asking policies (PROTOCOL_COLUMNS)
    episodes/               one row per evaluation episode (EPISODE_COLUMNS), in parts: see `dataset`
    features/               one row per policy, setting and scale: its attention feature there (FEATURE_COLUMNS)
    training/               one row per epoch of a finished training (TRAINING_COLUMNS)
    trainings/              one row per finished training (TRAININGS_COLUMNS)
    history/                one row per setting that Optuna suggested or PBT changed (HISTORY_COLUMNS)
    policies/TRIAL/         policy.safetensors and policy.json of each finished training
    trials/                 Ray Tune's own folder: checkpoints, logs, TensorBoard events
    .lock.json              while a sweep runs there: its process

Every file is written under a temporary name and renamed, or in one request, so that a reader never sees half of one.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel

from rllib_scale import __version__
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.results.lock import LOCK
from rllib_scale.results.storage import Location, first_line

FORMAT = "rllib-scale-results"
VERSION = 3

Columns = Mapping[str, tuple[str, str]]
"""Name -> type and description."""


def typed(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The frame with `columns` first, in order and in their types; a missing column holds missing values."""
    frame = frame.reindex(columns=[*columns, *(name for name in frame.columns if name not in columns)])
    return frame.astype({name: dtype for name, (dtype, _) in columns.items()})


def is_there(home: Location) -> bool:
    """Whether results are still there: their disk may be lost, and a later write would recreate the folder."""
    try:
        return home.local is None or (home.local / "manifest.json").is_file()
    except OSError:
        return False


def check_there(home: Location) -> None:
    """Refuse to continue in results that are lost.

    Raises:
        UserError: they are.
    """
    if not is_there(home):
        raise UserError(
            f"{home}: gone in the middle (no manifest.json); once it is back, the same command resumes the sweep"
        )


def read_manifest(folder: Location | Path) -> dict[str, Any] | None:
    """The manifest of a results folder, or None without one.

    Raises:
        UserError: it cannot be read, or is of another format or version.
    """
    path = Location(str(folder)) / "manifest.json"
    try:
        manifest = json.loads(path.read().decode())
        known = manifest.get("format") == FORMAT
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        cause = error if isinstance(error, OSError) else None
        said = "" if cause is None else f" ({os.strerror(cause.errno) if cause.errno else first_line(cause)})"
        raise UserError(f"{path}: not a readable manifest{said}") from None
    if not known:
        raise UserError(f"{path}: not a manifest of this program (format {manifest.get('format')!r}, not {FORMAT!r})")
    if manifest.get("version") != VERSION:
        wrote = (manifest.get("versions") or {}).get("rllib-scale", "another version")
        raise UserError(
            f"{path}: results version {manifest.get('version')!r}, of rllib-scale {wrote}; this program reads version "
            f"{VERSION}: `rllib-scale convert` brings those of 0.3 into its form; read others with what wrote them"
        )
    build_model(_Manifest, manifest, str(path))
    return dict(manifest)


class _Training(BaseModel):
    name: str
    epochs: int


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
    created: str = ""
    updated: str = ""
    host: dict[str, Any] = {}
    versions: dict[str, Any] = {}


def open_folder(
    folder: Location | Path, sweep: str, config: dict[str, Any], config_hash: str, plan: dict[str, Any] | None = None
) -> str:
    """Make a results folder or open it again for the same sweep, and write its manifest; returns when it was made.

    A new folder is recorded as this account's before its manifest is there: a process that is killed in between leaves
    no folder that is refused as a stranger's.

    Args:
        folder: results folder.
        sweep: name of the sweep.
        config: settings of the sweep.
        config_hash: hash of the settings.
        plan: trainings and evaluations, from `Plan.to_json`; None: there is none.

    Raises:
        UserError: it belongs to another sweep, holds something else, or cannot be written.
    """
    home = Location(str(folder))
    manifest = read_manifest(home)
    if manifest is None and any(not name.startswith(LOCK) for name in home.names()):
        raise UserError(f"{home}: not empty and without a manifest.json; give another --results folder")
    if manifest is not None and manifest["sweep"] != sweep:
        raise UserError(f"{home}: belongs to sweep {manifest['sweep']!r}, not {sweep!r}; give another --results")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    created = str(manifest["created"]) if manifest else now
    packages = ("ray", "torch", "numpy", "numba", "gymnasium", "pandas")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "sweep": sweep,
        "config": config,
        "config_hash": config_hash,
        "plan": plan,
        "created": created,
        "updated": now,
        "host": {"machine": platform.machine(), "system": platform.system(), "cpus": os.cpu_count()},
        "versions": {"python": platform.python_version(), "rllib-scale": __version__}
        | {name: metadata.version(name) for name in packages},
    }
    if manifest is None:
        remember(str(home.local or home), created)
    (home / "manifest.json").write((json.dumps(content, indent=2) + "\n").encode())
    return created


def _record() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rllib-scale" / "folders"


def remember(location: str, created: str) -> None:
    """Record that this account made the results folder at `location`; `created` is the date in its manifest."""
    record = _record()
    # If the home cannot be written, a later command needs --trust.
    with contextlib.suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps([location, created]) + "\n")


def is_own(location: str, created: str) -> bool:
    """Whether this account made the folder at `location` and it has not been replaced.

    Checkpoints are pickles: loading one runs the code in it. A sweep loads those of a folder that this account made;
    for any other folder it asks for `--trust`. Policies and tables hold no pickle and need no trust.
    """
    try:
        return json.dumps([location, created]) in _record().read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
