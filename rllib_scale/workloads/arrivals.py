"""When workflows arrive: a Poisson process whose rate may go up and down."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled, internal
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.workloads.random_numbers import uniform

MOST_ARRIVALS = 5_000_000
"""That are drawn at once: beyond, a workload would take gigabytes."""


def wave_of(config: EnvConfig) -> tuple[float, float]:
    """Amplitude and period [s] of the rate; amplitude 0 where it is constant."""
    wave = config.workload.rate_wave
    return (0.0, 1.0) if wave is None else (wave.amplitude, wave.period_s)


@internal
def draw_gap(rng, rate, amplitude, period, clock):  # type: ignore[no-untyped-def]
    """Seconds from the previous arrival, or from the start, which is at `clock`, to the next one.

    Where the rate varies, arrivals at its maximum are thinned (Lewis and Shedler, Naval Research Logistics 26, 1979).
    """
    gap = -math.log(1.0 - uniform(rng)) / (rate * (1.0 + amplitude))
    if amplitude > 0.0:
        while uniform(rng) * (1.0 + amplitude) >= 1.0 + amplitude * math.sin(2.0 * math.pi * (clock + gap) / period):
            gap -= math.log(1.0 - uniform(rng)) / (rate * (1.0 + amplitude))
    return gap


@compiled
def _fill(rng, rate, amplitude, period, at_once, begin, until, times):  # type: ignore[no-untyped-def]
    """Arrivals from `begin` until `until` into `times`; returns how many, or -1 where there is no room."""
    count = 0
    clock = begin if at_once else begin + draw_gap(rng, rate, amplitude, period, begin)
    while clock <= until:
        if count == len(times):
            return -1
        times[count] = clock
        count += 1
        clock += draw_gap(rng, rate, amplitude, period, clock)
    return count


def arrival_times(config: EnvConfig, rate: float, rng: NDArray[np.uint64], begin: float = 0.0) -> NDArray[np.float64]:
    """(W,) times of the arrivals from `begin` on, until none is to come any more [s], by the generator `rng`.

    Args:
        config: the problem.
        rate: of the arrivals, their mean [1/s].
        rng: is left at the state that the next draw is made from.
        begin: [s], 0 or negative.

    Raises:
        UserError: they would be too many to draw at once.
    """
    at_once = begin == 0.0 and config.episode.first_arrival == "at-zero"
    until = config.episode.arrivals_until_s or config.episode.horizon_s
    expected = rate * (until - begin)
    if expected > MOST_ARRIVALS:
        raise UserError(
            f"about {expected:.3g} workflows would arrive in an episode; of a trace or a fitted table at most "
            f"{MOST_ARRIVALS:,} are drawn: shorten episode.arrivals_until_s or lower the load"
        )
    room, start = int(expected + 10 * math.sqrt(expected) + 20), rng.copy()
    while True:
        times = np.empty(room)
        count = int(_fill(rng, rate, *wave_of(config), at_once, begin, until, times))
        if count >= 0:
            return times[:count]
        rng[:] = start
        room *= 2
