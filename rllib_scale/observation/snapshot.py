"""What a dispatcher sees: everything that is in one environment at one moment, in physical units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rllib_scale.simulator.state import TASK_BITS, State

READY = np.dtype(
    [
        ("workflow", "i8"),  # in order of arrival, from 0
        ("task", "i8"),  # index in its workflow
        ("compute_gflop", "f8"),
        ("memory_gb", "f8"),
        ("output_gb", "f8"),
        ("hop", "i8"),  # edges on the longest path to a sink
        ("arrival_s", "f8"),  # of its workflow
        ("ready_s", "f8"),
    ]
)


@dataclass(frozen=True)
class LiveWorkflow:
    """A workflow with unfinished tasks. Shapes: T tasks, E edges."""

    index: int
    arrival_s: float
    compute_gflop: np.ndarray  # (T,)
    memory_gb: np.ndarray  # (T,)
    output_gb: np.ndarray  # (T,)
    edges: np.ndarray  # (E, 2) predecessor, successor; by predecessor
    hop: np.ndarray  # (T,) edges on the longest path to a sink
    host: np.ndarray  # (T,) server the task was started on; -1: not started
    completed: np.ndarray  # (T,) bool


class System:
    """One environment at one moment. Shapes: N server slots, R ready tasks.

    It reads the engine's own arrays: use it before the engine moves on, and keep copies of what shall outlive that.
    """

    def __init__(self, index: int, state: State, servers: np.ndarray) -> None:
        self.index = index
        """Number of the environment in its batch."""
        self._state = state
        self._servers = servers

    @property
    def clock_s(self) -> float:
        """Time since the start of the episode."""
        return float(self._state.env["clock"][self.index])

    @property
    def num_arrived(self) -> int:
        """Workflows that have arrived. They are numbered in order of arrival: the next one gets this number."""
        return int(self._state.env["workflows_arrived"][self.index])

    @property
    def capacity_gflops(self) -> np.ndarray:
        """(N,); 0 in an empty slot."""
        return self._servers["capacity"]

    @property
    def memory_gb(self) -> np.ndarray:
        """(N,); 0 in an empty slot."""
        return self._servers["memory"]

    @cached_property
    def idle(self) -> np.ndarray:
        """(N,) bool: a server stands in the slot and runs nothing."""
        return (self._state.finish[self.index] == np.inf) & (self.capacity_gflops > 0)

    @cached_property
    def free_at_s(self) -> np.ndarray:
        """(N,) when the running task finishes; now where the server is idle; inf in an empty slot."""
        return np.where(self.idle, self.clock_s, self._state.finish[self.index])

    @cached_property
    def ready(self) -> np.ndarray:
        """(R,) READY: the ready, unassigned tasks, R >= 1, in the order of level 1 [SCALE, sec. 4.1]."""
        b, s = self.index, self._state
        codes = s.ready[b, : s.env["num_ready"][b]]
        slot, k = codes >> TASK_BITS, codes & 0xFFFF
        tasks, slots = s.tasks[b, slot, k], s.slots[b, slot]
        order = np.lexsort((k, slots["workflow"], tasks["ready"], -tasks["hop"]))
        table = np.empty(len(codes), dtype=READY)
        table["workflow"], table["task"] = slots["workflow"], k
        table["compute_gflop"], table["memory_gb"] = tasks["compute"], tasks["memory"]
        table["output_gb"], table["hop"] = tasks["output"], tasks["hop"]
        table["arrival_s"], table["ready_s"] = slots["arrival"], tasks["ready"]
        return table[order]

    def workflow(self, index: int) -> LiveWorkflow:
        """The workflow of that number; it has arrived and is not complete.

        Raises:
            KeyError: it has not arrived yet, or is complete.
        """
        b, s = self.index, self._state
        found = np.flatnonzero(s.slots["workflow"][b] == index)
        if len(found) == 0 or found[0] == s.env["pending"][b]:
            raise KeyError(f"workflow {index} is not in the system")
        slot = int(found[0])
        count = int(s.slots["num_tasks"][b, slot])
        tasks = s.tasks[b, slot, :count]
        source = np.repeat(np.arange(count), tasks["num_successors"])
        host = tasks["host"].astype(np.int64)
        running = s.running[b, host] == (slot << TASK_BITS | np.arange(count))
        return LiveWorkflow(
            index=index,
            arrival_s=float(s.slots["arrival"][b, slot]),
            compute_gflop=tasks["compute"].copy(),
            memory_gb=tasks["memory"].copy(),
            output_gb=tasks["output"].copy(),
            edges=np.stack([source, s.successors[b, slot, : len(source)]], axis=1),
            hop=tasks["hop"].astype(np.int64),
            host=host,
            completed=(host >= 0) & ~running,
        )
