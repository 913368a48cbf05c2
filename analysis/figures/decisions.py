"""Decisions of an episode by outcome, utilisation by tier, and grids over the weights of SRR."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..labels import TIER_PREFIX, label
from ..tables.decisions import CAUSES
from ..tables.lambdas import AXES, METRICS
from ..tables.render import format_value
from .chart import Chart, Grid, Marks, Panel, counts
from .style import Look

COLOURS = ("#D9D9D9", "#B2182B", "#F4A582", "#4393C3")
TIER_COLOURS = ("#B3CDE3", "#6497B1", "#03396C", "#A6A6A6", "#595959")


def invalid_decisions(table: pd.DataFrame, where: str = "") -> Chart:
    """Decisions of an episode at one number of servers: the valid ones, and the invalid ones by cause.

    Args:
        table: of `analysis.tables.decisions.behaviour_table`.
        where: the first words of the caption.
    """
    if not table[list(CAUSES)].fillna(0).to_numpy(float).any():
        return Chart(caption="no invalid decision")
    parts = {"valid": table["decisions"] - table[list(CAUSES)].sum(axis=1)}
    parts |= {text: table[cause] for cause, text in CAUSES.items()}
    marks, left = [], np.zeros(len(table))
    for (text, values), colour in zip(parts.items(), COLOURS, strict=True):
        right = left + values.fillna(0).to_numpy(float)
        marks.append(Marks(right, np.arange(len(table)), Look(colour, "s", ""), text, bars=left))
        left = right
    panel = Panel(marks, x_label="decisions in an episode", rows=tuple(map(str, table["variant"])))
    return Chart([panel], f"{where}{counts(table)} An invalid decision costs a clock step.")


def utilisation_by_tier(table: pd.DataFrame, where: str = "") -> Chart:
    """Utilisation of each tier at one number of servers; arguments as for `invalid_decisions`."""
    shown = [str(name) for name in table if str(name).startswith(TIER_PREFIX) and f"{name}_low" in table]
    if table.empty or not shown:
        return Chart(caption="no utilisation of tiers")
    height = 0.8 / len(shown)
    marks = [
        Marks(
            *(table[column].to_numpy(float), np.arange(len(table)) + (k - (len(shown) - 1) / 2) * height),
            Look(TIER_COLOURS[k % len(TIER_COLOURS)], "s", ""),
            column.removeprefix(TIER_PREFIX),
            bars=np.zeros(len(table)),
            size=1.2 * height,
        )
        for k, column in enumerate(shown)
    ]
    label_ = "utilisation (share of the time)"
    panel = Panel(marks, x_label=label_, rows=tuple(map(str, table["variant"])), x_range=(0, 1))
    return Chart([panel], f"{where}{counts(table)}")


def lambda_heatmaps(table: pd.DataFrame, where: str = "") -> Chart:
    """Completed tasks, response and censored response over lambda_1 x lambda_2.

    Pairs that were not trained or have no value are blank.

    Args:
        table: of `analysis.tables.lambdas.lambda_table`.
        where: the first words of the caption.
    """
    if table.empty:
        return Chart(caption="no grid of lambdas here")
    panels = []
    for metric in METRICS:
        values = table.pivot(index=AXES[0], columns=AXES[1], values=metric)
        values.index, values.columns = (pd.Index([f"{v:g}" for v in axis]) for axis in (values.index, values.columns))
        grid = Grid(values, values.map(lambda value: format_value(float(value))))
        panels.append(Panel(title=label(metric), x_label="λ2", y_label="λ1", grid=grid))
    blank = any(panel.grid and panel.grid.values.isna().any(axis=None) for panel in panels)
    said = f"{where}{counts(table)} Means over seeds. λ1 weighs the decorrelation, λ2 the KL term."
    return Chart(panels, said + " Blank: not trained, or no value." * blank, columns=1)
