"""Tables over the weights of SRR, lambda_1 x lambda_2, as functions of the rows of one setting."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..load import require_one_setting
from ..stats.summaries import summarise
from .methods import count_episodes, interval_note

METRICS = ("completed", "response_mean_s", "response_censored_s")
SUFFIXES = ("", "_sd", "_low", "_high")
AXES = ("lambda_decorrelation", "lambda_kl")
SAME = ("method", "overrides", "train_servers", "epochs")
"""Cells of one grid differ in the lambdas (and seeds) alone."""


def lambda_grids(episodes: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each group of cells that differ in the lambdas alone and have at least two pairs of them."""
    learned = episodes[episodes["kind"] == "learned"]
    groups = (rows for _, rows in learned.groupby(list(SAME), dropna=False))
    return [rows for rows in groups if len(rows[list(AXES)].drop_duplicates()) > 1]


def grid_name(episodes: pd.DataFrame) -> str:
    """Method of one grid and the settings that tell it from other grids of the method."""
    method, overrides = (str(episodes[column].iloc[0]) for column in ("method", "overrides"))
    return f"{method} ({overrides})" if overrides else method


def lambda_table(episodes: pd.DataFrame, servers: int) -> pd.DataFrame:
    """Means over seeds of each pair of lambdas of one grid, at one number of servers.

    Args:
        episodes: rows of one setting and one grid.
        servers: the scale N.

    Returns:
        One row per pair: lambda_decorrelation, lambda_kl; seeds and seeds_note; the METRICS with their _sd (over the
        episodes of a seed), _low and _high (over seeds); episodes a seed.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    rows = episodes[episodes["test_servers"] == servers]
    records = []
    for pair, cell in rows.groupby(list(AXES)):
        summaries = summarise(cell, METRICS)
        seeds = summaries["completed"].seeds
        record: dict[str, Any] = dict(zip(AXES, pair, strict=True))
        record |= {"seeds": seeds, "seeds_note": interval_note(seeds)}
        for metric, summary in summaries.items():
            record |= {f"{metric}{end}": getattr(summary, end.removeprefix("_") or "mean") for end in SUFFIXES}
        records.append(record | {"episodes": count_episodes(cell)})
    columns = [f"{metric}{end}" for metric in METRICS for end in SUFFIXES]
    return pd.DataFrame(records, columns=[*AXES, "seeds", "seeds_note", *columns, "episodes"])
