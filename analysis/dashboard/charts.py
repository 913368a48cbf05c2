"""Draws the charts of `analysis.figures` with plotly."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..figures.chart import Chart, Marks, Panel
from ..figures.style import CELLS

SYMBOLS = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"},
    **{"X": "x", "<": "triangle-left", ">": "triangle-right", "p": "pentagon", "h": "hexagon", "*": "star"},
    **{"d": "diamond-tall", "8": "octagon", "": "circle"},
}
"""Markers of `analysis.figures.style` as plotly calls them."""
PANEL_PX, ROW_PX = 300, 24
LAYOUT = {"template": "plotly_white", "paper_bgcolor": "rgba(0, 0, 0, 0)", "plot_bgcolor": "rgba(0, 0, 0, 0)"}
"""Layout of every figure: its background is transparent."""


def plot(chart: Chart) -> go.Figure:
    """A chart of `analysis.figures` as a figure of plotly, without its caption; without panels an empty figure."""
    if not chart.panels:
        return go.Figure()
    columns = min(chart.columns, len(chart.panels))
    lines = math.ceil(len(chart.panels) / columns)
    spacing = 0.22 * min(1.0, 2 / lines)
    # A label beside an inner axis would cover the panel on its left: it becomes the title.
    titles = [(panel.title or panel.y_label * (columns > 1)).replace("\n", "<br>") for panel in chart.panels]
    across = {"horizontal_spacing": 0.08, "vertical_spacing": spacing}
    figure = make_subplots(lines, columns, subplot_titles=titles, shared_yaxes=_same_rows(chart), **across)
    figure.update_annotations(font_size=14)
    height = sum(max(map(_height, chart.panels[k * columns : (k + 1) * columns])) for k in range(lines))
    above = 22 + 18 * max(title.count("<br>") + 1 for title in titles[:columns])
    figure.update_layout(LAYOUT, height=20 + above + height, margin={"t": above, "b": 50, "l": 60, "r": 10})
    figure.update_layout(legend={"tracegroupgap": 0, "font": {"size": 12}})
    traces: list[dict[str, Any]] = []
    rows: list[int] = []
    cols: list[int] = []
    named: set[str] = set()
    for position, panel in enumerate(chart.panels):
        row, col = position // columns + 1, position % columns + 1
        for marks in panel.marks:
            is_first = marks.name not in named and len(marks.x) > 0  # without a point there is no entry in the legend
            traces.append(_trace(marks, bool(panel.rows), is_first))
            named |= {marks.name} if is_first else set()
        if panel.grid is not None:
            traces.append(_cells(panel))
        rows += [row] * (len(traces) - len(rows))
        cols += [col] * (len(traces) - len(cols))
        beside = panel.y_label if columns == 1 or (panel.title and col == 1) else ""
        _set_axes(figure, panel, beside, {"row": row, "col": col})
    figure.add_traces(traces, rows=rows, cols=cols)
    ink = {"line": {"color": "#000000", "width": 1, "dash": "dot"}}
    for position, panel in enumerate(chart.panels):
        if panel.zero:
            place = {"row": position // columns + 1, "col": position % columns + 1}
            (figure.add_vline if panel.zero == "x" else figure.add_hline)(0, **ink, **place)
    return figure


def _same_rows(chart: Chart) -> bool:
    return bool(chart.panels[0].rows) and all(panel.rows == chart.panels[0].rows for panel in chart.panels)


def _height(panel: Panel) -> int:
    count = len(panel.rows) or (len(panel.grid.values) if panel.grid is not None else 0)
    return 90 + ROW_PX * count if count else PANEL_PX


def _trace(marks: Marks, in_rows: bool, in_legend: bool) -> dict[str, Any]:
    look, colour = marks.look, marks.look.colour
    shared = {"name": marks.name, "legendgroup": marks.name, "showlegend": bool(marks.name) and in_legend}
    x, y = np.asarray(marks.x, float), np.asarray(marks.y, float)
    mode = "+".join(["lines"] * bool(look.line) + ["markers"] * (bool(look.marker) and not (marks.thin and look.line)))
    dash = {"-": "solid", "--": "dash", ":": "dot"}.get(look.line, "solid")
    symbol = f"{SYMBOLS[look.marker]}-open" if look.hollow else SYMBOLS[look.marker]
    long = look.line and len(x) > 12  # a marker at each point of a long curve would hide it
    trace = shared | {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines" if long else mode or "lines",
        "line": {"color": colour, "width": 0.7 if marks.thin else 2, "dash": dash},
        "marker": {"color": colour, "symbol": symbol, "size": 8 * marks.size},
        "opacity": 0.5 if marks.thin else 1.0,
    }
    if len(marks.hover) or not marks.thin:
        text = {"text": list(marks.hover), "hovertemplate": "%{text}<extra></extra>"} if len(marks.hover) else {}
        trace |= text
    else:
        trace["hoverinfo"] = "skip"
    if marks.low is not None:
        value = x if in_rows else y
        low, high = (np.asarray(end, float) for end in (marks.low, marks.high))
        ends = {"type": "data", "array": high - value, "arrayminus": value - low, "thickness": 1, "width": 2}
        trace["error_x" if in_rows else "error_y"] = ends
    return trace


def _cells(panel: Panel) -> dict[str, Any]:
    assert panel.grid is not None
    values, texts = panel.grid.values, panel.grid.texts
    scale = [[k / 8, mpl.colors.to_hex(mpl.colormaps[CELLS](k / 8))] for k in range(9)]
    trace = {"type": "heatmap", "z": values.to_numpy(float), "x": list(values.columns), "y": list(values.index)}
    return trace | {"text": texts.to_numpy(), "texttemplate": "%{text}", "colorscale": scale, "showscale": False}


def _set_axes(figure: go.Figure, panel: Panel, y_label: str, place: dict[str, int]) -> None:
    x: dict[str, Any] = {"title_text": panel.x_label.replace("\n", "<br>")}
    y: dict[str, Any] = {"title_text": y_label.replace("\n", "<br>")}
    if panel.rows:
        y |= {"tickvals": list(range(len(panel.rows))), "ticktext": list(panel.rows)}
        y |= {"range": [max(len(panel.rows), 2) - 0.4, -0.6], "zeroline": False}
    if panel.scales:
        gap = float(min(np.diff(np.log2(sorted(panel.scales))), default=1.0)) * math.log10(2)
        x |= {"type": "log", "tickvals": list(panel.scales), "ticktext": [str(n) for n in panel.scales]}
        x["range"] = [math.log10(min(panel.scales)) - 0.5 * gap, math.log10(max(panel.scales)) + 0.5 * gap]
    if panel.log_y:
        y |= {"type": "log", "tickformat": "~g", "dtick": "D2"}
    if panel.grid is not None:
        y["autorange"] = "reversed"
    for axis, ends in zip((x, y), panel.ranges, strict=True):
        axis |= {"range": list(ends)} if ends else {}
    figure.update_xaxes(**x, **place)
    figure.update_yaxes(**y, **place)
