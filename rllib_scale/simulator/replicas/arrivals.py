"""How sessions arrive at a fleet."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.replicas import ServiceConfig
from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.state import START


def starts(
    scripts: Scripts, service: ServiceConfig, replicas: int, end_s: float, seed: int, episode: int
) -> NDArray[Any]:
    """The sessions to come until `end_s`, by (seed, episode).

    In a closed loop the first ones begin in the middle: a script is met in proportion to its calls.
    """
    draw = np.random.default_rng([seed, episode]).random  # a stream that numpy keeps
    live = service.sessions * replicas
    if service.arrivals_per_s is not None:
        rate = service.arrivals_per_s * replicas
        gaps = -np.log1p(-draw(int(rate * end_s + 6 * math.sqrt(rate * end_s) + 10))) / rate
        rows = np.zeros(len(gaps), START)
        rows["at_s"] = np.cumsum(gaps)
        rows["script"] = draw(len(rows)) * len(scripts)
        return rows
    rows = np.zeros(live * int(4 + end_s / 60), START)
    rows["script"] = draw(len(rows)) * len(scripts)
    rows["script"][:live] = np.searchsorted(np.cumsum(scripts.lengths), draw(live) * scripts.lengths.sum(), "right")
    rows["skipped"][:live] = draw(live) * scripts.lengths[rows["script"][:live]]
    rows["at_s"][:live] = np.sort(draw(live)) * service.spread_s
    return rows
