"""Statistics of evaluation episodes. A training seed is the unit: episodes of one policy are not independent of it.

An interval is a 95 % BCa bootstrap interval of the mean over seeds, and is claimed from 5 seeds on. The result does
not depend on the order of the rows, and the bootstrap has a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy import stats

from analysis.load import SETTING
from rllib_scale.errors import UserError

CONFIDENCE = 0.95
MIN_SEEDS = 5
"""With fewer seeds no interval is claimed: a bootstrap of so few values covers far less than it says."""

RESAMPLES = 99_999
BOOTSTRAP_SEED = 20260606
PAIR_KEY = ("scenario", "test_servers", "mask", "decision", "eval_seed", "episode")
"""What two rows must share to be a pair; where both methods are learned, the training seed too."""


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


@dataclass(frozen=True)
class Difference:
    """First minus second on identical episodes.

    Attributes:
        mean: mean over seeds of the mean difference over a seed's episodes.
        low, high: ends of the interval of `mean` over seeds; NaN where none is claimed.
        seeds: training seeds with a pair; 0 between two heuristics.
        pairs: pairs of episodes in which both have a value, over all seeds.
        missing: pairs in which one has none.
    """

    mean: float
    low: float
    high: float
    seeds: int
    pairs: int
    missing: int

    @property
    def verdict(self) -> str:
        """`lower` or `higher` (first than second) only where the interval excludes 0."""
        if self.seeds < MIN_SEEDS:
            return no_interval(self.seeds)
        if self.high < 0:
            return "lower"
        return "higher" if self.low > 0 else "undecided"


def no_interval(seeds: int) -> str:
    """What stands where no interval is claimed.

    >>> no_interval(1)
    'no interval (1 seed)'
    """
    return f"no interval ({seeds} seed{'' if seeds == 1 else 's'})"


@lru_cache(maxsize=4096)
def _bca(values: tuple[float, ...]) -> tuple[float, float]:
    mean = float(np.mean(values))
    if np.ptp(values) <= 1e-12 * np.max(np.abs(values)):
        return mean, mean  # no spread: every resample has this mean, and BCa would divide 0 by 0
    ends = stats.bootstrap(
        (np.array(values),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="BCa",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    return float(ends.low), float(ends.high)


def interval(seed_means: np.ndarray) -> tuple[float, float]:
    """95 % BCa interval of the mean of `seed_means` (S,), in any order; (NaN, NaN) for S < MIN_SEEDS.

    Minus the values give minus the interval: completed and unfinished tasks, whose differences mirror each other, get
    the same verdict although the resamples are random.
    """
    if len(seed_means) < MIN_SEEDS:
        return math.nan, math.nan
    if np.mean(seed_means) < 0:
        low, high = interval(-seed_means)
        return -high, -low
    return _bca(tuple(float(value) for value in np.sort(seed_means)))


def _over_seeds(values: pd.Series, seeds: pd.Series, learned: bool) -> tuple[float, float, float, float, int, int]:
    """Mean over seeds, pooled sd within seeds, interval, seeds with a value (0 if not learned), values used."""
    values = values.astype("float64").dropna()
    # Sorted, so that the sums, and with them the last digit, do not depend on the order of the rows.
    grouped = values.sort_values().groupby(seeds, dropna=False)
    means = np.sort(grouped.mean().to_numpy(dtype=float))
    variances = np.sort(grouped.var(ddof=1).dropna().to_numpy(dtype=float))
    mean = float(means.mean()) if len(means) else math.nan
    sd = math.sqrt(variances.mean()) if len(variances) else math.nan
    low, high = interval(means)  # of a heuristic there is one mean, hence none
    return mean, sd, low, high, len(means) if learned else 0, len(values)


def _is_learned(rows: pd.DataFrame) -> bool:
    return bool((rows["kind"] == "learned").any())


def _require_one_variant(rows: pd.DataFrame) -> None:
    """One variant, setting and scale, and each (training seed, episode) once."""
    for column in ("variant", *SETTING, "test_servers"):
        values = sorted(str(value) for value in rows[column].unique())
        if len(values) > 1:
            raise UserError(f"the frame mixes {column} {', '.join(values)}; a statistic takes one")
    repeated = rows[rows.duplicated(["train_seed", *PAIR_KEY], keep=False)]
    if len(repeated):
        row, cells = repeated.iloc[0], ", ".join(sorted(set(repeated["cell"])))
        raise UserError(f"{row['variant']}: cells {cells} both hold {_describe(row)}; a statistic takes one of them")


def _describe(row: pd.Series) -> str:
    seed = "" if pd.isna(row["train_seed"]) else f"seed {row['train_seed']}, "
    return (
        f"{seed}N={row['test_servers']}, scenario {row['scenario']}, mask {row['mask']}, decision {row['decision']}, "
        f"eval_seed {row['eval_seed']}, episode {row['episode']}"
    )


def summarise(rows: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Summary]:
    """Summary of each metric column over the rows of one variant in one setting at one scale.

    Raises:
        UserError: more than one variant, setting or scale is mixed.
    """
    _require_one_variant(rows)
    learned = _is_learned(rows)
    summaries = {}
    for metric in metrics:
        mean, sd, low, high, seeds, used = _over_seeds(rows[metric], rows["train_seed"], learned)
        summaries[metric] = Summary(mean, sd, low, high, seeds, used, len(rows) - used)
    return summaries


def paired_differences(first: pd.DataFrame, second: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Difference]:
    """Difference first - second of each metric over identical episodes, of two variants.

    Pairs share PAIR_KEY and, where both are learned, the training seed; a heuristic is paired with every seed of a
    learned method. Differences are averaged over the episodes of a seed first, then over seeds.

    Raises:
        UserError: a row has no partner (the pair is named), or a frame mixes variants.
    """
    key = ["train_seed", *PAIR_KEY]
    learned = [_is_learned(first), _is_learned(second)]
    seeds = (first if learned[0] else second)["train_seed"].unique() if any(learned) else [pd.NA]
    sides = []
    for rows, is_learned in zip((first, second), learned, strict=True):
        _require_one_variant(rows)
        side = rows[[*key, *metrics]]
        if not is_learned:
            every_seed = pd.DataFrame({"train_seed": pd.array(seeds, dtype="Int64")})
            side = side.drop(columns="train_seed").merge(every_seed, how="cross")
        sides.append(side)
    pairs = sides[0].merge(sides[1], how="outer", on=key, suffixes=("_first", "_second"), indicator=True)
    alone = pairs[pairs["_merge"] != "both"].sort_values(key)
    if len(alone):
        row = alone.iloc[0]
        has, lacks = (first, second) if row["_merge"] == "left_only" else (second, first)
        lacking = lacks["variant"].iloc[0] if len(lacks) else "the other method"
        raise UserError(
            f"{has['variant'].iloc[0]} has no partner in {lacking} for {_describe(row)} "
            f"({len(alone)} of {len(pairs)} pairs are incomplete)"
        )
    differences = {}
    for metric in metrics:
        values = pairs[f"{metric}_first"].astype("float64") - pairs[f"{metric}_second"].astype("float64")
        mean, _, low, high, seed_count, used = _over_seeds(values, pairs["train_seed"], any(learned))
        differences[metric] = Difference(mean, low, high, seed_count, used, len(pairs) - used)
    return differences
