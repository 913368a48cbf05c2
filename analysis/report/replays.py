"""The evaluation episode with a Gantt chart: two methods on the same workload, one above the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.figure import Figure

from rllib_scale.results.columns import PAIR_KEY

from ..labels import LOWER_IS_BETTER
from ..rows import require_one_setting, variants
from ..stats.families import endpoint
from ..tables.comparisons import default_pairs
from ..tables.relative import BASE
from ..tables.render import format_value

KEY = [*PAIR_KEY]

DrawGantt = Callable[[Sequence[pd.Series], Sequence[str]], Figure]
"""Replays the episodes of some rows and draws them one above the other, each under its title.

`rllib_scale.evaluation.replay.Replay` is one: the simulator and the policies stay out of this package.
"""

MOST_TASKS = 400
"""With more arrived tasks in an episode the bars of a chart are too narrow."""


def typical_episode(episodes: pd.DataFrame, servers: int) -> list[pd.Series]:
    """The rows of one episode under two methods: the base rule, and the best of the others in the primary endpoint.

    Without the base they are the first pair that is compared, else the first two methods or the only one. A learned
    method plays with its lowest seed, two learned methods with their lowest common one. The difference in the endpoint,
    or the value of the only method, is the nearest to its median. Empty if there is no such episode.

    Args:
        episodes: rows of one setting.
        servers: the scale N.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    rows = episodes[(episodes["test_servers"] == servers) & (episodes["arrived"] <= MOST_TASKS).fillna(False)]
    names = variants(rows)
    if not names:
        return []
    metric = endpoint(rows)
    pair = _base_and_best(rows, metric) or next(iter(default_pairs(rows)), tuple(names[:2]))
    sides = _of_one_seed([rows[rows["variant"] == name] for name in pair])
    shared = sides[0][KEY].drop_duplicates()
    for side in sides[1:]:
        shared = shared.merge(side[KEY])
    if shared.empty:
        return []
    aligned = [shared.merge(side, validate="one_to_one").sort_values(KEY, ignore_index=True) for side in sides]
    values = [side[metric].astype(float).fillna(0) for side in aligned]
    compared = values[0] - values[1] if len(pair) > 1 else values[0]
    chosen = int((compared - compared.median()).abs().argmin())
    return [side.iloc[chosen] for side in aligned]


def _base_and_best(rows: pd.DataFrame, metric: str) -> tuple[str, str] | None:
    """The base rule and the best other variant in a metric; None without both."""
    means = rows.groupby(["method", "variant"])[metric].mean().astype(float).dropna()
    is_base = means.index.get_level_values("method") == BASE
    bases, others = means[is_base].droplevel("method"), means[~is_base].droplevel("method")
    if bases.empty or others.empty:
        return None
    return str(bases.index[0]), str(others.idxmin() if metric in LOWER_IS_BETTER else others.idxmax())


def _of_one_seed(sides: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The rows of the lowest training seed that all learned sides have, else of the lowest of each."""
    seeds = [set(side["train_seed"].dropna()) for side in sides]
    shared = set.intersection(*(found for found in seeds if found)) if any(seeds) else set()
    return [
        side[side["train_seed"] == min(shared or found)] if found else side
        for side, found in zip(sides, seeds, strict=True)
    ]


def title_of(row: pd.Series) -> str:
    """The title of the chart of a row."""
    seed = "" if pd.isna(row["train_seed"]) else f", seed {row['train_seed']}"
    response = format_value(float(row["response_mean_s"]))
    return f"{row['variant']}{seed}: mean response {response} s, {row['completed']} of {row['arrived']} tasks completed"
