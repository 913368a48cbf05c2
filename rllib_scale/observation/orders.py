"""The named orders of waiting tasks, as compiled code knows them."""

from __future__ import annotations

from typing import get_args

from rllib_scale.compiled import internal
from rllib_scale.config import NamedOrder

ORDERS: tuple[str, ...] = get_args(NamedOrder)
"""A named order is a number in compiled code: its position here."""
LONGEST_HOP, MOST_DESCENDANTS, SHORTEST_TASK, DESCENDANTS_PER_WORK = map(
    ORDERS.index, ("longest-hop", "most-descendants", "shortest-task", "descendants-per-work")
)


@internal
def order_key(order, hop, descendants, compute):  # type: ignore[no-untyped-def]
    """Key of a task, largest first; 0 in the orders by time alone.

    Args:
        order: position in ORDERS.
        hop: edges on the longest path to a sink.
        descendants: of the task, itself included.
        compute: its demand as schedulers see it [GFLOP], above 0.
    """
    if order == LONGEST_HOP:
        return float(hop)
    if order == MOST_DESCENDANTS:
        return float(descendants)
    if order == SHORTEST_TASK:
        return -compute
    if order == DESCENDANTS_PER_WORK:
        return descendants / compute
    return 0.0
