"""Pairs of trainings of `scale-any`, with the paper's SRR and without: per cent of the mean response.

python analysis/studies/srr/pairs.py analysis/studies/learning/episodes.parquet    # the pilot
python analysis/studies/srr/pairs.py analysis/studies/srr/episodes.parquet         # the experiment
python analysis/studies/srr/pairs.py analysis/studies/srr/episodes.parquet analysis/studies/srr/secondary.parquet

All 120 problems, each whole and revealed. The last adds the secondary endpoints; the best lambda of the grid is the
paper's, so its test is that of the paper's.
"""

import math
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from rllib_scale_analysis.stats.intervals import MeanTest, holm, mean_test
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

if len(sys.argv) > 2:
    logs = np.log(pd.read_parquet(sys.argv[2]).set_index(["measure", "method", "seed", "episode"])["value"])
    of_seed = 100 * logs.groupby(["measure", "seed", "method"]).mean().unstack("method")
    tests: dict[str, MeanTest] = {"best lambda": found}
    for measure, both in of_seed.groupby("measure"):
        difference = (both["naive, SRR"] - both["naive"]).to_numpy()
        tests[str(measure)] = mean_test(difference[:, None])
        print(f"{measure}: by seed {np.round(difference, 2)}")
    for (name, test), p in zip(tests.items(), holm(np.array([test.p for test in tests.values()])), strict=True):
        low, high = test.interval.low, test.interval.high
        print(f"{name}: {test.mean:+.2f}, 95 % {low:+.2f} to {high:+.2f}, p {test.p:.2f}, Holm {p:.2f}")
    print("values:", np.exp(logs.groupby(["measure", "method"]).mean()).round(3).to_string(), sep="\n")
