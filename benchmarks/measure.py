"""Timing side by side, and what comes of it: measures with the bars they are held against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Work = Callable[[], float]
"""Does some work and returns how many units it did."""
Sample = dict[str, float]
"""One run of a work: units, wall_s, cpu_s (of this process, all its threads)."""
Round = dict[str, Sample]
"""One run of every contestant."""


@dataclass(frozen=True)
class Measure:
    """One line of the table.

    `value` is the median over the rounds by CPU time, `wall` the same by wall time; where only one clock applies
    (latency, memory, several processes), `wall` is None. `bar` and `aim` are those of the issue.
    """

    name: str
    unit: str
    value: float
    wall: float | None = None
    bar: float | None = None
    aim: float | None = None
    at_most: bool = False  # the smaller the better
    rounds: tuple[Any, ...] = ()  # raw numbers of every round

    @property
    def verdict(self) -> str:
        """The level that the value reaches: "aim", "bar", "missed", or "" without a bar."""
        if self.bar is None:
            return ""
        sign = -1 if self.at_most else 1
        if self.aim is not None and sign * self.value >= sign * self.aim:
            return "aim"
        return "bar" if sign * self.value >= sign * self.bar else "missed"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"verdict": self.verdict}


def sample(work: Work) -> Sample:
    """Run a work once and take its time."""
    wall, cpu = time.perf_counter(), time.process_time()
    units = work()
    return {"units": units, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def interleave(contestants: Mapping[str, Work], rounds: int) -> list[Round]:
    """Run the contestants in turn, `rounds` times, after one run of each that is not counted.

    In turn, so that other load of the machine affects all of them.
    """
    for work in contestants.values():
        work()
    return [{name: sample(work) for name, work in contestants.items()} for _ in range(rounds)]


def rate(rounds: list[Round], name: str, clock: str = "cpu_s") -> float:
    """Median units per second of one contestant."""
    return statistics.median(r[name]["units"] / r[name][clock] for r in rounds)


def ratio(rounds: list[Round], ours: str, other: str, clock: str = "cpu_s") -> float:
    """Median over the rounds of how many times faster `ours` was than `other` in the same round."""
    return statistics.median(r[ours]["units"] / r[ours][clock] * r[other][clock] / r[other]["units"] for r in rounds)


def rate_measure(
    rounds: list[Round], name: str, title: str, unit: str, bar: float | None = None, aim: float | None = None
) -> Measure:
    """A Measure of units per second."""
    return Measure(title, unit, rate(rounds, name), rate(rounds, name, "wall_s"), bar, aim, rounds=tuple(rounds))


def ratio_measure(
    rounds: list[Round], ours: str, other: str, title: str, bar: float | None = None, aim: float | None = None
) -> Measure:
    """A Measure of how many times faster `ours` is."""
    by_cpu, by_wall = ratio(rounds, ours, other), ratio(rounds, ours, other, "wall_s")
    return Measure(title, "times", by_cpu, by_wall, bar, aim, rounds=tuple(rounds))
