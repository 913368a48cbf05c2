"""A fleet as one table of addresses and shapes; see `rllib_scale.simulator.handles`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_scale.simulator.handles import arrays_from, handles_of
from rllib_scale.simulator.replicas import state as layout
from rllib_scale.simulator.replicas.state import Fleet

_I, _F = np.dtype(np.int64), np.dtype(np.float64)
FLEET_ARRAYS: dict[str, tuple[np.dtype[Any], int]] = {
    "now": (layout.FLEET, 1),
    "replicas": (layout.REPLICA, 1),
    "batch": (_I, 2),
    "prefixes": (layout.PREFIX, 2),
    "calls": (layout.CALL, 1),
    "kept": (layout.KEPT, 1),
    "sessions": (layout.SESSION, 1),
    "needs": (_I, 2),
    "agents": (layout.AGENT, 2),
    "active": (layout.ACTIVE, 1),
    "programs": (layout.PROGRAM, 1),
    "line": (_I, 1),
    "candidates": (_I, 1),
    "call_terms": (_F, 2),
    "fleet_terms": (_F, 1),
    "tree": (layout.TREE, 1),
    "tasks": (layout.TASK, 1),
    "first_task": (_I, 1),
    "successors": (_I, 1),
    "starts": (layout.START, 1),
    "event_s": (_F, 1),
    "event": (_I, 2),
    "due": (_F, 1),
    "records": (layout.RECORD, 1),
    "spare": (_I, 1),
}
"""Type and dimensions of each array, in the order of Fleet."""
fleet_of = arrays_from("Fleet", FLEET_ARRAYS, 0)


def fleet_handles(fleet: Fleet) -> np.ndarray:
    """(A, 4) int64: address and shape of each array."""
    return handles_of(fleet, FLEET_ARRAYS.items())
