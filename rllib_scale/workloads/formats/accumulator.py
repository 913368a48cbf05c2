"""Workflows as they are read, in compact buffers of about 60 bytes per task, so that millions of tasks fit."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.cluster import MAX_LABELS
from rllib_scale.errors import UserError

TASK_FIELDS = ("compute_gflop", "memory_gb", "output_gb", "delay_s")


class Accumulator:
    """Collects workflows one by one, in any order of arrival, and gives the arrays of a `Workload`."""

    def __init__(self) -> None:
        self._arrivals, self._sessions = array("d"), array("q")
        self._columns = {name: array("d") for name in TASK_FIELDS}
        self._task_offsets, self._edge_offsets, self._edges = array("q", [0]), array("q", [0]), array("q")
        self._edge_gb, self._deadlines = array("d"), array("d")
        self._labels, self._label_names, self._places = array("q"), dict[str, int](), array("q")

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
        labels: Sequence[Iterable[str]] | None = None,
        places: Iterable[int] | None = None,
    ) -> None:
        """Add a workflow.

        Args:
            arrival_s: its arrival [s], from any reference.
            session: the number of its session.
            tasks: for each of `TASK_FIELDS` a sequence with one value per task.
            edges: predecessor and successor, as indices within the workflow, and what is moved [GB], by default the
                output of the predecessor; unique.
            deadline_s: from its arrival [s].
            labels: for each task those that its server must have; by default none.
            places: for each task those that it takes of a server; by default 1.

        Raises:
            UserError: there are too many different labels.
        """
        self._arrivals.append(arrival_s)
        self._sessions.append(session)
        for name, column in self._columns.items():
            column.extend(tasks[name])
        self._deadlines.append(deadline_s)
        count = len(tasks[TASK_FIELDS[0]])
        self._labels.extend(map(self._bits, labels or [()] * count))
        self._places.extend([1] * count if places is None else places)
        for predecessor, successor, *gb in edges:
            self._edges.extend((predecessor, successor))
            self._edge_gb.append(gb[0] if gb else math.nan)
        self._task_offsets.append(len(self._columns[TASK_FIELDS[0]]))
        self._edge_offsets.append(len(self._edges) // 2)

    def _bits(self, labels: Iterable[str]) -> int:
        names = self._label_names
        bits = sum({1 << names.setdefault(label, len(names)) for label in labels})
        if len(names) > MAX_LABELS:
            raise UserError(f"{len(names)} different labels of tasks; valid: at most {MAX_LABELS}")
        return bits

    def arrays(self) -> dict[str, Any]:
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
            "labels": np.frombuffer(self._labels, np.int64),
            "label_names": tuple(self._label_names),
            "places": np.frombuffer(self._places, np.int64),
        }


def gather_blocks(offsets: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the blocks `offsets` in a new order of blocks, and the offsets of the result."""
    sizes = np.diff(offsets)[order]
    new = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(new[-1]) + np.repeat(offsets[order] - new[:-1], sizes), new
