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
from typing import Any, Literal

import numpy as np
from pydantic import Field

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.accumulator import Accumulator
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.model import Workload, find_cycle, shown_cycle

VERSIONS = ("1.4", "1.5", "1.6")
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
        "unset: all machines are as fast as each other; what `simulate --wfformat` wrote has 1000 [assumed: work is in "
        "proportion to the clock]",
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
    workflows: Literal["file", "connected"] = Field(
        default="file",
        description="a file is one workflow, or each connected part of its graph is one: `simulate --wfformat` writes "
        "all workflows of an episode into one file",
    )
    arrival_gap_s: NonNegative = Field(
        default=0.0, description="time from the arrival of a workflow to that of the next, in the order read [assumed]"
    )


@dataclass
class _Task:
    """A task as any version has it; None is what it does not say."""

    name: str
    where: str
    parents: list[str]
    children: list[str]
    inputs: list[str]
    outputs: list[str] | None
    runtime_s: float | None = None
    memory_bytes: float | None = None
    cores: float = 1.0
    machines: Sequence[str] = ()


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


def _instance(record: Any, where: str) -> _Instance:
    data = read.mapping(record, where)
    version = read.text(data, "schemaVersion", where)
    if version not in VERSIONS:
        raise UserError(f"{where}: schemaVersion {version!r:.60} is unknown; valid: {', '.join(VERSIONS)}")
    workflow = read.mapping(read.field(data, "workflow", where), f"{where}: workflow")
    return _version_1_4(workflow, where) if version == "1.4" else _version_1_5(workflow, where)


def _version_1_5(workflow: dict[str, Any], where: str) -> _Instance:
    """Versions 1.5 and 1.6: what is to be done, and apart from it what was done."""
    specification = read.mapping(read.field(workflow, "specification", where), f"{where}: specification")
    tasks: list[_Task] = []
    index: dict[str, int] = {}
    for data, at in _entries(specification, "tasks", f"{where}: specification"):
        name = read.text(data, "id", at)
        at = f"{where}: task {name!r:.60}"
        if name in index:
            raise UserError(f"{at}: id stands twice")
        index[name] = len(tasks)
        inputs = _names(data, "inputFiles", at) if "inputFiles" in data else []
        outputs = _names(data, "outputFiles", at) if "outputFiles" in data else None
        tasks.append(_Task(name, at, _names(data, "parents", at), _names(data, "children", at), inputs, outputs))
    sizes: dict[str, int] | None = None
    if "files" in specification:
        sizes = {}
        for data, at in _entries(specification, "files", f"{where}: specification"):
            name = read.text(data, "id", at)
            if name in sizes:
                raise UserError(f"{where}: file {name!r:.60}: id stands twice")
            sizes[name] = read.tokens(data, "sizeInBytes", f"{where}: file {name!r:.60}")
    if workflow.get("execution") is None:
        return _Instance(tasks, index, True, sizes, {})
    execution = read.mapping(workflow["execution"], f"{where}: execution")
    executed: set[str] = set()
    for data, at in _entries(execution, "tasks", f"{where}: execution"):
        name = read.text(data, "id", at)
        at = f"{where}: execution of task {name!r:.60}"
        if name not in index or name in executed:
            raise UserError(f"{at}: id {'stands twice' if name in index else 'is no task of the specification'}")
        executed.add(name)
        _measure(tasks[index[name]], data, "coreCount", at)
    return _Instance(tasks, index, True, sizes, _clocks(execution, "speedInMHz", f"{where}: execution"))


def _version_1_4(workflow: dict[str, Any], where: str) -> _Instance:
    """Version 1.4: everything in one list of tasks."""
    tasks: list[_Task] = []
    ids: dict[str, int] = {}
    names: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for data, at in _entries(workflow, "tasks", f"{where}: workflow"):
        name = read.text(data, "name", at)
        own = read.text(data, "id", at) if "id" in data else name
        at = f"{where}: task {own!r:.60}"
        if own in ids:
            raise UserError(f"{at}: {'id' if 'id' in data else 'name'} stands twice")
        ids[own] = len(tasks)
        names[name] = SEVERAL if name in names else len(tasks)
        parents, children = (_names(data, key, at) if key in data else [] for key in ("parents", "children"))
        task = _Task(own, at, parents, children, [], None)
        if "files" in data:
            task.outputs = []
            for file, place in _entries(data, "files", at):
                file_name, link = read.text(file, "name", place), read.text(file, "link", place)
                if link not in ("input", "output"):
                    raise UserError(f"{place}: link {link!r:.60} is unknown; valid: input, output")
                (task.inputs if link == "input" else task.outputs).append(file_name)
                sizes[file_name] = read.tokens(file, "sizeInBytes", place)
        _measure(task, data, "cores", at)
        tasks.append(task)
    return _Instance(tasks, names | ids, False, sizes, _clocks(workflow, "speed", f"{where}: workflow"))


