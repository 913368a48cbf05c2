"""How sessions arrive at a fleet."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.replicas import ServiceConfig
from rllib_scale.errors import UserError
from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.state import START


def starts(
    scripts: Scripts, service: ServiceConfig, replicas: int, end_s: float, seed: int, episode: int
) -> NDArray[Any]:
    """The sessions to come until `end_s`, by (seed, episode).

    The first ones of a closed loop that begin anywhere begin in the middle: a script is met in proportion to its calls.

    Raises:
        UserError: recorded arrivals are asked for, and all sessions began at once, or none before `end_s`.
    """
    if service.arrivals_per_s == "recorded":
        if scripts.begun_s is None or (len(scripts) > 1 and not scripts.begun_s.any()):
            raise UserError(f"service.arrivals_per_s recorded: {service.format} has no common clock of its sessions")
        rows = np.zeros(len(scripts), START)
        rows["script"] = np.argsort(scripts.begun_s, kind="stable")
        rows["at_s"] = scripts.begun_s[rows["script"]]
        if not (rows["at_s"] < end_s).any():
            raise UserError(f"episode.horizon_s {end_s:g}: no recorded session begins before it")
        return rows[rows["at_s"] < end_s]
    draw = np.random.default_rng([seed, episode]).random  # a stream that numpy keeps
    live = service.live(replicas)
    if service.arrivals_per_s is not None:
        rate = service.arrivals_per_s * replicas
        gaps = -np.log1p(-draw(int(rate * end_s + 6 * math.sqrt(rate * end_s) + 10))) / rate
        rows = np.zeros(len(gaps), START)
        rows["at_s"] = np.cumsum(gaps)
        rows["script"] = draw(len(rows)) * len(scripts)
        return rows
    rows = np.zeros(live * int(4 + end_s / 60), START)
    rows["script"] = draw(len(rows)) * len(scripts)
    if service.start == "anywhere":
        ends = np.cumsum(scripts.lengths)
        rows["script"][:live] = np.searchsorted(ends, draw(live) * ends[-1], "right")
        rows["skipped"][:live] = draw(live) * scripts.lengths[rows["script"][:live]]
    rows["at_s"][:live] = np.sort(draw(live)) * service.spread_s
    return rows
