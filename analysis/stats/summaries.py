"""Statistics of evaluation episodes. The unit is a training seed: episodes of one policy are not independent.

A mean has Student's interval over seeds; a difference on identical episodes has one over seeds and episodes. Both need
5 seeds and some spread, the second 3 episodes. A rule is compared with a learned method over the seeds of the latter;
two rules get a difference without an interval. No result depends on the order of the rows. `analysis.stats.intervals`
computes the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..labels import LOWER_IS_BETTER
from . import intervals
from .intervals import CONFIDENCE, MIN_EPISODES, MIN_SEEDS
from .scores import Scores


@dataclass(frozen=True)
class Summary:
    """A metric of one variant in one setting at one scale.

    Attributes:
        mean: mean over seeds of the mean over a seed's episodes; NaN if no episode has a value.
        sd: standard deviation over the episodes of one seed (n - 1), pooled over seeds; NaN with single episodes.
        low, high: interval of `mean` over seeds; NaN with too few seeds.
        seeds: training seeds with a value; 0 for a rule.
    """

    mean: float
    sd: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Difference:
    """First minus second on identical episodes.

    Attributes:
        mean: mean over seeds of the mean difference over a seed's episodes.
        low, high: interval of `mean`; NaN with too few seeds.
        p: two-sided p-value of no difference; NaN without an interval, or if no episode differs.
        p_adjusted: p, corrected for the other comparisons of its family.
        better: probability that a seed of the first does better than a seed of the second on the same episode; ties
            count half.
        seeds: training seeds with a pair; 0 for two rules.
        episodes: with a pair.
    """

    mean: float
    low: float
    high: float
    p: float
    p_adjusted: float
    better: float
    seeds: int
    episodes: int

    @property
    def verdict(self) -> str:
        """`lower` or `higher` (first than second) if the adjusted p is < 0.05, else `undecided`.

        `equal` if no episode differs. The interval excludes 0 if p itself is < 0.05.
        """
        if math.isnan(self.low):
            return no_interval(self.seeds, self.episodes)
        if self.low == self.high == 0:
            return "equal"
        if not self.p_adjusted < 1 - CONFIDENCE:
            return "undecided"
        return "lower" if self.mean < 0 else "higher"

    def same(self, other: Difference) -> bool:
        """Whether two outcomes have the same mean and p but for rounding, and so the same differences."""
        pairs = ((self.mean, other.mean), (self.p, other.p))
        return all(math.isclose(one, two, rel_tol=1e-9) for one, two in pairs)


def no_interval(seeds: int, episodes: int) -> str:
    """Stands in place of a verdict if there is no interval.

    >>> [no_interval(*of) for of in ((1, 9), (0, 9), (5, 2), (5, 9))]
    ['no interval (1 seed)', 'no interval (rules)', 'no interval (2 episodes)', 'no interval (no spread)']
    """
    few = "rules" if not seeds else "no spread"
    for number, unit, least in ((episodes, "episode", MIN_EPISODES), (seeds, "seed", MIN_SEEDS)):
        if 0 < number < least:
            few = f"{number} {unit}{'s' * (number > 1)}"
    return f"no interval ({few})"


def summary(scores: Scores, metric: str) -> Summary:
    """Summary of one metric of some scores."""
    values = scores.values[metric]
    known = ~np.isnan(values)
    if not known.any():
        return Summary(*(math.nan,) * 4, seeds=0)
    # A variance needs two episodes; the pooled one is the mean of the seeds' variances.
    several = values[known.sum(axis=1) > 1]
    sd = math.sqrt(np.nanvar(several, axis=1, ddof=1).mean()) if len(several) else math.nan
    ends = intervals.mean_interval(values)
    seeds = int(known.any(axis=1).sum()) if scores.learned else 0
    return Summary(float(intervals.seed_means(values).mean()), sd, ends.low, ends.high, seeds)


def differences(first: Scores, second: Scores, metrics: Sequence[str]) -> dict[str, Difference]:
    """Difference first - second of each metric over the episodes that two variants share.

    If both are learned, a pair shares the training seed, too; a rule is paired with every seed of a learned method.
    Differences are averaged over the episodes of a seed first, then over seeds.
    """
    first, second = first.shared_with(second), second.shared_with(first)
    learned = first.learned or second.learned
    found = {}
    for metric in metrics:
        sides = first.values[metric], second.values[metric]
        # NaN where either is missing: only pairs count. A rule's single row is subtracted from each seed's.
        paired = sides[0] - sides[1]
        test = intervals.mean_test(paired)
        sign = -1 if metric in LOWER_IS_BETTER else 1
        found[metric] = Difference(
            mean=test.mean,
            low=test.interval.low,
            high=test.interval.high,
            p=test.p,
            p_adjusted=test.p,
            better=intervals.probability_greater(sign * sides[0], sign * sides[1]),
            seeds=int((~np.isnan(paired)).any(axis=1).sum()) if learned else 0,
            episodes=int((~np.isnan(paired)).any(axis=0).sum()),
        )
    return found
