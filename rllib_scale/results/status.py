"""The state of a results folder, read from its files alone, while its sweep runs or later, on a disk or in a store.

Free of ray and torch. What Ray Tune writes of a running training reaches the folder every minute; nothing in the folder
says whether the sweep's process still lives. A training whose files have not changed for QUIET_S is therefore called
stopped.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from pyarrow import fs

from rllib_scale.config.plan import Plan, SweepConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError, last_line
from rllib_scale.results import dataset
from rllib_scale.results.storage import AT_ONCE, Location, first_line
from rllib_scale.results.tables import read_manifest
from rllib_scale.zoo import POLICY_FILES

QUIET_S = 900.0
MAX_RESTARTS = 3
"""Restarts of a training after failures; one failure more ends it."""
TAIL_BYTES = 1 << 16
"""The last row of a log is shorter."""

CHANGES = ["name", "scheduler"]
"""Columns that say whether a training ended as planned."""

State = Literal["finished", "running", "stopped", "failed", "waiting"]
_NAME = re.compile(r"[a-z0-9-]+-s\d+-[0-9a-f]+")
_OF_TRIAL = re.compile(r"(?P<run>run-\d+)/(?P<name>[^/]+)(/.*)?")
_FAILURE = re.compile(r"^Failure # (\d+)", re.MULTILINE)
"""Tune's count of the failures of a training; it leaves out preemptions, after which a training always restarts."""


@dataclass(frozen=True)
class Training:
    """One training of a sweep.

    Attributes:
        name: name of its folders in policies/ and trials/.
        scheduler: the id of its rows, as planned or, once it is finished, as trained.
        state: finished, running, failed, waiting (not begun), or stopped (begun, but unchanged for QUIET_S).
        epochs: planned epochs, or those before a scheduler stopped it; None outside the plan.
        last: its newest epoch: epoch, episode_return, response_mean_s; empty before the first.
        logs: Tune's logs of an unfinished training, the oldest run first: see `read_curve`.
        updated_s: Unix time of the last change of its files; None before the first.
        error: last line of its last error.
    """

    name: str
    scheduler: str
    state: State
    epochs: int | None
    last: Mapping[str, Any]
    logs: tuple[Location, ...]
    updated_s: float | None
    error: str | None


def trainings(home: Location, now_s: float) -> list[Training]:
    """The planned trainings of a results folder in their order, then any others found. `now_s` is Unix time.

    Raises:
        UserError: the manifest cannot be read; `found_trainings` does not need it.
    """
    plan = (_manifest(home) or {}).get("plan") or {"trainings": ()}
    planned = {each["name"]: each["epochs"] for each in plan["trainings"]}
    return _trainings(home, planned, now_s)


def found_trainings(home: Location, now_s: float) -> list[Training]:
    """The trainings with a row in `trainings` or a folder in trials/."""
    return _trainings(home, {}, now_s)


def evaluations(home: Location) -> tuple[int, int]:
    """Finished and planned evaluations of a results folder.

    Raises:
        UserError: see `trainings`.
    """
    plan = (_manifest(home) or {}).get("plan")
    if plan is None:
        return 0, 0
    # The keys as they are stored: to hash tens of thousands of evaluations takes seconds.
    keys = [each["key"] for each in plan["evaluations"]]
    if any(map(_is_changed, dataset.records(dataset.read(home, "trainings", CHANGES)))):
        keys = [unit.key for unit in read_plan(home).units]
    return len(dataset.units(home).intersection(keys)), len(keys)


def read_plan(home: Location) -> Plan:
    """The plan that a manifest holds, as it was carried out.

    Raises:
        UserError: the manifest, its config or its plan cannot be read, or there is none.
    """
    manifest, source = _manifest(home) or {}, str(home / "manifest.json")
    if manifest.get("plan") is None:
        raise UserError(f"{source}: without a plan; `rllib-scale sweep` writes it")
    plan = Plan.from_json(build_model(SweepConfig, manifest["config"], source), manifest["plan"], source)
    ended = dataset.records(dataset.read(home, "trainings", CHANGES))
    return plan.as_trained({str(row["name"]): str(row["scheduler"]) for row in ended if _is_changed(row)})


def _is_changed(row: Mapping[str, Any]) -> bool:
    """Whether a scheduler changed or stopped a training, so that its rows have another hash than its folders."""
    return not str(row["name"]).endswith(f"-{row['scheduler']}")


def _manifest(home: Location) -> dict[str, Any] | None:
    """The manifest of a folder.

    Raises:
        UserError: it is of a sweep, and holds no plan.
    """
    manifest = read_manifest(home)
    if manifest is not None and manifest["plan"] is None and "methods" in manifest["config"]:
        raise UserError(
            f"{home / 'manifest.json'}: of a sweep, but without its plan; run `rllib-scale sweep` on it again"
        )
    return manifest


def read_curve(logs: Iterable[Location]) -> list[dict[str, Any]]:
    """Rows of a training curve from Tune's logs, one for each run, to which each attempt of the run appends.

    An attempt goes on from a checkpoint: epochs of an earlier one from there on are not part of the curve.

    Raises:
        UserError: a log cannot be read.
    """
    rows: list[dict[str, Any]] = []
    for row in (row for log in logs for row in _rows(log)):
        while rows and rows[-1]["epoch"] >= row["epoch"]:
            rows.pop()
        rows.append(row)
    return rows


