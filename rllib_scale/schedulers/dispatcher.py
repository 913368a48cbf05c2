"""Policies that decide at each event, from a snapshot of the whole system, which waiting tasks start, and where."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rllib_scale.errors import UserError
from rllib_scale.observation.policy import Batch
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.schedulers.base import BasePolicy, as_array
from rllib_scale.workloads.fitting import fits

MAX_IDLE_ROUNDS = 1000
"""Rounds in a row that start nothing while nothing runs and a task fits: the queue grows, and each takes longer."""


class Dispatcher(BasePolicy):
    """Decides which ready tasks start now, and where; the others wait for a later event and block no other task.

    A `Scheduler` is asked for a server for one task, which the paper's level-1 rule has chosen. A dispatcher visits the
    ready tasks in an order of its own, and may hold a server back for a task that it wants there. It is asked whenever
    something happened (a task completed, a workflow arrived) and a task is ready. It makes no invalid decision, so the
    action mask is nothing to it. One that reads no `Snapshot.workflows` may set `sees = "tasks"`.

    Subclasses implement `dispatch`, or `__call__` where all environments are to be decided on in one go (one forward
    pass of a network, say). State and generators are kept per environment, by `Snapshot.index`; `reset` starts again.
    """

    def advance(self, batch: Batch) -> None:
        """See `Policy.advance`.

        Raises:
            UserError: an answer cannot be carried out, `dispatch` returned something else, or it starts nothing for
                MAX_IDLE_ROUNDS.
        """
        snapshots = [batch.snapshot(b) for b in np.flatnonzero(~batch.done).tolist()]
        answers = self(snapshots)
        self._check_progress(snapshots, answers)
        try:
            batch.dispatch(answers)
        except ValueError as error:
            expected = "tasks that wait, each on an idle server with enough free memory"
            raise UserError(f"scheduler {type(self).__name__}: {error}; expected {expected}") from error

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self._idle_rounds.clear()

    @cached_property
    def _idle_rounds(self) -> Counter[int]:
        """Rounds in a row in which each environment stood still; made here, as subclasses may have any `__init__`."""
        return Counter()

    def _check_progress(self, snapshots: Sequence[Snapshot], answers: np.ndarray) -> None:
        """Refuse to go on where an environment has stood still for MAX_IDLE_ROUNDS."""
        starting = set(answers[:, 0].tolist())
        for now in snapshots:
            if now.index in starting or len(now.running) or not _could_start(now):
                self._idle_rounds.pop(now.index, None)
                continue
            self._idle_rounds[now.index] += 1
            if self._idle_rounds[now.index] >= MAX_IDLE_ROUNDS:
                raise UserError(
                    f"scheduler {type(self).__name__}: dispatch started no task in {MAX_IDLE_ROUNDS:,} rounds in a "
                    f"row, while {len(now.ready):,} tasks wait and no server runs any; expected at least one start "
                    "where a task fits an idle server"
                )

    @abstractmethod
    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """Tasks to start now in one environment: (K, 3) integers, workflow, task, server; K may be 0.

        Each a row of `Snapshot.ready`, each on an idle server with enough memory. They start in this order.
        """

    def __call__(self, snapshots: Sequence[Snapshot]) -> np.ndarray:
        """Tasks to start in several environments of a batch: (K, 4) integers, as `Engine.dispatch` takes them."""
        starts = [np.zeros((0, 4), dtype=np.int64)]
        for snapshot in snapshots:
            given = self.dispatch(snapshot)
            chosen = as_array(given)
            if chosen.shape in ((0,), (0, 3)):  # nothing starts; an empty list is of no integers
                chosen = np.zeros((0, 3), dtype=np.int64)
            if chosen.ndim != 2 or chosen.shape[1] != 3 or chosen.dtype.kind not in "iu":
                raise self.wrong("dispatch", given, "integers of shape (K, 3), with workflow, task and server in a row")
            starts.append(np.column_stack([np.full(len(chosen), snapshot.index), chosen]))
        return np.concatenate(starts)


def _could_start(now: Snapshot) -> bool:
    """Whether some task that waits fits some server, of which none runs anything."""
    needs = (now.ready[name][:, None] for name in ("memory_gb", "places", "labels"))
    offered = now.properties["labels"][now.idle]
    return bool(fits(*needs, now.free_memory_gb[now.idle], now.max_concurrent[now.idle], offered).any())
