"""How sessions arrive at a fleet, and for how long it is played."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rllib_scale.config.base import Count, Model, NonNegative, Positive
from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.state import START


class Load(Model):
    """How sessions arrive, and for how long."""

    sessions: Count = Field(default=16, description="live sessions per replica, in a closed loop")
    arrivals_per_s: Positive | None = Field(
        default=None, description="sessions per second and replica, in an open loop; unset: a closed loop"
    )
    duration_s: Positive = Field(default=3600.0, description="measured time, after the warm-up")
    warm_up_s: NonNegative = Field(default=1800.0, description="time before the measured one, in no metric")
    spread_s: NonNegative = Field(default=300.0, description="the first sessions of a closed loop begin in this time")
    active_for_s: NonNegative = Field(
        default=80.0, description="a session counts to the working set for so long after its last answer"
    )
    slo_ttft_s: Positive = Field(default=5.0, description="objective of the time to the first token")
    slo_tpot_s: Positive = Field(default=0.1, description="objective of the time per output token after the first")


def starts(scripts: Scripts, load: Load, replicas: int, seed: int, episode: int) -> NDArray[Any]:
    """The sessions to come, by (seed, episode).

    In a closed loop the first ones begin in the middle: a script is met in proportion to its calls.
    """
    draw = np.random.default_rng([seed, episode]).random  # a stream that numpy keeps
    end_s, live = load.warm_up_s + load.duration_s, load.sessions * replicas
    if load.arrivals_per_s is not None:
        rate = load.arrivals_per_s * replicas
        gaps = -np.log1p(-draw(int(rate * end_s + 6 * math.sqrt(rate * end_s) + 10))) / rate
        rows = np.zeros(len(gaps), START)
        rows["at_s"] = np.cumsum(gaps)
        rows["script"] = draw(len(rows)) * len(scripts)
        return rows
    rows = np.zeros(live * int(4 + end_s / 60), START)
    rows["script"] = draw(len(rows)) * len(scripts)
    rows["script"][:live] = np.searchsorted(np.cumsum(scripts.lengths), draw(live) * scripts.lengths.sum(), "right")
    rows["skipped"][:live] = draw(live) * scripts.lengths[rows["script"][:live]]
    rows["at_s"][:live] = np.sort(draw(live)) * load.spread_s
    return rows
