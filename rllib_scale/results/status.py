"""The state of each training of a results folder, read from its files alone, while they run or later.

Free of ray and torch. What Ray Tune writes of a running training reaches the folder every minute; nothing in the folder
says whether the sweep's process still lives. A training whose files have not changed for QUIET_S is therefore called
stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import Plan, SweepConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.config.training import NO_SRR
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.results.tables import read_manifest

QUIET_S = 900.0
MAX_RESTARTS = 3
"""Of a training after a failure; one failure more ends it."""

State = Literal["finished", "running", "stopped", "failed", "waiting"]
_NAME = re.compile(r"(?P<method>[a-z0-9-]+)-s(?P<train_seed>\d+)-(?P<trial_id>[0-9a-f]+)")
_FAILURE = re.compile(r"^Failure # (\d+)", re.MULTILINE)
"""Tune's count of the failures of a training; it leaves out preemptions, after which a training always restarts."""


@dataclass(frozen=True)
class Training:
    """One training of a sweep.

    Attributes:
        name: name of its folders in policies/ and trials/.
        identity: the known identity columns of its rows.
        state: finished, running, failed, waiting (not begun), or stopped (begun, but unchanged for QUIET_S).
        epochs: planned epochs, or those before a scheduler stopped it; None where its config cannot be read.
        curve: newest file with its training curve, which `read_curve` reads; None before the first.
        updated_s: Unix time of the last change of its files; None before the first.
        error: last line of its last error.
    """

    name: str
    identity: Mapping[str, Any]
    state: State
    epochs: int | None
    curve: Path | None
    updated_s: float | None
    error: str | None


def homes(folder: Path) -> list[Path]:
    """The folder and the folders of its parts, which a reproduction has."""
    return [folder, *sorted(path.parent for path in folder.glob("parts/*/manifest.json"))]


def trainings(folder: Path, now_s: float) -> list[Training]:
    """The planned trainings of a results folder in their order, then any others found. `now_s` is Unix time.

    Raises:
        UserError: the manifest or its config cannot be read; `found_trainings` needs neither.
    """
    planned = planned_trainings(folder)
    others = [name for name in _found(folder) if name not in planned]
    return [_training(folder, name, planned.get(name), now_s) for name in (*planned, *others)]


def found_trainings(folder: Path, now_s: float) -> list[Training]:
    """The trainings that have a folder in policies/ or trials/, by name."""
    return [_training(folder, name, None, now_s) for name in _found(folder)]


def planned_trainings(folder: Path) -> dict[str, tuple[dict[str, Any], int]]:
    """Name -> identity columns and epochs of every training of the folder's sweep.

    Raises:
        UserError: see `trainings`.
    """
    manifest = _manifest_of_sweep(folder)
    if manifest is None:
        return {}
    if manifest.get("plan") is not None:  # the plan as it is stored: to validate ten thousand trainings takes seconds
        return {each["name"]: (each["columns"], each["epochs"]) for each in manifest["plan"]["trainings"]}
    return {trial.name: (trial.identity, trial.config.stop_epochs) for plan in plans(folder) for trial in plan.trials}


def evaluations(folder: Path) -> tuple[int, int]:
    """Finished and planned evaluations of a sweep's folder; (0, 0) if its parts have their own.

    Raises:
        UserError: see `trainings`.
    """
    manifest = _manifest_of_sweep(folder)
    if manifest is None:
        return 0, 0
    if manifest.get("plan") is None or any(folder.glob("stopped/*.json")):
        keys = [unit.key for plan in plans(folder) for unit in plan.units]
    else:  # the keys as they are stored: to hash tens of thousands of evaluations takes seconds
        keys = [each["key"] for each in manifest["plan"]["evaluations"]]
    finished = {path.stem for path in folder.glob("evaluations/*.parquet")}
    return len(finished.intersection(keys)), len(keys)


def _manifest_of_sweep(folder: Path) -> dict[str, Any] | None:
    """The manifest of a sweep; None without one, and for a reproduction, whose parts have their own."""
    manifest = read_manifest(folder)
    return manifest if manifest is not None and "methods" in manifest.get("config", {}) else None


def plans(folder: Path) -> list[Plan]:
    """The plan that a manifest holds, as it was carried out; of a reproduction one plan for each part.

    Raises:
        UserError: the manifest or its config cannot be read.
    """
    manifest = read_manifest(folder) or {}
    config, source = manifest.get("config", {}), str(folder / "manifest.json")
    found = []
    for content in [config] if "methods" in config else config.values():
        sweep = build_model(SweepConfig, content, source)
        stored = manifest.get("plan")
        # Manifests of version 0.2 hold the settings only.
        plan = make_plan(sweep, source) if stored is None else Plan.from_json(sweep, stored, source)
        found.append(as_trained(folder, plan))
    return found


