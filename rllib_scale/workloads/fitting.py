"""Whether a task fits a server: the one comparison that all rules, masks, bounds and engines use."""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

MEMORY_TOLERANCE_GB = 1e-9
"""Free memory is a difference of sums, which depends on their order in the last digits; 1e-9 GB is one byte."""


@register_jitable
def fits(memory_gb: Any, places: Any, labels: Any, space_gb: Any, free_places: Any, offered: Any) -> Any:
    """Whether a server has the memory, the places and the labels that a task needs.

    Args: numbers or arrays, in compiled code numbers.
        memory_gb: of the task [GB].
        places: that the task takes.
        labels: of the task, a bit for each of `ClusterConfig.label_names`; 0: it may run anywhere.
        space_gb: of the server [GB], all or free. -1, which means a closed server, fits no task.
        free_places: of the server, all or free.
        offered: labels of the server. It has all that the task needs, or the task may not run there.
    """
    return (memory_gb - MEMORY_TOLERANCE_GB <= space_gb) & (places <= free_places) & (labels & ~offered == 0)
