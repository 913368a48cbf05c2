"""Training curves, and the drift of the attention feature."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..labels import CURVES, LOWER_IS_BETTER, label
from ..rows import MOST_SHOWN, require_one_setting, variants
from .chart import MOST_IN_ROWS, Chart, Marks, Panel, count_range, in_grey, in_rows, varies
from .style import looks

POINTS = 150
"""Points of each curve; more cannot be distinguished."""
MOST_OTHERS, OTHERS_POINTS = 100, 15
"""Grey curves of variants that are too many, and points of each."""
MOST_THIN = 6
"""With more methods the curves of single seeds would cover each other: only medians are drawn."""
X = ("epoch", "env_steps", "wall_s")
SHOWN = 6
"""Number of curves in a report."""


def training_curves(
    training: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    smoothing: int | None = None,
    x: str = "epoch",
) -> Chart:
    """Training curves: every seed thin, the median over seeds thick [SCALE, fig. 6].

    Args:
        training: rows of training epochs with their variant.
        metrics: columns; by default the first of CURVES that have a value.
        smoothing: epochs of the running mean; by default a fiftieth of the longest curve.
        x: one of X; an epoch stands at the mean over its seeds.
    """
    shown = [m for m in metrics or CURVES[:SHOWN] if varies(training, m)]
    if training["epoch"].nunique() < 2 or not shown:
        return Chart(caption="no training epochs that differ in anything")
    training, others, few_of_many = _best(training, shown[0])
    names = variants(training)
    of = looks(training, names)
    window = smoothing or max(1, int(training["epoch"].max()) // 50)
    few = len(names) <= MOST_THIN
    pivots = {
        (name, metric): training[training["variant"] == name].pivot(index="epoch", columns="scheduler", values=metric)
        for name in names
        for metric in dict.fromkeys([*shown, x])
        if metric in training
    }
    panels = []
    for metric in shown:
        marks = [_grey(others, metric, x)] if len(others) and varies(others, metric) else []
        for name in names:
            smooth = pivots[name, metric].astype(float).sort_index().rolling(window, min_periods=1).mean()
            smooth = smooth.iloc[np.unique(np.linspace(0, len(smooth) - 1, POINTS).round().astype(int))]
            smooth = smooth.loc[:, smooth.notna().any()]
            if smooth.empty or not smooth.shape[1]:
                continue
            at = smooth.index if x == "epoch" else pivots[name, x].astype(float).mean(axis=1).loc[smooth.index]
            if smooth.shape[1] > 1 and few:
                # One line for all seeds, with a gap after each: a line costs more than its points.
                along = np.tile(np.r_[np.asarray(at, float), np.nan], smooth.shape[1])
                values = np.concatenate([np.r_[smooth[one].to_numpy(), np.nan] for one in smooth])
                marks.append(Marks(along, values, of[name], thin=True))
            median = smooth.median(axis=1)
            hover = [f"{name}, epoch {epoch}: {value:.3g}" for epoch, value in median.items()]
            marks.append(Marks(np.asarray(at, float), median, of[name], name, hover=hover))
        positive = metric == "srr_decorrelation" and bool((training[metric].dropna() > 0).all())
        # L_c grows with the square of the feature's width, which differs by method.
        panels.append(Panel(marks, x_label=label(x), y_label=label(metric), log_y=positive))
    seeds = training.groupby("variant")["scheduler"].nunique()
    lines = (" Thin: each seed; thick: the median." if few else " The median over seeds.") if seeds.max() > 1 else ""
    last = count_range(training.groupby("variant")["epoch"].max(), "epoch")
    running = f" Running mean over {window} epochs." if window > 1 else ""
    said = f"{count_range(seeds, 'seed')} per method, {last}; sampled actions on training episodes.{lines}{running}"
    return Chart(panels, said + few_of_many)


def _best(training: pd.DataFrame, metric: str) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """The rows of the MOST_SHOWN variants with the best ends in a metric, the other rows, and a sentence on these."""
    count = training["variant"].nunique()
    if count <= MOST_SHOWN:
        return training, training.iloc[:0], ""
    late = training[training["epoch"] > 0.9 * training["epoch"].max()]
    means = late.groupby("variant")[metric].mean().sort_values(ascending=metric in LOWER_IS_BETTER, kind="stable")
    said = f" Shown are the {MOST_SHOWN} of {count} variants with the best {label(metric)} at the end."
    is_best = training["variant"].isin(means.index[:MOST_SHOWN])
    return training[is_best], training[~is_best], said


def _grey(others: pd.DataFrame, metric: str, x: str) -> Marks:
    """Variants that are not told apart: medians over seeds, of a few epochs and of MOST_OTHERS variants at most."""
    names = variants(others)
    drawn = others[others["variant"].isin(names[:: -(-len(names) // MOST_OTHERS)])]
    wide = drawn.pivot_table(metric, "epoch", "variant", aggfunc="median")
    wide = wide.iloc[np.unique(np.linspace(0, len(wide) - 1, OTHERS_POINTS).round().astype(int))]
    if x != "epoch":
        wide.index = pd.Index(drawn.groupby("epoch")[x].mean().loc[wide.index])
    return in_grey(wide, len(names))


def drift(features: pd.DataFrame) -> Chart:
    """Drift of f from the training scale against the number of servers N: seeds thin, their mean thick.

    Methods without a drift are left out: their network has a fixed N.
    """
    require_one_setting(features)
    features = features.dropna(subset=["drift_mmd2"])
    if features.empty:
        return Chart(caption="no drift of features")
    names = variants(features)
    of = looks(features, names)
    scales = sorted({int(n) for n in features["test_servers"]})
    panels = []
    for metric in ("drift_wasserstein_relative", "drift_mmd2"):
        if len(scales) <= MOST_IN_ROWS:
            means = features.groupby(["variant", "test_servers"], observed=True)[metric].mean().reset_index()
            panels.append(Panel(in_rows(means, names, metric, ()), x_label=label(metric), rows=names, zero="x"))
            continue
        marks = []
        for name in names:
            rows = features[features["variant"] == name]
            lines = rows.groupby(["test_servers", "scheduler"])[metric].mean().unstack("scheduler")
            if lines.shape[1] > 1:
                marks += [Marks(lines.index, lines[one], of[name], thin=True) for one in lines]
            marks.append(Marks(lines.index, lines.mean(axis=1), of[name], name))
        panels.append(Panel(marks, x_label="servers N", y_label=label(metric), scales=scales, zero="y"))
    seeds = features.groupby("variant")["scheduler"].nunique()
    thin = f"Thin: each of {count_range(seeds, 'seed')}; thick: their mean." if seeds.max() > 1 else "1 seed each."
    thin = "Means over seeds." if len(scales) <= MOST_IN_ROWS else thin
    trained = ", ".join(str(n) for n in sorted(features["train_servers"].dropna().unique()))
    return Chart(
        panels,
        f"Drift of the attention feature f from the training scale, N = {trained}; Wasserstein in standard deviations "
        f"(sd) of f there. {thin} At the training scale two samples of that scale are compared: what sampling alone "
        "makes of it.",
    )
