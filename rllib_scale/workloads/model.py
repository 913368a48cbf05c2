"""A workload: workflow DAGs and their arrivals as flat arrays, and their validation [SCALE, sec. 3]."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import ClusterConfig
from rllib_scale.config.base import MAX_NUMBER
from rllib_scale.config.cluster import MAX_LABELS, label_bits
from rllib_scale.errors import UserError, choice_error
from rllib_scale.presets import workload_file
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS, Accumulator, gather_blocks
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.native import FORMAT, VERSIONS, parse, read, write

TASK_DEMAND = np.dtype(
    [
        ("compute", "f8"),  # GFLOP
        ("memory", "f8"),  # GB
        ("output", "f8"),  # GB
        ("delay", "f8"),  # s, of its release
        ("places", "i8"),  # that it takes of a server
        ("labels", "i8"),  # bits of ClusterConfig.label_names
    ]
)
"""What a task demands, for compiled code and live clusters."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Workload:
    """W workflows with T tasks and E edges in all. Construction checks and sorts them, so a workload is always valid.

    W may be 0 for a drawn workload in which nothing arrived; a workload that is read must have a workflow.
    The tasks of workflow w are rows `task_offsets[w]:task_offsets[w + 1]`, its edges are rows
    `edge_offsets[w]:edge_offsets[w + 1]`. Workflows may be given in any order; they are stored by arrival
    (stable), the edges of each by (predecessor, successor).

    Attributes:
        arrival_s: (W,) arrival of the workflow [s], at least 0, non-decreasing.
        task_offsets: (W + 1,) first task row of each workflow, then T.
        compute_gflop: (T,) compute demand c [GFLOP], at least 0. A task without work, as a join, ends when it is ready
            and needs no server; nothing is moved from it.
        memory_gb: (T,) memory m [GB], at least 0.
        labels: (T,) whole numbers whose bit k says that the task runs only on servers that have `label_names[k]`; by
            default 0: anywhere.
        places: (T,) places that it takes of a server, at least 1, by default 1.
        label_names: (L,) what the bits of `labels` stand for: GPU types, models, regions.
        output_gb: (T,) output data d [GB], at least 0, as schedulers see it.
        delay_s: (T,) release delay [s], at least 0, by default 0: the time from the end of its predecessors, or the
            arrival of its workflow, until the task is ready.
        edge_offsets: (W + 1,) first edge row of each workflow, then E.
        edges: (E, 2) predecessor and successor, task indices local to their workflow; unique, acyclic.
        edge_gb: (E,) what the successor needs of the predecessor [GB], at least 0; NaN, the default: all of its output,
            whatever that is. `moved_gb` has the bytes.
        deadline_s: (W,) time from the arrival until the workflow should be done [s], above 0; by default inf: none.
        session: (W,) number of the session that the workflow belongs to, at least 0: the turns of one conversation
            share one. By default every workflow is a separate session: 0 to W - 1 in the order of arrival.

    Raises:
        UserError: naming the workflow and the task, by their position as given.
    """

    arrival_s: Floats
    task_offsets: Ints
    compute_gflop: Floats
    memory_gb: Floats
    output_gb: Floats
    edge_offsets: Ints
    edges: Ints
    delay_s: Floats = None  # type: ignore[assignment]
    session: Ints = None  # type: ignore[assignment]
    edge_gb: Floats = None  # type: ignore[assignment]
    deadline_s: Floats = None  # type: ignore[assignment]
    labels: Ints = None  # type: ignore[assignment]
    label_names: tuple[str, ...] = ()
    places: Ints = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.delay_s is None:
            object.__setattr__(self, "delay_s", np.zeros(len(self.compute_gflop)))
        numbered = self.session is not None
        if not numbered:
            object.__setattr__(self, "session", np.arange(len(self.arrival_s)))
        if self.labels is None:
            object.__setattr__(self, "labels", np.zeros(len(self.compute_gflop), dtype=np.int64))
        if self.places is None:
            object.__setattr__(self, "places", np.ones(len(self.compute_gflop), dtype=np.int64))
        if self.deadline_s is None:
            object.__setattr__(self, "deadline_s", np.full(len(self.arrival_s), np.inf))
        if self.edge_gb is None:
            object.__setattr__(self, "edge_gb", np.full(len(self.edges), np.nan))
        for name in ("arrival_s", "deadline_s", "edge_gb", *TASK_FIELDS):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        for name in ("task_offsets", "edge_offsets", "edges", "session", "labels", "places"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64))
        object.__setattr__(self, "edges", self.edges.reshape(-1, 2))
        self._check_shapes()
        self._check_values()
        self._sort_edges()
        self._check_edges()
        self._sort_workflows(numbered)

    @property
    def num_workflows(self) -> int:
        """W."""
        return len(self.arrival_s)

    @property
    def num_tasks(self) -> int:
        """T, of all workflows together."""
        return len(self.compute_gflop)

    def predecessors(self) -> Ints:
        """(E,) task row of the predecessor of each edge."""
        rows: Ints = self.edges[:, 0] + self.task_offsets[self._workflow_of_edge()]
        return rows

    @property
    def moved_gb(self) -> Floats:
        """(E,) what is moved along each edge between two servers [GB]."""
        return np.where(np.isnan(self.edge_gb), self.output_gb[self.predecessors()], self.edge_gb)

    @property
    def mean_gflop(self) -> float:
        """Mean compute demand of a workflow [GFLOP]."""
        return float(self.compute_gflop.sum()) / self.num_workflows

    @classmethod
    def collected(cls, workflows: Accumulator, sources: Sequence[Path], progress: Progress) -> Workload:
        """The workload of collected workflows, with arrivals from the first one; `progress` notes when that was.

        Raises:
            UserError: the sources have no workflow.
        """
        if not len(workflows):
            raise UserError(f"{', '.join(map(str, sources))}: holds no workflow; at least one is needed")
        arrays = workflows.arrays()
        progress.first_arrival_s = float(arrays["arrival_s"].min())
        return cls(**arrays | {"arrival_s": arrays["arrival_s"] - progress.first_arrival_s})

    def take(self, workflows: Ints, arrival_s: Floats) -> Workload:
        """Some of its workflows with other arrivals.

        Args:
            workflows: (V,) their numbers, repetitions allowed.
            arrival_s: (V,) arrival of each [s].
        """
        return Workload(**self._gathered(workflows) | {"arrival_s": arrival_s})

    def demands(self, cluster: ClusterConfig, tasks: slice = slice(None)) -> NDArray[Any]:
        """TASK_DEMAND of some of its tasks, with the labels of a cluster."""
        found = np.empty(len(self.compute_gflop[tasks]), dtype=TASK_DEMAND)
        found["compute"], found["memory"] = self.compute_gflop[tasks], self.memory_gb[tasks]
        found["output"], found["delay"] = self.output_gb[tasks], self.delay_s[tasks]
        found["places"], found["labels"] = self.places[tasks], self.labels_on(cluster, tasks)
        return found

    def demands_and_edges(self, number: int, cluster: ClusterConfig) -> tuple[NDArray[Any], Ints, Floats]:
        """Of one workflow: `demands` of its tasks, its edges, and what they move [GB]."""
        tasks = slice(self.task_offsets[number], self.task_offsets[number + 1])
        edges = slice(self.edge_offsets[number], self.edge_offsets[number + 1])
        return self.demands(cluster, tasks), self.edges[edges], self.moved_gb[edges]

    def labels_on(self, cluster: ClusterConfig, tasks: slice = slice(None)) -> Ints:
        """Labels that some of its tasks need, as bits of those of a cluster."""
        own, names = self.labels[tasks], cluster.label_names
        found = np.zeros_like(own)
        for k, name in enumerate(self.label_names):
            found |= np.where(own >> k & 1, label_bits((name,), names), 0)
        return found

    def equals(self, other: Workload) -> bool:
        """Whether every number is the same."""
        names = (name for name in self.__dataclass_fields__ if name != "edge_gb")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in (*names, "moved_gb"))

    def fits_somewhere(self, cluster: ClusterConfig) -> NDArray[np.bool_]:
        """(T,) whether each task fits some server."""
        labels, found = self.labels_on(cluster), np.zeros(self.num_tasks, dtype=bool)
        for tier, offered in zip(cluster.tiers, cluster.labels_of_tiers, strict=True):
            found |= fits(self.memory_gb, self.places, labels, tier.memory_gb, tier.max_concurrent, offered)
        return found

    def check_fits(self, cluster: ClusterConfig, source: str) -> None:
        """Check that every task fits some server.

        Raises:
            UserError: naming the first task that fits no server, and its workflow in order of arrival.
        """
        for row in np.flatnonzero(~self.fits_somewhere(cluster))[:1]:
            arrival = self.arrival_s[np.searchsorted(self.task_offsets, row, side="right") - 1]
            raise UserError(
                f"{source}: {self._task(row)} (arrival_s {arrival}) fits no server: "
                f"{no_server_text(float(self.memory_gb[row]), int(self.places[row]), self._labels_of(row), cluster)}"
            )

    # ------------------------------------------------------------------- JSON

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Workload:
        """Read a JSON file, or a workload that comes with the package, `sample:agents`.

        Raises:
            UserError: one line with the file and the first mistake in it.
        """
        return cls.from_dict(read(workload_file(os.fspath(path))), str(path))

    @classmethod
    def from_dict(cls, data: Any, source: str) -> Workload:
        """Build a workload from parsed JSON; `source` names it in errors.

        Raises:
            UserError: one line with the source, the workflow and task index, and what would be valid.
        """
        try:
            return cls(**parse(data))
        except UserError as error:
            raise UserError(f"{source}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The JSON content; `from_dict` gives back exactly the same numbers."""
        return {"format": FORMAT, "version": self._version(), "workflows": list(self._workflows())}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file under a temporary name and rename it.

        Raises:
            UserError: the file cannot be written.
        """
        write(Path(path), self._version(), self._workflows())

    def _version(self) -> int:
        """The lowest version of the format that can hold the workload."""
        if (
            self.moves_parts
            or self.has_deadlines
            or self.labels.any()
            or (self.places > 1).any()
            or not self.compute_gflop.all()
        ):
            return VERSIONS[-1]
        if not np.array_equal(self.session, np.arange(self.num_workflows)):
            return 3
        return 2 if self.delay_s.any() else 1

    @property
    def has_deadlines(self) -> bool:
        """Whether some workflow has a deadline."""
        return bool(np.isfinite(self.deadline_s).any())

    @property
    def moves_parts(self) -> bool:
        """Whether an edge moves anything else than all output of its predecessor."""
        return not np.array_equal(self.moved_gb, self.output_gb[self.predecessors()])

    def _workflows(self) -> Iterator[dict[str, Any]]:
        """The JSON content of each workflow, one after the other, as the text of all is large."""
        version, moves_parts = self._version(), self.moves_parts
        fields = [name for name in TASK_FIELDS if version > 1 or name != "delay_s"]
        for w in range(self.num_workflows):
            rows = slice(self.task_offsets[w], self.task_offsets[w + 1])
            columns = [getattr(self, name)[rows].tolist() for name in fields]
            tasks = [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]
            for k in np.flatnonzero(self.labels[rows]):
                tasks[k]["labels"] = self._labels_of(rows.start + k)
            for k in np.flatnonzero(self.places[rows] > 1):
                tasks[k]["places"] = int(self.places[rows][k])
            of_edges = slice(self.edge_offsets[w], self.edge_offsets[w + 1])
            edges = self.edges[of_edges].tolist()
            if moves_parts:
                parts = self.edge_gb[of_edges].tolist()
                edges = [edge if np.isnan(gb) else [*edge, gb] for edge, gb in zip(edges, parts, strict=True)]
            yield {
                "arrival_s": float(self.arrival_s[w]),
                **({"session": int(self.session[w])} if version > 2 else {}),
                **({"deadline_s": float(self.deadline_s[w])} if np.isfinite(self.deadline_s[w]) else {}),
                "tasks": tasks,
                "edges": edges,
            }

    # ------------------------------------------------------------------- validation

    def _check_shapes(self) -> None:
        for name, offsets, rows in (
            ("task_offsets", self.task_offsets, self.num_tasks),
            ("edge_offsets", self.edge_offsets, len(self.edges)),
        ):
            if offsets.shape != (self.num_workflows + 1,) or offsets[0] != 0 or offsets[-1] != rows:
                raise UserError(f"{name} must hold {self.num_workflows + 1} values from 0 to {rows}")
            if (np.diff(offsets) < 0).any():
                raise UserError(f"{name} must not decrease")
        for name in (*TASK_FIELDS, "labels", "places"):
            if getattr(self, name).shape != (self.num_tasks,):
                raise UserError(f"{name} must hold {self.num_tasks} values, one a task")
        for name in ("session", "deadline_s"):
            if getattr(self, name).shape != (self.num_workflows,):
                raise UserError(f"{name} must hold {self.num_workflows} values, one a workflow")
        if self.edge_gb.shape != (len(self.edges),):
            raise UserError(f"edge_gb must hold {len(self.edges)} values, one an edge")
        for workflow in np.flatnonzero(np.diff(self.task_offsets) == 0)[:1]:
            raise UserError(f"workflow {workflow}: no tasks: at least one is needed")

    def _check_values(self) -> None:
        possible = (self.arrival_s >= 0) & (self.arrival_s <= MAX_NUMBER)
        for workflow in np.flatnonzero(~possible)[:1]:
            value = self.arrival_s[workflow]
            raise UserError(f"workflow {workflow}: arrival_s must be from 0 to {MAX_NUMBER:g} (got {value})")
        for workflow in np.flatnonzero(self.session < 0)[:1]:
            raise UserError(f"workflow {workflow}: session must be at least 0 (got {self.session[workflow]})")
        if len(self.label_names) > MAX_LABELS:
            raise UserError(f"{len(self.label_names)} different labels of tasks; valid: at most {MAX_LABELS}")
        for row in np.flatnonzero(self.labels >> len(self.label_names))[:1]:
            raise UserError(f"{self._task(row)}: labels {self.labels[row]:#b}: has a bit without a name in label_names")
        for row in np.flatnonzero(self.places < 1)[:1]:
            raise UserError(f"{self._task(row)}: places must be at least 1 (got {self.places[row]})")
        for name in TASK_FIELDS:
            values = getattr(self, name)
            least = 1 / MAX_NUMBER if name == "compute_gflop" else 0.0
            possible = (values == 0) | (values >= least) & (values <= MAX_NUMBER)
            for row in np.flatnonzero(~possible)[:1]:
                limits = f"{'0 or ' if least else ''}from {least:g} to {MAX_NUMBER:g}"
                raise UserError(f"{self._task(row)}: {name} must be {limits} (got {values[row]})")
        for workflow in np.flatnonzero(~(self.deadline_s >= 1 / MAX_NUMBER))[:1]:
            value = self.deadline_s[workflow]
            raise UserError(f"workflow {workflow}: deadline_s must be at least {1 / MAX_NUMBER:g} (got {value})")

    def _check_edges(self) -> None:
        workflow = self._workflow_of_edge()
        num_tasks = np.diff(self.task_offsets)[workflow]
        unknown = np.any((self.edges < 0) | (self.edges >= num_tasks[:, None]), axis=1)
        itself = self.edges[:, 0] == self.edges[:, 1]
        twice = np.zeros(len(self.edges), dtype=bool)  # sorted: duplicates are neighbours
        twice[1:] = (workflow[1:] == workflow[:-1]) & np.all(self.edges[1:] == self.edges[:-1], axis=1)
        for row in np.flatnonzero(unknown | itself | twice)[:1]:
            edge, where = self.edges[row].tolist(), f"workflow {workflow[row]}, edge {self.edges[row].tolist()}"
            if unknown[row]:
                task = next(i for i in edge if not 0 <= i < num_tasks[row])
                raise UserError(f"{where}: unknown task {task}; valid: 0 to {num_tasks[row] - 1}")
            raise UserError(f"{where}: a task cannot need itself" if itself[row] else f"{where}: appears twice")
        for row in np.flatnonzero((self.edge_gb < 0) | (self.edge_gb > MAX_NUMBER))[:1]:
            where = f"workflow {workflow[row]}, edge {self.edges[row].tolist()}"
            raise UserError(f"{where}: must move from 0 to {MAX_NUMBER:g} GB (got {self.edge_gb[row]})")
        # Only a workflow with an edge to a lower index can have a cycle.
        for w in np.unique(workflow[self.edges[:, 0] > self.edges[:, 1]]):
            edges = self.edges[self.edge_offsets[w] : self.edge_offsets[w + 1]]
            cycle = find_cycle(edges, range(self.task_offsets[w + 1] - self.task_offsets[w]))
            if cycle:
                raise UserError(f"workflow {w}: the edges form a cycle: {cycle}")

    def _sort_edges(self) -> None:
        # Most edges are in order; sorting them would take memory.
        step = np.diff(self.edges, axis=0)
        rises = (step[:, 0] > 0) | ((step[:, 0] == 0) & (step[:, 1] >= 0))
        inner = self.edge_offsets[1:-1]
        rises[inner[(inner > 0) & (inner < len(self.edges))] - 1] = True
        if rises.all():
            return
        order = np.lexsort((self.edges[:, 1], self.edges[:, 0], self._workflow_of_edge()))
        object.__setattr__(self, "edges", self.edges[order])
        object.__setattr__(self, "edge_gb", self.edge_gb[order])

    def _sort_workflows(self, numbered: bool) -> None:
        if (np.diff(self.arrival_s) >= 0).all():
            return
        for name, array in self._gathered(np.argsort(self.arrival_s, kind="stable")).items():
            if numbered or name != "session":
                object.__setattr__(self, name, array)

    def _gathered(self, workflows: Ints) -> dict[str, Any]:
        """The arrays of some workflows, in the order given."""
        tasks, task_offsets = gather_blocks(self.task_offsets, workflows)
        edges, edge_offsets = gather_blocks(self.edge_offsets, workflows)
        return {name: getattr(self, name)[tasks] for name in (*TASK_FIELDS, "labels", "places")} | {
            "label_names": self.label_names,
            "arrival_s": self.arrival_s[workflows],
            "task_offsets": task_offsets,
            "edge_offsets": edge_offsets,
            "edges": self.edges[edges],
            "edge_gb": self.edge_gb[edges],
            "session": self.session[workflows],
            "deadline_s": self.deadline_s[workflows],
        }

    def _labels_of(self, row: int) -> list[str]:
        """Names of the labels of a task row."""
        return [name for k, name in enumerate(self.label_names) if self.labels[row] >> k & 1]

    def _workflow_of_edge(self) -> Ints:
        return np.repeat(np.arange(self.num_workflows), np.diff(self.edge_offsets))

    def _task(self, row: int) -> str:
        """Name of a task row in errors."""
        workflow = int(np.searchsorted(self.task_offsets, row, side="right")) - 1
        return f"workflow {workflow}, task {row - self.task_offsets[workflow]}"


def no_server_text(memory_gb: float, places: int, labels: Sequence[str], cluster: ClusterConfig) -> str:
    """Why a task fits no server of a cluster."""
    if missing := [label for label in labels if label not in cluster.label_names]:
        return str(choice_error("label", missing[0], cluster.label_names or ("none",)))
    alike = [tier for tier in cluster.tiers if set(labels) <= set(tier.labels)]
    if not alike:
        return f"labels are {', '.join(labels)}, and no server has them all"
    those = f"server with its labels ({', '.join(labels)})" if labels else "server"
    most = max(tier.max_concurrent for tier in alike)
    if places > most:
        return f"places is {places}, the largest {those} has max_concurrent {most}; tiers: {cluster.tier_counts}"
    largest = max(tier.memory_gb for tier in alike if tier.max_concurrent >= places)
    of_those = f"{those} of so many places" if places > 1 else those
    return f"memory_gb is {memory_gb}, the largest {of_those} has {largest}; tiers: {cluster.tier_counts}"


def find_cycle(edges: Ints, names: Sequence[Any]) -> str:
    """A cycle of edges (E, 2) by the names of its tasks, shortened if it is long; empty if there is none."""
    if (edges[:, 0] < edges[:, 1]).all():
        return ""
    graph: TopologicalSorter[int] = TopologicalSorter()
    for predecessor, successor in edges.tolist():
        graph.add(successor, predecessor)
    try:
        graph.prepare()
    except CycleError as error:
        cycle = error.args[1][:-1]
        first = cycle.index(min(cycle))
        shown = [f"{names[task]!s:.60}" for task in (*cycle[first:], *cycle[: first + 1])]
        if len(shown) > 10:
            shown = [*shown[:5], f"({len(shown) - 9} more)", *shown[-4:]]
        return " -> ".join(shown)
    return ""
