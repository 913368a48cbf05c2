"""Intervals and p-values of scores held as arrays (S seeds, E episodes), NaN where a value is missing.

Evaluation episodes are the same workloads for every training seed, so that seeds and episodes are crossed factors: a
score is a mean, plus an effect of its seed, plus one of its episode, plus a residual. The standard error of a mean
contains both effects. With fewer than MIN_SEEDS units or MIN_EPISODES episodes, or without any spread, there is no
interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

CONFIDENCE = 0.95
COVERAGE = "Student's t, which covered 89 to 95 % in simulations: docs/statistics.md"
"""Method of the interval of a single method's mean; shown beside it."""
MIN_SEEDS = 5
"""With fewer seeds there is no interval."""
MIN_EPISODES = 3
"""With fewer episodes nothing is known of how much they differ, and there is no test."""

Unit = Literal["seeds", "episodes"]

NO_SPREAD = 1e-12
"""Scores, or squares, that differ by less than this share of the largest count as equal."""


@dataclass(frozen=True)
class Interval:
    """Ends of a 95 % interval; NaN without one."""

    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class MeanTest:
    """A mean score, its interval, and the two-sided p-value of a mean of 0; NaN without an interval."""

    mean: float
    interval: Interval
    p: float


def seed_means(scores: Array) -> Array:
    """Mean over the episodes of each seed (S',), of the seeds with a value."""
    kept = scores[~np.isnan(scores).all(axis=1)]
    return np.nanmean(kept, axis=1)


def mean_interval(scores: Array) -> Interval:
    """95 % interval of the mean of `seed_means`: Student's, over seeds.

    It covers the mean over these episodes with other seeds. docs/statistics.md has its measured coverage.
    """
    means = seed_means(scores)
    if len(means) < MIN_SEEDS:
        return Interval()
    error = float(means.std(ddof=1)) / math.sqrt(len(means))
    return _students(float(means.mean()), error, len(means) - 1)


def _students(value: float, error: float, freedom: float) -> Interval:
    half = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Interval(value - half, value + half) if error > NO_SPREAD * abs(value) else Interval()


def mean_test(scores: Array, unit: Unit = "seeds") -> MeanTest:
    """Student's interval and test of the mean of `seed_means`, over seeds and episodes.

    Both take the standard error of crossed factors, with Satterthwaite's degrees of freedom: the interval excludes 0
    exactly where p < 0.05. Scores that are all 0 have the interval [0, 0] and no p-value.

    For the error, a missing score is replaced by the mean plus the effects of its seed and its episode; the mean leaves
    it out.

    Args:
        scores: (S, E); (1, E) if no method has training seeds.
        unit: what MIN_SEEDS counts; "episodes" if no method has training seeds.
    """
    kept = scores[~np.isnan(scores).all(axis=1)]
    kept = kept[:, ~np.isnan(kept).all(axis=0)]
    if not kept.size:
        return MeanTest(math.nan, Interval(), math.nan)
    mean = float(np.nanmean(kept, axis=1).mean())
    if kept.shape[0 if unit == "seeds" else 1] < MIN_SEEDS:
        return MeanTest(mean, Interval(), math.nan)
    if not np.nanmax(np.abs(kept)):
        return MeanTest(0.0, Interval(0.0, 0.0), math.nan)
    if kept.shape[1] < MIN_EPISODES or _equal(kept):
        return MeanTest(mean, Interval(), math.nan)
    centred = _filled(kept)
    centred = centred - centred.mean()
    # Sums of squares of centred scores: a large mean would cost digits.
    variance, freedom = _variance(centred)
    if variance <= NO_SPREAD * float(np.max(centred**2)):
        return MeanTest(mean, Interval(), math.nan)  # scores that differ, of seeds whose means do not: no error to tell
    error = math.sqrt(variance)
    return MeanTest(mean, _students(mean, error, freedom), float(2 * special.stdtr(freedom, -abs(mean) / error)))


def _variance(scores: Array) -> tuple[float, float]:
    """Variance of the mean of crossed scores, and Satterthwaite's degrees of freedom.

    The variance of seed means estimates the share of seeds and residual in the variance of the mean. The variance of
    episode means, less the residual that it contains, estimates the share of episodes; it is at least 0.

    Args:
        scores: (S, E), centred, without missing values.
    """
    seeds, episodes = scores.shape
    # Sums of squares of a two-way layout without replicates, each over its number of cells: scores are centred, so the
    # mean square of row means is the between-row part, likewise of columns; the rest is residual.
    between_seeds = float((scores.mean(axis=1) ** 2).mean())
    between_episodes = float((scores.mean(axis=0) ** 2).mean())
    if seeds == 1:
        return between_episodes / (episodes - 1), episodes - 1.0
    # E[between_seeds / (S - 1)] = var(seed) / S + var(rest) / (S E): what seeds and residual add to var(mean).
    seed_term = between_seeds / (seeds - 1)
    if episodes == 1:
        return seed_term, seeds - 1.0
    # Likewise of episodes; it holds the residual again, which is taken off so that it counts once.
    episode_term = between_episodes / (episodes - 1)
    of_rest = (seeds - 1) * (episodes - 1)
    rest = max(float((scores**2).mean()) - between_seeds - between_episodes, 0.0) / of_rest
    added = max(episode_term - rest, 0.0)
    # Satterthwaite: freedom = variance^2 / sum of (each mean square's term)^2 / its own freedom.
    parts = seed_term**2 / (seeds - 1)
    if added:
        parts += episode_term**2 / (episodes - 1) + rest**2 / of_rest
    variance = seed_term + added
    return variance, variance**2 / parts if parts else seeds - 1.0


def _filled(scores: Array) -> Array:
    """Missing scores replaced by the mean plus the effects of their seed and episode."""
    if not np.isnan(scores).any():
        return scores
    # Additive: the seed's mean, and how the episode differs from it on average. The mean itself leaves gaps out; this
    # only lets the error be computed from a full table.
    of_seed = np.nanmean(scores, axis=1, keepdims=True)
    of_episode = np.nanmean(scores - of_seed, axis=0, keepdims=True)
    return np.where(np.isnan(scores), of_seed + of_episode, scores)


def probability_greater(first: Array, second: Array) -> float:
    """Probability that a seed of the first scores above a seed of the second on the same episode; ties count half.

    Every seed of the first meets every seed of the second (Agarwal et al. 2021, the probability of improvement).

    Args:
        first: (S, E), S = 1 for a method without training seeds.
        second: (S', E), over the same episodes.
    """
    # (S, S', E): 1, 1/2 or 0 of each pair of seeds on each episode.
    ahead = (np.sign(first[:, None] - second[None]) + 1) / 2
    known = ~np.isnan(ahead)
    return float(ahead[known].mean()) if known.any() else math.nan


def holm(p_values: Array) -> Array:
    """Holm's adjusted p-values of a family: those below 0.05 hold with a family-wise error of at most 5 %.

    NaN, where nothing is tested, is not of the family.

    >>> holm(np.array([0.01, 0.04, 0.03, np.nan])).tolist()
    [0.03, 0.06, 0.06, nan]
    """
    adjusted = np.full(len(p_values), math.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    # Step-down: the k-th smallest of m is multiplied by m - k, and none may be below the one before it.
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _equal(scores: Array) -> bool:
    return bool(np.nanmax(scores) - np.nanmin(scores) <= NO_SPREAD * np.nanmax(np.abs(scores)))
