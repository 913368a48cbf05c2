"""Arrivals of workflows: a Poisson process whose rate may vary over time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled, internal
from rllib_scale.config import EnvConfig
from rllib_scale.config.workload import MOST_LEVELS
from rllib_scale.errors import UserError
from rllib_scale.workloads.random_numbers import uniform

MAX_ARRIVALS = 5_000_000
"""Drawn at once; more would take gigabytes."""

WAVE = np.dtype(
    [
        ("period", "f8"),  # s
        ("peak", "f8"),  # of the rate over its mean; 1: the rate is constant
        ("amplitude", "f8"),
        ("num_levels", "i8"),  # 0: a sine
        ("levels", "f8", (MOST_LEVELS,)),  # over the mean
    ]
)
"""The rate of arrivals over time, for compiled code."""


def wave_of(config: EnvConfig) -> np.ndarray:
    """(1,) of WAVE."""
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
    """The rate at `clock` over its mean."""
    if wave.num_levels == 0:
        return 1.0 + wave.amplitude * math.sin(2.0 * math.pi * clock / wave.period)
    phase = clock / wave.period
    return wave.levels[min(int((phase - math.floor(phase)) * wave.num_levels), wave.num_levels - 1)]


@internal
def draw_gap(rng, rate, wave, clock):  # type: ignore[no-untyped-def]
    """Seconds from `clock`, the previous arrival or the start, to the next arrival.

    If the rate varies, arrivals at its maximum are thinned (Lewis and Shedler, Naval Research Logistics 26, 1979).
    """
    gap = -math.log(1.0 - uniform(rng)) / (rate * wave.peak)
    if wave.peak > 1.0:
        while uniform(rng) * wave.peak >= _relative_rate(wave, clock + gap):
            gap -= math.log(1.0 - uniform(rng)) / (rate * wave.peak)
    return gap


@compiled
def _fill(rng, rate, wave, at_once, begin, until, times):  # type: ignore[no-untyped-def]
    """Write arrivals from `begin` until `until` into `times`; returns their number, or -1 if `times` is too short."""
    count = 0
    clock = begin if at_once else begin + draw_gap(rng, rate, wave, begin)
    while clock <= until:
        if count == len(times):
            return -1
        times[count] = clock
        count += 1
        clock += draw_gap(rng, rate, wave, clock)
    return count


def end_of_arrivals(config: EnvConfig) -> float:
    """Time after which no workflow arrives [s]."""
    return config.episode.arrivals_until_s or config.episode.horizon_s


def arrival_times(config: EnvConfig, rate: float, rng: NDArray[np.uint64], begin: float = 0.0) -> NDArray[np.float64]:
    """(W,) times of the arrivals from `begin` to the end of arrivals [s].

    Args:
        config: the problem.
        rate: mean rate of arrivals [1/s].
        rng: the generator; it is advanced.
        begin: [s], 0 or negative.

    Raises:
        UserError: too many would be drawn at once.
    """
    at_once = begin == 0.0 and config.episode.first_arrival == "at-zero"
    until = end_of_arrivals(config)
    expected = rate * (until - begin)
    if expected > MAX_ARRIVALS:
        raise UserError(
            f"about {expected:.3g} workflows would arrive in an episode; of a trace or a fitted table at most "
            f"{MAX_ARRIVALS:,} are drawn: shorten episode.arrivals_until_s or lower the load"
        )
    room, start = int(expected + 10 * math.sqrt(expected) + 20), rng.copy()
    while True:
        times = np.empty(room)
        count = int(_fill(rng, rate, wave_of(config)[0], at_once, begin, until, times))
        if count >= 0:
            return times[:count]
        rng[:] = start
        room *= 2
