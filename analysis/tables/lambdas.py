"""Tables over the weights of SRR, lambda_decorrelation x lambda_kl, as functions of the rows of one setting."""

from __future__ import annotations

import pandas as pd

from .summary import summary_table

METRICS = ("completed", "response_mean_s", "response_censored_s")
AXES = ("lambda_decorrelation", "lambda_kl")
SAME = ("method", "overrides", "train_servers", "epochs")
"""Trials of one grid differ in the lambdas (and seeds) alone."""


def lambda_grids(episodes: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each group of trials that differ in the lambdas alone and have at least two pairs of them."""
    learned = episodes[episodes["kind"] == "learned"]
    groups = (rows for _, rows in learned.groupby(list(SAME), dropna=False))
    return [rows for rows in groups if len(rows[list(AXES)].drop_duplicates()) > 1]


def grid_name(episodes: pd.DataFrame) -> str:
    """Method of one grid and the settings that tell it from other grids of the method."""
    method, overrides = (str(episodes[column].iloc[0]) for column in ("method", "overrides"))
    return f"{method} ({overrides})" if overrides else method


def lambda_table(episodes: pd.DataFrame, servers: int) -> pd.DataFrame:
    """The METRICS of each pair of lambdas of one grid at one number of servers, as a `summary_table` by AXES.

    Args:
        episodes: rows of one setting and one grid.
        servers: the scale N.
    """
    return summary_table(episodes[episodes["test_servers"] == servers], AXES, METRICS)
