"""The verdict of a trial: which of a policy and some rules to use, by paired differences to a base rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .stats.intervals import MIN_SEEDS, holm, mean_test

RESPONSE = "response_censored_s"
LEAST_WORKFLOWS = 30
"""Fewer recorded workflows or sessions say little of those to come, however often they are drawn again."""
WORTH_PERCENT = 1.0
"""Smaller gains are not worth a change [%]."""


class Measured(NamedTuple):
    """Measures by which schedulers are judged besides RESPONSE, with their names."""

    tail: str  # column
    mean_heading: str
    tail_heading: str
    tail_name: str
    drawn: str
    """Source of the episodes."""
    ends_empty: bool
    """Whether an episode ends when all is done, so that what is left was left by the scheduler."""


MEASURED = {
    "fixed": Measured(
        "jct_p95_s",
        "mean response of all tasks that arrived (s)",
        "95th percentile of JCT (s)",
        "95th percentile of job completion times",
        "workflows",
        True,
    ),
    "replica": Measured(
        "jct_censored_p99_s",
        "mean call (s)",
        "p99 of turns (s)",
        "99th percentile of the time of turns",
        "sessions",
        False,
    ),
}
"""Measures by the problem's service."""


@dataclass(frozen=True)
class Percent:
    """Difference of one scheduler to another on the same episodes [%].

    The mean over episodes of the logarithm of the ratio, as a percentage, its 95 % interval, and the p-value of no
    difference; NaN without an interval, which needs five episodes.
    """

    mean: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]" if self.low == self.low else f"{self.mean:+.1f}"

    def said(self, less: str, more: str) -> str:
        """In a sentence, as `3 % (1 to 5) sooner`."""
        sign, word = (-1, less) if self.mean < 0 else (1, more)
        ends = sorted((sign * self.low, sign * self.high))
        return f"{abs(self.mean):.1f} % ({ends[0]:.1f} to {ends[1]:.1f}) {word}"


def percent(rows: pd.DataFrame, first: str, second: str, metric: str) -> Percent:
    """The first method against the second one.

    Args:
        rows: one for each method and episode.
        first: a `method`.
        second: a `method`.
        metric: a column of times above 0.
    """
    table = rows.pivot(index="episode", columns="method", values=metric)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(table[first].to_numpy() / table[second].to_numpy())
    test = mean_test(np.where(np.isfinite(ratio), ratio, np.nan)[None], "episodes")
    mean, low, high = (100 * math.expm1(end) for end in (test.mean, test.interval.low, test.interval.high))
    return Percent(mean, low, high, test.p)


def against(rows: pd.DataFrame, base: str, tail: str) -> dict[str, dict[str, Percent]]:
    """Method -> RESPONSE and the tail -> its difference to the base, of all methods but the base."""
    others = [method for method in rows["method"].unique() if method != base]
    return {method: {metric: percent(rows, method, base, metric) for metric in (RESPONSE, tail)} for method in others}


def table(rows: pd.DataFrame, base: str, service: str = "fixed") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each method, with means and differences to the base as plain data; and columns to show of it."""
    measured = MEASURED[service]
    compared = against(rows, base, measured.tail)
    means = rows.groupby("method", sort=False)[[RESPONSE, measured.tail]].mean()
    found = [
        {"scheduler": str(method), **{str(key): float(mean) for key, mean in of_one.items()}}
        | {f"{metric}_percent": asdict(each) for metric, each in compared.get(str(method), {}).items()}
        for method, of_one in means.iterrows()
    ]

    def shown(metric: str) -> Callable[[dict[str, Any]], str]:
        return lambda row: str(compared[row["scheduler"]][metric]) if row["scheduler"] in compared else ""

    columns: dict[str, Any] = {
        "scheduler": "scheduler",
        measured.mean_heading: RESPONSE,
        "%": shown(RESPONSE),
    }
    return found, columns | {measured.tail_heading: measured.tail, "% ": shown(measured.tail)}


def too_few(workflows: int, episodes: int, service: str = "fixed") -> str | None:
    """Why a trial cannot tell which scheduler is better, as far as that is known before it.

    Args:
        workflows: those, or sessions, that the episodes are drawn from.
        episodes: of each scheduler.
        service: of the problem.
    """
    if workflows < LEAST_WORKFLOWS:
        drawn = MEASURED[service].drawn
        return f"Too few {drawn} to tell: the episodes draw from {workflows}; at least {LEAST_WORKFLOWS} are needed."
    if episodes < MIN_SEEDS:
        return f"Too few episodes to tell: {episodes} played; at least {MIN_SEEDS} are needed."
    return None


def advice(rows: pd.DataFrame, policy: str, base: str, workflows: int, service: str = "fixed") -> str:
    """One sentence: what to use, and why.

    A scheduler is better than the base if its response is lower by WORTH_PERCENT at least, significantly after Holm's
    correction for all that are compared, and it leaves no more tasks unfinished where episodes end empty. The best mean
    of those is used, or the policy that is tried, if the interval of their difference contains 0.

    Args:
        rows: one for each method and episode, with RESPONSE, the tail and `unfinished`.
        policy: the method that is tried.
        base: the method that is kept, if none is better.
        workflows: those, or sessions, that the episodes are drawn from.
        service: of the problem.
    """
    measured = MEASURED[service]
    missing = too_few(workflows, rows["episode"].nunique(), service)
    compared = against(rows, base, measured.tail)
    if missing is not None:
        return missing
    left, response = rows.groupby("method")["unfinished"].sum(), {m: found[RESPONSE] for m, found in compared.items()}
    p = dict(zip(response, holm(np.array([found.p for found in response.values()])), strict=True))
    better = [
        m
        for m, found in response.items()
        if found.mean <= -WORTH_PERCENT and p[m] < 0.05 and not (measured.ends_empty and left[m] > left[base])
    ]
    if not better:
        tried = f"; {policy} answers {response[policy].said('sooner', 'later')}" if policy in response else ""
        return f"Keep {base}: nothing answers clearly sooner, by {WORTH_PERCENT:g} % at least{tried}."
    best = min(better, key=lambda method: response[method].mean)
    no_better = "no rule is better"
    if policy in better and policy != best and percent(rows, policy, best, RESPONSE).low <= 0:
        best, no_better = policy, "no rule is clearly better"
    why = f"Use {best}: it answers {response[best].said('sooner', 'later')} than {base}"
    if best == policy:
        why += f", and {no_better}"
    elif policy in response:
        why += f", and {policy} answers {percent(rows, policy, best, RESPONSE).said('sooner', 'later')} than {best}"
    tail = compared[best][measured.tail]
    worse = f"; mind its {measured.tail_name}, {tail.said('lower', 'higher')}" if tail.low > 0 else ""
    return f"{why}{worse}."
