"""Recorded executions of scientific workflows in WfFormat 1.4 to 1.6 (wfcommons.org/format), one a file.

Of the specification are read the tasks' `id`, `parents`, `children`, `inputFiles` and `outputFiles` and the files'
`sizeInBytes`; of the execution `runtimeInSeconds`, `memoryInBytes`, `coreCount` and `machines`. Version 1.4 has it all
in `workflow.tasks`, where a task names its parents, by `name` or `id`, and holds its files.

- Compute demand: the runtime on a server of the reference speed.
- Output: the bytes of the files that a task writes and a successor of it reads. A file that several of them read counts
  once, as the output of a task is one thing here; one that several tasks write counts for each of them. A task without
  successors has all that it writes as its output: it is not moved anywhere, but schedulers see it.
- From 1.5 on an edge stands at both ends, in `parents` and in `children`, and they must agree.

What is missing is filled by the mapping, and counted in the summary of the import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.accumulator import Accumulator
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.model import Workload, find_cycle, shown_cycle

BYTES_PER_GB = 1e9
NONE, SEVERAL = -1, -2
"""In place of the task that a name means: there is none, or more than one."""


class WfFormatMapping(Model):
    """How recorded tasks become demands."""

    reference_gflops: Positive = Field(
        default=1.0,
        description="speed of the machine on which runtimes were taken: compute_gflop = runtimeInSeconds x this "
        "[assumed: a demand is its seconds on a server of 1 GFLOPS]",
    )
    reference_mhz: Positive | None = Field(
        default=None,
        description="clock of that machine: a runtime taken at cpu.speedInMHz counts speedInMHz / reference_mhz times; "
        "unset: all machines are as fast as each other [assumed: work is "
        "in proportion to the clock]",
    )
    count_cores: bool = Field(
        default=False,
        description="a runtime on coreCount cores counts so many times [assumed off: a task takes one slot, whatever "
        "its cores]",
    )
    min_runtime_s: Positive = Field(
        default=0.001, description="shorter runtimes count as this; many are 0 [assumed: a millisecond]"
    )
    default_runtime_s: Positive | None = Field(
        default=None, description="of tasks without runtimeInSeconds [unset: they are an error, as nothing tells it]"
    )
    default_memory_gb: NonNegative = Field(
        default=1.0, description="of tasks without memoryInBytes, which many recordings lack [assumed]"
    )
    default_output_gb: NonNegative = Field(
        default=0.0, description="of tasks without outputFiles, or where no file has a size [assumed: nothing is moved]"
    )
    arrival_gap_s: NonNegative = Field(
        default=0.0, description="time from the arrival of a workflow to that of the next, in the order read [assumed]"
    )


def read_workload(sources: Sequence[Path], mapping: WfFormatMapping, progress: Progress) -> Workload:
    """Read instances, one a .json file, or one a line of .jsonl files."""
    out = Accumulator()
    for path in read.find_files(sources):
        for where, record in read.records(path):
            try:
                _add(out, _instance(record, where), where, mapping, progress)
            except UserError as error:
                progress.bad(error)
            progress.advance(str(path))
    return out.workload(", ".join(map(str, sources)))


# ---------------------------------------------------------------------- what stands in a file

Names = Annotated[list[str], AfterValidator(lambda names: list(dict.fromkeys(names)))]
"""Each once."""
Clock = Annotated[read.Seconds, Field(gt=0)]
"""In MHz."""
Cores = Annotated[read.Seconds, Field(ge=1)]


class _Record(read.Record):
    model_config = ConfigDict(alias_generator=to_camel)


class _Cpu(_Record):
    speed_in_mhz: Clock | None = Field(default=None, alias="speedInMHz")
    speed: Clock | None = None  # of version 1.4


class _Machine(_Record):
    node_name: str
    cpu: _Cpu = _Cpu()


class _File(_Record):
    id: str
    size_in_bytes: read.Whole


class _LinkedFile(_Record):
    """A file of version 1.4."""

    name: str
    size_in_bytes: read.Whole
    link: Literal["input", "output"]


class _TaskRecord(_Record):
    """A task as it is specified or as it was executed; version 1.4 has both in one, and its own names for some."""

    id: str | None = None
    name: str | None = None
    parents: Names = Field(default=[])
    children: Names = Field(default=[])
    input_files: Names = Field(default=[])
    output_files: Names | None = None
    files: list[_LinkedFile] | None = None
    runtime_in_seconds: read.Seconds | None = None
    memory_in_bytes: read.Seconds | None = None
    core_count: Cores | None = None
    cores: Cores | None = None
    machines: Names | None = None
    machine: str | None = None


class _Specified(_TaskRecord):
    id: str
    parents: Names
    children: Names


class _Specification(_Record):
    tasks: list[_Specified]
    files: list[_File] | None = None


class _Part(_Record):
    """An execution; in version 1.4 the whole workflow."""

    tasks: list[_TaskRecord]
    machines: list[_Machine] = Field(default=[])


class _Workflow(_Record):
    specification: _Specification
    execution: _Part | None = None


class _Content(_Record):
    workflow: _Workflow


class _Content14(_Record):
    workflow: _Part


class _Versioned(_Record):
    schema_version: Literal["1.4", "1.5", "1.6"]


@dataclass
class _Task:
    """A task as any version has it."""

    name: str
    where: str
    record: _TaskRecord
    inputs: list[str]
    outputs: list[str] | None
    measured: _TaskRecord


@dataclass
class _Instance:
    """What a file holds."""

    tasks: list[_Task]
    index: dict[str, int]
    """Of a task by whatever others call it."""
    both_ends: bool
    """Whether an edge must stand in the parents of one task and in the children of the other."""
    sizes: dict[str, int] | None
    """Bytes of each file; None where none has any."""
    mhz: dict[str, float]
    """Clock of the machines that say it."""


def _instance(record: Any, where: str) -> _Instance:
    if read.checked(_Versioned, record, where).schema_version == "1.4":
        return _version_1_4(read.checked(_Content14, record, where).workflow, where)
    workflow = read.checked(_Content, record, where).workflow
    specification, execution = workflow.specification, workflow.execution or _Part(tasks=[])
    index = _numbers(specification.tasks, where)
    executed = _numbers(execution.tasks, f"{where}: execution")
    for name in executed.keys() - index.keys():
        raise UserError(f"{where}: execution: task {name!r:.60}: id is no task of the specification")
    tasks = []
    for name, number in index.items():
        task = specification.tasks[number]
        measured = execution.tasks[executed[name]] if name in executed else _TaskRecord()
        tasks.append(_Task(name, f"{where}: task {name!r:.60}", task, task.input_files, task.output_files, measured))
    sizes = {file.id: file.size_in_bytes for file in specification.files or ()}
    if len(sizes) < len(specification.files or ()):
        raise UserError(f"{where}: files: an id stands twice")
    return _Instance(tasks, index, True, sizes if specification.files is not None else None, _clocks(execution))


def _version_1_4(workflow: _Part, where: str) -> _Instance:
    """Version 1.4: everything in one list of tasks."""
    tasks: list[_Task] = []
    by_name: dict[str, int] = {}
    sizes: dict[str, int] = {}
    index = _numbers(workflow.tasks, where)
    for name, number in index.items():
        task, at = workflow.tasks[number], f"{where}: task {name!r:.60}"
        if task.name is not None:
            by_name[task.name] = SEVERAL if task.name in by_name else number
        read_written = [[file.name for file in task.files or () if file.link == link] for link in ("input", "output")]
        sizes |= {file.name: file.size_in_bytes for file in task.files or ()}
        tasks.append(_Task(name, at, task, read_written[0], None if task.files is None else read_written[1], task))
    return _Instance(tasks, by_name | index, False, sizes, _clocks(workflow))


def _numbers(tasks: Sequence[_TaskRecord], where: str) -> dict[str, int]:
    """Number of each task by its id, or its name where it has none."""
    index: dict[str, int] = {}
    for i, task in enumerate(tasks):
        name = task.name if task.id is None else task.id
        if name is None:
            raise UserError(f"{where}: tasks.{i}: key 'id' is missing")
        if name in index:
            raise UserError(f"{where}: task {name!r:.60}: {'name' if task.id is None else 'id'} stands twice")
        index[name] = i
    return index


def _clocks(part: _Part) -> dict[str, float]:
    """Clock of each machine that says it [MHz]."""
    speeds = ((machine.node_name, machine.cpu.speed_in_mhz or machine.cpu.speed) for machine in part.machines)
    return {name: speed for name, speed in speeds if speed is not None}


# ---------------------------------------------------------------------- what it means


def _add(out: Accumulator, instance: _Instance, where: str, mapping: WfFormatMapping, progress: Progress) -> None:
    """Add the workflow of a file."""
    tasks = instance.tasks
    if not tasks:
        raise UserError(f"{where}: tasks is empty: a workflow needs at least one task")
    edges = _edges(instance)
    cycle = find_cycle(len(tasks), np.array(edges, dtype=np.int64).reshape(-1, 2))
    if cycle:
        names = shown_cycle([f"{tasks[i].name:.60}" for i in cycle])
        raise UserError(f"{tasks[cycle[0]].where}: parents form a cycle: {names}")
    missing: Counter[str] = Counter()
    columns = {
        "compute_gflop": [_compute_gflop(task, instance.mhz, mapping, missing) for task in tasks],
        "memory_gb": [_memory_gb(task, mapping, missing) for task in tasks],
        "output_gb": _outputs_gb(instance, edges, mapping, missing),
        "delay_s": [0.0] * len(tasks),
    }
    out.add(len(out) * mapping.arrival_gap_s, len(out), columns, edges)
    progress.counts.update(missing)


def _edges(instance: _Instance) -> list[tuple[int, int]]:
    """Predecessor and successor of each edge."""
    tasks, index = instance.tasks, instance.index
    by_parents: set[tuple[int, int]] = set()
    by_children: set[tuple[int, int]] = set()
    for i, task in enumerate(tasks):
        for key, names in (("parents", task.record.parents), ("children", task.record.children)):
            for name in names:
                other = index.get(name, NONE)
                if other in (NONE, SEVERAL, i):
                    why = {NONE: "which is no task", SEVERAL: "as several tasks are called"}.get(
                        other, "the task itself"
                    )
                    raise UserError(f"{task.where}: {key} names {name!r:.60}, {why}")
                if key == "parents":
                    by_parents.add((other, i))
                else:
                    by_children.add((i, other))
    for parent, child in sorted(by_parents ^ by_children) if instance.both_ends else ():
        a, b = tasks[parent], tasks[child]
        if (parent, child) in by_parents:
            raise UserError(f"{b.where}: parents names {a.name!r:.60}, but the children of that do not name it")
        raise UserError(f"{a.where}: children names {b.name!r:.60}, but the parents of that do not name it")
    return sorted(by_parents | by_children)


def _compute_gflop(task: _Task, mhz: dict[str, float], mapping: WfFormatMapping, missing: Counter[str]) -> float:
    runtime_s = task.measured.runtime_in_seconds
    if runtime_s is None:
        runtime_s = mapping.default_runtime_s
        missing["tasks without runtimeInSeconds"] += 1
        if runtime_s is None:
            raise UserError(
                f"{task.where}: key 'runtimeInSeconds' is missing; --set mapping.default_runtime_s fills it"
            )
    factor = (task.measured.core_count or task.measured.cores or 1.0) if mapping.count_cores else 1.0
    if mapping.reference_mhz is not None:
        machines = [task.measured.machine] if task.measured.machines is None else task.measured.machines
        speeds = [mhz[name] for name in machines if name in mhz]
        missing["tasks without a machine of known speed"] += not speeds
        factor *= sum(speeds) / len(speeds) / mapping.reference_mhz if speeds else 1.0
    return max(runtime_s, mapping.min_runtime_s) * factor * mapping.reference_gflops


def _memory_gb(task: _Task, mapping: WfFormatMapping, missing: Counter[str]) -> float:
    in_bytes = task.measured.memory_in_bytes
    missing["tasks without memoryInBytes"] += in_bytes is None
    return mapping.default_memory_gb if in_bytes is None else in_bytes / BYTES_PER_GB


def _outputs_gb(
    instance: _Instance, edges: list[tuple[int, int]], mapping: WfFormatMapping, missing: Counter[str]
) -> list[float]:
    tasks, sizes = instance.tasks, instance.sizes
    readers: dict[str, set[int]] = {}
    for i, task in enumerate(tasks):
        for key, names in (("inputFiles", task.inputs), ("outputFiles", task.outputs or [])):
            for name in names:
                if sizes is not None and name not in sizes:
                    raise UserError(f"{task.where}: {key} names {name!r:.60}, which is not in files")
                if key == "inputFiles":
                    readers.setdefault(name, set()).add(i)
    successors: list[set[int]] = [set() for _ in tasks]
    for predecessor, successor in edges:
        successors[predecessor].add(successor)
    found: list[float] = []
    for task, after in zip(tasks, successors, strict=True):
        if task.outputs is None or sizes is None:
            missing["tasks without outputFiles or their sizes"] += 1
            found.append(mapping.default_output_gb)
            continue
        moved = {name for name in task.outputs if not after or not after.isdisjoint(readers.get(name, ()))}
        found.append(sum(sizes[name] for name in moved) / BYTES_PER_GB)
    return found


FORMAT = Format(
    "wfformat",
    "executions of scientific workflows (WfFormat 1.4 to 1.6, wfcommons.org): files or folders, one workflow a file",
    WfFormatMapping,
    read_workload,
)
