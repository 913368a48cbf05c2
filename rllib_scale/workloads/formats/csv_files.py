"""Workflows of whatever origin as two CSV files: tasks, and the edges between them.

`tasks.csv`: `workflow, task, arrival_s, compute_gflop, memory_gb, output_gb`, and if wanted `delay_s` (0) and `session`
(each workflow its own). `edges.csv`, where there are edges: `workflow, predecessor, successor`. Columns may stand in
any order. Workflows and tasks have names; `arrival_s` and `session` are the same in all rows of a workflow. The rows of
a workflow stand together, and the workflows of `edges.csv` are in the order of `tasks.csv`: one pass reads both.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field

from rllib_scale.config.base import Model
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.accumulator import Accumulator
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.native import TASK_FIELDS
from rllib_scale.workloads.model import Workload, find_cycle, shown_cycle

MAX_LINE_BYTES = 2**20

Row = tuple[str, dict[str, str]]
"""Where a row stands, and its values by column."""


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Task(BaseModel):
    """The columns of a task: those with a default may be left out."""

    workflow: str
    task: str
    arrival_s: Amount
    compute_gflop: Annotated[Amount, Field(gt=0)]
    memory_gb: Amount
    output_gb: Amount
    delay_s: Amount = 0.0
    session: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class _Edge(BaseModel):
    workflow: str
    predecessor: str
    successor: str


class CsvMapping(Model):
    """No settings: the files hold demands as they are."""


def read_workload(sources: Sequence[Path], mapping: CsvMapping, progress: Progress) -> Workload:
    """Read a folder with tasks.csv and, if there is one, edges.csv; or these two files, or the first of them."""
    tasks_path, edges_path = _paths(sources)
    out = Accumulator()
    edges = groupby(_rows(edges_path, _Edge) if edges_path else iter(()), lambda row: row[1]["workflow"])
    pending = next(edges, None)
    seen: set[str] = set()
    for name, rows in groupby(_rows(tasks_path, _Task), lambda row: row[1]["workflow"]):
        own = pending is not None and pending[0] == name
        try:
            _add(out, name, rows, pending[1] if pending and own else iter(()), name in seen)
        except UserError as error:
            progress.bad(error)
        seen.add(name)
        pending = next(edges, None) if own else pending
        progress.counts["workflows"] = len(out)
        progress.advance(str(tasks_path))
    if pending:
        where = next(pending[1])[0]
        why = "its edges must stand together, in the order of the tasks" if pending[0] in seen else "it has no tasks"
        raise UserError(f"{where}: workflow {pending[0]!r:.60}: {why}")
    return out.workload(str(tasks_path))


def _paths(sources: Sequence[Path]) -> tuple[Path, Path | None]:
    if len(sources) == 1 and sources[0].is_dir():
        edges = sources[0] / "edges.csv"
        return sources[0] / "tasks.csv", edges if edges.exists() else None
    if len(sources) > 2:
        raise UserError(f"{sources[2]}: one file too many; valid: TASKS.csv [EDGES.csv], or a folder that holds them")
    return sources[0], sources[1] if len(sources) == 2 else None


def _rows(path: Path, model: type[BaseModel]) -> Iterator[Row]:
    """Rows of a file with the columns of a model."""
    reader = csv.reader(_text_lines(path), strict=True)
    header: list[str] = []
    try:
        for values in reader:
            where = f"{path} line {reader.line_num}"
            if not header:
                header = [value.strip() for value in values]
                _check_header(header, model, where)
            elif values:
                if len(values) != len(header):
                    raise UserError(f"{where}: {len(values)} values; the header names {len(header)} columns")
                yield where, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num}: not valid CSV: {error}") from None
    if not header:
        raise UserError(f"{path}: empty; needed: a header with {', '.join(model.model_fields)}")


def _text_lines(path: Path) -> Iterator[str]:
    for number, line in read.lines(path, MAX_LINE_BYTES):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path} line {number}: not UTF-8 text") from None


def _check_header(header: list[str], model: type[BaseModel], where: str) -> None:
    valid = model.model_fields
    for name in header:
        if name not in valid or header.count(name) > 1:
            what = "stands twice" if name in valid else "is unknown"
            raise UserError(f"{where}: column {name!r:.60} {what}; valid: {', '.join(valid)}")
    for name in valid:
        if valid[name].is_required() and name not in header:
            raise UserError(f"{where}: column {name!r} is missing; valid: {', '.join(valid)}")


def _add(out: Accumulator, name: str, rows: Iterator[Row], edges: Iterator[Row], seen: bool) -> None:
    first: _Task | None = None
    numbers: dict[str, int] = {}
    columns = {field: array("d") for field in TASK_FIELDS}
    for where, row in rows:
        if seen:
            raise UserError(f"{where}: workflow {name!r:.60} stood further up: its rows must stand together")
        task = read.checked(_Task, row, where)
        first = first or task
        if task.task in numbers:
            raise UserError(f"{where}: task {task.task!r:.60} stands twice in workflow {name!r:.60}")
        numbers[task.task] = len(numbers)
        for column in ("arrival_s", "session"):
            value, before = getattr(task, column), getattr(first, column)
            if value != before:
                raise UserError(f"{where}: {column} is {value}, but {before} in the first row of workflow {name!r:.60}")
        for field in TASK_FIELDS:
            columns[field].append(getattr(task, field))
    if first is None:
        raise ValueError("groupby gave a workflow without rows")
    pairs: set[int] = set()  # predecessor x tasks + successor: a third of the memory of tuples
    for where, row in edges:
        for column in ("predecessor", "successor"):
            if row[column] not in numbers:
                raise UserError(f"{where}: {column} {row[column]!r:.60} is no task of workflow {name!r:.60}")
        predecessor, successor = numbers[row["predecessor"]], numbers[row["successor"]]
        pair = predecessor * len(numbers) + successor
        if predecessor == successor or pair in pairs:
            what = "a task cannot need itself" if predecessor == successor else "the edge stands twice"
            raise UserError(f"{where}: {row['predecessor']!r:.60} to {row['successor']!r:.60}: {what}")
        pairs.add(pair)
    in_order = np.array(sorted(pairs), dtype=np.int64)
    cycle = find_cycle(len(numbers), np.stack(np.divmod(in_order, len(numbers)), axis=1)) if pairs else []
    if cycle:
        names = list(numbers)
        shown = shown_cycle([f"{names[task]:.60}" for task in cycle])
        raise UserError(f"{where}: the edges of workflow {name!r:.60} form a cycle: {shown}")
    session = len(out) if first.session is None else first.session
    out.add(first.arrival_s, session, columns, (divmod(pair, len(numbers)) for pair in in_order.tolist()))


FORMAT = Format(
    "csv", "workflows of any origin: a folder with tasks.csv and edges.csv, or these files", CsvMapping, read_workload
)
