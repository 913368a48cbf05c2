"""Model against measurement of a fitted replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .chart import Chart, Marks, Panel
from .style import MARKERS, VARIANT_COLOURS, Look


def fit_chart(rows: pd.DataFrame, errors: Sequence[dict[str, Any]]) -> Chart:
    """Latency of each request, and quantiles of each load.

    Args:
        rows: load, latency_s, latency_model_s.
        errors: of each load: load, fitted, latency_median.
    """
    points, steps = [], []
    for number, row in enumerate(errors):
        of = rows[rows["load"] == row["load"]]
        look = Look(VARIANT_COLOURS[number % len(VARIANT_COLOURS)], MARKERS[number % len(MARKERS)], "")
        name = f"{row['load']}, {'fitted' if row['fitted'] else 'not fitted'}: {row['latency_median']:.1%}"
        points.append(Marks(of["latency_s"], of["latency_model_s"], look, name, size=0.6))
        share = np.linspace(0, 1, 41)
        line = Look(look.colour, "", "-")
        steps.append(Marks(share, np.quantile(of["latency_s"], share), line, thin=True))
        steps.append(Marks(share, np.quantile(of["latency_model_s"], share), line))
    return Chart(
        [
            Panel(points, "Each request", "measured latency (s)", "model (s)"),
            Panel(steps, "Thin: measured, thick: model", "share of requests", "latency (s)", log_y=True),
        ],
        "Median relative error of a request's latency beside each load.",
    )
