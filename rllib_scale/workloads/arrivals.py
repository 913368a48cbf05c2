"""When workflows arrive: a Poisson process whose rate may go up and down."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled, internal
from rllib_scale.config import EnvConfig
from rllib_scale.config.workload import MOST_LEVELS
from rllib_scale.errors import UserError
from rllib_scale.workloads.random_numbers import uniform

MOST_ARRIVALS = 5_000_000
"""That are drawn at once: beyond, a workload would take gigabytes."""


WAVE = np.dtype(
    [
        ("period", "f8"),  # s
        ("peak", "f8"),  # of the rate, times its mean; 1: it is constant
        ("amplitude", "f8"),
        ("num_levels", "i8"),  # 0: a sine
        ("levels", "f8", (MOST_LEVELS,)),  # times the mean
    ]
)
"""How the rate of arrivals varies, for compiled code."""


def wave_of(config: EnvConfig) -> np.ndarray:
    """(1,) of WAVE: how the rate varies."""
    record, wave = np.zeros(1, dtype=WAVE), config.workload.rate_wave
    record["period"], record["peak"] = 1.0, 1.0
    if wave is not None:
        record["period"], record["amplitude"], record["peak"] = wave.period_s, wave.amplitude, 1.0 + wave.amplitude
    if wave is not None and wave.levels:
        relative = np.array(wave.levels) / np.mean(wave.levels)
        record["num_levels"], record["peak"] = len(relative), relative.max()
        record["levels"][0, : len(relative)] = relative
    return record


@internal
def _relative_rate(wave, clock):  # type: ignore[no-untyped-def]
    """The rate at `clock`, times its mean."""
    if wave.num_levels == 0:
        return 1.0 + wave.amplitude * math.sin(2.0 * math.pi * clock / wave.period)
    phase = clock / wave.period
    return wave.levels[min(int((phase - math.floor(phase)) * wave.num_levels), wave.num_levels - 1)]


@internal
def draw_gap(rng, rate, wave, clock):  # type: ignore[no-untyped-def]
    """Seconds from the previous arrival, or from the start, which is at `clock`, to the next one.

    Where the rate varies, arrivals at its maximum are thinned (Lewis and Shedler, Naval Research Logistics 26, 1979).
    """
    gap = -math.log(1.0 - uniform(rng)) / (rate * wave.peak)
    if wave.peak > 1.0:
        while uniform(rng) * wave.peak >= _relative_rate(wave, clock + gap):
            gap -= math.log(1.0 - uniform(rng)) / (rate * wave.peak)
    return gap


@compiled
def _fill(rng, rate, wave, at_once, begin, until, times):  # type: ignore[no-untyped-def]
    """Arrivals from `begin` until `until` into `times`; returns how many, or -1 where there is no room."""
    count = 0
    clock = begin if at_once else begin + draw_gap(rng, rate, wave, begin)
    while clock <= until:
        if count == len(times):
            return -1
        times[count] = clock
        count += 1
        clock += draw_gap(rng, rate, wave, clock)
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
        count = int(_fill(rng, rate, wave_of(config)[0], at_once, begin, until, times))
        if count >= 0:
            return times[:count]
        rng[:] = start
        room *= 2
