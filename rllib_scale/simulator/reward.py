"""Named reward functions: what each pays for an answer, and for the time from one decision to the next.

A reward is a name and its parameters in `RewardConfig`, which arrive here as `p`, and its terms below. Only what it
names pays: the other terms are 0.
"""

from __future__ import annotations

import math
from typing import get_args

from rllib_scale.compiled import internal
from rllib_scale.config import RewardConfig

REWARDS: tuple[str, ...] = get_args(RewardConfig.model_fields["name"].annotation)
PAPER, TASKS_IN_SYSTEM = (REWARDS.index(name) for name in ("paper", "tasks-in-system"))
REWARD_PARAMETERS = tuple(name for name, field in RewardConfig.model_fields.items() if field.annotation is float)
"""Numbers of `RewardConfig`, which compiled code has by the same names."""


@internal
def reward_of_start(execution_s, delay_s, energy_j, p):  # type: ignore[no-untyped-def]
    """Reward of a task that starts.

    The paper's exponential pays for fast execution; what communication and energy cost is taken off [SCALE, sec. 4.1].
    """
    if p.reward != PAPER:
        return 0.0
    return (
        p.time_weight * math.exp(-execution_s / p.time_scale_s)
        - p.communication_weight * delay_s / p.communication_scale_s
        - p.energy_weight * energy_j / p.energy_scale_j
    )


@internal
def reward_of_invalid(p):  # type: ignore[no-untyped-def]
    """Reward of an answer that names a server on which the task can neither start nor wait."""
    return p.invalid_reward if p.reward == PAPER else 0.0


@internal
def reward_of_time(env, p):  # type: ignore[no-untyped-def]
    """Reward of the time since the last decision; `env.area` is the integral of the tasks in the system over it [s]."""
    return -env.area if p.reward == TASKS_IN_SYSTEM else 0.0
