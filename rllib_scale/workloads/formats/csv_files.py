"""Workflows of any origin as two CSV files: tasks, and the edges between them.

`tasks.csv`: `workflow, task, arrival_s, compute_gflop, memory_gb, output_gb`, optionally `delay_s` (0), `session` (each
workflow its own), `deadline_s` (none), `places` of a server that it takes (1) and `labels` (none: names with spaces
between, which its server must have).
`edges.csv`, if there are edges: `workflow, predecessor, successor`, optionally `gb` (all output). Columns may be in any
order. Workflows and tasks have names; `arrival_s`, `session` and `deadline_s` are the same in all rows of a workflow.
An empty cell is a missing value. `session` is given in every workflow or in none. Rows of a workflow are contiguous,
and `edges.csv` has the workflows in the order of `tasks.csv`: one pass reads both.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.config.cluster import MAX_PLACES, Label
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.workloads.checks import find_cycle
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS, Accumulator
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sources import read_csv
from rllib_scale.workloads.model import Workload

Row = tuple[str, dict[str, str]]
"""Place of a row, and its values by column."""


def _is_name(value: str) -> str:
    if not value.strip():
        raise ValueError("must be a name (got an empty one)")
    return value


class _Task(Model):
    workflow: Annotated[str, AfterValidator(_is_name)]
    task: Annotated[str, AfterValidator(_is_name)]
    arrival_s: NonNegative
    compute_gflop: NonNegative
    memory_gb: NonNegative
    output_gb: NonNegative
    delay_s: NonNegative = 0.0
    places: Annotated[int, Field(ge=1, le=MAX_PLACES)] = 1
    labels: Annotated[tuple[Label, ...], BeforeValidator(str.split)] = ()
    session: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    deadline_s: Positive = math.inf  # not validated, as a default


class _Edge(Model):
    workflow: str
    predecessor: str
    successor: str
    gb: NonNegative = math.nan  # all output


class CsvMapping(Model):
    """No settings: the files have the demands themselves."""


def read_workload(sources: Sequence[Path], mapping: CsvMapping, progress: Progress) -> Workload:
    """Read a folder with tasks.csv and, if there is one, edges.csv; or these two files, or the first of them."""
    tasks_path, edges_path = _paths(sources)
    out = Accumulator()
    edges = groupby(read_csv(edges_path, _Edge, progress) if edges_path else iter(()), lambda row: row[1]["workflow"])
    pending = next(edges, None)
    seen: set[str] = set()
    numbered: set[bool] = set()
    for name, rows in groupby(read_csv(tasks_path, _Task, progress), lambda row: row[1]["workflow"]):
        own = pending is not None and pending[0] == name
        try:
            _add(out, name, rows, pending[1] if pending and own else iter(()), name in seen, numbered)
        except UserError as error:
            if name in seen:
                raise  # what was read of it is only a part
            progress.bad(error, f"workflow {name!r:.60}")
        seen.add(name)
        pending = next(edges, None) if own else pending
        progress.counts["workflows"] = len(out)
    if pending:
        where = next(pending[1])[0]
        why = "its edges must be contiguous, in the order of the tasks" if pending[0] in seen else "it has no tasks"
        raise UserError(f"{where}: workflow {pending[0]!r:.60}: {why}")
    return Workload.collected(out, [tasks_path], progress)


def _paths(sources: Sequence[Path]) -> tuple[Path, Path | None]:
    if len(sources) == 1 and sources[0].is_dir():
        edges = sources[0] / "edges.csv"
        return sources[0] / "tasks.csv", edges if edges.exists() else None
    if len(sources) > 2:
        raise UserError(f"{sources[2]}: one file too many; valid: TASKS.csv [EDGES.csv], or a folder that has them")
    return sources[0], sources[1] if len(sources) == 2 else None


def _add(
    out: Accumulator, name: str, rows: Iterator[Row], edges: Iterator[Row], seen: bool, numbered: set[bool]
) -> None:
    """Add the workflow `name`; `seen`: earlier rows were its as well; `numbered`: whether workflows have a session."""
    first: _Task | None = None
    numbers: dict[str, int] = {}
    columns, labels, places = {field: array("d") for field in TASK_FIELDS}, list[tuple[str, ...]](), list[int]()
    for where, row in rows:
        if seen:
            raise UserError(f"{where}: workflow {name!r:.60} has rows further up: they must be contiguous")
        task = build_model(_Task, row, where)
        first = first or task
        if task.task in numbers:
            raise UserError(f"{where}: task {task.task!r:.60} appears twice in workflow {name!r:.60}")
        numbers[task.task] = len(numbers)
        for column in ("arrival_s", "session", "deadline_s"):
            value, before = getattr(task, column), getattr(first, column)
            if value != before:
                raise UserError(f"{where}: {column} is {value}, but {before} in the first row of workflow {name!r:.60}")
        labels.append(task.labels)
        places.append(task.places)
        for field in TASK_FIELDS:
            columns[field].append(getattr(task, field))
    if first is None:
        raise ValueError("groupby gave a workflow without rows")
    if numbered == {first.session is None}:
        raise UserError(f"{where}: session must be given in every workflow or in none")
    pairs: dict[int, float] = {}  # predecessor x tasks + successor, less than tuples take; GB that are moved
    for where, row in edges:
        for column in ("predecessor", "successor"):
            if row[column] not in numbers:
                raise UserError(f"{where}: {column} {row[column]!r:.60} is no task of workflow {name!r:.60}")
        predecessor, successor = numbers[row["predecessor"]], numbers[row["successor"]]
        pair = predecessor * len(numbers) + successor
        if predecessor == successor or pair in pairs:
            what = "a task cannot need itself" if predecessor == successor else "the edge appears twice"
            raise UserError(f"{where}: {row['predecessor']!r:.60} to {row['successor']!r:.60}: {what}")
        pairs[pair] = build_model(_Edge, row, where).gb if "gb" in row else math.nan
    ordered = sorted(pairs)
    cycle = find_cycle(np.stack(np.divmod(np.array(ordered, dtype=np.int64), len(numbers)), axis=1), list(numbers))
    if cycle:
        raise UserError(f"{where}: the edges of workflow {name!r:.60} form a cycle: {cycle}")
    numbered.add(first.session is not None)
    session = len(out) if first.session is None else first.session
    moved = ((*divmod(pair, len(numbers)), pairs[pair]) for pair in ordered)
    out.add(first.arrival_s, session, columns, moved, first.deadline_s, labels, places)


FORMAT = Format(
    "csv", "workflows of any origin: a folder with tasks.csv and edges.csv, or these files", CsvMapping, read_workload
)
