"""Who stays good: every variant over every problem that all of them played, by mean rank and by worst ratio."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from ..load import SETTING, setting_label, settings, variants
from ..stats.intervals import MIN_SEEDS
from ..stats.scores import EPISODE
from .relative import BASE, GAP, LOWER_BOUND

METRIC = "response_censored_s"
BOOTSTRAP_SEED, RESAMPLES = 20260606, 4_999
FEWEST = 3
"""Problems that make a league."""
TITLE = "League: mean rank over all problems, and the worst case"
HOW_TO_READ = (
    "a problem is a setting at a number of servers; of each the variants are ranked by the mean censored response, 1 "
    "the best. Mean rank: over the problems that all of these variants played, on episodes that all have; [low, high] "
    "is the 95 % interval of a bootstrap of the episodes, the same ones in every problem, and says nothing of other "
    "trainings or problems. Worst ratio: mean response over that of the best variant, where that is largest. Gap "
    f"closed: of what lies between {BASE} and a lower bound that nobody can beat, the mean share over the problems."
)


def league(episodes: pd.DataFrame) -> pd.DataFrame:
    """One row per variant that was played in every problem, best first.

    Args:
        episodes: rows of any settings; those of several seeds are averaged for each episode.

    Returns:
        variant, mean_rank with _low and _high (NaN of fewer than MIN_SEEDS episodes), worst_ratio, worst_in,
        gap_closed_percent (NaN without the base in every problem, or without a bound), problems, episodes. No rows for
        fewer than FEWEST problems, or fewer than two variants.
    """
    ranks = ["mean_rank", "mean_rank_low", "mean_rank_high"]
    empty = pd.DataFrame(columns=["variant", *ranks, "worst_ratio", "worst_in", GAP, "problems", "episodes"])
    place = [*SETTING, "test_servers"]
    known = episodes[episodes[METRIC].notna()]
    names = known.astype({name: str for name in (*SETTING, "variant")})
    table = names.groupby([*place, *EPISODE, "variant"])[METRIC].mean().unstack("variant")  # problems x episodes
    problems: list[Any] = list(table.groupby(place).groups)  # scenario, mask, decision, servers
    full = [name for name in variants(episodes) if table[name].notna().groupby(place).any().all()]
    shared = table[full].dropna().reset_index(place)
    common = shared.groupby(level=list(EPISODE)).size() == len(problems)
    kept = common.index[common]
    if len(problems) < FEWEST or len(full) < 2 or len(kept) == 0:
        return empty
    values = np.stack(
        [table.loc[problem, full].reindex(kept).to_numpy(dtype=float).T for problem in problems]
    )  # (P, V, E)
    means = values.mean(axis=2)
    rank = stats.rankdata(means, axis=1).mean(axis=0)
    low = high = np.full(len(full), np.nan)
    if len(kept) >= MIN_SEEDS:
        drawn = np.random.default_rng(BOOTSTRAP_SEED).multinomial(len(kept), [1 / len(kept)] * len(kept), RESAMPLES)
        again = np.tensordot(drawn, values, axes=(1, 2))  # (R, P, V), sums: ranks are those of means
        low, high = np.quantile(stats.rankdata(again, axis=2).mean(axis=1), (0.025, 0.975), axis=0)
    ratio = means / means.min(axis=1, keepdims=True)
    every = settings(episodes)
    several = len({problem[-1] for problem in problems}) > 1
    labels = [setting_label(p[:3], every) + (f", N = {p[-1]}" if several else "") for p in problems]
    closed = np.full(len(full), np.nan)
    if BASE in full:
        bounds = names.groupby([*place, *EPISODE])[LOWER_BOUND].mean()
        bound = np.array([[bounds.loc[problem].reindex(kept).mean(skipna=False)] for problem in problems])
        base = means[:, [full.index(BASE)]]
        closed = 100 * ((base - means) / (base - bound)).mean(axis=0)
    rows = {
        "variant": full,
        "mean_rank": rank,
        "mean_rank_low": low,
        "mean_rank_high": high,
        "worst_ratio": ratio.max(axis=0),
        "worst_in": [labels[k] for k in ratio.argmax(axis=0)],
        GAP: closed,
    }
    found = pd.DataFrame(rows).assign(problems=len(problems), episodes=len(kept))
    return found.sort_values(["mean_rank", "worst_ratio"], kind="stable", ignore_index=True)
