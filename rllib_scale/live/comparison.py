"""Facts about reality for a guard and its shadow: durations of attempts, and which of the two is ahead."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.observation.policy import Policy
from rllib_scale.simulator.outside_state import Attempt

STEPS = 10
"""Comparisons per window."""
OVER = ("ended", "failed")
"""Outcomes of attempts that end by themselves."""
ROUNDING = 1e-9
"""Relative difference of sums of the same times in another order."""


class Comparison:
    """Whether a policy has fallen behind the rule of its guard.

    Args:
        margin: share by which workflows may stay longer.
        window: number of arrivals or ends between the two times that are compared.

    Attributes:
        ratio: the policy's mean stay in the last window over the rule's; NaN before the first window.
    """

    def __init__(self, margin: float, window: int) -> None:
        self.margin, self.window = margin, window
        self._looked = -window, 0  # workflows that had arrived and had ended at the last step
        self._spent: deque[tuple[float, float]] = deque(maxlen=STEPS + 1)  # on both sides, step by step [s]
        self.ratio = math.nan

    def is_due(self, arrived: int, ended: int) -> bool:
        """Whether to compare now, by the workflows that have arrived and ended with the policy."""
        if max(arrived - self._looked[0], ended - self._looked[1]) < self.window / STEPS:
            return False
        self._looked = arrived, ended
        return True

    def is_behind(self, ours_s: float, theirs_s: float) -> bool:
        """Take a step; the arguments are the time that workflows have been there, by the policy and by the rule [s]."""
        self._spent.append((ours_s, theirs_s))
        ours, theirs = np.subtract(self._spent[-1], self._spent[0])
        if len(self._spent) > STEPS and theirs > 0:
            self.ratio = float(ours / theirs)
        return self.ratio > 1 + self.margin + ROUNDING

    def said(self, rule: Policy, policy: Policy, now_s: float, what: str = "workflows") -> str:
        """The line for a log when the rule takes over."""
        return (
            f"{rule.name} takes over from {policy.name} after {now_s:.1f} s: {self.window} {what} stayed "
            f"{self.ratio:.2f} times as long as they would have with it"
        )

    def seen(self, rule: Policy, policy: Policy, count: int) -> str:
        """The line for a log when `count` workflows have arrived, no more will, and the rule has not taken over."""
        if math.isnan(self.ratio):
            return f"guard {rule.name}: could not act: it compares {self.window} workflows, and {count} arrived"
        return (
            f"guard {rule.name}: watched {policy.name} over {count} workflows; the last {self.window} stayed "
            f"{self.ratio:.2f} times as long as they would have with it"
        )


class Ran(NamedTuple):
    """Real outcome of an attempt at a task."""

    attempt: Attempt
    until_s: float
    how: str  # "ended", "failed" or, of one that was given up, "cut"


class Durations:
    """Durations of real attempts by name, for a shadow.

    The ratio of duration to estimate of an attempt that has not ended is that of one of the last that have, or twice
    the ratio that it has reached.
    """

    def __init__(self, window: int) -> None:
        self._ran: dict[Hashable, list[Ran]] = {}
        self._guessed: dict[Hashable, float] = {}  # times
        self._tries: dict[Hashable, int] = {}  # attempts of the shadow that are over
        self._recent: deque[float] = deque([1.0], maxlen=window)
        self._random = np.random.default_rng(0)
        self._runs: dict[Hashable, Attempt] = {}
        self._now_s = 0.0

    def look(self, runs: dict[Hashable, Attempt], now_s: float) -> None:
        """Set the attempts that really run now."""
        self._runs, self._now_s = runs, now_s

    def learn(self, name: Hashable, attempt: Attempt, now_s: float, how: str) -> None:
        """A real attempt is over; see `Ran`."""
        if how == "ended":
            self._recent.append(times_of(attempt, now_s))
        self._ran.setdefault(name, []).append(Ran(attempt, now_s, how))

    def is_over(self, name: Hashable) -> str:
        """An attempt of the shadow is over: how."""
        number = self._tries.get(name, 0)
        ran = self._ran.get(name, [])
        self._tries[name] = number + 1
        return ran[number].how if number < len(ran) else "ended"

    def end_s(self, name: Hashable, attempt: Attempt) -> float:
        """When an attempt of the shadow is over, as far as that is known [s]; inf: with the real one, see `is_same`."""
        number, ran = self._tries.get(name, 0), self._ran.get(name, [])
        if number < len(ran):
            real, until_s, how = ran[number]
        elif name in self._runs:
            real, until_s, how = self._runs[name], self._now_s, "runs"
        else:
            return attempt.start_s + attempt.expected_s * self._guess(name, 0.0)
        if is_same(attempt, real):
            return math.inf
        times = times_of(real, until_s)
        return attempt.start_s + attempt.expected_s * (times if how in OVER else self._guess(name, times))

    def _guess(self, name: Hashable, so_far: float) -> float:
        """Ratio of duration to estimate of an attempt that has reached a ratio by now."""
        if name not in self._guessed:
            self._guessed[name] = self._recent[self._random.integers(len(self._recent))]
        took = self._guessed[name]
        return took if took > so_far else 2 * so_far

    def keep(self, is_there: Callable[[Any], bool]) -> None:
        """Forget all but these names."""
        for of_names in (self._ran, self._guessed, self._tries):
            for name in [name for name in of_names if not is_there(name)]:
                del of_names[name]


def is_same(attempt: Attempt, other: Attempt) -> bool:
    """Whether attempts at the same task began at the same time, and should take as long."""
    return (attempt.start_s, attempt.expected_end_s) == (other.start_s, other.expected_end_s)


def times_of(attempt: Attempt, now: float) -> float:
    """Ratio of the time so far to the estimate of an attempt."""
    return (now - attempt.start_s) / attempt.expected_s
