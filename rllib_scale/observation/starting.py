"""A state in which tasks start one after another on open rows, for policies that decide on one start at a time."""

from __future__ import annotations

import numpy as np

from rllib_scale.observation.answers import MEMORY_TOLERANCE_GB
from rllib_scale.observation.snapshot import BUSY, Snapshot


class Starting:
    """A snapshot and the starts that were decided on in it. Shapes: N rows, R tasks that wait in the snapshot.

    Attributes:
        snapshot: as it was before any start.
        waits: (R,) bool: has not been started.
        is_open: (N,) bool: the row runs nothing and is not reserved.
        can_start: (R, N) bool: the task waits, the row is open for it.
        transfer_s: (R, N) s to move the task's input there.
        execution_s: (R, N) s of execution; inf on a row without a server.
        lasts_s: (R, N) s of transfer and execution.
        ahead_s: (N,) s until the row is available; inf where nothing can start on it any more.
        started: those of this state: row of `Snapshot.ready`, row of the cluster.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, ready = snapshot, snapshot.ready
        takes, has_server = snapshot.status <= BUSY, snapshot.capacity_gflops > 0
        self.ahead_s = np.where(takes, snapshot.available_at_s - snapshot.clock_s, np.inf)
        self.is_open = snapshot.idle & (self.ahead_s == 0.0)
        self._free = np.zeros(int(snapshot.host.max(initial=0)) + 1)
        self._free[snapshot.host[takes]] = snapshot.free_memory_gb[takes]
        capacity = np.where(has_server, snapshot.capacity_gflops, 1.0)
        self.waits = np.ones(len(ready), dtype=bool)
        self.transfer_s = snapshot.transfer_s
        self.execution_s = np.where(has_server, ready["compute_gflop"][:, None] / capacity, np.inf)
        self.lasts_s = self.transfer_s + self.execution_s
        self.can_start = self.is_open & (ready["memory_gb"][:, None] <= self.free_gb)
        self.started: list[tuple[int, int]] = []

    @property
    def free_gb(self) -> np.ndarray:
        """(N,) GB of the row's server that no task needs; of a row without a server without meaning."""
        return np.asarray(self._free[self.snapshot.host])

    def start(self, task: int, row: int) -> None:
        """Let a task (a row of `Snapshot.ready`) start on a row that is open for it.

        Raises:
            ValueError: it is not.
        """
        if not self.can_start[task, row]:
            raise ValueError(f"waiting task {task} cannot start on row {row}")
        memory = self.snapshot.ready["memory_gb"]
        self.waits[task], self.is_open[row] = False, False
        self.ahead_s[row] += self.lasts_s[task, row]
        self._free[self.snapshot.host[row]] -= memory[task] + MEMORY_TOLERANCE_GB
        self.started.append((task, row))
        self.can_start &= self.is_open & (memory[:, None] <= self.free_gb) & self.waits[:, None]

    def answers(self) -> np.ndarray:
        """(K, 3) workflow, task, row of what was started, as `Dispatcher.dispatch` gives it."""
        ready = self.snapshot.ready
        rows = [(ready["workflow"][task], ready["task"][task], row) for task, row in self.started]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)
