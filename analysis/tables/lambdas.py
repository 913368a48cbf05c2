"""Heat maps over the weights of SRR, lambda_1 x lambda_2, as functions of the rows of one setting."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import style
from ..figures.evaluation import LABELS, setting_caption
from ..load import require_one_setting
from ..stats.summaries import summarise
from .methods import interval_note
from .render import format_value

METRICS = ("completed", "response_mean_s", "response_censored_s")
SUFFIXES = ("", "_sd", "_low", "_high")
AXES = ("lambda_decorrelation", "lambda_kl")
COLOURS = "cividis"
"""Told apart by colour-blind readers; every cell holds its number too."""
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
        episodes of a seed), _low and _high (over seeds).

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
        records.append(record)
    columns = [f"{metric}{end}" for metric in METRICS for end in SUFFIXES]
    return pd.DataFrame(records, columns=[*AXES, "seeds", "seeds_note", *columns])


def lambda_heatmaps(episodes: pd.DataFrame, servers: int) -> Figure:
    """Completed tasks, response and censored response over lambda_1 x lambda_2, at one number of servers.

    A pair that was not trained, or has no value, is left blank.
    """
    table = lambda_table(episodes, servers)
    if table.empty:
        return style.empty_figure(f"no lambda grid at N = {servers}")
    grids = [table.pivot(index=AXES[0], columns=AXES[1], values=metric) for metric in METRICS]
    rows, columns = grids[0].shape
    with mpl.rc_context(style.RC | {"axes.grid": False}):
        width = max(4.6, 1.6 + 0.85 * columns)
        figure = Figure(figsize=(width, 1.1 + len(METRICS) * (0.9 + 0.5 * rows)), layout="constrained")
        panels = figure.subplots(len(METRICS), 1, sharex=True)
        for axes, metric, grid in zip(panels, METRICS, grids, strict=True):
            _heatmap(axes, grid)
            axes.set_title(LABELS[metric], loc="left")
            axes.set_ylabel(r"$\lambda_1$")
        panels[-1].set_xlabel(r"$\lambda_2$")
        at_scale = episodes[episodes["test_servers"] == servers]
        blank = " Blank: not trained, or no value." if any(grid.isna().any(axis=None) for grid in grids) else ""
        style.caption(
            figure,
            f"{grid_name(at_scale)} at N = {servers}. {setting_caption(at_scale)} Means over seeds. λ1 weighs the "
            f"decorrelation, λ2 the KL term.{blank}",
        )
    return figure


def _heatmap(axes: Axes, grid: pd.DataFrame) -> None:
    values = grid.to_numpy(float)
    rows, columns = values.shape
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    image = axes.pcolormesh(*edges, np.ma.masked_invalid(values), cmap=COLOURS)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xticks(range(columns), [f"{value:g}" for value in grid.columns])
    axes.set_yticks(range(rows), [f"{value:g}" for value in grid.index])
    for (y, x), value in np.ndenumerate(values):
        if not math.isnan(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            text = format_value(float(value))
            axes.text(x, y, text, ha="center", va="center", color="white" if dark else "black", fontsize=11)
