"""Figures of an evaluation: every method at one scale, and against the number of servers.

Each takes a table of `analysis.tables.methods` and the looks of its variants, as `figures.style.looks` returns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ..labels import LOWER_IS_BETTER, axis_label, label
from .chart import INTERVAL, MOST_IN_ROWS, Chart, Grid, Marks, Panel, counts, in_grey, in_rows, shifted, varies
from .style import OTHERS, Look

SHOWN = ("completed", "response_mean_s", "response_censored_s")
AGAINST_N = ("response_mean_s", "completed_per_server", "response_censored_s", "above_bound_percent")
PAPER = Look("#555555", "D", "", hollow=True)
_ENDS = ("_low", "_high")
STATED = "paper_response_mean_s"
"""The paper's mean that `against_servers` shows."""


MOST_GREY = 12
"""Rows of others in a figure; more share one row."""
LONG_NAME = 24
"""With longer names beside three panels the letters of a figure would be too small."""
LAMBDAS = ("lambda_decorrelation", "lambda_kl")


def methods(table: pd.DataFrame, looks: Mapping[str, Look], where: str = "", by: str = "") -> Chart:
    """Table 3 as rows of points [SCALE, fig. 3 and 4]; an outcome that is the same for all has no panel.

    Args:
        table: of `analysis.tables.methods`, at one scale.
        looks: of the variants to tell apart; others are grey.
        where: a sentence before the caption.
        by: the metric whose best row comes first, and which has a panel; by default the rows keep their order.
    """
    if by:
        table = table.sort_values(by, ascending=by in LOWER_IS_BETTER, kind="stable", ignore_index=True)
    is_other = ~table["variant"].isin(looks)
    others = table[is_other]
    if len(others) > MOST_GREY:
        table = table[~is_other].reset_index(drop=True)
    rows_of = [str(name) for name in table["variant"]] + [f"{len(others)} others"] * (len(others) > MOST_GREY)
    panels = []
    for metric in _telling(table, SHOWN, by):
        marks = [
            Marks(
                *(rows[metric], [position]),
                replace(looks.get(str(name), OTHERS), line=""),
                low=rows[f"{metric}_low"],
                high=rows[f"{metric}_high"],
                hover=_hovers(rows, metric),
            )
            for position, (name, rows) in enumerate(table.groupby("variant", sort=False))
        ]
        stated = f"paper_{metric}"
        if stated in table and table[stated].notna().any():
            marks.append(Marks(table[stated], np.arange(len(table)), PAPER, "the paper's mean"))
        if len(others) > MOST_GREY:
            at = np.full(len(others), len(table))
            marks.append(Marks(others[metric], at, replace(OTHERS, line=""), hover=_hovers(others, metric)))
        panels.append(Panel(marks, x_label=axis_label(metric), rows=rows_of))
    if not panels:
        return Chart(caption="nothing that tells the methods apart at the training scale")
    columns = 3 if max(map(len, rows_of)) <= LONG_NAME else 2
    return Chart(panels, f"{where}{counts(table)} {INTERVAL}", columns)


def against_servers(table: pd.DataFrame, looks: Mapping[str, Look], where: str = "", by: str = "") -> Chart:
    """Response and completed tasks against the number of servers N [SCALE, fig. 5]; constant metrics are left out.

    Up to MOST_IN_ROWS numbers of servers are points in the row of a variant, more are lines. Variants without a look
    are left out of the rows, and grey lines. Arrivals grow with N: completed tasks per server compare between them.
    `by`: the metric whose best row at the fewest servers comes first; by default rows have the order of `looks`.
    """
    table = table.assign(
        **{f"completed_per_server{end}": table[f"completed{end}"] / table["test_servers"] for end in ("", *_ENDS)}
    )
    scales = sorted({int(n) for n in table["test_servers"]})
    metrics = _telling(table, AGAINST_N, by)
    if not metrics:
        return Chart(caption="no evaluation episodes with a value that differs")
    if len(scales) <= MOST_IN_ROWS:
        in_looks, names = table[table["variant"].isin(looks)], list(looks)
        if by:
            order = in_looks.sort_values(["test_servers", by], ascending=[True, by in LOWER_IS_BETTER], kind="stable")
            names = [str(name) for name in order["variant"].unique()]
        return _scales_in_rows(in_looks, names, metrics, where)
    shift = dict(zip(looks, shifted(scales, len(looks)), strict=True))
    by_paper = STATED in table and bool(table[STATED].notna().any())
    others = table[~table["variant"].isin(looks)]
    panels = []
    for metric in metrics:
        grey = others.pivot(index="test_servers", columns="variant", values=metric)
        marks = [in_grey(grey, len(grey.columns))] if len(others) else []
        for name, look in looks.items():
            rows = table[table["variant"] == name]
            ends: dict[str, Any] = {end.strip("_"): rows[f"{metric}{end}"] for end in _ENDS} if look.line == "-" else {}
            at = rows["test_servers"].to_numpy(float) * shift[name]
            marks.append(Marks(at, rows[metric], look, name, hover=_hovers(rows, metric), **ends))
            if metric == STATED.removeprefix("paper_") and by_paper:
                stated = rows.dropna(subset=[STATED])
                if len(stated):
                    marks.append(Marks(stated["test_servers"], stated[STATED], replace(PAPER, colour=look.colour)))
        panels.append(Panel(marks, y_label=axis_label(metric), x_label="servers N", scales=scales))
    aside = " Points are shifted a little from their N." if len(looks) > 1 else ""
    papers = " Diamonds: the paper's means." if by_paper else ""
    return Chart(panels, f"{where}{counts(table)} {INTERVAL}{aside}{papers}")


