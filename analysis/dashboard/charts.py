"""Figures of evaluation and training for the page: plotly, in the colours of `analysis.style`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..figures import style
from ..figures.evaluation import EPISODE_SD, SEED_INTERVAL, count_range, mean_and_ends
from ..figures.svg import dark_colour
from ..load import variants
from .selection import downsample

SYMBOLS = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"},
    **{"X": "x", "<": "triangle-left", ">": "triangle-right", "p": "pentagon", "h": "hexagon", "*": "star"},
    **{"d": "diamond-tall", "8": "octagon"},
}
"""Markers of `analysis.style` as plotly calls them."""
AGAINST_N = {
    "response_mean_s": "response (s)",
    "completed": "completed tasks per server",
    "response_censored_s": "censored response (s)",
    "above_bound_percent": "above the lower bound (%)",
}
CURVES = {
    "episode_return": "return",
    "completed": "completed tasks",
    "response_mean_s": "response (s)",
    "srr_decorrelation": "L_c (decorrelation)",
    "srr_kl": "L_d (KL)",
    "feature_correlation": "mean |correlation| of f",
    "entropy": "entropy (nat)",
    "policy_loss": "policy loss",
    "value_loss": "value loss",
    "kl": "KL of an update (nat)",
    "explained_variance": "explained variance",
    "objective": "objective of the search (ln)",
    "objective_validation": "the same in validation (ln)",
    "env_steps_per_s": "env steps per second",
}
AGAINST_N_CAPTION = (
    f"Bars: {SEED_INTERVAL}, else {EPISODE_SD}; beside learned methods heuristics (dashed, hollow) are means alone. "
    "Points stand a little beside their N. A response covers completed tasks alone, the censored one every arrived "
    "task up to the end."
)
SCATTER_CAPTION = (
    "Small: a training seed's mean over its episodes; large: the mean over seeds. Better is to the right and down: a "
    "low response that is bought with few completions stands at the left."
)
DIFFERENCES_CAPTION = (
    "Mean differences of the table; bars: 95 % interval of a hierarchical bootstrap over seeds and episodes, where "
    "one is claimed."
)
MOST_THIN = 6
"""Of more methods the curves of single seeds would cover each other: only medians are drawn."""
POINTS = 150
"""Of each training curve: more cannot be told apart."""
PANEL_PX = 300
MOST_PANELS = 6


def counts(table: pd.DataFrame) -> str:
    """How many seeds and episodes stand behind a table of `selection.table`, in words."""
    rules = table["seeds_note"].isin(["rule", "rules"])
    parts = []
    for rows, name in ((table[~rules], "Learned methods"), (table[rules], "heuristics")):
        if len(rows):
            seeds = f"{count_range(rows['seeds'], 'seed')} of " if name == "Learned methods" else ""
            parts.append(f"{name}: {seeds}{count_range(rows['episodes'], 'episode')}")
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]}."


def against_servers(table: pd.DataFrame, units: pd.DataFrame, dark: bool = False) -> go.Figure:
    """Response, completed tasks per server, censored response and distance to the bound against N [SCALE, fig. 5].

    A metric without a value is left out; without any the figure is empty.

    Args:
        table: of `selection.table`, with the metrics of AGAINST_N.
        units: what it was made of.
        dark: for a dark page.
    """
    looks = _looks(units, dark)
    has_learned = not all(heuristic for *_, heuristic in looks.values())
    scales = sorted(int(n) for n in table["test_servers"].unique())
    gap = float(min(np.diff(np.log2(scales)), default=1.0))
    shift = min(0.03, 0.5 * gap / len(looks)) if len(scales) > 1 else 0.8 / len(looks)
    shifts = {name: 2 ** (shift * (k - (len(looks) - 1) / 2)) for k, name in enumerate(looks)}
    metrics = [metric for metric in AGAINST_N if table[metric].notna().any()]
    if not metrics:
        return go.Figure()
    figure = _panels([AGAINST_N[metric] for metric in metrics], 2)
    traces: list[dict[str, Any]] = []
    hover = "N = %{customdata[0]}: %{y:.2f} (%{customdata[1]} seeds, %{customdata[2]} episodes)"
    for position, metric in enumerate(metrics):
        for name, look in looks.items():
            rows = table[table["variant"] == name]
            servers = rows["test_servers"].to_numpy(float)
            per = servers if metric == "completed" else 1.0
            mean, low, high = (values / per for values in mean_and_ends(rows, metric))
            bars = {"type": "data", "array": high - mean, "arrayminus": mean - low, "thickness": 1, "width": 2}
            traces.append(
                _drawn(name, look, position == 0)
                | {"x": servers * shifts[name], "y": mean, "mode": "lines+markers"}
                | {"error_y": bars if not (look[2] and has_learned) else None}
                | {"customdata": np.column_stack([servers, rows["seeds"], rows["episodes"]])}
                | {"hovertemplate": hover}
            )
    places = np.repeat(np.arange(len(metrics)), len(looks))
    figure.add_traces(traces, rows=(places // 2 + 1).tolist(), cols=(places % 2 + 1).tolist())
    ends = [math.log10(min(scales)) - 0.15 * gap, math.log10(max(scales)) + 0.15 * gap]
    figure.update_xaxes(type="log", tickvals=scales, ticktext=[str(n) for n in scales], range=ends)
    figure.update_xaxes(title_text="servers N", row=math.ceil(len(metrics) / 2))
    return figure


def throughput_against_response(units: pd.DataFrame, dark: bool = False) -> go.Figure:
    """Completed tasks against response, a panel for each of the first scales."""
    looks = _looks(units, dark)
    scales = sorted(int(n) for n in units["test_servers"].unique())[:MOST_PANELS]
    columns = 2 if len(scales) in (2, 4) else min(len(scales), 3)
    figure = _panels([f"N = {n}" for n in scales], columns, 0.22)
    # The legend: a trace for every method in every panel would be slow to draw.
    entries = [_drawn(name, look, True) | {"x": [None], "y": [None], "mode": "markers"} for name, look in looks.items()]
    figure.add_traces(entries)
    for position, servers in enumerate(scales):
        rows = units[units["test_servers"] == servers]
        seeds, place = (
            rows.dropna(subset=["train_seed"]),
            {"row": position // columns + 1, "col": position % columns + 1},
        )
        means = rows.groupby("variant", as_index=False)[["completed", "response_mean_s"]].mean()
        for points, size, opacity in ((seeds, 5, 0.5), (means, 12, 1.0)):
            marks = [looks[name] for name in points["variant"]]
            symbols = [f"{symbol}-open" if heuristic else symbol for _, symbol, heuristic in marks]
            marker = {"color": [colour for colour, *_ in marks], "symbol": symbols, "size": size, "opacity": opacity}
            names = points["variant"].astype(str)
            if points is seeds:
                names = names + ", seed " + points["train_seed"].astype(str)
            trace = {
                "type": "scatter",
                "x": points["completed"].to_numpy(float),
                "y": points["response_mean_s"].to_numpy(float),
                "mode": "markers",
                "marker": marker,
                "text": names,
                "hovertemplate": "%{text}: %{x:.2f} completed, %{y:.2f} s<extra></extra>",
                "showlegend": False,
            }
            figure.add_trace(trace, **place)
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    figure.update_xaxes(title_text="completed tasks")
    figure.update_yaxes(title_text="response (s)", col=1)
    return figure


def training_curves(curves: pd.DataFrame, metrics: Sequence[str], dark: bool = False) -> tuple[go.Figure, str]:
    """Training curves, every seed thin and the median over seeds thick, and the caption [SCALE, fig. 6].

    Args:
        curves: rows of training epochs with their variant.
        metrics: some of CURVES.
        dark: for a dark page.
    """
    looks = _looks(curves, dark)
    few, width = downsample(curves, metrics, POINTS)
    figure = _panels([CURVES[metric] for metric in metrics], 2)
    for position, metric in enumerate(metrics):
        place = {"row": position // 2 + 1, "col": position % 2 + 1}
        for name, look in looks.items():
            by_seed = few[few["variant"] == name].pivot(index="epoch", columns="cell", values=metric).astype(float)
            by_seed = by_seed.loc[:, by_seed.notna().any()]
            if by_seed.empty:
                continue
            drawn = _drawn(name, look, False)
            drawn.pop("marker")
            if by_seed.shape[1] > 1 and len(looks) <= MOST_THIN:
                # One trace for all seeds, with a gap after each: a trace costs more than its points.
                x = np.tile(np.r_[by_seed.index.to_numpy(float), np.nan], by_seed.shape[1])
                y = np.concatenate([np.r_[by_seed[cell].to_numpy(), np.nan] for cell in by_seed])
                thin = drawn | {"line": drawn["line"] | {"width": 0.7}, "opacity": 0.45, "hoverinfo": "skip"}
                figure.add_trace({"x": x, "y": y, "mode": "lines"} | thin, **place)
            median = by_seed.median(axis=1)
            thick = drawn | {"line": drawn["line"] | {"width": 2.5}, "showlegend": position == 0}
            hover = "epoch %{x}: %{y:.3g}"
            shown = {"x": median.index, "y": median, "mode": "lines", "hovertemplate": hover}
            figure.add_trace(shown | thick, **place)
        if metric == "srr_decorrelation" and (few[metric].dropna() > 0).all():
            # It grows with the square of the feature's width, which differs by method.
            wide = few[metric].max() > 100 * few[metric].min()
            figure.update_yaxes(type="log", dtick=1 if wide else "D2", tickformat="~g", **place)
    figure.update_xaxes(title_text="epoch", row=math.ceil(len(metrics) / 2))
    means = f" Each point is a mean over {width} epochs." if width > 1 else ""
    lines = "Thin: each training seed; thick: the median" if len(looks) <= MOST_THIN else "The median"
    seeds = count_range(curves.groupby("variant")["cell"].nunique(), "seed")
    return figure, f"{seeds} per method. {lines} over seeds.{means} Sampled actions, training episodes."


def differences(paired: pd.DataFrame, metrics: dict[str, str], dark: bool = False) -> go.Figure:
    """Paired differences first - second against N, with their intervals where these are claimed.

    Args:
        paired: of `analysis.comparisons.paired_table`, of one pair.
        metrics: column -> axis title.
        dark: for a dark page.
    """
    ink = "#EBEBEB" if dark else "#000000"
    figure = _panels(list(metrics.values()), len(metrics))
    for position, metric in enumerate(metrics):
        mean = paired[metric].to_numpy(float)
        low, high = (paired[f"{metric}_{end}"].to_numpy(float) for end in ("low", "high"))
        verdicts = paired.get(f"{metric}_verdict", pd.Series("", index=paired.index))
        trace = go.Scatter(
            x=paired["test_servers"].astype(str),
            y=mean,
            error_y={"type": "data", "array": high - mean, "arrayminus": mean - low, "thickness": 1.5, "width": 5},
            mode="markers",
            marker={"color": ink, "size": 9},
            customdata=verdicts,
            hovertemplate="N = %{x}: %{y:.2f}, %{customdata}<extra></extra>",
            showlegend=False,
        )
        figure.add_trace(trace, 1, position + 1)
        figure.add_hline(y=0, line={"color": ink, "width": 1, "dash": "dot"}, row=1, col=position + 1)
        reached = np.r_[0.0, mean, low, high]
        bottom, top = float(np.nanmin(reached)), float(np.nanmax(reached))
        room = 0.1 * (top - bottom) or 1.0
        figure.update_yaxes(range=[bottom - room, top + room], row=1, col=position + 1)
    figure.update_xaxes(title_text="servers N", type="category")
    return figure


def episode_pairs(pairs: pd.DataFrame, names: tuple[str, str], label: str, dark: bool = False) -> go.Figure:
    """The same episode under two methods, one point an episode; on the dashed line both are equal.

    Args:
        pairs: columns test_servers, episode, first and second.
        names: of the two.
        label: of the metric, with its unit.
        dark: for a dark page.
    """
    ink = "#EBEBEB" if dark else "#000000"
    figure = go.Figure()
    by_scale = list(pairs.groupby("test_servers"))
    # Shades of one scale, none of them a method's colour; not its ends, which are hard to see on the page.
    low, high = (0.25, 1.0) if dark else (0.0, 0.85)
    shades = mpl.colormaps["viridis"](np.linspace(low, high, len(by_scale)))
    for (servers, rows), shade in zip(by_scale, shades, strict=True):
        hover = f"N = {servers}, episode %{{customdata}}: %{{x:.2f}} and %{{y:.2f}}<extra></extra>"
        marker = {"size": 6, "opacity": 0.8, "color": str(mpl.colors.to_hex(shade))}
        figure.add_trace(
            go.Scatter(
                x=rows["second"],
                y=rows["first"],
                customdata=rows["episode"],
                mode="markers",
                marker=marker,
                name=f"N = {servers}",
                hovertemplate=hover,
            )
        )
    both = pairs[["first", "second"]].to_numpy(float)
    if len(both) and not np.isnan(both).all():
        ends = [float(np.nanmin(both)), float(np.nanmax(both))]
        equal = {"color": ink, "width": 1, "dash": "dash"}
        figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line=equal, name="equal", hoverinfo="skip"))
    figure.update_layout(height=420, margin={"t": 30, "b": 50, "l": 60, "r": 10})
    figure.update_xaxes(title_text=f"{names[1]}: {label}")
    figure.update_yaxes(title_text=f"{names[0]}: {label}")
    return figure


def _looks(rows: pd.DataFrame, dark: bool) -> dict[str, tuple[str, str, bool]]:
    """Variant -> colour, symbol, and whether it is a heuristic."""
    found = {}
    for name, look in style.looks(rows, variants(rows)).items():
        colour = str(mpl.colors.to_hex(look.colour))
        found[name] = dark_colour(colour[1:]) if dark else colour, SYMBOLS[look.marker], look.line == "--"
    return found


def _drawn(name: str, look: tuple[str, str, bool], in_legend: bool) -> dict[str, Any]:
    """What all traces of a variant share."""
    colour, symbol, heuristic = look
    return {
        "type": "scatter",
        "name": name,
        "legendgroup": name,
        "showlegend": in_legend,
        "line": {"color": colour, "width": 2, "dash": "dash" if heuristic else "solid"},
        "marker": {"color": colour, "symbol": f"{symbol}-open" if heuristic else symbol, "size": 8},
    }


def _panels(titles: Sequence[str], columns: int, spacing: float = 0.14) -> go.Figure:
    rows = math.ceil(len(titles) / columns)
    vertical = spacing * min(1.0, 2 / rows)
    figure = make_subplots(rows, columns, subplot_titles=titles, horizontal_spacing=0.08, vertical_spacing=vertical)
    figure.update_annotations(font_size=14)
    figure.update_layout(height=60 + PANEL_PX * rows, margin={"t": 40, "b": 50, "l": 60, "r": 10})
    figure.update_layout(legend={"tracegroupgap": 0, "font": {"size": 12}})
    return figure
