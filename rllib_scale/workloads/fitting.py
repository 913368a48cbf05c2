"""Whether a task fits the memory of a server: the one comparison that all rules, masks, bounds and engines use."""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

MEMORY_TOLERANCE_GB = 1e-9
"""Free memory is a difference of sums, which depends on their order in the last digits; 1e-9 GB is one byte."""


@register_jitable
def fits(memory_gb: Any, space_gb: Any) -> Any:
    """Whether a task of that memory [GB] fits in that space [GB]; numbers or arrays, in compiled code numbers.

    A space of -1, which stands for a closed server, fits no task.
    """
    return memory_gb - MEMORY_TOLERANCE_GB <= space_gb
