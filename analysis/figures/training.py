"""Training curves, as functions of the training frame."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..load import variants
from . import style
from .evaluation import count_range

LABELS = {
    "episode_return": "return",
    "completed": "completed tasks",
    "response_mean_s": "response (s)",
    "srr_decorrelation": "$L_c$ (decorrelation)",
    "srr_kl": "$L_d$ (KL)",
    "feature_correlation": "mean |correlation| of f",
}
SHOWN_EPOCHS = 150
"""Of a longer curve only about so many epochs are drawn, evenly spread; no more can be told apart."""
VECTOR_LINES = 12
"""Thin lines up to this number are vectors in an SVG, more are pixels: the file stays small."""


def training_curves(training: pd.DataFrame) -> Figure:
    """Training curves: every seed thin, the median over seeds thick [SCALE, fig. 6].

    A quantity without a value in any epoch is left out.
    """
    shown = [name for name in LABELS if name in training and training[name].notna().any()]
    if training.empty or not shown:
        return style.empty_figure("no training epochs")
    names = variants(training)
    looks = style.looks(training, names)
    last = training.groupby("variant")["epoch"].max()
    window = smoothing_window(training)
    columns = min(2, len(shown))
    rows = math.ceil(len(shown) / columns)
    with mpl.rc_context(style.RC):
        height = 1.4 + 2.3 * rows + 0.22 * math.ceil(len(names) / 3)
        figure = Figure(figsize=(7.2 if columns > 1 else 5.6, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for axes, metric in zip(panels.flat, shown, strict=False):
            for name in names:
                draw_curves(axes, training[training["variant"] == name], metric, window, looks[name], name)
            axes.set_ylabel(LABELS[metric])
            if metric == "srr_decorrelation" and (training[metric].dropna() > 0).all():
                axes.set_yscale("log")  # it grows with the square of the feature's width, which differs by method
        for axes in panels.flat[len(shown) :]:
            axes.set_axis_off()
        for axes in panels.flat[max(0, len(shown) - columns) : len(shown)]:
            axes.set_xlabel("epoch")
            axes.tick_params(labelbottom=True)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        style.legend(figure, panels[0, 0], len(names))
        seeds = training.groupby("variant")["cell"].nunique()
        smoothing = f" Running mean over {window} epochs." if window > 1 else ""
        style.caption(
            figure,
            f"{count_range(seeds, 'seed')} per method, {count_range(last, 'epoch')}; sampled actions on training "
            f"episodes.{lines_said(seeds)}{smoothing}",
        )
    return figure


def lines_said(seeds: pd.Series) -> str:
    """What thin and thick lines are, where a method has several seeds."""
    return " Thin: each seed; thick: the median over seeds." if seeds.max() > 1 else ""


def smoothing_window(training: pd.DataFrame) -> int:
    """Epochs of the running mean by which curves are drawn: a fiftieth of the longest."""
    return max(1, int(training["epoch"].max()) // 50)


def draw_curves(axes: Axes, rows: pd.DataFrame, metric: str, window: int, look: style.Look, name: str) -> None:
    """Draw one variant's running mean over `window` epochs: seeds thin where there are several, their median thick."""
    by_seed = rows.pivot(index="epoch", columns="cell", values=metric).astype(float).sort_index()
    smooth = by_seed.rolling(window, min_periods=1).mean()
    smooth = smooth.iloc[np.unique(np.linspace(0, len(smooth) - 1, SHOWN_EPOCHS).round().astype(int))]
    seeds = smooth.shape[1]
    if seeds > 1:
        pixels = seeds > VECTOR_LINES
        axes.plot(smooth.index, smooth, color=look.colour, linewidth=0.7, alpha=0.4, rasterized=pixels)
    axes.plot(
        smooth.index,
        smooth.median(axis=1),
        color=look.colour,
        linewidth=2.2,
        marker=look.marker,
        markersize=5,
        markevery=max(1, len(smooth) // 6),
        label=name,
    )