def as_trained(folder: Path, plan: Plan) -> Plan:
    """The plan with the epochs after which ASHA stopped trainings."""
    stopped = (path.stem for path in folder.glob("stopped/*.json"))
    return plan.as_trained({name: published_epochs(folder / "policies" / name) for name in stopped})


def published_epochs(policy: Path) -> int:
    """Epochs of the training that published a policy; -1 without one."""
    try:
        return int(json.loads((policy / "policy.json").read_text(encoding="utf-8"))["epochs"])
    except FileNotFoundError:
        return -1


def stopped_at(folder: Path, name: str) -> int | None:
    """The epoch after which a scheduler stopped a training for good, or None."""
    mark = folder / "stopped" / f"{name}.json"
    return int(json.loads(mark.read_text(encoding="utf-8"))["epoch"]) if mark.is_file() else None


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Rows of a training curve: of a curve.json, or of Tune's result.json, whose last line may be incomplete.

    Tune's file of a resumed training begins after its checkpoint; the rows before it are in those of earlier runs.

    Raises:
        UserError: it cannot be read.
    """
    if path.name == "curve.json":
        return _rows(path)
    rows: list[dict[str, Any]] = []
    for run in [*(p for p in sorted(path.parents[2].glob(f"run-*/{path.parent.name}/result.json")) if p < path), path]:
        more = _rows(run)
        rows = [row for row in rows if more and row["epoch"] < more[0]["epoch"]] + more
    return rows


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == "curve.json":
            return [dict(row) for row in json.loads(text)]
        lines = text.splitlines()
        rows = [dict(json.loads(line)) for line in lines[:-1]]
    except (OSError, ValueError, TypeError, RecursionError):
        raise UserError(f"{path}: not a readable training curve") from None
    try:
        return rows + [dict(json.loads(line)) for line in lines[-1:]]
    except (ValueError, TypeError, RecursionError):
        return rows


def _found(folder: Path) -> list[str]:
    paths = [*folder.glob("policies/*"), *folder.glob("trials/run-*/*")]
    return sorted({path.name for path in paths if _NAME.fullmatch(path.name) and path.is_dir()})


def _training(folder: Path, name: str, planned: tuple[dict[str, Any], int] | None, now_s: float) -> Training:
    identity, epochs = planned or _described(folder, name)
    stopped = stopped_at(folder, name)
    epochs = epochs if stopped is None else stopped
    policy = folder / "policies" / name
    if policy.is_dir():
        published = policy / "curve.json"
        curve = published if published.is_file() else None
        return Training(name, identity, "finished", epochs, curve, _changed(policy), None)
    runs = sorted(folder.glob(f"trials/run-*/{name}"))
    if not runs:
        return Training(name, identity, "waiting", epochs, None, None, None)
    trial = runs[-1]
    by_age = [(changed, path) for path in (run / "result.json" for run in runs) if (changed := _changed(path))]
    errors = trial / "error.txt"
    error = errors.read_text(encoding="utf-8", errors="replace") if errors.is_file() else None
    signs = [_changed(path) for path in (trial, trial.parent, *trial.parent.glob("experiment_state-*"))]
    updated = max((sign for sign in (*signs, *(age for age, _ in by_age)) if sign is not None), default=None)
    epoch, curve = next(((e, path) for age, path in reversed(by_age) if (e := _epoch(path, age))), (0, None))
    if curve is not None and epochs is not None and (stopped is not None or epoch >= epochs):
        return Training(name, identity, "finished", epochs, curve, updated, None)
    quiet = updated is None or now_s - updated > QUIET_S
    state: State = "stopped" if quiet else "running"
    if error is not None and (quiet or max(map(int, _FAILURE.findall(error)), default=0) > MAX_RESTARTS):
        state = "failed"
    said = error.strip().splitlines() if error else []
    return Training(name, identity, state, epochs, curve, updated, said[-1] if said else None)


@lru_cache(maxsize=4096)
def _epoch(path: Path, changed: float) -> int:
    """The last epoch of a curve that was last changed at `changed`; 0 without one."""
    try:
        return int(read_curve(path)[-1]["epoch"])
    except (UserError, LookupError):
        return 0


def _described(folder: Path, name: str) -> tuple[dict[str, Any], int | None]:
    """Identity columns and epochs of a training outside the plan, from its policy or from its name."""
    match = _NAME.fullmatch(name)
    assert match is not None
    identity: dict[str, Any] = match.groupdict() | {"train_seed": int(match["train_seed"])}
    try:
        content = json.loads((folder / "policies" / name / "policy.json").read_text(encoding="utf-8"))
        trial = TrialConfig.model_validate(content["trial"])
        identity |= (trial.srr or NO_SRR).model_dump(include={"lambda_decorrelation", "lambda_kl"})
        identity["train_servers"] = trial.env.cluster.num_servers
        return identity, trial.stop_epochs
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return identity, None


def _changed(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
