"""The JSON format of a workload: its types and keys. What the numbers must be is checked by `Workload` itself.

    {"format": "rllib-scale-workload", "version": 3, "workflows": [
        {"arrival_s": 0.3, "session": 0,
         "tasks": [{"compute_gflop": 9.1, "memory_gb": 12.0, "output_gb": 0.4, "delay_s": 1.5}, ...],
         "edges": [[0, 1], ...]}, ...]}

An edge [p, s] says that task s of the workflow needs the output of its task p. `delay_s` may be left out: 0. `session`
stands in every workflow or in none: each is then a session of its own. Version 1 had neither, version 2 no sessions; a
workload is written in the lowest version that can hold it, which older programs read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.yaml_files import read_text
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

FORMAT = "rllib-scale-workload"
VERSIONS = (1, 2, 3)
TASK_FIELDS = ("compute_gflop", "memory_gb", "output_gb", "delay_s")
OPTIONAL_FIELDS = ("delay_s",)
"""0 where they are missing."""


def read(path: Path) -> Any:
    """Parsed JSON of a file.

    Raises:
        UserError: the file cannot be read or is not JSON.
    """
    try:
        return json.loads(read_text(path), object_pairs_hook=_no_key_twice)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None


def parse(data: Any) -> dict[str, NDArray[Any]]:
    """Check the types and keys of parsed JSON and flatten it into the arrays of `Workload`, in the order given.

    Raises:
        UserError: naming the workflow and the task, and what would be valid.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = repr(data.get("format")) if isinstance(data, dict) else f"a {type(data).__name__}"
        raise UserError(f"not a workload: format must be {FORMAT!r} (got {found})")
    version = data.get("version")
    if version not in VERSIONS or isinstance(version, bool):
        raise UserError(f"workload version {version!r}; this program reads versions {VERSIONS[0]} to {VERSIONS[-1]}")
    known = TASK_FIELDS if version > 1 else tuple(name for name in TASK_FIELDS if name not in OPTIONAL_FIELDS)
    _check_keys(data, ("format", "version", "workflows"), "the workload")
    workflow_keys = ("arrival_s", "tasks", "edges") + (("session",) if version > 2 else ())
    arrivals: list[float] = []
    sessions: list[int] = []
    tasks: list[list[float]] = []
    edges: list[list[int]] = []
    task_offsets, edge_offsets = [0], [0]
    workflows = _typed(data["workflows"], list, "workflows")
    if not workflows:
        raise UserError("no workflows: at least one is needed")
    for w, workflow in enumerate(workflows):
        where = f"workflow {w}"
        _check_keys(_typed(workflow, dict, where), workflow_keys, where, ("session",))
        arrivals.append(_number(workflow["arrival_s"], f"{where}: arrival_s"))
        if "session" in workflow:
            sessions.append(_session(workflow["session"], f"{where}: session"))
        for t, task in enumerate(_typed(workflow["tasks"], list, f"{where}: tasks")):
            _check_keys(_typed(task, dict, f"{where}, task {t}"), known, f"{where}, task {t}", OPTIONAL_FIELDS)
            tasks.append([_number(task.get(name, 0), f"{where}, task {t}: {name}") for name in TASK_FIELDS])
        for edge in _typed(workflow["edges"], list, f"{where}: edges"):
            edges.append(_edge(edge, f"{where}, edge {edge!r:.60}"))
        task_offsets.append(len(tasks))
        edge_offsets.append(len(edges))
    if 0 < len(sessions) < len(workflows):
        missing = next(w for w, workflow in enumerate(workflows) if "session" not in workflow)
        raise UserError(f"workflow {missing}: key 'session' is missing; it must stand in every workflow or in none")
    columns = np.array(tasks, dtype=np.float64).reshape(-1, len(TASK_FIELDS))
    return {
        "arrival_s": np.array(arrivals),
        "task_offsets": np.array(task_offsets),
        "edge_offsets": np.array(edge_offsets),
        "edges": np.array(edges, dtype=np.int64).reshape(-1, 2),
        **dict(zip(TASK_FIELDS, columns.T, strict=True)),
        **({"session": np.array(sessions, dtype=np.int64)} if sessions else {}),
    }


def write(path: Path, version: int, workflows: Iterable[dict[str, Any]]) -> None:
    """Write JSON, one workflow after the other, under a temporary name, then rename: nobody reads a part of the file.

    Raises:
        UserError: the file cannot be written.
    """

    def write_to(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(f'{{"format": "{FORMAT}", "version": {version}, "workflows": [')
            for w, workflow in enumerate(workflows):
                file.write((", " if w else "") + json.dumps(workflow, allow_nan=False))
            file.write("]}\n")

    write_atomic(path, write_to)


def _check_keys(data: dict[Any, Any], valid: tuple[str, ...], where: str, optional: tuple[str, ...] = ()) -> None:
    for key in data:
        if key not in valid:
            raise UserError(f"{where}: unknown key {key!r}; valid: {', '.join(valid)}")
    valid = tuple(key for key in valid if key not in optional)
    for key in valid:
        if key not in data:
            raise UserError(f"{where}: key {key!r} is missing; needed: {', '.join(valid)}")


def _typed(value: Any, kind: type[list[Any]] | type[dict[Any, Any]], where: str) -> Any:
    if not isinstance(value, kind):
        name = "a list" if kind is list else "a mapping of keys to values"
        raise UserError(f"{where} must be {name} (got {value!r:.60})")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{where} must be a number (got {value!r:.60})")
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{where} must be a finite number (got an integer beyond the range of a float)") from None


def _session(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise UserError(f"{where} must be a whole number, at least 0 (got {value!r:.60})")
    return value


def _edge(value: Any, where: str) -> list[int]:
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2
    if not is_pair or any(isinstance(i, bool) or not isinstance(i, int) or abs(i) >= 2**63 for i in value):
        raise UserError(f"{where}: must be [predecessor, successor], two task indices")
    return list(value)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"key {twice!r} stands twice")
    return data
