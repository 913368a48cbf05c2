"""Figures of an evaluation, as functions of a frame that return a matplotlib Figure.

They take rows of one (scenario, mask, decision) and refuse a mixture. Each caption says how many
seeds and episodes stand behind it and what its bands are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from rllib_scale.files import write_atomic

from ..load import require_one_setting, variants
from ..stats.resampling import MIN_SEEDS
from ..stats.summaries import summarise
from ..tables.methods import OUTCOMES, table3, table4, training_scales
from . import style

MAX_BANDS = 4
"""More bands than this cover each other: bars take their place."""

LABELS = {
    "completed": "completed tasks",
    "unfinished": "unfinished tasks",
    "response_mean_s": "response (s)",
    "response_censored_s": "censored response (s)",
}
SEED_INTERVAL = f"95 % interval over seeds (from {MIN_SEEDS} seeds on)"
EPISODE_SD = "± 1 standard deviation over the episodes of a seed"


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of 200 dpi or an SVG whose text is text, by the suffix, atomically."""
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None  # the same figure makes the same file
    with mpl.rc_context(style.SVG_RC):
        write_atomic(
            path, lambda p: figure.savefig(p, format=kind, dpi=style.DPI, facecolor="white", metadata=metadata)
        )


def setting_caption(episodes: pd.DataFrame) -> str:
    """The setting, and how many seeds and episodes stand behind the numbers."""
    parts = []
    for kind, name in (("learned", "Learned methods"), ("heuristic", "heuristics")):
        rows = episodes[episodes["kind"] == kind]
        if len(rows):
            groups = rows.groupby(["variant", "test_servers"])
            seeds = f"{count_range(groups['train_seed'].nunique(), 'seed')} of " if kind == "learned" else ""
            per_seed = rows.groupby(["variant", "test_servers", "train_seed"], dropna=False).size()
            parts.append(f"{name}: {seeds}{count_range(per_seed, 'episode')}")
    row = episodes.iloc[0]
    counts = "; ".join(parts)
    return (
        f"Scenario {row['scenario']}, mask {row['mask']}, decision {row['decision']}. {counts[0].upper()}{counts[1:]}."
    )


def count_range(counts: pd.Series, noun: str) -> str:
    """'5 seeds', or '3 to 5 seeds' where the counts differ."""
    low, high = int(counts.min()), int(counts.max())
    return f"{low if low == high else f'{low} to {high}'} {noun}{'' if high == 1 else 's'}"


def against_servers(episodes: pd.DataFrame) -> Figure:
    """Response time and completed tasks per server against the number of servers N [SCALE, fig. 5].

    Arrivals grow in proportion to N, so that completed tasks per server compare across scales.

    A band, or a bar where bands would cover each other, is the interval over seeds where one is claimed, else the
    standard deviation over episodes. Beside learned methods the heuristics are drawn as means alone.
    """
    require_one_setting(episodes)
    if episodes.empty:
        return style.empty_figure("no evaluation episodes")
    table = table4(episodes)
    names = variants(episodes)
    looks = style.looks(episodes, names)
    learned = set(episodes.loc[episodes["kind"] == "learned", "variant"])
    spread = [name for name in names if name in learned or not learned]
    scales = sorted(int(n) for n in table["test_servers"].unique())
    bands = len(scales) > 1 and sum((table["variant"] == name).sum() > 1 for name in spread) <= MAX_BANDS
    # Points stand a little beside their N so as not to cover each other: by a tenth of the gap between scales at most.
    gap = min(np.diff(np.log2(scales)), default=1.0)
    spacing = min(0.02, 0.2 * gap / len(names)) if len(scales) > 1 else 0.7 / len(names)
    shifts = 2 ** (spacing * (np.arange(len(names)) - (len(names) - 1) / 2))
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(6.8, 6.6 + 0.22 * math.ceil(len(names) / 3)), layout="constrained")
        panels = figure.subplots(2, 1, sharex=True)
        for axes, metric in zip(panels, ("response_mean_s", "completed"), strict=True):
            for name, shift in zip(names, shifts, strict=True):
                rows = table[table["variant"] == name]
                servers, look = rows["test_servers"].to_numpy(float), looks[name]
                unit = servers if metric == "completed" else 1.0
                x, (mean, low, high) = servers * shift, (values / unit for values in mean_and_ends(rows, metric))
                axes.plot(x, mean, color=look.colour, marker=look.marker, linestyle=look.line, label=name)
                if name in spread and bands and len(rows) > 1:
                    axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
                elif name in spread:
                    axes.vlines(x, low, high, color=look.colour, linewidth=1.5, alpha=0.7)
            axes.set_ylabel(LABELS[metric])
        panels[1].set_ylabel("completed tasks per server")
        server_axis(panels[1], scales, gap)
        style.legend(figure, panels[0], len(names))
        claimed = table.loc[table["variant"].isin(spread), "completed_low"].notna()
        what = " or ".join(
            text for text, used in ((SEED_INTERVAL, claimed.any()), (EPISODE_SD, not claimed.all())) if used
        )
        beside = " Points stand a little beside their N." if len(names) > 1 else ""
        alone = "" if len(spread) == len(names) else " Heuristics: means alone."
        style.caption(figure, f"{setting_caption(episodes)} Band or bar: {what}.{alone}{beside}")
    return figure


