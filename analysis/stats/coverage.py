"""How often the intervals and tests of `analysis.resampling` err where the truth is known.

    python -m rllib_scale_analysis.stats.coverage [DRAWS]

prints the tables of docs/statistics.md: of simulated comparisons of two equal methods, and of simulated single methods,
the share in % in which each excludes the truth; 5 is what a 95 % interval promises. 2000 draws take some minutes.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import stats

from .resampling import (
    Array,
    Interval,
    counts,
    iqm,
    iqm_interval,
    mean_interval,
    mean_test,
    probability_greater,
)

EFFECTS = {
    "seeds differ": (1.0, 0.1, 1.0),
    "episodes differ": (0.0, 1.0, 1.0),
    "both differ": (1.0, 0.7, 2.5),
    "neither differs": (0.0, 0.0, 1.0),
}
"""Standard deviations of the effects of seeds, of episodes that all seeds share, and of the rest."""

EPISODES = 30
PAIRS = ("verdict", "interval", "p-value", "percentile over seeds", "P(better)")
SINGLE = ("BCa bootstrap", "studentised bootstrap", "Student's t", "t of the IQM")
"""Candidates for the interval of one method's mean, and what is taken for its interquartile mean."""


def simulate(rng: np.random.Generator, effects: str, seeds: int, skewed: bool = False) -> tuple[Array, Array]:
    """Scores (S, EPISODES) with a true mean of 0, and their expectation over seeds at these episodes."""

    def draw(*shape: int) -> Array:
        return rng.exponential(size=shape) - 1 if skewed else rng.normal(size=shape)

    of_seed, of_episode, rest = EFFECTS[effects]
    shared = of_episode * draw(EPISODES)
    return of_seed * draw(seeds, 1) + shared + rest * draw(seeds, EPISODES), shared


def false_rates(effects: str, seeds: int, skewed: bool, draws: int) -> Array:
    """Share of draws in which each of PAIRS, of two equal methods, excludes the truth."""
    rng = np.random.default_rng([seeds, skewed, *effects.encode()])
    errors = np.zeros((draws, len(PAIRS)))
    for error in errors:
        (scores, _), (rival, _) = (simulate(rng, effects, seeds, skewed) for _ in range(2))
        test = mean_test(scores)
        outside, small = _excludes(test.interval, 0.0), test.p < 0.05
        percentile = Interval(*np.quantile(counts(seeds, "seeds") @ scores.mean(axis=1) / seeds, (0.025, 0.975)))
        better = probability_greater(scores, rival)[1]
        error[:] = (outside and small, outside, small, _excludes(percentile, 0.0), _excludes(better, 0.5))
    return np.asarray(errors.mean(axis=0))


def single_rates(effects: str, seeds: int, skewed: bool, draws: int) -> Array:
    """Share of draws in which each of SINGLE excludes what other seeds would give on the same episodes."""
    rng = np.random.default_rng([seeds, skewed, *effects.encode()])
    truth = iqm(_of_seeds(rng, effects, 20_000, skewed))
    errors = np.zeros((draws, len(SINGLE)))
    for error in errors:
        scores = _of_seeds(rng, effects, seeds, skewed)
        means = scores.mean(axis=1)
        bca = stats.bootstrap((means,), np.mean, n_resamples=999, method="BCa", rng=rng).confidence_interval
        intervals = (Interval(*bca), mean_test(means[:, None]).interval, mean_interval(scores))
        error[:-1] = [_excludes(interval, 0.0) for interval in intervals]
        error[-1] = _excludes(iqm_interval(scores), truth)
    return np.asarray(errors.mean(axis=0))


def _of_seeds(rng: np.random.Generator, effects: str, seeds: int, skewed: bool) -> Array:
    """Scores less what the episodes add to each of them."""
    scores, shared = simulate(rng, effects, seeds, skewed)
    return scores - shared


def _excludes(interval: Interval, truth: float) -> bool:
    return not interval.low <= truth <= interval.high


def main(draws: int) -> None:
    """Print both tables as Markdown."""
    for measures, rates_of in ((PAIRS, false_rates), (SINGLE, single_rates)):
        print(f"\n| seeds | effects | {' | '.join(measures)} |\n|{'---|' * (2 + len(measures))}")
        for seeds in (5, 8):
            for skewed in (False, True):
                for effects in EFFECTS:
                    rates = " | ".join(f"{100 * rate:.1f}" for rate in rates_of(effects, seeds, skewed, draws))
                    print(f"| {seeds} | {effects}{', skewed' if skewed else ''} | {rates} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
