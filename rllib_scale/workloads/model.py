"""A workload: workflow DAGs and their arrivals as flat arrays [SCALE, sec. 3]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import ClusterConfig
from rllib_scale.config.cluster import label_bits
from rllib_scale.errors import UserError
from rllib_scale.presets import workload_file
from rllib_scale.workloads.checks import check_edges, check_shapes, check_values, no_server_text
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS, Accumulator, gather_blocks
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.native import FORMAT, parse, read, version_of, workflows_of, write

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
        label_names: (L,) what the bits of `labels` mean: GPU types, models, regions.
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
        check_shapes(self)
        check_values(self)
        self._sort_edges()
        check_edges(self)
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
        rows: Ints = self.edges[:, 0] + self.task_offsets[self.workflow_of_edge()]
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
                f"{source}: {self.task_name(row)} (arrival_s {arrival}) fits no server: "
                f"{no_server_text(float(self.memory_gb[row]), int(self.places[row]), self.labels_of(row), cluster)}"
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
        return {"format": FORMAT, "version": version_of(self), "workflows": list(workflows_of(self))}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file under a temporary name and rename it.

        Raises:
            UserError: the file cannot be written.
        """
        write(Path(path), self)

    @property
    def has_deadlines(self) -> bool:
        """Whether some workflow has a deadline."""
        return bool(np.isfinite(self.deadline_s).any())

    @property
    def moves_parts(self) -> bool:
        """Whether an edge moves anything else than all output of its predecessor."""
        return not np.array_equal(self.moved_gb, self.output_gb[self.predecessors()])

    def _sort_edges(self) -> None:
        # Most edges are in order; sorting them would take memory.
        step = np.diff(self.edges, axis=0)
        rises = (step[:, 0] > 0) | ((step[:, 0] == 0) & (step[:, 1] >= 0))
        inner = self.edge_offsets[1:-1]
        rises[inner[(inner > 0) & (inner < len(self.edges))] - 1] = True
        if rises.all():
            return
        order = np.lexsort((self.edges[:, 1], self.edges[:, 0], self.workflow_of_edge()))
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

    def labels_of(self, row: int) -> list[str]:
        """Names of the labels of a task row."""
        return [name for k, name in enumerate(self.label_names) if self.labels[row] >> k & 1]

    def workflow_of_edge(self) -> Ints:
        """(E,) number of the workflow of each edge."""
        return np.repeat(np.arange(self.num_workflows), np.diff(self.edge_offsets))

    def task_name(self, row: int) -> str:
        """Name of a task row in errors."""
        workflow = int(np.searchsorted(self.task_offsets, row, side="right")) - 1
        return f"workflow {workflow}, task {row - self.task_offsets[workflow]}"