def _measure(task: _Task, data: dict[str, Any], cores: str, where: str) -> None:
    """What was measured of a task."""
    if data.get("runtimeInSeconds") is not None:
        task.runtime_s = read.seconds(data, "runtimeInSeconds", where)
    if data.get("memoryInBytes") is not None:
        task.memory_bytes = read.seconds(data, "memoryInBytes", where)
    if data.get(cores) is not None:
        task.cores = read.seconds(data, cores, where)
        if task.cores < 1:
            raise UserError(f"{where}: {cores} must be at least 1 (got {task.cores:g})")
    if "machines" in data:
        task.machines = _names(data, "machines", where)
    elif "machine" in data:
        task.machines = [read.text(data, "machine", where)]


def _clocks(data: dict[str, Any], key: str, where: str) -> dict[str, float]:
    """Clock of each machine that says it [MHz]."""
    found: dict[str, float] = {}
    for machine, at in _entries(data, "machines", where) if "machines" in data else ():
        name = read.text(machine, "nodeName", at)
        at = f"{where}: machine {name!r:.60}: cpu"
        cpu = read.mapping(machine.get("cpu", {}), at)
        if cpu.get(key) is not None:
            found[name] = read.seconds(cpu, key, at)
            if not found[name]:
                raise UserError(f"{at}: {key} must be above 0")
    return found


def _entries(data: dict[str, Any], key: str, where: str) -> list[tuple[dict[str, Any], str]]:
    """The mappings in a list, and where each stands."""
    places = ((entry, f"{where}.{key}[{i}]") for i, entry in enumerate(read.items(data, key, where)))
    return [(read.mapping(entry, place), place) for entry, place in places]


def _names(data: dict[str, Any], key: str, where: str) -> list[str]:
    """A list of names, each once."""
    names = read.items(data, key, where)
    for name in names:
        if not isinstance(name, str):
            raise UserError(f"{where}: {key} must be a list of names (got {name!r:.60} in it)")
    return list(dict.fromkeys(names))


# ---------------------------------------------------------------------- what it means


def _add(out: Accumulator, instance: _Instance, where: str, mapping: WfFormatMapping, progress: Progress) -> None:
    """Add the workflow, or the workflows, of a file."""
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
    for members, own_edges in _parts(len(tasks), edges, mapping.workflows):
        own = {name: [column[i] for i in members] for name, column in columns.items()}
        out.add(len(out) * mapping.arrival_gap_s, len(out), own, own_edges)
    progress.counts.update(missing)


def _edges(instance: _Instance) -> list[tuple[int, int]]:
    """Predecessor and successor of each edge."""
    tasks, index = instance.tasks, instance.index
    by_parents: set[tuple[int, int]] = set()
    by_children: set[tuple[int, int]] = set()
    for i, task in enumerate(tasks):
        for key, names in (("parents", task.parents), ("children", task.children)):
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
    runtime_s = task.runtime_s
    if runtime_s is None:
        runtime_s = mapping.default_runtime_s
        missing["tasks without runtimeInSeconds"] += 1
        if runtime_s is None:
            raise UserError(
                f"{task.where}: key 'runtimeInSeconds' is missing; --set mapping.default_runtime_s fills it"
            )
    factor = task.cores if mapping.count_cores else 1.0
    if mapping.reference_mhz is not None:
        speeds = [mhz[name] for name in task.machines if name in mhz]
        missing["tasks without a machine of known speed"] += not speeds
        factor *= sum(speeds) / len(speeds) / mapping.reference_mhz if speeds else 1.0
    return max(runtime_s, mapping.min_runtime_s) * factor * mapping.reference_gflops


def _memory_gb(task: _Task, mapping: WfFormatMapping, missing: Counter[str]) -> float:
    missing["tasks without memoryInBytes"] += task.memory_bytes is None
    return mapping.default_memory_gb if task.memory_bytes is None else task.memory_bytes / BYTES_PER_GB


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


def _parts(
    num_tasks: int, edges: list[tuple[int, int]], workflows: str
) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Tasks of each workflow, and its edges by the tasks' places in it; in the order of their first tasks."""
    part = [0] * num_tasks if workflows == "file" else list(range(num_tasks))

    def first(task: int) -> int:
        while part[task] != task:
            part[task] = part[part[task]]
            task = part[task]
        return task

    for a, b in edges if workflows == "connected" else ():
        a, b = sorted((first(a), first(b)))
        part[b] = a
    parts: dict[int, tuple[list[int], list[tuple[int, int]]]] = {}
    place: list[int] = []
    for task in range(num_tasks):
        members, _ = parts.setdefault(first(task), ([], []))
        place.append(len(members))
        members.append(task)
    for predecessor, successor in edges:
        parts[first(predecessor)][1].append((place[predecessor], place[successor]))
    return list(parts.values())


FORMAT = Format(
    "wfformat",
    "executions of scientific workflows (WfFormat 1.4 to 1.6, wfcommons.org): files or folders, one workflow a file",
    WfFormatMapping,
    read_workload,
)
