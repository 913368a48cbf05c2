"""Charts drawn by matplotlib, and written as PNG and SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from rllib_scale.files import write_atomic

from . import style
from .chart import Chart, Grid, Marks, Panel

WIDTH, PANEL, ROW = 7.4, 2.6, 0.27
"""Width of a figure, height of a panel and of a row [inch]."""
MOST_LETTERS, SLOPE = 44, 0.055
"""Letters of a column's name, and height of each where it is turned [inch]."""
BESIDE, LETTER = 4.2, 0.075
"""Width of a panel beside the names of rows, of which further ones take half, and of a letter of these [inch]."""


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of 200 dpi or an SVG whose text is text, by the suffix, atomically."""
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None  # the same figure makes the same file
    image = io.BytesIO()
    with mpl.rc_context(style.SVG_RC):
        figure.savefig(image, format=kind, dpi=style.DPI, facecolor="white", metadata=metadata)
    content = image.getvalue()
    if kind == "svg":
        # A hundredth of a point is enough for coordinates, which stand in tags; the text between them stays.
        content = re.sub(rb"<[^>]*>", lambda tag: re.sub(rb"(\.\d\d)\d+", rb"\1", tag[0]), content)
    write_atomic(path, lambda p: p.write_bytes(content))


def draw(chart: Chart) -> Figure:
    """A chart with panels as a figure of matplotlib."""
    columns = min(chart.columns, len(chart.panels))
    lines = math.ceil(len(chart.panels) / columns)
    heights = [
        max(_height(panel) for panel in chart.panels[line * columns : (line + 1) * columns]) for line in range(lines)
    ]
    entries = _entries(chart)
    with mpl.rc_context(style.RC):
        narrow = columns == 1 and not any(panel.rows or panel.grid for panel in chart.panels)
        width = WIDTH * (0.87 if narrow else 1.3 if columns > 2 else 1.0)
        letters = max((len(row) for panel in chart.panels for row in _beside(panel)), default=0)
        width = max(width, BESIDE * (1 + columns) / 2 + LETTER * letters)
        above = 0.24 * math.ceil(len(entries) / style.legend_columns(width, list(entries)))
        beside = 0.12 if any(map(_beside, chart.panels)) else 0.04167  # a browser's letters are wider
        layout = ConstrainedLayoutEngine(w_pad=beside)
        below = 0.9 + 0.17 * max(0, style.caption_text(width, chart.caption).count("\n") - 2)
        figure = Figure(figsize=(width, sum(heights) + above + below), layout=layout)
        grid = figure.subplots(lines, columns, squeeze=False, gridspec_kw={"height_ratios": heights})
        for axes in grid.ravel()[len(chart.panels) :]:
            axes.set_axis_off()
        for position, (axes, panel) in enumerate(zip(grid.ravel(), chart.panels, strict=False)):
            _draw_panel(axes, panel, labelled=position % columns == 0 or panel.rows != chart.panels[position - 1].rows)
        if entries:
            style.legend(figure, list(entries.values()), list(entries))
        style.caption(figure, chart.caption)
    return figure


def _beside(panel: Panel) -> list[str]:
    """Names of the rows of a panel."""
    return list(panel.rows) if panel.grid is None else [str(name) for name in panel.grid.values.index]


def _height(panel: Panel) -> float:
    if panel.grid is not None:
        longest = max(map(len, _below(panel.grid)), default=0)
        return 1.1 + 0.34 * len(panel.grid.values) + SLOPE * max(0, longest - 16)
    return 0.85 + ROW * max(2, len(panel.rows)) if panel.rows else PANEL


def _below(grid: Grid) -> list[str]:
    """Names of the columns; of long ones the ends, in which they mostly differ."""
    names = [str(name) for name in grid.values.columns]
    return [name if len(name) <= MOST_LETTERS else f"…{name[1 - MOST_LETTERS :]}" for name in names]


def _entries(chart: Chart) -> dict[str, Line2D]:
    """Name -> handle in the legend."""
    found: dict[str, Line2D] = {}
    for marks in (marks for panel in chart.panels for marks in panel.marks):
        if marks.name and marks.name not in found:
            look = marks.look
            handle: dict[str, Any] = {"color": look.colour, "marker": look.marker, "mfc": _face(look)}
            handle["linestyle"] = look.line or "none"
            found[marks.name] = Line2D([], [], **handle)
    return found


def _face(look: style.Look) -> str:
    return "white" if look.hollow else look.colour


def _draw_panel(axes: Axes, panel: Panel, labelled: bool) -> None:
    if panel.title:
        axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.grid is not None:
        _draw_grid(axes, panel.grid)
        return
    if panel.zero:
        (axes.axvline if panel.zero == "x" else axes.axhline)(0, color="0.35", linewidth=1)
    for marks in panel.marks:
        _draw_marks(axes, marks, bool(panel.rows))
    if panel.log_y:
        axes.set_yscale("log")
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows if labelled else [""] * len(panel.rows))
        axes.set_ylim(max(len(panel.rows), 2) - 0.4, -0.6)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    if panel.scales:
        gap = min(np.diff(np.log2(sorted(panel.scales))), default=1.0)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(list(panel.scales)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FixedFormatter(_apart(panel.scales)))
        axes.set_xlim(min(panel.scales) / 2 ** (0.5 * gap), max(panel.scales) * 2 ** (0.5 * gap))
    elif not panel.rows:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=panel.x_label == "epoch"))
        axes.margins(0.08)
    x_range, y_range = panel.ranges
    if x_range:
        axes.set_xlim(x_range)
    if y_range:
        axes.set_ylim(y_range)


def _apart(scales: Sequence[int]) -> list[str]:
    """Labels of the ticks at these scales, smallest first; empty if the next label is too near."""
    digit = math.log2(max(scales) / min(scales)) / 20
    right, labels = math.inf, [""] * len(scales)
    for k, scale in reversed(list(enumerate(scales))):
        centre, half = math.log2(scale), digit * len(str(scale)) / 2
        if centre + half <= right:
            right, labels[k] = centre - half, str(scale)
    return labels


def _draw_marks(axes: Axes, marks: Marks, in_rows: bool) -> None:
    look = marks.look
    x, y = np.asarray(marks.x, float), np.asarray(marks.y, float)
    thin: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.4} if marks.thin else {}
    every = max(1, len(x) // 6) if len(x) > 12 else 1
    axes.plot(
        *(x, y),
        color=look.colour,
        linestyle=look.line or "none",
        marker="" if marks.thin and look.line else look.marker,
        markersize=6.5 * marks.size,
        markerfacecolor=_face(look),
        markevery=every if look.line else 1,
        **thin,
    )
    if marks.low is not None:
        lines = axes.hlines if in_rows else axes.vlines
        along = y if in_rows else x
        lines(along, np.asarray(marks.low, float), np.asarray(marks.high, float), color=look.colour, linewidth=1.6)


def _draw_grid(axes: Axes, grid: Grid) -> None:
    values = grid.values.to_numpy(float)
    rows, columns = values.shape
    axes.grid(visible=False)
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    image = axes.pcolormesh(*edges, np.ma.masked_invalid(values), cmap=style.CELLS)
    axes.set_ylim(rows - 0.5, -0.5)
    names = _below(grid)
    turned = max(map(len, names)) * columns > 60
    axes.set_xticks(range(columns), names, rotation=40 if turned else 0, ha="right" if turned else "center")
    axes.set_yticks(range(rows), [str(name) for name in grid.values.index])
    for (y, x), value in np.ndenumerate(values):
        if not math.isnan(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            text = str(grid.texts.iat[y, x])
            axes.text(x, y, text, ha="center", va="center", color="white" if dark else "black", fontsize=10)
