"""Figures of an evaluation: every method at one scale, and against the number of servers.

Each takes a table of `analysis.tables.methods` and the looks of its variants, as `figures.style.looks` returns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ..labels import OUTCOMES, label
from .chart import INTERVAL, Chart, Marks, Panel, counts, shifted, varies
from .style import Look

AGAINST_N = ("response_mean_s", "completed_per_server", "response_censored_s", "above_bound_percent")
PAPER = Look("#555555", "D", "", hollow=True)
_ENDS = ("_low", "_high")
STATED = "paper_response_mean_s"
"""The paper's mean that `against_servers` shows."""


def methods(table: pd.DataFrame, looks: Mapping[str, Look], where: str = "") -> Chart:
    """Table 3 as rows of points [SCALE, fig. 3 and 4]; an outcome that is the same for all has no panel."""
    panels = []
    for metric in (metric for metric in OUTCOMES if varies(table, metric)):
        marks = [
            Marks(
                *(rows[metric], [position]),
                replace(looks[str(name)], line=""),
                low=rows[f"{metric}_low"],
                high=rows[f"{metric}_high"],
                hover=_hovers(rows, metric),
            )
            for position, (name, rows) in enumerate(table.groupby("variant", sort=False))
        ]
        stated = f"paper_{metric}"
        if stated in table and table[stated].notna().any():
            marks.append(Marks(table[stated], np.arange(len(table)), PAPER, "the paper's mean"))
        panels.append(Panel(marks, x_label=label(metric), rows=tuple(map(str, table["variant"]))))
    if not panels:
        return Chart(caption="nothing that tells the methods apart at the training scale")
    return Chart(panels, f"{where}{counts(table)} {INTERVAL}")


def against_servers(table: pd.DataFrame, looks: Mapping[str, Look], where: str = "") -> Chart:
    """Response and completed tasks against the number of servers N [SCALE, fig. 5]; constant metrics are left out.

    Arrivals grow in proportion to N, so completed tasks per server compare across scales.
    """
    table = table.assign(
        **{f"completed_per_server{end}": table[f"completed{end}"] / table["test_servers"] for end in ("", *_ENDS)}
    )
    scales = sorted({int(n) for n in table["test_servers"]})
    metrics = [metric for metric in AGAINST_N if metric in table and varies(table, metric)]
    if not metrics:
        return Chart(caption="no evaluation episodes with a value that differs")
    shift = dict(zip(looks, shifted(scales, len(looks)), strict=True))
    by_paper = STATED in table and bool(table[STATED].notna().any())
    panels = []
    for metric in metrics:
        marks = []
        for name, look in looks.items():
            rows = table[table["variant"] == name]
            ends: dict[str, Any] = {end.strip("_"): rows[f"{metric}{end}"] for end in _ENDS} if look.line == "-" else {}
            at = rows["test_servers"].to_numpy(float) * shift[name]
            marks.append(Marks(at, rows[metric], look, name, hover=_hovers(rows, metric), **ends))
            if metric == STATED.removeprefix("paper_") and by_paper:
                stated = rows.dropna(subset=[STATED])
                if len(stated):
                    marks.append(Marks(stated["test_servers"], stated[STATED], replace(PAPER, colour=look.colour)))
        panels.append(Panel(marks, y_label=label(metric), x_label="servers N", scales=scales))
    beside = " Points stand a little beside their N." if len(looks) > 1 else ""
    papers = " Diamonds: the paper's means." if by_paper else ""
    return Chart(panels, f"{where}{counts(table)} {INTERVAL}{beside}{papers}")


def _hovers(rows: pd.DataFrame, metric: str) -> list[str]:
    return [
        f"{row['variant']}: {row[metric]:.2f} ({row['seeds']} seeds, {row['episodes']} episodes)"
        for _, row in rows.iterrows()
    ]
