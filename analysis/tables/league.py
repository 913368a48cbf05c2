"""Mean rank and worst ratio of every variant over the problems on which all of them were evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rllib_scale.results.columns import PAIR_KEY

from ..rows import SETTING, Setting, setting_label, settings, variants
from ..stats.intervals import MIN_SEEDS
from ..stats.scores import note
from .relative import BASE, GAP, LOWER_BOUND

METRIC = "response_censored_s"
BOOTSTRAP_SEED, RESAMPLES = 20260606, 4_999
MOST_RANKS = 20_000_000
"""Ranks that are in memory at once."""
EPISODE = PAIR_KEY[1:]
"""Columns that identify an episode across several problems."""
FEWEST = 3
"""The fewest problems of a league."""
TITLE = "League: mean rank over all problems, and the worst case"
HOW_TO_READ = (
    "a problem is a setting at a number of servers; of each the variants are ranked by the mean response of all tasks "
    "that arrived, 1 the best. Mean rank: over the problems and episodes that all of these variants have; [low, high] "
    "is the 95 % interval of a bootstrap of the episodes, and does not cover other trainings or problems. Worst ratio: "
    f"the largest ratio of the mean response to that of the best variant. Gap closed: the share of the distance from "
    f"{BASE} to a lower bound that no scheduler can beat, averaged over the problems."
)


def league(episodes: pd.DataFrame) -> pd.DataFrame:
    """One row per variant that was evaluated on every problem, the best first.

    Args:
        episodes: rows of any settings; training seeds are averaged in each episode.

    Returns:
        variant, mean_rank with _low and _high (NaN with fewer than MIN_SEEDS episodes), worst_ratio, worst_in,
        gap_closed_percent (NaN if a problem lacks the base or a bound), problems, episodes, and episodes_note ("of 30"
        if some have more). No rows with fewer than FEWEST problems or two variants.
    """
    ranks = ["mean_rank", "mean_rank_low", "mean_rank_high"]
    empty = pd.DataFrame(
        columns=["variant", *ranks, "worst_ratio", "worst_in", GAP, "problems", "episodes", "episodes_note"]
    )
    place = [*SETTING, "test_servers"]
    known = episodes[episodes[METRIC].notna()]
    names = known.astype(dict.fromkeys((*SETTING, "variant"), "category"))
    table = (
        names.groupby([*place, *EPISODE, "variant"], observed=True)[METRIC].mean().unstack("variant")
    )  # problems x episodes
    problems: list[Any] = list(table.groupby(place, observed=True).groups)  # the setting's values, servers
    full = [name for name in variants(known) if table[name].notna().groupby(place, observed=True).any().all()]
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
        blocks = np.array_split(drawn, 1 + RESAMPLES * means.size // MOST_RANKS)
        sums = (np.tensordot(block, values, axes=(1, 2)) for block in blocks)  # (R, P, V); they rank as the means do
        again = np.concatenate([stats.rankdata(block, axis=2).mean(axis=1) for block in sums])
        low, high = np.quantile(again, (0.025, 0.975), axis=0)
    ratio = means / means.min(axis=1, keepdims=True)
    every = settings(episodes)
    several = len({problem[-1] for problem in problems}) > 1
    labels = [setting_label(Setting(*p[:-1]), every) + (f", N = {p[-1]}" if several else "") for p in problems]
    closed = np.full(len(full), np.nan)
    if BASE in full:
        bounds = names.groupby([*place, *EPISODE], observed=True)[LOWER_BOUND].mean()
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
    most = int(table.groupby(place, observed=True).size().max())
    found = pd.DataFrame(rows).assign(problems=len(problems), episodes=len(kept), episodes_note=note(len(kept), most))
    return found.sort_values(["mean_rank", "worst_ratio"], kind="stable", ignore_index=True)
