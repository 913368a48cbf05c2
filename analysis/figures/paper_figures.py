"""Figures 3 to 6 in the paper's layout, the paper's own numbers beside ours, as functions of a frame.

They take rows of the paper's setting alone; of each method the variant that the paper's numbers belong to.
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from rllib_scale.errors import UserError

from ..load import variants
from ..paper import (
    PAPER_COMPLETED,
    PAPER_RESPONSE,
    PAPER_SERVERS,
    is_papers_setting,
    is_papers_variant,
)
from ..tables.methods import table3, table4
from ..tables.render import format_value
from . import style
from .evaluation import (
    EPISODE_SD,
    LABELS,
    SEED_INTERVAL,
    count_range,
    mean_and_ends,
    server_axis,
    setting_caption,
)
from .training import draw_curves, lines_said, smoothing_window

OF_PAPER = "mean ± standard deviation over 30 episodes of one seed"
BAR_WIDTH = 0.38


def papers_variants(frame: pd.DataFrame) -> dict[str, str]:
    """Method -> the variant that the paper's numbers belong to, in the paper's order; of several the longest trained.

    Args:
        frame: rows of episodes or of training.
    """
    length = "epochs" if "epochs" in frame else "epoch"
    rows = frame.sort_values(length).drop_duplicates("variant", keep="last")
    found = {str(row["method"]): str(row["variant"]) for _, row in rows.iterrows() if is_papers_variant(row)}
    return {method: found[method] for method in PAPER_COMPLETED if method in found}


def figure3(episodes: pd.DataFrame) -> Figure:
    """Completed tasks of every method at N = 16 [SCALE, fig. 3].

    Raises:
        UserError: the rows are not of the paper's setting.
    """
    return _bars(episodes, "completed", PAPER_COMPLETED)


def figure4(episodes: pd.DataFrame) -> Figure:
    """Response time of every method at N = 16 [SCALE, fig. 4].

    Raises:
        UserError: the rows are not of the paper's setting.
    """
    at_papers_scale = {method: value for (method, servers), value in PAPER_RESPONSE.items() if servers == PAPER_SERVERS}
    return _bars(episodes, "response_mean_s", at_papers_scale)


def _bars(episodes: pd.DataFrame, metric: str, papers: dict[str, tuple[float, float]]) -> Figure:
    """Ours filled, the paper's hatched beside it; a method that we have no row of shows the paper's alone."""
    _require_papers_setting(episodes)
    ours = papers_variants(episodes[episodes["test_servers"] == PAPER_SERVERS])
    rows = episodes[(episodes["test_servers"] == PAPER_SERVERS) & episodes["variant"].isin(list(ours.values()))]
    if rows.empty:
        return style.empty_figure(f"none of the paper's methods at N = {PAPER_SERVERS}")
    table = table3(rows, PAPER_SERVERS).set_index("variant")
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        axes = figure.subplots()
        for position, (method, stated) in enumerate(papers.items()):
            colour = style.METHOD_STYLES[method][0]
            if method in ours:
                mean, sd, low, high = (
                    float(table[f"{metric}{suffix}"][ours[method]]) for suffix in ("", "_sd", "_low", "_high")
                )
                _bar(axes, position - BAR_WIDTH / 2, mean, sd, {"color": colour})
                axes.vlines(position - BAR_WIDTH / 2, low, high, color="black", linewidth=5, alpha=0.8)
            hatched = {"facecolor": "none", "edgecolor": colour, "hatch": "///", "linewidth": 1.2}
            _bar(axes, position + BAR_WIDTH / 2, *stated, hatched)
        axes.set_xticks(range(len(papers)), list(papers))
        axes.set_ylabel(LABELS[metric])
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
        axes.set_ylim(bottom=0)
        figure.legend(
            handles=[Patch(color="0.55", label="ours"), Patch(fc="none", ec="0.4", hatch="///", label="the paper's")],
            loc="outside upper left",
            ncols=2,
        )
        thick = f" Thick: {SEED_INTERVAL}." if table[f"{metric}_low"].notna().any() else ""
        absent = [method for method in papers if method not in ours]
        alone = f" Not among these results: {', '.join(absent)}." if absent else ""
        style.caption(
            figure,
            f"N = {PAPER_SERVERS}. {setting_caption(rows)} Thin: {EPISODE_SD}.{thick} The paper's: {OF_PAPER}.{alone}",
        )
    return figure


def _bar(axes: Axes, x: float, mean: float, sd: float, look: dict[str, Any]) -> None:
    axes.bar(x, mean, BAR_WIDTH, **look)
    error = None if math.isnan(sd) else sd
    axes.errorbar(x, mean, yerr=error, fmt="none", ecolor="black", elinewidth=1, capsize=3)
    top = 0.0 if math.isnan(mean) else mean + (error or 0.0)
    axes.annotate(
        format_value(float(mean)), (x, top), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=10
    )


def figure5(episodes: pd.DataFrame) -> Figure:
    """Response time against the number of servers at the paper's scales, without training anew [SCALE, fig. 5].

    Raises:
        UserError: the rows are not of the paper's setting.
    """
    _require_papers_setting(episodes)
    scales = sorted({servers for _, servers in PAPER_RESPONSE})
    ours = {
        method: name for method, name in papers_variants(episodes).items() if (method, scales[-1]) in PAPER_RESPONSE
    }
    rows = episodes[episodes["variant"].isin(list(ours.values())) & episodes["test_servers"].isin(scales)]
    if rows.empty:
        return style.empty_figure("none of the methods that the paper evaluates at several scales")
    table = table4(rows)
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(7.2, 4.8), layout="constrained")
        axes = figure.subplots()
        for method, name in ours.items():
            colour, marker = style.METHOD_STYLES[method]
            own = table[table["variant"] == name]
            mean, low, high = mean_and_ends(own, "response_mean_s")
            servers = own["test_servers"].to_numpy(float)
            axes.fill_between(servers, low, high, color=colour, alpha=0.15, linewidth=0)
            if len(servers) == 1:
                axes.vlines(servers, low, high, color=colour, linewidth=1.5, alpha=0.7)
            axes.plot(servers, mean, color=colour, marker=marker, label=name)
            papers = [PAPER_RESPONSE[method, scale][0] for scale in scales]
            axes.plot(scales, papers, color=colour, marker=marker, mfc="white", ls=":", label=f"the paper's {method}")
        server_axis(axes, scales, min(np.diff(np.log2(scales))))
        axes.set_ylabel(LABELS["response_mean_s"])
        style.legend(figure, axes, 2)
        band = SEED_INTERVAL if table["response_mean_s_low"].notna().all() else EPISODE_SD
        style.caption(
            figure,
            f"{setting_caption(rows)} Band or bar: {band}. Dotted: the paper's, means over 30 episodes of one seed.",
        )
    return figure


def figure6(training: pd.DataFrame) -> Figure:
    """Training curves of the paper's methods: every seed thin, the median over seeds thick [SCALE, fig. 6].

    The paper states no number of its own curves.
    """
    ours = papers_variants(training)
    rows = training[training["variant"].isin(list(ours.values()))]
    if rows["episode_return"].isna().all():
        return style.empty_figure("no training epochs of the paper's methods")
    window = smoothing_window(rows)
    looks = style.looks(rows, variants(rows))
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(7.2, 4.8), layout="constrained")
        axes = figure.subplots()
        for name in ours.values():
            draw_curves(axes, rows[rows["variant"] == name], "episode_return", window, looks[name], name)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("return of an episode")
        style.legend(figure, axes, len(ours))
        smoothing = f" Running mean over {window} epochs." if window > 1 else ""
        seeds = rows.groupby("variant")["cell"].nunique()
        style.caption(
            figure,
            f"{count_range(seeds, 'seed')} per method; sampled actions on training episodes."
            f"{lines_said(seeds)}{smoothing}",
        )
    return figure


def _require_papers_setting(episodes: pd.DataFrame) -> None:
    if len(episodes) and not is_papers_setting(episodes):
        raise UserError("the frame is not of the paper's setting: scenario paper, mask none, decision argmax")
