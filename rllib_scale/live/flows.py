"""One workflow under way on a live cluster: what it demands, and how often its tasks have failed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rllib_scale.workloads.model import Workload


class Flow:
    """A workflow of T tasks and E edges. What has become of each task is the engine's to say.

    Args:
        number: in order of arrival.
        arrival_s: when it is due to arrive [s].
        demands: (T, 4) compute [GFLOP], memory [GB], output [GB] and release delay [s] of each task.
        edges: (E, 2) predecessor and successor, sorted; acyclic.
    """

    def __init__(self, number: int, arrival_s: float, demands: NDArray[np.float64], edges: NDArray[np.int64]) -> None:
        self.number, self.arrival_s, self.demands, self.edges = number, arrival_s, demands, edges
        self.predecessors: list[list[int]] = [[] for _ in demands]
        self.successors: list[list[int]] = [[] for _ in demands]
        for before, after in edges.tolist():
            self.predecessors[after].append(before)
            self.successors[before].append(after)
        self.attempts = [0] * len(demands)  # that failed by themselves

    @classmethod
    def of(cls, workload: Workload, number: int) -> Flow:
        """A workflow of a workload."""
        return cls(number, float(workload.arrival_s[number]), *workload.demands_and_edges(number))

    def __len__(self) -> int:
        """T."""
        return len(self.demands)
