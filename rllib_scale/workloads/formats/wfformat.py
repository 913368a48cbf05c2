"""Recorded executions of scientific workflows in WfFormat 1.4 to 1.6 (wfcommons.org/format), one per file.

Of the specification, the tasks' `id`, `parents`, `children`, `inputFiles` and `outputFiles` and the files'
`sizeInBytes` are read; of the execution, `runtimeInSeconds`, `memoryInBytes` and `coreCount`.

- Compute demand: the runtime on a server of the reference speed.
- Output: the bytes of the files that a task writes and a successor of it reads, each once: what schedulers see. The
  output of a task without successors is all that it writes. An edge moves the files that its successor reads; a file
  that several tasks write counts for each of them.
- An edge is given at both ends, in `parents` and in `children`, and they must agree. In version 1.4, which has tasks
  with their files in one list, names take the place of ids and one end is enough.

The mapping fills in what is missing, and the summary of the import counts it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from rllib_scale.config.base import NonNegative, Positive
from rllib_scale.errors import UserError
from rllib_scale.workloads.checks import find_cycle
from rllib_scale.workloads.formats.accumulator import Accumulator
from rllib_scale.workloads.formats.base import Format, Progress, Undated
from rllib_scale.workloads.formats.fields import Amount, Record, Whole, either
from rllib_scale.workloads.formats.sources import read_json
from rllib_scale.workloads.model import Workload

BYTES_PER_GB = 1e9
VERSIONS = ("1.4", "1.5", "1.6")
OLD_VERSION = "1.4"
"""Version without `specification` and `execution`."""


class WfFormatMapping(Undated):
    """Options to turn recorded tasks into demands."""

    reference_gflops: Positive = Field(
        default=1.0,
        description="speed of the machine on which runtimes were taken: compute_gflop = runtimeInSeconds x this "
        "[assumed: a demand is its seconds on a server of 1 GFLOPS]",
    )
    count_cores: bool = Field(
        default=False,
        description="multiply a runtime by its coreCount [assumed off: a task is as long as it was recorded]",
    )
    places: Literal["one", "cores"] = Field(
        default="one", description="cores: a task takes as many places of a server as its coreCount [assumed: one]"
    )
    min_runtime_s: Positive = Field(
        default=0.001, description="shorter runtimes count as this; many are 0 [assumed: a millisecond]"
    )
    default_runtime_s: Positive | None = Field(
        default=None, description="of tasks without runtimeInSeconds [unset: a missing runtime is an error]"
    )
    default_memory_gb: NonNegative = Field(
        default=1.0, description="of tasks without memoryInBytes, which many recordings lack [assumed]"
    )
    default_output_gb: NonNegative = Field(
        default=0.0, description="of tasks without outputFiles, or if no file has a size [assumed: nothing is moved]"
    )


Names = Annotated[list[str], AfterValidator(lambda names: list(dict.fromkeys(names)))]
"""Without repetitions."""


def _unique(entries: list[Any]) -> list[Any]:
    """Refuse an id that two entries have."""
    for name, count in Counter(entry.id for entry in entries).items():
        if count > 1:
            raise ValueError(f"id {name!r:.60} appears twice")
    return entries


class _Record(Record):
    model_config = ConfigDict(alias_generator=to_camel)


class _Task(_Record):
    id: str
    parents: Names
    children: Names
    input_files: Names = Field(default=[])
    output_files: Names | None = None


class _File(_Record):
    id: str
    size_in_bytes: Whole


class _Specification(_Record):
    tasks: Annotated[list[_Task], Field(min_length=1), AfterValidator(_unique)]
    files: Annotated[list[_File], AfterValidator(_unique)] | None = None


class _Executed(_Record):
    id: str
    runtime_in_seconds: Amount | None = None
    memory_in_bytes: Amount | None = None
    core_count: Annotated[Amount, Field(ge=1)] | None = None


class _Execution(_Record):
    tasks: Annotated[list[_Executed], AfterValidator(_unique)]


class _File14(Record):
    link: str
    name: str
    path: str = ""
    size_in_bytes: Whole | None = either("sizeInBytes", "size", default=None)


class _Task14(Record):
    name: str
    id: str | None = None
    parents: Names = Field(default=[])
    children: Names = Field(default=[])
    files: list[_File14] = Field(default=[])
    runtime_in_seconds: Amount | None = either("runtimeInSeconds", "runtime", default=None)
    memory_in_bytes: Amount | None = either("memoryInBytes", default=None)
    cores: Annotated[Amount, Field(ge=1)] | None = None


class _Workflow(_Record):
    specification: _Specification | None = None
    execution: _Execution | None = None
    tasks: Annotated[list[_Task14], Field(min_length=1)] | None = None


class _Instance(_Record):
    schema_version: str
    workflow: _Workflow

    @model_validator(mode="after")
    def _content_of_its_version(self) -> _Instance:
        if self.schema_version not in VERSIONS:
            how = "convert it by tools/wfcommons-migrate-instance.py of github.com/wfcommons/WfFormat"
            raise ValueError(f"schemaVersion {self.schema_version!r:.60}: valid: {', '.join(VERSIONS)}; {how}")
        key, part = "specification", self.workflow.specification
        if self.schema_version == OLD_VERSION:
            key, part = "tasks", self.workflow.tasks  # type: ignore[assignment]
        if part is None:
            raise ValueError(f"workflow.{key} is missing; version {self.schema_version} needs it")
        return self


def read_workload(sources: Sequence[Path], mapping: WfFormatMapping, progress: Progress) -> Workload:
    """Read instances, one per .json file or one per line of .jsonl files."""
    out = Accumulator()

    def add(instance: _Instance, where: str) -> None:
        specification, execution = instance.workflow.specification, instance.workflow.execution
        missing: Counter[str] = Counter()
        if instance.schema_version == OLD_VERSION:
            specification, execution = _as_1_5(instance.workflow.tasks or [], where, missing)
        assert specification is not None, "the version was checked"
        names = [task.id for task in specification.tasks]
        executed = {task.id: task for task in (execution.tasks if execution else ())}
        for name in executed.keys() - set(names):
            raise UserError(f"{where}: execution: task {name!r:.60}: id is no task of the specification")
        edges = _edges(specification.tasks, where)
        measured = [executed.get(name) or _Executed(id=name) for name in names]
        outputs_gb, moved = _outputs_gb(specification, edges, mapping, missing, where)
        columns = {
            "compute_gflop": [_compute_gflop(task, mapping, missing, where) for task in measured],
            "memory_gb": [_memory_gb(task, mapping, missing) for task in measured],
            "output_gb": outputs_gb,
            "delay_s": [0.0] * len(names),
        }
        places = [math.ceil(task.core_count or 1) if mapping.places == "cores" else 1 for task in measured]
        out.add(len(out) * mapping.arrival_gap_s, len(out), columns, moved, places=places)
        progress.counts.update(missing)
        progress.seen.is_equal("workflows the same as an earlier one, kept", repr(instance))

    read_json(sources, _Instance, add, progress)
    return Workload.collected(out, sources, progress)


def _ends(tasks: Sequence[_Task | _Task14], number: dict[str, int], where: str) -> dict[str, set[tuple[int, int]]]:
    """Predecessor and successor of the edges that parents and children name."""
    ends: dict[str, set[tuple[int, int]]] = {"parents": set(), "children": set()}
    for i, task in enumerate(tasks):
        for key, others in (("parents", task.parents), ("children", task.children)):
            for name in others:
                if number.get(name, i) == i:
                    own = task.name if isinstance(task, _Task14) else task.id
                    why = "the task itself" if name in number else "which is no task"
                    raise UserError(f"{where}: task {own!r:.60}: {key} names {name!r:.60}, {why}")
                ends[key].add((number[name], i) if key == "parents" else (i, number[name]))
    return ends


def _edges(tasks: Sequence[_Task], where: str) -> list[tuple[int, int]]:
    """Predecessor and successor of each edge, sorted."""
    ends = _ends(tasks, {task.id: i for i, task in enumerate(tasks)}, where)
    for edge in sorted(ends["parents"] ^ ends["children"]):
        parent, child = (tasks[i].id for i in edge)
        given, missing = ("parents", "children") if edge in ends["parents"] else ("children", "parents")
        raise UserError(f"{where}: the edge from {parent!r:.60} to {child!r:.60} is in {given}, but not in {missing}")
    edges = sorted(ends["parents"])
    cycle = find_cycle(np.array(edges, dtype=np.int64).reshape(-1, 2), [task.id for task in tasks])
    if cycle:
        raise UserError(f"{where}: parents form a cycle: {cycle}")
    return edges


def _as_1_5(tasks: list[_Task14], where: str, counts: Counter[str]) -> tuple[_Specification, _Execution]:
    """A workflow of version 1.4: tasks, which name each other, by number, and edges at both ends."""
    number: dict[str, int] = {}
    for i, task in enumerate(tasks):
        for name in dict.fromkeys((task.name, task.id or task.name)):
            if number.setdefault(name, i) != i:
                raise UserError(f"{where}: two tasks have the name or id {name!r:.60}")
    ends = _ends(tasks, number, where)
    before: list[list[str]] = [[] for _ in tasks]
    after: list[list[str]] = [[] for _ in tasks]
    for parent, child in sorted(ends["parents"] | ends["children"]):
        before[child].append(tasks[parent].name)
        after[parent].append(tasks[child].name)
    sizes: dict[str, int | None] = {}
    specified, executed = [], []
    for i, task in enumerate(tasks):
        files: dict[bool, list[str]] = {True: [], False: []}
        for file in task.files:
            name = file.path + file.name
            if None not in (sizes.get(name), file.size_in_bytes) and sizes[name] != file.size_in_bytes:
                counts["files with two sizes, of which the last is taken"] += 1
            sizes[name] = sizes.get(name) if file.size_in_bytes is None else file.size_in_bytes
            files[file.link.lower() == "input"].append(name)
        specified.append(
            _Task.model_validate(
                {"id": task.name, "parents": before[i], "children": after[i], "inputFiles": files[True]}
                | {"outputFiles": files[False] if task.files else None}
            )
        )
        executed.append(
            _Executed.model_validate(
                {"id": task.name, "runtimeInSeconds": task.runtime_in_seconds, "memoryInBytes": task.memory_in_bytes}
                | {"coreCount": task.cores}
            )
        )
    unknown = next((name for name, size in sizes.items() if size is None), None)
    if unknown is not None and any(size is not None for size in sizes.values()):
        raise UserError(f"{where}: file {unknown!r:.60}: sizeInBytes is missing, which other files have")
    known = [{"id": name, "sizeInBytes": size} for name, size in sizes.items()] if unknown is None else None
    specification = _Specification.model_validate({"tasks": specified, "files": known})
    return specification, _Execution.model_validate({"tasks": executed})


def _compute_gflop(task: _Executed, mapping: WfFormatMapping, missing: Counter[str], where: str) -> float:
    runtime_s = task.runtime_in_seconds
    if runtime_s is None:
        runtime_s = mapping.default_runtime_s
        missing["tasks without runtimeInSeconds"] += 1
        if runtime_s is None:
            raise UserError(
                f"{where}: task {task.id!r:.60}: key 'runtimeInSeconds' is missing; --set mapping.default_runtime_s "
                "fills it in"
            )
    cores = (task.core_count or 1.0) if mapping.count_cores else 1.0
    if (task.core_count or 1.0) > cores and mapping.places == "one":
        missing["tasks of several cores that are played on one place"] += 1
    return max(runtime_s, mapping.min_runtime_s) * cores * mapping.reference_gflops


def _memory_gb(task: _Executed, mapping: WfFormatMapping, missing: Counter[str]) -> float:
    if task.memory_in_bytes is None:
        missing["tasks without memoryInBytes"] += 1
        return mapping.default_memory_gb
    return task.memory_in_bytes / BYTES_PER_GB


def _outputs_gb(
    specification: _Specification,
    edges: list[tuple[int, int]],
    mapping: WfFormatMapping,
    missing: Counter[str],
    where: str,
) -> tuple[list[float], list[tuple[int, int, float]]]:
    """Output of each task, and the edges with what they move [GB]."""
    tasks, files = specification.tasks, specification.files
    sizes = {file.id: file.size_in_bytes for file in files or ()}
    readers: dict[str, set[int]] = {}
    for i, task in enumerate(tasks):
        for key, names in (("inputFiles", task.input_files), ("outputFiles", task.output_files or [])):
            for name in names:
                if files is not None and name not in sizes:
                    raise UserError(f"{where}: task {task.id!r:.60}: {key} names {name!r:.60}, which is not in files")
                if key == "inputFiles":
                    readers.setdefault(name, set()).add(i)
    written = {name for task in tasks for name in task.output_files or ()}
    outside = sum(sizes.get(name, 0) * len(tasks_) for name, tasks_ in readers.items() if name not in written)
    if outside:
        missing["MB of files that no task writes, read but not moved"] += round(outside / 1e6)
    successors: list[set[int]] = [set() for _ in tasks]
    moved: list[tuple[int, int, float]] = []
    for predecessor, successor in edges:
        successors[predecessor].add(successor)
        shared = set(tasks[predecessor].output_files or ()) & set(tasks[successor].input_files)
        known = tasks[predecessor].output_files is not None and files is not None
        gb = sum(sizes[name] for name in sorted(shared)) / BYTES_PER_GB if known else math.nan
        moved.append((predecessor, successor, gb))
    outputs: list[float] = []
    for task, after in zip(tasks, successors, strict=True):
        if task.output_files is None or files is None:
            missing["tasks without outputFiles or their sizes"] += 1
            outputs.append(mapping.default_output_gb)
            continue
        needed = {name for name in task.output_files if not after or not after.isdisjoint(readers.get(name, ()))}
        outputs.append(sum(sizes[name] for name in needed) / BYTES_PER_GB)
    return outputs, moved


FORMAT = Format(
    "wfformat",
    "executions of scientific workflows (WfFormat 1.4 to 1.6, wfcommons.org): files or folders, one workflow per file",
    WfFormatMapping,
    read_workload,
)
