"""Workflows as they are read, in compact buffers of about 60 bytes per task, so that millions of tasks fit."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TASK_FIELDS = ("compute_gflop", "memory_gb", "output_gb", "delay_s")


class Accumulator:
    """Collects workflows one by one, in any order of arrival, and gives the arrays of a `Workload`."""

    def __init__(self) -> None:
        self._arrivals, self._sessions = array("d"), array("q")
        self._columns = {name: array("d") for name in TASK_FIELDS}
        self._task_offsets, self._edge_offsets, self._edges = array("q", [0]), array("q", [0]), array("q")
        self._edge_gb, self._deadlines = array("d"), array("d")

    def __len__(self) -> int:
        """Workflows so far."""
        return len(self._arrivals)

    def add(
        self,
        arrival_s: float,
        session: int,
        tasks: Mapping[str, Sequence[float]],
        edges: Iterable[tuple[int, int] | tuple[int, int, float]],
        deadline_s: float = math.inf,
    ) -> None:
        """Add a workflow.

        Args:
            arrival_s: its arrival [s], from any reference.
            session: the number of its session.
            tasks: for each of `TASK_FIELDS` a sequence with one value per task.
            edges: predecessor and successor, as indices within the workflow, and what is moved [GB], by default the
                output of the predecessor; unique.
            deadline_s: from its arrival [s].
        """
        self._arrivals.append(arrival_s)
        self._sessions.append(session)
        for name, column in self._columns.items():
            column.extend(tasks[name])
        self._deadlines.append(deadline_s)
        for predecessor, successor, *gb in edges:
            self._edges.extend((predecessor, successor))
            self._edge_gb.append(gb[0] if gb else math.nan)
        self._task_offsets.append(len(self._columns[TASK_FIELDS[0]]))
        self._edge_offsets.append(len(self._edges) // 2)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of `Workload`, in the order of the calls of `add`."""
        columns = {name: np.frombuffer(column) for name, column in self._columns.items()}
        return columns | {
            "arrival_s": np.frombuffer(self._arrivals),
            "session": np.frombuffer(self._sessions, np.int64),
            "task_offsets": np.frombuffer(self._task_offsets, np.int64),
            "edge_offsets": np.frombuffer(self._edge_offsets, np.int64),
            "edges": np.frombuffer(self._edges, np.int64).reshape(-1, 2),
            "edge_gb": np.frombuffer(self._edge_gb),
            "deadline_s": np.frombuffer(self._deadlines),
        }


def gather_blocks(offsets: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the blocks `offsets` in a new order of blocks, and the offsets of the result."""
    sizes = np.diff(offsets)[order]
    new = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(new[-1]) + np.repeat(offsets[order] - new[:-1], sizes), new
