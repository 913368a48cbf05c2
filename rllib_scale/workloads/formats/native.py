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
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from rllib_scale.config.yaml_files import read_text
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic
from rllib_scale.workloads.formats.sources import checked

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


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Task(_Strict):
    compute_gflop: float
    memory_gb: float
    output_gb: float


class _DelayedTask(_Task):
    delay_s: float = 0.0


_Index = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Edge = Annotated[tuple[_Index, _Index], Field(strict=False)]


class _Workflow(_Strict):
    arrival_s: float
    tasks: list[_Task]
    edges: list[_Edge]


class _Workflow2(_Workflow):
    tasks: list[_DelayedTask]  # type: ignore[assignment]


class _Workflow3(_Workflow2):
    session: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class _File(_Strict):
    format: Literal["rllib-scale-workload"]
    version: Annotated[int, Field(ge=VERSIONS[0], le=VERSIONS[-1])]
    workflows: Annotated[list[Any], Field(min_length=1)]


_WORKFLOWS: dict[int, type[_Workflow]] = {1: _Workflow, 2: _Workflow2, 3: _Workflow3}


def parse(data: Any) -> dict[str, NDArray[Any]]:
    """Check the types and keys of parsed JSON and flatten it into the arrays of `Workload`, in the order given.

    Raises:
        UserError: naming the workflow and the key, and what would be valid.
    """
    file = checked(_File, data, "workload")
    arrivals: list[float] = []
    sessions: list[int] = []
    columns = {name: array("d") for name in TASK_FIELDS}
    edges: list[tuple[int, int]] = []
    task_offsets, edge_offsets = [0], [0]
    for w, content in enumerate(file.workflows):
        workflow = checked(_WORKFLOWS[file.version], content, f"workflow {w}")
        arrivals.append(workflow.arrival_s)
        session = getattr(workflow, "session", None)
        if (session is None) != (not sessions) and w > 0:
            raise UserError(f"workflow {w}: session must stand in every workflow or in none")
        sessions += [] if session is None else [session]
        for name, column in columns.items():
            column.extend(getattr(task, name, 0.0) for task in workflow.tasks)
        edges += workflow.edges
        task_offsets.append(task_offsets[-1] + len(workflow.tasks))
        edge_offsets.append(len(edges))
    return {
        "arrival_s": np.array(arrivals),
        "task_offsets": np.array(task_offsets),
        "edge_offsets": np.array(edge_offsets),
        "edges": np.array(edges, dtype=np.int64).reshape(-1, 2),
        **{name: np.array(column) for name, column in columns.items()},
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


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"key {twice!r} stands twice")
    return data
