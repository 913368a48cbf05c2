"""Intervals, p-values and effect sizes of scores held as arrays (S seeds, E episodes), NaN where a value is missing.

Evaluation episodes are the same workloads for every training seed, so that seeds and episodes are crossed factors: a
score is a mean, plus an effect of its seed, plus one of its episode, plus the rest. A resample therefore draws seeds
and, independently, episodes, and takes every score at which the two meet (Owen 2007, the pigeonhole bootstrap); drawing
other episodes for each seed would take what all seeds owe to one easy workload for evidence.

Every bootstrap has a fixed seed. With fewer than MIN_SEEDS seeds no interval is claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

CONFIDENCE = 0.95
COVERAGE = "Student's t, which covered 89 to 96 % in simulations: docs/statistics.md"
"""Of a single method's mean, to be said where its interval is shown."""
MIN_SEEDS = 5
"""With fewer seeds no interval is claimed: a bootstrap of so few values covers far less than it says."""

Unit = Literal["seeds", "episodes"]

RESAMPLES = 4_999
BOOTSTRAP_SEED = 20260606
TRIM = 0.25
NO_SPREAD = 1e-12
"""Scores, or squares, that differ by less than this share of the largest are equal but for rounding."""


@dataclass(frozen=True)
class Interval:
    """Ends of a 95 % interval, NaN where none is claimed."""

    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class MeanTest:
    """A mean score with its interval, and the two-sided p-value of its being 0; NaN where none is claimed."""

    mean: float
    interval: Interval
    p: float


def seed_means(scores: Array) -> Array:
    """Mean over the episodes of each seed (S',), of the seeds with a value."""
    kept = scores[~np.isnan(scores).all(axis=1)]
    return np.nanmean(kept, axis=1)


def mean_interval(scores: Array) -> Interval:
    """95 % interval of the mean of `seed_means`: Student's, over seeds.

    It says where the mean of these episodes would lie with other seeds. Measured coverage stands in docs/statistics.md.
    """
    means = seed_means(scores)
    if len(means) < MIN_SEEDS:
        return Interval()
    return _students(float(means.mean()), float(means.std(ddof=1)) / math.sqrt(len(means)), len(means))


def _students(value: float, error: float, seeds: int) -> Interval:
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)) * error if error > NO_SPREAD * abs(value) else 0.0
    return Interval(value - half, value + half)


def iqm(scores: Array) -> float:
    """Interquartile mean: the mean of the middle half of all scores, seeds and episodes together; NaN without any.

    >>> iqm(np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 1000.0]]))
    4.5
    """
    values = scores[~np.isnan(scores)]
    cut = int(TRIM * len(values))
    return float(np.sort(values)[cut : len(values) - cut].mean()) if len(values) else math.nan


def iqm_interval(scores: Array) -> Interval:
    """95 % interval of `iqm`, Student's with the standard error of the jackknife over seeds."""
    kept = scores[~np.isnan(scores).all(axis=1)]
    if len(kept) < MIN_SEEDS:
        return Interval()
    left_out = np.array([iqm(np.delete(kept, seed, axis=0)) for seed in range(len(kept))])
    error = math.sqrt((len(kept) - 1) * left_out.var())
    return _students(iqm(kept), error, len(kept))


def mean_test(scores: Array, unit: Unit = "seeds", p_alone: bool = False) -> MeanTest:
    """Hierarchical bootstrap of the mean of `seed_means`, over seeds and episodes.

    The interval is studentised and symmetric: mean ± q * se, q the 95 % quantile of |mean* - mean| / se* over the
    resamples. A percentile interval over 5 or 8 seeds excludes a true 0 in 11 to 57 of 100 cases, this one in about 5
    (docs/statistics.md). The p-value is Student's, of mean / se
    with Satterthwaite's degrees of freedom: 5 seeds have 126 different resamples, too few to tell 0.01 from the 0.0001
    that a correction for many comparisons asks for.

    A missing score takes the mean plus the effects of its seed and its episode in the error, and is left out of the
    mean.

    Args:
        scores: (S, E); (1, E) where no method has training seeds.
        unit: what MIN_SEEDS counts; "episodes" where no method has training seeds.
        p_alone: without the interval, which takes the bootstrap.
    """
    kept = scores[~np.isnan(scores).all(axis=1)]
    kept = kept[:, ~np.isnan(kept).all(axis=0)]
    if not kept.size:
        return MeanTest(math.nan, Interval(), math.nan)
    mean = float(np.nanmean(kept, axis=1).mean())
    if kept.shape[0 if unit == "seeds" else 1] < MIN_SEEDS:
        return MeanTest(mean, Interval(), math.nan)
    if _equal(kept):
        return MeanTest(mean, Interval(mean, mean), 0.0 if mean else math.nan)  # of nothing but 0 there is no test
    centred = _filled(kept)
    centred = centred - centred.mean()
    seeds, episodes = centred.shape
    ones = (np.ones((1, seeds)), np.ones((1, episodes)))
    variance, freedom = (float(value[0]) for value in _variance(centred, *ones))
    rounding = NO_SPREAD * float(np.max(centred**2))
    if variance <= rounding:
        return MeanTest(mean, Interval(), math.nan)  # scores that differ, of seeds whose means do not: no error to tell
    p = float(2 * stats.t.sf(abs(mean) / math.sqrt(variance), freedom))
    if p_alone:
        return MeanTest(mean, Interval(), p)
    drawn = counts(seeds, "seeds"), counts(episodes, "episodes")
    means = np.einsum("rs,rs->r", drawn[0], drawn[1] @ centred.T) / centred.size
    variances = _variance(centred, *drawn)[0]
    spread = variances > rounding  # a resample of equal scores has no error to divide by
    ratios = np.abs(means[spread]) / np.sqrt(variances[spread])
    half = float(np.quantile(ratios, CONFIDENCE)) * math.sqrt(variance)
    return MeanTest(mean, Interval(mean - half, mean + half), p)


