"""Named reward functions."""

from __future__ import annotations

import math

from rllib_scale.compiled import internal

REWARDS = ("paper", "tasks-in-system")
PAPER, TASKS_IN_SYSTEM = range(2)


@internal
def assignment_reward(execution_s, delay_s, energy_j, p):  # type: ignore[no-untyped-def]
    """Reward of a valid assignment [SCALE, sec. 4.1].

    The exponential pays for fast execution; what communication and energy cost is taken off.
    """
    return (
        p.time_weight * math.exp(-execution_s / p.time_scale)
        - p.communication_weight * delay_s / p.communication_scale
        - p.energy_weight * energy_j / p.energy_scale
    )
