"""The state that a scheduler sees: plain arrays in physical units, of the simulator or of a live cluster.

Rules, planners, the dashboard and a live cluster read snapshots; only the simulator reads the engine's own arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

READY = np.dtype(
    [
        ("workflow", "i8"),  # in order of arrival, from 0
        ("task", "i8"),  # index in its workflow
        ("compute_gflop", "f8"),  # that is left to do, as schedulers see it
        ("memory_gb", "f8"),
        ("places", "i8"),  # that it takes of a server
        ("labels", "i8"),  # that it needs of a server, bits of ClusterConfig.label_names
        ("output_gb", "f8"),
        ("hop", "i8"),  # edges on the longest path to a sink
        ("arrival_s", "f8"),  # of its workflow
        ("ready_s", "f8"),
    ]
)
INPUT = np.dtype(
    [
        ("task", "i8"),  # row of `ready`
        ("server", "i8"),  # on which the input is
        ("transfer_s", "f8"),  # to any other server
    ]
)
RUNNING = np.dtype([("workflow", "i8"), ("task", "i8"), ("server", "i8"), ("expected_end_s", "f8")])
"""A task that runs, and when it is expected to end."""
UP, DRAINING, AWAY = range(3)
"""Status of a server: it takes tasks; it takes none any more, and runs what it has; it is not there."""


@dataclass(frozen=True)
class LiveWorkflow:
    """A workflow with unfinished tasks. Shapes: T tasks that are seen, E edges between them."""

    index: int
    arrival_s: float
    task: np.ndarray  # (T,) index in the workflow: 0 to T - 1 where the whole workflow is seen
    compute_gflop: np.ndarray  # (T,) as schedulers see it
    memory_gb: np.ndarray  # (T,)
    places: np.ndarray  # (T,) as in READY
    labels: np.ndarray  # (T,) as in READY
    output_gb: np.ndarray  # (T,)
    delay_s: np.ndarray  # (T,) release delays
    edges: np.ndarray  # (E, 2) predecessor, successor, rows of these arrays; by predecessor
    transfer_s: np.ndarray  # (E,) to move what the successor needs to another server; 0 where nothing is moved
    hop: np.ndarray  # (T,) edges on the longest path to a sink
    server: np.ndarray  # (T,) it was started on; -1: not started, or stopped
    completed: np.ndarray  # (T,) bool


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One cluster at one time. Shapes: N servers, R tasks that wait, A that run, K candidates.

    Empty rows of the action space (`cluster.empty_slots`) are servers of capacity 0 that are away.

    Attributes:
        index: number of the environment in its batch; 0 of a live cluster.
        clock_s: time since the start [s].
        num_arrived: workflows that have arrived. They are numbered in order of arrival: the next gets this number.
        capacity_gflops: (N,) GFLOPS of each task that runs there; 0 in an empty row.
        memory_gb: (N,) GB in all.
        free_memory_gb: (N,) GB that no running task needs.
        max_concurrent: (N,) its places: tasks that it runs at once, where each takes one.
        properties: (N,) simulator.cluster.SERVER: what the tier of each declares.
        num_running: (N,) places that are in use.
        status: (N,) UP, DRAINING or AWAY.
        expected_end_s: (N,) when the next of its running tasks is expected to end [s]; inf where none runs.
        available_at_s: (N,) when a place is expected to be free, tasks that wait for it in this round included [s]; inf
            where nothing can start on it any more.
        running: (A,) RUNNING: the tasks that run, by server, workflow and task.
        ready: (R,) READY: the tasks that wait, in the order of level 1 [SCALE, sec. 4.1].
        inputs: (I,) INPUT: what has to be moved for a waiting task that starts elsewhere than where it is.
        candidates: (K,) rows of `ready` that are offered, in order.
        workflows: the unfinished workflows that have arrived, by number; read one before the clock runs on.
        bandwidth_gb_s: between servers [GB/s].
        latency_s: between servers [s].
    """

    index: int
    clock_s: float
    num_arrived: int
    capacity_gflops: np.ndarray
    memory_gb: np.ndarray
    free_memory_gb: np.ndarray
    max_concurrent: np.ndarray
    properties: np.ndarray
    num_running: np.ndarray
    status: np.ndarray
    expected_end_s: np.ndarray
    available_at_s: np.ndarray
    running: np.ndarray
    ready: np.ndarray
    inputs: np.ndarray
    candidates: np.ndarray
    workflows: Mapping[int, LiveWorkflow]
    bandwidth_gb_s: float
    latency_s: float

    @cached_property
    def idle(self) -> np.ndarray:
        """(N,) bool: the server takes tasks, and has a free place."""
        return (self.status == UP) & (self.num_running < self.max_concurrent)

    @property
    def free_at_s(self) -> np.ndarray:
        """(N,) when a place is free: now where the server is idle; inf where nothing can start on it any more."""
        ends = np.where(self.idle, self.clock_s, np.maximum(self.expected_end_s, self.clock_s))
        return np.where(self.status == UP, ends, np.inf)

    @property
    def transfer_s(self) -> np.ndarray:
        """(R, N) time to move the input of each waiting task to each server [s]; 0 to an empty row."""
        stays = np.zeros((len(self.ready), len(self.status)))
        np.add.at(stays, (self.inputs["task"], self.inputs["server"]), self.inputs["transfer_s"])
        total = np.bincount(self.inputs["task"], weights=self.inputs["transfer_s"], minlength=len(self.ready))
        return np.where(self.max_concurrent == 0, 0.0, np.maximum(0.0, total[:, None] - stays))

    def workflow(self, number: int) -> LiveWorkflow:
        """The workflow of that number; it has arrived and is not complete.

        Raises:
            KeyError: it has not arrived yet, or is complete.
        """
        return self.workflows[number]
