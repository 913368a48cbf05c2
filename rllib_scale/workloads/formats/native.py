"""The JSON format of a workload: its keys and types, read and written. `Workload` itself checks the numbers.

    {"format": "rllib-scale-workload", "version": 4, "workflows": [
        {"arrival_s": 0.3, "session": 0, "deadline_s": 60.0,
         "tasks": [{"compute_gflop": 9.1, "memory_gb": 12.0, "output_gb": 0.4, "delay_s": 1.5,
                    "labels": ["a100"], "places": 2}, ...],
         "edges": [[0, 1], [0, 2, 0.1], ...]}, ...]}

An edge [p, s] says that task s of the workflow needs the output of its task p, and [p, s, GB] that it needs so much of
it. `delay_s` is optional: 0, and so are `deadline_s` and `labels`: none, and `places`: 1. A task runs only on servers
that have all of its labels, and takes so many of their places. `session` is given in every workflow or in none: then
each workflow is a separate session. Version 2 added `delay_s`, version 3 `session`, version 4 the rest and tasks
without work; a workload is written in the lowest version that can hold it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from rllib_scale.config.base import Model
from rllib_scale.config.cluster import MAX_PLACES, Label
from rllib_scale.config.yaml_files import build_model, read_text
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS, Accumulator

if TYPE_CHECKING:
    from rllib_scale.workloads.model import Workload

FORMAT = "rllib-scale-workload"
VERSIONS = (1, 2, 3, 4)


def read(path: Path) -> Any:
    """Parsed JSON of a file.

    Raises:
        UserError: the file cannot be read or is not JSON.
    """
    try:
        return json.loads(read_text(path), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None


class _Task(Model, strict=True):
    compute_gflop: float
    memory_gb: float
    output_gb: float
    delay_s: float = 0.0
    labels: tuple[Label, ...] = Field(default=(), strict=False)
    places: Annotated[int, Field(ge=1, le=MAX_PLACES)] = 1


def _with_gb(edge: Any) -> Any:
    return (*edge, None) if isinstance(edge, list | tuple) and len(edge) == 2 else edge


_Index = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Edge = Annotated[tuple[_Index, _Index, _Finite | None], Field(strict=False), BeforeValidator(_with_gb)]


class _Workflow(Model, strict=True):
    arrival_s: float
    tasks: list[_Task]
    edges: list[_Edge]
    session: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    deadline_s: _Finite | None = None


class _File(Model, strict=True):
    format: Literal["rllib-scale-workload"]
    version: Annotated[int, Field(ge=VERSIONS[0], le=VERSIONS[-1])]
    workflows: Annotated[list[Any], Field(min_length=1)]


def parse(data: Any) -> dict[str, Any]:
    """The arrays of `Workload` from parsed JSON, in the order given.

    Raises:
        UserError: naming the workflow and the key, and what would be valid.
    """
    out = Accumulator()
    numbered: bool | None = None
    for w, content in enumerate(build_model(_File, data, "workload").workflows):
        workflow = build_model(_Workflow, content, f"workflow {w}")
        if numbered not in (None, workflow.session is not None):
            raise UserError(f"workflow {w}: session must be given in every workflow or in none")
        numbered = workflow.session is not None
        columns = {name: [getattr(task, name) for task in workflow.tasks] for name in TASK_FIELDS}
        deadline_s = math.inf if workflow.deadline_s is None else workflow.deadline_s
        edges = ((a, b, math.nan if gb is None else gb) for a, b, gb in workflow.edges)
        labels = [task.labels for task in workflow.tasks]
        places = [task.places for task in workflow.tasks]
        out.add(workflow.arrival_s, workflow.session or 0, columns, edges, deadline_s, labels, places)
    arrays = out.arrays()
    return arrays if numbered else {name: array for name, array in arrays.items() if name != "session"}


def version_of(workload: Workload) -> int:
    """The lowest version of the format that can hold the workload."""
    if (
        workload.moves_parts
        or workload.has_deadlines
        or workload.labels.any()
        or (workload.places > 1).any()
        or not workload.compute_gflop.all()
    ):
        return VERSIONS[-1]
    if not np.array_equal(workload.session, np.arange(workload.num_workflows)):
        return 3
    return 2 if workload.delay_s.any() else 1


def workflows_of(workload: Workload) -> Iterator[dict[str, Any]]:
    """The JSON content of each workflow, one after the other, as the text of all is large."""
    version, moves_parts = version_of(workload), workload.moves_parts
    fields = [name for name in TASK_FIELDS if version > 1 or name != "delay_s"]
    for w in range(workload.num_workflows):
        rows = slice(workload.task_offsets[w], workload.task_offsets[w + 1])
        columns = [getattr(workload, name)[rows].tolist() for name in fields]
        tasks = [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]
        for k in np.flatnonzero(workload.labels[rows]):
            tasks[k]["labels"] = workload.labels_of(rows.start + k)
        for k in np.flatnonzero(workload.places[rows] > 1):
            tasks[k]["places"] = int(workload.places[rows][k])
        of_edges = slice(workload.edge_offsets[w], workload.edge_offsets[w + 1])
        edges = workload.edges[of_edges].tolist()
        if moves_parts:
            parts = workload.edge_gb[of_edges].tolist()
            edges = [edge if np.isnan(gb) else [*edge, gb] for edge, gb in zip(edges, parts, strict=True)]
        yield {
            "arrival_s": float(workload.arrival_s[w]),
            **({"session": int(workload.session[w])} if version > 2 else {}),
            **({"deadline_s": float(workload.deadline_s[w])} if np.isfinite(workload.deadline_s[w]) else {}),
            "tasks": tasks,
            "edges": edges,
        }


def write(path: Path, workload: Workload) -> None:
    """Write its JSON one workflow after the other, to a temporary name, and rename it.

    Raises:
        UserError: the file cannot be written.
    """

    def write_to(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(f'{{"format": "{FORMAT}", "version": {version_of(workload)}, "workflows": [')
            for w, workflow in enumerate(workflows_of(workload)):
                file.write((", " if w else "") + json.dumps(workflow, allow_nan=False))
            file.write("]}\n")

    write_atomic(path, write_to)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"key {twice!r} appears twice")
    return data
