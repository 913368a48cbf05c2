"""Workflows as they are read, in compact buffers: about 60 bytes a task, so that millions of them fit."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.native import TASK_FIELDS
from rllib_scale.workloads.model import Workload, gather_blocks


class Accumulator:
    """Takes workflows one by one, in any order of arrival, and makes a `Workload` of them."""

    def __init__(self) -> None:
        self._arrivals, self._sessions = array("d"), array("q")
        self._columns = {name: array("d") for name in TASK_FIELDS}
        self._task_offsets, self._edge_offsets, self._edges = array("q", [0]), array("q", [0]), array("q")

    def __len__(self) -> int:
        """Workflows so far."""
        return len(self._arrivals)

    @property
    def num_tasks(self) -> int:
        """Tasks so far."""
        return self._task_offsets[-1]

    def add(
        self, arrival_s: float, session: int, tasks: Mapping[str, Sequence[float]], edges: Iterable[tuple[int, int]]
    ) -> None:
        """Add a workflow.

        Args:
            arrival_s: when it arrives [s], from whatever moment.
            session: number of its session.
            tasks: a sequence for each of `TASK_FIELDS`, of one value a task.
            edges: predecessor and successor, indices within the workflow; unique, best in order.
        """
        self._arrivals.append(arrival_s)
        self._sessions.append(session)
        for name, column in self._columns.items():
            column.extend(tasks[name])
        for edge in edges:
            self._edges.extend(edge)
        self._task_offsets.append(len(self._columns[TASK_FIELDS[0]]))
        self._edge_offsets.append(len(self._edges) // 2)

    def workload(self, what: str, from_zero: bool = False) -> Workload:
        """All workflows by arrival; the buffers are handed over, so that this can be done once.

        Args:
            what: the sources, for the error.
            from_zero: count arrivals from the first one, rather than as they were given.

        Raises:
            UserError: there is no workflow.
        """
        if not len(self):
            raise UserError(f"{what}: no workflow in there: at least one is needed")
        arrivals = np.frombuffer(self._arrivals)
        arrivals = arrivals - arrivals.min() if from_zero else arrivals
        order = np.argsort(arrivals, kind="stable")
        # Sorted here, one buffer after the other: the model would need the old and the new ones at once.
        rows, task_offsets = gather_blocks(np.frombuffer(self._task_offsets, np.int64), order)
        columns = {name: np.frombuffer(self._columns.pop(name))[rows] for name in TASK_FIELDS}
        del rows
        rows, edge_offsets = gather_blocks(np.frombuffer(self._edge_offsets, np.int64), order)
        edges = np.frombuffer(self._edges, np.int64).reshape(-1, 2)
        del self._edges
        edges = edges[rows]
        del rows
        return Workload(
            arrival_s=arrivals[order],
            session=np.frombuffer(self._sessions, np.int64)[order],
            task_offsets=task_offsets,
            edge_offsets=edge_offsets,
            edges=edges,
            **columns,
        )
