"""Error rates of the intervals and verdicts of the analysis where the truth is known.

    python -m benchmarks.verdicts [DRAWS]

prints the tables of analysis/studies/verdicts/README.md, the share in % of simulated comparisons in which each excludes
the truth; a 95 % interval promises 5. 10 000 draws take some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from rllib_scale_analysis.stats.intervals import Array, Interval, mean_interval, mean_test
from rllib_scale_analysis.stats.summaries import no_interval

EFFECTS = {
    "seeds differ": (1.0, 0.1, 1.0),
    "episodes differ": (0.0, 1.0, 1.0),
    "both differ": (1.0, 0.7, 2.5),
    "neither differs": (0.0, 0.0, 1.0),
    "equal trainings": (0.0, 1.0, 0.0),
}
"""Standard deviations of the effects of seeds, of episodes that all seeds share, and of the rest."""
EPISODES = 30
FEW_EPISODES = (3, 5, 10)
FAILURE, HARM = 0.2, 20.0
"""Share of trainings that fail, and the cost of a failure, in standard deviations of a score."""
TAIL = 1.5
"""Standard deviation of the logarithm of a response time with a heavy tail."""

Draw = Callable[[np.random.Generator], tuple[Array, float]]
"""Differences (S, EPISODES) of two methods, and their true mean."""


def simulate(
    rng: np.random.Generator, effects: str, seeds: int, skewed: bool = False, episodes: int = EPISODES
) -> tuple[Array, Array]:
    """Scores (S, episodes) with a true mean of 0, and their expectation over seeds at these episodes."""

    def draw(*shape: int) -> Array:
        return rng.exponential(size=shape) - 1 if skewed else rng.normal(size=shape)

    of_seed, of_episode, rest = EFFECTS[effects]
    shared = of_episode * draw(episodes)
    return of_seed * draw(seeds, 1) + shared + rest * draw(seeds, episodes), shared


def with_failures(rng: np.random.Generator, seeds: int, both: bool) -> Array:
    """Differences of two methods with equal means: one training of five fails of both, or of the first alone."""
    scores = simulate(rng, "both differ", seeds)[0]
    failed = rng.random((2, seeds, 1)) < FAILURE
    harm = HARM * (failed[0].astype(float) - (failed[1] if both else FAILURE))
    return np.asarray(scores - harm)


def heavy_tails(rng: np.random.Generator, alike: bool) -> tuple[Array, Array]:
    """Response times (1, EPISODES) of two rules with equal means; unless they are alike, the first has no tail."""
    load = rng.lognormal(0, 0.5, EPISODES)
    first, second = (load * rng.lognormal(-(sd**2) / 2, sd, EPISODES) for sd in (TAIL if alike else 0.1, TAIL))
    return first[None], second[None]


def excludes(interval: Interval, truth: float) -> bool:
    """Whether an interval, if there is one, leaves the truth out."""
    return interval.low > truth or interval.high < truth


def rate(draws: int, seed: str, err: Callable[[np.random.Generator], bool]) -> str:
    """The share of draws that err, in %."""
    rng = np.random.default_rng([*seed.encode()])
    return f"{100 * np.mean([err(rng) for _ in range(draws)]):.1f}"


def seeds_err(effects: str, seeds: int, skewed: bool, draws: int, episodes: int = EPISODES) -> tuple[str, str]:
    """Rates of false verdicts on two equal methods, and of intervals of a single one that miss its mean."""

    def verdict(rng: np.random.Generator) -> bool:
        return mean_test(simulate(rng, effects, seeds, skewed, episodes)[0]).p < 0.05

    def single(rng: np.random.Generator) -> bool:
        scores, shared = simulate(rng, effects, seeds, skewed, episodes)
        return excludes(mean_interval(scores - shared), 0.0)

    name = f"{effects} {seeds} {skewed}"
    return rate(draws, name, verdict), rate(draws, f"{name} single", single)


def rules_err(alike: bool, draws: int) -> tuple[str, str]:
    """Rates at which t on differences misses equal means of two rules, and t on logarithms the true mean logarithm."""
    truth = 0.0 if alike else (TAIL**2 - 0.1**2) / 2

    def differences(rng: np.random.Generator) -> bool:
        first, second = heavy_tails(rng, alike)
        return excludes(mean_test(first - second, "episodes").interval, 0.0)

    def logarithms(rng: np.random.Generator) -> bool:
        first, second = heavy_tails(rng, alike)
        return excludes(mean_test(np.log(first / second), "episodes").interval, truth)

    return rate(draws, f"differences {alike}", differences), rate(draws, f"logarithms {alike}", logarithms)


def main(draws: int) -> None:
    """Print the tables as Markdown."""
    print("| seeds | effects | verdict on two | interval of one |\n|---|---|---|---|")
    for seeds in (5, 8):
        for skewed in (False, True):
            for effects in EFFECTS:
                found = " | ".join(seeds_err(effects, seeds, skewed, draws))
                print(f"| {seeds} | {effects}{', skewed' if skewed else ''} | {found} |", flush=True)
    print(
        "\n| seeds | effects | "
        + " | ".join(f"{episodes} episodes" for episodes in FEW_EPISODES)
        + " |\n|---|---|---|---|---|"
    )
    for seeds in (5, 8):
        for effects in EFFECTS:
            found = " | ".join(seeds_err(effects, seeds, False, draws, episodes)[0] for episodes in FEW_EPISODES)
            print(f"| {seeds} | {effects} | {found} |", flush=True)
    print("\n| seeds | one training of five fails | verdict |\n|---|---|---|")
    for seeds in (5, 8, 16):
        for both in (True, False):
            false = rate(draws, f"{seeds} {both}", lambda rng: mean_test(with_failures(rng, seeds, both)).p < 0.05)  # noqa: B023
            print(f"| {seeds} | {'of both' if both else 'of the first alone'} | {false} |", flush=True)
    print(
        "\n| two rules with heavy tails and equal means | t on differences | t on logarithms | verdict |"
        "\n|---|---|---|---|"
    )
    for alike in (True, False):
        name = "alike" if alike else "the first without a tail"
        print(f"| {name} | {' | '.join(rules_err(alike, draws))} | {no_interval(0, EPISODES)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
