"""Pairs of trainings of `scale-any`, with the paper's SRR and without: per cent of the mean response.

python analysis/studies/srr/pairs.py analysis/studies/learning/episodes.parquet    # the pilot
python analysis/studies/srr/pairs.py analysis/studies/srr/episodes.parquet         # the experiment

All 120 problems, each whole and revealed.
"""

import math
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from rllib_scale_analysis.stats.intervals import mean_test
from scipy import stats

DIFFERENCE, POWER = 0.5, 0.8
rows = pd.read_parquet(sys.argv[1]).set_index(["scenario", "number"]).sort_index()


def seeds_for(sd: float, reached: Callable[[int, float], float]) -> int:
    """Fewest seeds with which a t-test reaches the power."""
    return next((n for n in range(3, 10_000) if reached(n, sd / math.sqrt(n)) >= POWER), 10_000)


def differs(n: int, error: float) -> float:
    """Power of the paired t-test for a true difference of DIFFERENCE."""
    bound, shift = stats.t.ppf(0.975, n - 1), DIFFERENCE / error
    return 1 - stats.nct.cdf(bound, n - 1, shift) + stats.nct.cdf(-bound, n - 1, shift)


def equivalent(n: int, error: float) -> float:
    """Power to find two equal arms equivalent within DIFFERENCE: the 90 % interval lies within it."""
    return max(0.0, 2 * stats.t.cdf(DIFFERENCE / error - stats.t.ppf(0.95, n - 1), n - 1) - 1)


for start in ("naive", "adaptive"):
    if start not in set(rows["method"]):
        continue
    arms = [
        np.array([np.log(of["response_censored_s"]) for _, of in rows[rows["method"] == name].groupby("seed")])
        for name in (start, f"{start}, SRR")
    ]
    by_problem = 100 * (arms[1] - arms[0])  # (S, 240)
    by_seed = by_problem.mean(axis=1)
    found, sd = mean_test(by_seed[:, None]), float(by_seed.std(ddof=1))
    low, high = (
        found.mean + sign * stats.t.ppf(0.95, len(by_seed) - 1) * sd / math.sqrt(len(by_seed)) for sign in (-1, 1)
    )
    print(f"{start}: by seed {np.round(by_seed, 2)}, standard deviation {sd:.2f}")
    print(f"  mean {found.mean:+.2f}, 95 % {found.interval.low:+.2f} to {found.interval.high:+.2f}, p {found.p:.2f}")
    print(
        f"  90 % {low:+.2f} to {high:+.2f}; seeds for a difference of {DIFFERENCE} %: {seeds_for(sd, differs)}, "
        f"for equivalence: {seeds_for(sd, equivalent)}"
    )
