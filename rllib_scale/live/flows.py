"""One workflow under way on a live cluster: what it demands, what its tasks have come through, and what they leave."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import ClusterConfig
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.workloads.model import Workload


class Flow:
    """A workflow of T tasks and E edges. The state of its tasks is in the engine.

    Args:
        number: position in order of arrival.
        arrival_s: time of arrival [s].
        demands: (T,) TASK_DEMAND of each task.
        edges: (E, 2) predecessor and successor, sorted; acyclic.
        edge_gb: (E,) data that the successor needs from the predecessor [GB]; None: all of its output.
    """

    def __init__(
        self,
        number: int,
        arrival_s: float,
        demands: NDArray[Any],
        edges: NDArray[np.int64],
        edge_gb: NDArray[np.float64] | None = None,
    ) -> None:
        self.number, self.arrival_s, self.demands, self.edges = number, arrival_s, demands, edges
        self.edge_gb = demands["output"][edges[:, 0]] if edge_gb is None else edge_gb
        self.sources: list[list[int]] = [[] for _ in demands]
        """For each task, the predecessors that give it an output; those without work give none."""
        self.readers: list[list[int]] = [[] for _ in demands]
        """For each task, the successors that need its output."""
        has_work = demands["compute"] > 0
        self.may_end_alone = not has_work.all()
        """Whether its last task may end without an attempt."""
        for before, after in edges.tolist():
            if has_work[before] and has_work[after]:
                self.sources[after].append(before)
                self.readers[before].append(after)
        self.attempts = [0] * len(demands)  # that failed by themselves
        self.deaths = [0] * len(demands)  # of servers while they ran the task, and whose nodes went on

    @classmethod
    def of(cls, workload: Workload, number: int, cluster: ClusterConfig) -> Flow:
        """A workflow of a workload, for a cluster."""
        return cls(number, float(workload.arrival_s[number]), *workload.demands_and_edges(number, cluster))

    def __len__(self) -> int:
        """T."""
        return len(self.demands)


class Ended(NamedTuple):
    """A task that has ended for good, or a workflow that has failed, for a listener."""

    flow: Flow
    task: int  # -1: the workflow has failed
    is_last: bool  # whether the workflow has ended
    output: Any  # a reference
    error: BaseException | None


class Output(NamedTuple):
    """Output of a task on the server where it ran."""

    reference: Any
    server: int
    life: int  # restarts of that server until then


def ended_alone(flows: dict[int, Flow], engine: EventEngine) -> list[int]:
    """Numbers of the workflows whose last task was without work, so that no attempt reports the end."""
    candidates = (number for number, flow in flows.items() if flow.may_end_alone and number < engine.next_number)
    return [number for number in candidates if not engine.is_under_way(number)]