def mean_and_ends(rows: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, and ends of its band: the interval over seeds, or where there is none ± sd over episodes, not below 0."""
    mean, sd = rows[metric].to_numpy(float), rows[f"{metric}_sd"].to_numpy(float)
    low, high = rows[f"{metric}_low"].to_numpy(float), rows[f"{metric}_high"].to_numpy(float)
    return mean, np.where(np.isnan(low), np.maximum(mean - sd, 0), low), np.where(np.isnan(high), mean + sd, high)


def server_axis(axes: Axes, scales: Sequence[int], gap: float) -> None:
    """Servers N in powers of two, `gap` of them between neighbours, with a tick at each of the scales."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(scales))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlim(min(scales) / 2 ** (0.5 * gap), max(scales) * 2 ** (0.5 * gap))
    axes.set_xlabel("servers N")


def method_bars(episodes: pd.DataFrame, servers: int | None = None) -> Figure:
    """Bars of Table 3 [SCALE, fig. 3 and 4]: completed and unfinished tasks, response over completed and all tasks."""
    table = table3(episodes, servers)
    if table.empty:
        return style.empty_figure("no evaluation episodes at the training scale")
    scale = training_scales(episodes)[0] if servers is None else servers
    rows = episodes[episodes["variant"].isin(table["variant"]) & (episodes["test_servers"] == scale)]
    looks = style.looks(episodes, variants(episodes))
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(7.2, 2.8 + 0.56 * len(table)), layout="constrained")
        panels = figure.subplots(2, 2, sharey=True)
        position = np.arange(len(table))
        for axes, metric in zip(panels.flat, OUTCOMES, strict=True):
            mean, sd = table[metric].to_numpy(float), table[f"{metric}_sd"].to_numpy(float)
            axes.barh(position, mean, height=0.72, color=[looks[name].colour for name in table["variant"]], alpha=0.5)
            axes.errorbar(mean, position, xerr=sd, fmt="none", ecolor="black", elinewidth=1, capsize=3)
            low, high = table[f"{metric}_low"].to_numpy(float), table[f"{metric}_high"].to_numpy(float)
            axes.hlines(position, low, high, color="black", linewidth=5, alpha=0.8)
            if f"paper_{metric}" in table:
                axes.plot(table[f"paper_{metric}"], position, "D", mfc="white", mec="black", ms=7, linestyle="none")
            axes.set_xlabel(LABELS[metric])
            axes.set_xlim(left=0)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.grid(visible=False, axis="y")
        for axes in panels[:, 0]:
            axes.set_yticks(position, table["variant"])
        panels[0, 0].set_ylim(max(len(table), 2) - 0.4, -0.6)
        paper = " Diamond: the paper's mean." if "paper_completed" in table else ""
        thick = (
            f" Thick: {SEED_INTERVAL}."
            if table["completed_low"].notna().any()
            else f" Fewer than {MIN_SEEDS} seeds: no interval over seeds."
        )
        style.caption(figure, f"N = {scale}. {setting_caption(rows)} Thin: {EPISODE_SD}.{thick}{paper}")
    return figure


def throughput_against_response(episodes: pd.DataFrame) -> Figure:
    """Completed tasks against response time, a panel per number of servers.

    A low response that is bought with few completions stands at the left.
    """
    require_one_setting(episodes)
    if episodes.empty:
        return style.empty_figure("no evaluation episodes")
    names = variants(episodes)
    looks = style.looks(episodes, names)
    scales = sorted(int(n) for n in episodes["test_servers"].unique())
    columns = min(2, len(scales))
    rows = math.ceil(len(scales) / columns)
    with mpl.rc_context(style.RC):
        height = 1.4 + 2.6 * rows + 0.22 * math.ceil(len(names) / 3)
        figure = Figure(figsize=(7.2 if columns > 1 else 5.6, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes, scale in zip(panels.flat, scales, strict=False):
            at_scale = episodes[episodes["test_servers"] == scale]
            for name in names:
                _scatter_variant(axes, at_scale[at_scale["variant"] == name], looks[name], name)
            axes.set_title(f"N = {scale}", loc="left")
            axes.margins(0.12)
            axes.xaxis.set_major_locator(MaxNLocator(4))
        for axes in panels.flat[len(scales) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel(LABELS["response_mean_s"])
        for axes in panels.flat[max(0, len(scales) - columns) : len(scales)]:
            axes.set_xlabel(LABELS["completed"])
        style.legend(figure, panels[0, 0], len(names))
        several = episodes.groupby("variant")["train_seed"].nunique().max() > 1
        sizes = " Small: a seed's mean over its episodes; large: the mean over seeds." if several else ""
        unseen = [name for name in names if episodes.loc[episodes["variant"] == name, "response_mean_s"].isna().all()]
        absent = f" Without a point, as no task completed: {', '.join(unseen)}." if unseen else ""
        style.caption(figure, f"{setting_caption(episodes)}{sizes} Better is to the right and down.{absent}")
    return figure


def _scatter_variant(axes: Axes, rows: pd.DataFrame, look: style.Look, name: str) -> None:
    metrics = ("completed", "response_mean_s")
    x, y = (summary.mean for summary in summarise(rows, metrics).values())
    filled = look.line == "-"
    face = look.colour if filled else "white"
    axes.plot(
        x,
        y,
        look.marker,
        color=look.colour,
        mfc=face,
        mec=look.colour if not filled else "black",
        mew=1.8 if not filled else 0.8,
        ms=10,
        linestyle="none",
        label=name,
        zorder=3,
    )
    if rows["train_seed"].nunique() > 1:
        means = rows.groupby("train_seed")[list(metrics)].mean().astype(float)
        axes.plot(
            means["completed"],
            means["response_mean_s"],
            look.marker,
            color=look.colour,
            ms=4,
            alpha=0.55,
            linestyle="none",
        )