def _scales_in_rows(table: pd.DataFrame, names: list[str], metrics: Sequence[str], where: str) -> Chart:
    panels, papers = [], ""
    for metric in metrics:
        ends = [f"{metric}{end}" for end in _ENDS]
        marks = in_rows(table, names, metric, ends, _hovers(table, metric))
        if metric == STATED.removeprefix("paper_") and STATED in table and table[STATED].notna().any():
            stated = in_rows(table.dropna(subset=[STATED]), names, STATED, ())
            marks += [replace(one, name="", look=replace(PAPER, colour=one.look.colour)) for one in stated]
            papers = " Diamonds: the paper's means."
        panels.append(Panel(marks, x_label=axis_label(metric), rows=names))
    return Chart(panels, f"{where}{counts(table)} {INTERVAL}{papers}")


def _telling(table: pd.DataFrame, metrics: Sequence[str], by: str = "") -> list[str]:
    """The metrics that differ among the rows of a scale; of two responses that are equal one, if possible `by`."""
    scales = table.get("test_servers", pd.Series(0, table.index))
    at_scales = [rows for _, rows in table.groupby(scales) if len(rows) > 1] or [table]
    found = [metric for metric in metrics if metric in table and any(varies(rows, metric) for rows in at_scales)]
    both = table.reindex(columns=["response_mean_s", "response_censored_s"]).astype(float)
    is_same = np.allclose(both["response_mean_s"], both["response_censored_s"], equal_nan=True)
    twin = "response_mean_s" if by == "response_censored_s" else "response_censored_s"
    return [metric for metric in found if not (is_same and metric == twin)]


def lambda_map(rows: pd.DataFrame, table: pd.DataFrame, metric: str) -> Chart:
    """Weights of SRR as a heat map: a panel for each method whose two weights vary, brighter is better.

    Args:
        rows: evaluation episodes of the table's variants.
        table: of `analysis.tables.methods`, at one scale.
        metric: its column that is shown.
    """
    panels = []
    named = rows.drop_duplicates("variant")[["variant", "method", "overrides", *LAMBDAS]].merge(table, on="variant")
    for (method, changed), own in named.groupby(["method", "overrides"], sort=False):
        if min(own[name].nunique() for name in LAMBDAS) < 2 or not varies(own, metric):
            continue
        means = own.astype({metric: float}).pivot_table(metric, *LAMBDAS)
        best = means.min(axis=None) if metric in LOWER_IS_BETTER else means.max(axis=None)
        texts = means.map(lambda mean, best=best: "" if np.isnan(mean) else f"{'★ ' if mean == best else ''}{mean:.2f}")
        shade = -means if metric in LOWER_IS_BETTER else means
        shown = [frame.rename(index="λ₁ = {:g}".format, columns="λ₂ = {:g}".format) for frame in (shade, texts)]
        title = f"{method}{f' ({changed})' * bool(changed)}: {label(metric)}"
        panels.append(Panel(title=title, x_label="brighter is better, ★ is the best", grid=Grid(*shown)))
    if not panels:
        return Chart(caption="no grid of the weights of SRR")
    said = "λ₁ weighs the decorrelation of the attention feature, λ₂ its KL divergence. Means over seeds."
    return Chart(panels, said, columns=1)


def _hovers(rows: pd.DataFrame, metric: str) -> list[str]:
    return [
        f"{row['variant']}: {row[metric]:.2f} ({row['seeds']} seeds, {row['episodes']} episodes)"
        for _, row in rows.iterrows()
    ]
