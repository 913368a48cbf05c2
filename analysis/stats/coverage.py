"""How often the intervals and tests of `analysis.resampling` err where the truth is known.

    python -m rllib_scale_analysis.stats.coverage [DRAWS]

prints docs/statistics.md's table: of simulated comparisons of two equal methods, the share in % in which each excludes
the truth; 5 is what a 95 % interval promises. 2000 draws take some minutes.
"""

from __future__ import annotations

import sys

import numpy as np

from .resampling import Array, Interval, counts, mean_interval, mean_test, probability_greater

EFFECTS = {
    "seeds differ": (1.0, 0.1, 1.0),
    "episodes differ": (0.0, 1.0, 1.0),
    "both differ": (1.0, 0.7, 2.5),
    "neither differs": (0.0, 0.0, 1.0),
}
"""Standard deviations of the effects of seeds, of episodes that all seeds share, and of the rest."""

EPISODES = 30
MEASURES = ("verdict", "interval", "p-value", "percentile over seeds", "BCa of a mean", "P(better)")


def simulate(rng: np.random.Generator, effects: str, seeds: int, skewed: bool = False) -> tuple[Array, Array]:
    """Scores (S, EPISODES) with a true mean of 0, and their expectation over seeds at these episodes."""

    def draw(*shape: int) -> Array:
        return rng.exponential(size=shape) - 1 if skewed else rng.normal(size=shape)

    of_seed, of_episode, rest = EFFECTS[effects]
    shared = of_episode * draw(EPISODES)
    return of_seed * draw(seeds, 1) + shared + rest * draw(seeds, EPISODES), shared


def false_rates(effects: str, seeds: int, skewed: bool, draws: int) -> Array:
    """Share of draws in which each of the MEASURES excludes the truth."""
    rng = np.random.default_rng([seeds, skewed, *effects.encode()])
    errors = np.zeros((draws, len(MEASURES)))
    for error in errors:
        (scores, shared), (rival, _) = (simulate(rng, effects, seeds, skewed) for _ in range(2))
        test = mean_test(scores)
        outside, small = _excludes(test.interval, 0.0), test.p < 0.05
        percentile = Interval(*np.quantile(counts(seeds, "seeds") @ scores.mean(axis=1) / seeds, (0.025, 0.975)))
        means = mean_interval(scores - shared)  # what it speaks of: other seeds on these episodes
        better = probability_greater(scores, rival)[1]
        error[:] = (
            *(outside and small, outside, small, _excludes(percentile, 0.0)),
            *(_excludes(means, 0.0), _excludes(better, 0.5)),
        )
    return np.asarray(errors.mean(axis=0))


def _excludes(interval: Interval, truth: float) -> bool:
    return not interval.low <= truth <= interval.high


def main(draws: int) -> None:
    """Print the table as Markdown."""
    print(f"| seeds | effects | {' | '.join(MEASURES)} |\n|{'---|' * (2 + len(MEASURES))}")
    for seeds in (5, 8):
        for skewed in (False, True):
            for effects in EFFECTS:
                rates = " | ".join(f"{100 * rate:.1f}" for rate in false_rates(effects, seeds, skewed, draws))
                print(f"| {seeds} | {effects}{', skewed' if skewed else ''} | {rates} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
