"""Statistics of evaluation episodes. A training seed is the unit: episodes of one policy are not independent of it.

Means carry Student's interval over seeds, differences on identical episodes that over seeds and episodes; either is
claimed from 5 seeds on. A method without training seeds (a heuristic) is compared with a learned one over the seeds of
the latter; of two such methods there is the difference alone. No result depends on the order of the rows.
`analysis.stats.intervals` says how each is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..labels import LOWER_IS_BETTER
from . import intervals
from .intervals import CONFIDENCE, Array
from .scores import Scores, require_partners


@dataclass(frozen=True)
class Summary:
    """A metric of one variant in one setting at one scale.

    Attributes:
        mean: mean over seeds of the mean over a seed's episodes; NaN if no episode has a value.
        sd: standard deviation over the episodes of one seed (n - 1), pooled over seeds; NaN with single episodes.
        low, high: ends of the interval of `mean` over seeds; NaN where none is claimed.
        seeds: training seeds with a value; 0 for a heuristic.
        episodes: episodes with a value, over all seeds.
        missing: episodes without one.
    """

    mean: float
    sd: float
    low: float
    high: float
    seeds: int
    episodes: int
    missing: int


NOTHING = Summary(*(math.nan,) * 4, seeds=0, episodes=0, missing=0)
"""Of no episode with a value."""


@dataclass(frozen=True)
class Difference:
    """First minus second on identical episodes.

    Attributes:
        mean: mean over seeds of the mean difference over a seed's episodes.
        low, high: ends of the interval of `mean`; NaN where none is claimed.
        p: two-sided p-value of no difference, NaN where no interval is claimed.
        p_adjusted: p corrected for the comparisons that it stands among; of a single comparison p itself.
        better: probability that a seed of the first does better than one of the second on the same episode, ties
            half; more is better, of LOWER_IS_BETTER less.
        seeds: training seeds with a pair; 0 between two heuristics, of which no interval is claimed.
        pairs: pairs of episodes in which both have a value, over all seeds.
        missing: pairs in which one has none.
    """

    mean: float
    low: float
    high: float
    p: float
    p_adjusted: float
    better: float
    seeds: int
    pairs: int
    missing: int

    @property
    def verdict(self) -> str:
        """`lower` or `higher` (first than second) only where the adjusted p is < 0.05.

        The interval then excludes 0, as it does where p itself is < 0.05. `equal` where no episode differs.
        """
        if math.isnan(self.low):
            return no_interval(self.seeds)
        if self.low == self.high == 0:
            return "equal"
        if not self.p_adjusted < 1 - CONFIDENCE:
            return "undecided"
        return "lower" if self.mean < 0 else "higher"

    def same(self, other: Difference) -> bool:
        """Whether two outcomes have the very same differences but for rounding, as far as mean and p tell."""
        pairs = ((self.mean, other.mean), (self.p, other.p))
        return all(math.isclose(one, two, rel_tol=1e-9) for one, two in pairs)


def no_interval(seeds: int) -> str:
    """What stands where no interval is claimed.

    >>> no_interval(1), no_interval(0)
    ('no interval (1 seed)', 'no interval (rules)')
    """
    return f"no interval ({f'{seeds} seed' + 's' * (seeds > 1) if seeds else 'rules'})"


def summarise(rows: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Summary]:
    """Summary of each metric column over the rows of one variant in one setting at one scale.

    Raises:
        UserError: more than one variant, setting or scale is mixed, or an episode of a seed stands there twice.
    """
    if rows.empty:
        return dict.fromkeys(metrics, NOTHING)
    scores = Scores.of(rows, metrics)
    return {metric: _summary(values, scores) for metric, values in scores.values.items()}


def _summary(values: Array, scores: Scores) -> Summary:
    known = ~np.isnan(values)
    used, missing = int(known.sum()), int(scores.present.sum() - known.sum())
    if not used:
        return replace(NOTHING, missing=missing)
    several = values[known.sum(axis=1) > 1]
    sd = math.sqrt(np.nanvar(several, axis=1, ddof=1).mean()) if len(several) else math.nan
    ends = intervals.mean_interval(values)
    return Summary(
        mean=float(intervals.seed_means(values).mean()),
        sd=sd,
        low=ends.low,
        high=ends.high,
        seeds=int(known.any(axis=1).sum()) if scores.learned else 0,
        episodes=used,
        missing=missing,
    )


def paired_differences(first: pd.DataFrame, second: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Difference]:
    """Difference first - second of each metric over identical episodes, of two variants.

    Pairs share PAIR_KEY and, where both are learned, the training seed; a heuristic is paired with every seed of a
    learned method. Differences are averaged over the episodes of a seed first, then over seeds.

    Raises:
        UserError: a row has no partner (the pair is named), or a frame mixes variants.
    """
    return differences(Scores.of(first, metrics), Scores.of(second, metrics), metrics)


def differences(first: Scores, second: Scores, metrics: Sequence[str]) -> dict[str, Difference]:
    """`paired_differences` of scores."""
    require_partners(first, second)
    learned = first.learned or second.learned
    present = int((first.present & second.present).sum())
    found = {}
    for metric in metrics:
        sides = first.values[metric], second.values[metric]
        paired = sides[0] - sides[1]
        test = intervals.mean_test(paired)
        sign = -1 if metric in LOWER_IS_BETTER else 1
        known = ~np.isnan(paired)
        found[metric] = Difference(
            mean=test.mean,
            low=test.interval.low,
            high=test.interval.high,
            p=test.p,
            p_adjusted=test.p,
            better=intervals.probability_greater(sign * sides[0], sign * sides[1]),
            seeds=int(known.any(axis=1).sum()) if learned else 0,
            pairs=int(known.sum()),
            missing=present - int(known.sum()),
        )
    return found
