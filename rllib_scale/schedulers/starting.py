"""A moment in which tasks start one after another on open rows, for whoever decides on one start at a time."""

from __future__ import annotations

import numpy as np

from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.schedulers.visiting import Rows


class Starting:
    """A snapshot and the starts that were decided on in it. Shapes: N rows, R tasks that wait in the snapshot.

    Attributes:
        snapshot: as it was before any start.
        waits: (R,) bool: has not been started.
        can_start: (R, N) bool: the task waits, the row is open for it.
        lasts_s: (R, N) s of transfer and execution; inf on a row without a server.
        ahead_s: (N,) s until the row is available; inf where nothing can start on it any more.
        free_gb: (N,) GB of the row's server that no task needs.
        started: (K, 2) those of this moment: row of `Snapshot.ready`, row of the cluster.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._rows, ready = Rows(snapshot), snapshot.ready
        there = snapshot.capacity_gflops > 0
        capacity = np.where(there, snapshot.capacity_gflops, 1.0)
        self.waits = np.ones(len(ready), dtype=bool)
        self.transfer_s = snapshot.transfer_s
        self.execution_s = np.where(there, ready["compute_gflop"][:, None] / capacity, np.inf)
        self.lasts_s = self.transfer_s + self.execution_s
        self.can_start = self._rows.is_open & (ready["memory_gb"][:, None] <= self.free_gb)
        self.started: list[tuple[int, int]] = []

    @property
    def ahead_s(self) -> np.ndarray:
        """See the class."""
        return self._rows.wait

    @property
    def is_open(self) -> np.ndarray:
        """(N,) bool: the row runs nothing."""
        return self._rows.is_open

    @property
    def free_gb(self) -> np.ndarray:
        """See the class."""
        return np.asarray(self._rows.free[self._rows.host])

    def start(self, task: int, row: int) -> None:
        """Let a task (a row of `Snapshot.ready`) start on a row that is open for it.

        Raises:
            ValueError: it is not.
        """
        if not (self.can_start[task, row] and self._rows.take(row, float(self.snapshot.ready["memory_gb"][task]))):
            raise ValueError(f"waiting task {task} cannot start on row {row}")
        self.waits[task] = False
        self._rows.wait[row] += self.lasts_s[task, row]
        self.started.append((task, row))
        memory = self.snapshot.ready["memory_gb"][:, None]
        self.can_start &= self._rows.is_open & (memory <= self.free_gb) & self.waits[:, None]

    def answers(self) -> np.ndarray:
        """(K, 3) workflow, task, row of what was started, as `Dispatcher.dispatch` gives it."""
        ready = self.snapshot.ready
        rows = [(ready["workflow"][task], ready["task"][task], row) for task, row in self.started]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)