def _rows(log: Location) -> list[dict[str, Any]]:
    """The rows of a log, whose last line may be incomplete."""
    try:
        lines = log.read().decode().splitlines()
        rows = [dict(json.loads(line)) for line in lines[:-1]]
    except (OSError, ValueError, TypeError, RecursionError):
        raise UserError(f"{log}: not a readable training curve") from None
    return rows + _row(lines[-1:])


def _row(lines: list[str]) -> list[dict[str, Any]]:
    """The row of the last of some lines; none if it is incomplete."""
    try:
        return [dict(json.loads(line)) for line in lines[-1:]]
    except (ValueError, TypeError, RecursionError):
        return []


def _last_row(log: Location) -> dict[str, Any]:
    """The last whole row of a log; empty without one."""
    try:
        lines = log.read(last=TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return {}
    found = _row(lines) or _row(lines[:-1])
    return found[0] if found and "epoch" in found[0] else {}


def _trainings(home: Location, planned: Mapping[str, int], now_s: float) -> list[Training]:
    finished = finished_trainings(home)
    # Of a finished sweep nothing is read in trials/, which holds ten files of each training.
    whole = bool(planned) and finished.keys() >= planned.keys()
    found = {} if whole else _by_trial((home / "trials").entries())
    others = sorted(name for name in {*finished, *found} - {*planned, ""} if _NAME.fullmatch(name))

    def training(name: str) -> Training:
        if name in finished:
            return _finished(finished[name])
        return _unfinished(home / "trials", name, planned.get(name), found, now_s)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(training, (*planned, *others)))


def finished_trainings(home: Location) -> dict[str, dict[str, Any]]:
    """Name -> row of `trainings` of each whose policy is there as it was published; a crash may have torn it."""
    rows = dataset.read(home, "trainings")
    if rows.empty:
        return {}
    sizes: dict[str, list[int]] = defaultdict(list)
    for path, info in (home / "policies").files().items():
        name, _, file = path.partition("/")
        if file in POLICY_FILES:
            sizes[name].append(info.size)
    return {
        str(row["name"]): row
        for row in dataset.records(rows)
        if len(own := sizes[row["name"]]) == len(POLICY_FILES)
        and (pd.isna(row["policy_bytes"]) or sum(own) == row["policy_bytes"])
    }


def published_policy(home: Location, name: str) -> dict[str, bytes]:
    """The files of the policy of a training, by name.

    Raises:
        UserError: one is missing or cannot be read.
    """
    try:
        return {file: (home / "policies" / name / file).read() for file in POLICY_FILES}
    except OSError as error:
        raise UserError(f"{home / 'policies' / name}: not a whole policy folder ({first_line(error)})") from None


def _by_trial(entries: Mapping[str, fs.FileInfo]) -> dict[str, dict[str, fs.FileInfo]]:
    """Entries of trials/ by training; under "" those of a run."""
    found: dict[str, dict[str, fs.FileInfo]] = defaultdict(dict)
    for path, info in entries.items():
        match = _OF_TRIAL.fullmatch(path)
        name = match["name"] if match else ""
        found[name if _NAME.fullmatch(name) else ""][path] = info
    return found


def _finished(row: Mapping[str, Any]) -> Training:
    last = {"epoch": int(row["epochs"])} | {
        name: row[name] for name in ("episode_return", "response_mean_s") if pd.notna(row[name])
    }
    epochs, published = int(row["epochs"]), row["published_s"]
    updated = None if pd.isna(published) else float(published)
    return Training(str(row["name"]), str(row["scheduler"]), "finished", epochs, last, (), updated, None)


def _unfinished(
    trials: Location,
    name: str,
    epochs: int | None,
    found: Mapping[str, Mapping[str, fs.FileInfo]],
    now_s: float,
) -> Training:
    scheduler = name.rpartition("-")[2]
    files = found.get(name, {})
    if not files:
        return Training(name, scheduler, "waiting", epochs, {}, (), None, None)
    run = max(path.partition("/")[0] for path in files)
    logs = tuple(trials / path for path in sorted(files) if path.endswith("/result.json") and files[path].size)
    error = _error(trials / f"{run}/{name}/error.txt") if f"{run}/{name}/error.txt" in files else None
    of_run = {path: info for path, info in found.get("", {}).items() if path.partition("/")[0] == run}
    times = [info.mtime.timestamp() for info in (*files.values(), *of_run.values()) if info.mtime is not None]
    updated = max(times, default=None)
    last = _last_row(logs[-1]) if logs else {}
    if epochs is not None and last.get("epoch", 0) >= epochs:
        return Training(name, scheduler, "finished", epochs, last, logs, updated, None)
    quiet = updated is None or now_s - updated > QUIET_S
    state: State = "stopped" if quiet else "running"
    if error is not None and (quiet or max(map(int, _FAILURE.findall(error)), default=0) > MAX_RESTARTS):
        state = "failed"
    return Training(name, scheduler, state, epochs, last, logs, updated, last_line(error) if error else None)


def _error(path: Location) -> str | None:
    try:
        return path.read().decode(errors="replace")
    except OSError:
        return None
