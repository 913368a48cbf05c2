"""One workflow under way on a live cluster: what it demands, and how far it has come."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import CommunicationConfig
from rllib_scale.observation.snapshot import LiveWorkflow
from rllib_scale.workloads.dag import hops_and_descendants
from rllib_scale.workloads.model import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Flow:
    """A workflow of T tasks and E edges, and what has become of each task.

    Args:
        number: in order of arrival.
        arrival_s: when it is due to arrive [s].
        demands: (T, 4) compute [GFLOP], memory [GB], output [GB] and release delay [s] of each task.
        edges: (E, 2) predecessor and successor, sorted; acyclic.
    """

    def __init__(self, number: int, arrival_s: float, demands: Floats, edges: Ints) -> None:
        count = len(demands)
        self.number, self.arrival_s = number, arrival_s
        self.compute_gflop, self.memory_gb, self.output_gb, self.delay_s = demands.T.copy()
        self.edges = edges
        self.predecessors: list[list[int]] = [[] for _ in range(count)]
        self.successors: list[list[int]] = [[] for _ in range(count)]
        for before, after in edges.tolist():
            self.predecessors[after].append(before)
            self.successors[before].append(after)
        self.hop, self.descendants = hops_and_descendants(count, edges)
        self.missing = [len(before) for before in self.predecessors]
        self.server = np.full(count, -1, dtype=np.int64)  # on which it was started; -1: not yet, or taken back
        self.completed = np.zeros(count, dtype=bool)
        self.attempts = [0] * count  # that failed by themselves

    @classmethod
    def of(cls, workload: Workload, number: int) -> Flow:
        """A workflow of a workload."""
        tasks = slice(workload.task_offsets[number], workload.task_offsets[number + 1])
        edges = workload.edges[workload.edge_offsets[number] : workload.edge_offsets[number + 1]]
        columns = (workload.compute_gflop, workload.memory_gb, workload.output_gb, workload.delay_s)
        demands = np.stack([column[tasks] for column in columns], axis=1)
        return cls(number, float(workload.arrival_s[number]), demands, edges)

    def __len__(self) -> int:
        """T."""
        return len(self.missing)

    @property
    def done(self) -> bool:
        """Whether every task has ended."""
        return bool(self.completed.all())

    def rank(self, task: int, order: str) -> float:
        """Key of a task in a named order (`config.NamedOrder`), largest first."""
        ranks = {
            "longest-hop": self.hop[task],
            "most-descendants": self.descendants[task],
            "shortest-task": -self.compute_gflop[task],
            "descendants-per-work": self.descendants[task] / self.compute_gflop[task],
        }
        return float(ranks.get(order, 0.0))

    def moved_for(self, task: int, communication: CommunicationConfig) -> list[int]:
        """The predecessors whose output is moved to a task that starts elsewhere."""
        before = self.predecessors[task]
        if communication.predecessors == "all" or not before:
            return before
        if communication.first == "largest-output":
            return [max(before, key=lambda at: (self.output_gb[at], -at))]
        return before[:1]

    @cached_property
    def seen(self) -> LiveWorkflow:
        """As schedulers see it, once it has arrived; to be read before the clock runs on."""
        return LiveWorkflow(
            index=self.number,
            arrival_s=self.arrival_s,
            task=np.arange(len(self)),
            compute_gflop=self.compute_gflop,
            memory_gb=self.memory_gb,
            output_gb=self.output_gb,
            delay_s=self.delay_s,
            edges=self.edges,
            hop=self.hop,
            server=self.server,
            completed=self.completed,
        )