def _variance(scores: Array, seed_counts: Array, episode_counts: Array) -> tuple[Array, Array]:
    """Variance of the mean of crossed resamples, and Satterthwaite's degrees of freedom.

    The variance of seed means estimates what seeds, and the rest, add to the variance of the mean; the variance of
    episode means, less the rest that it holds too, what episodes add. The latter is not let below 0.

    Args:
        scores: (S, E), centred, without missing values.
        seed_counts: how often each seed is drawn, (R, S).
        episode_counts: how often each episode is drawn, (R, E).

    Returns:
        Both of shape (R,).
    """
    seeds, episodes = scores.shape
    of_seeds, of_episodes = episode_counts @ scores.T / episodes, seed_counts @ scores / seeds
    square = (np.einsum("rs,rs->r", seed_counts, of_seeds) / seeds) ** 2
    total = np.einsum("re,re->r", seed_counts @ scores**2, episode_counts) / scores.size - square
    between_seeds = np.maximum(np.einsum("rs,rs->r", seed_counts, of_seeds**2) / seeds - square, 0)
    between_episodes = np.maximum(np.einsum("re,re->r", episode_counts, of_episodes**2) / episodes - square, 0)
    if seeds == 1:
        return between_episodes / (episodes - 1), np.full(len(square), episodes - 1.0)
    seed_term = between_seeds / (seeds - 1)
    if episodes == 1:
        return seed_term, np.full(len(square), seeds - 1.0)
    episode_term = between_episodes / (episodes - 1)
    rest = np.maximum(total - between_seeds - between_episodes, 0) / ((seeds - 1) * (episodes - 1))
    added = np.maximum(episode_term - rest, 0)
    variance = seed_term + added
    parts = seed_term**2 / (seeds - 1)
    parts += np.where(added > 0, episode_term**2 / (episodes - 1) + rest**2 / ((seeds - 1) * (episodes - 1)), 0)
    return variance, np.divide(variance**2, parts, out=np.full(len(square), seeds - 1.0), where=parts > 0)


def _filled(scores: Array) -> Array:
    """Missing scores replaced by the mean plus the effects of their seed and episode."""
    if not np.isnan(scores).any():
        return scores
    of_seed = np.nanmean(scores, axis=1, keepdims=True)
    of_episode = np.nanmean(scores - of_seed, axis=0, keepdims=True)
    return np.where(np.isnan(scores), of_seed + of_episode, scores)


def probability_greater(first: Array, second: Array, claim: bool = True) -> tuple[float, Interval]:
    """Probability that a seed of the first scores above a seed of the second on the same episode; ties count half.

    Every seed of the first meets every seed of the second (Agarwal et al. 2021, the probability of improvement). The
    interval is the percentile interval of the hierarchical bootstrap: seeds of either and episodes, each drawn
    independently.

    Args:
        first: (S, E), S = 1 for a method without training seeds.
        second: (S', E), over the same episodes.
        claim: whether there are seeds enough for an interval.
    """
    ahead = (np.sign(first[:, None] - second[None]) + 1) / 2
    known = ~np.isnan(ahead)
    if not known.any():
        return math.nan, Interval()
    probability = float(ahead[known].mean())
    if not claim:
        return probability, Interval()
    draws = (counts(len(first), "seeds"), counts(len(second), "other seeds"), counts(first.shape[1], "episodes"))
    won, met = (_crossed_sum(values, *draws) for values in (np.where(known, ahead, 0), known.astype(float)))
    values = won[met > 0] / met[met > 0]
    tail = (1 - CONFIDENCE) / 2
    return probability, Interval(*(float(end) for end in np.quantile(values, (tail, 1 - tail))))


def _crossed_sum(values: Array, first: Array, second: Array, episodes: Array) -> Array:
    """Sums (R,) of `values` (S, S', E), each as often as its seeds and its episode are drawn."""
    over_episodes = (episodes @ values.reshape(-1, values.shape[2]).T).reshape(-1, *values.shape[:2])
    return np.asarray(np.einsum("rst,rs,rt->r", over_episodes, first, second))


@lru_cache(maxsize=64)
def counts(units: int, what: str) -> Array:
    """How often each of `units` is drawn in each of RESAMPLES resamples (R, units); independent between whats."""
    stream = np.random.default_rng([BOOTSTRAP_SEED, *what.encode()])
    drawn = stream.multinomial(units, np.full(units, 1 / units), RESAMPLES).astype(float)
    drawn.setflags(write=False)
    return drawn


def holm(p_values: Array) -> Array:
    """Holm's adjusted p-values of a family: those below 0.05 hold with a family-wise error of at most 5 %.

    NaN, where nothing is tested, is not of the family.

    >>> holm(np.array([0.01, 0.04, 0.03, np.nan])).tolist()
    [0.03, 0.06, 0.06, nan]
    """
    adjusted = np.full(len(p_values), math.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _equal(scores: Array) -> bool:
    return bool(np.nanmax(scores) - np.nanmin(scores) <= NO_SPREAD * np.nanmax(np.abs(scores)))
