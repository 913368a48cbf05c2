"""Gantt chart of a schedule: one lane a server, one bar a started task."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from rllib_scale.config import ClusterConfig

COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
"""Okabe and Ito's palette, told apart by colour-blind readers; workflow w has colour w modulo its length."""
UNFINISHED_HATCH = "////"

WIDTH_IN = 11.0
LANE_IN, THINNEST_LANE_IN, LANES_IN = 0.3, 0.11, 9.0
"""Height of a lane: the first; thinner where the lanes would not fit the last; but no thinner than the second."""
MARGINS_IN, TALLEST_IN = 1.6, 18.0
ARRIVALS_IN = 0.18
"""Height of the strip above the first lane in which arrivals are marked."""
LABEL_IN = 0.16
"""Room that a server's number needs; where lanes are thinner, only every few servers are numbered."""
NUMBERED_SHARE, NUMBERED_LANE_IN = 0.025, 0.15
"""A bar shows its workflow's number where it covers this share of the time axis in a lane of this height."""


def draw_gantt(schedule: np.ndarray, cluster: ClusterConfig, end_s: float, title: str = "") -> Figure:
    """Draw a schedule up to `end_s`: its rows as bars, and the arrivals of the workflows that have a row.

    Args:
        schedule: structured rows with workflow, server, arrival_s, start_s, finish_s (NaN: not finished by the end).
        cluster: the servers; lanes are grouped by its tiers, empty slots have none.
        end_s: right end of the time axis in s, to which the bars of unfinished tasks are hatched.
        title: above the chart.

    Returns:
        A figure outside pyplot's management: save it with `figure.savefig(path)`, nothing needs closing.
    """
    servers = cluster.num_servers
    lane_in = min(LANE_IN, max(LANES_IN / servers, THINNEST_LANE_IN))
    figure = Figure(figsize=(WIDTH_IN, min(TALLEST_IN, MARGINS_IN + lane_in * servers)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    span = end_s if end_s > 0 else 1.0
    colours = np.array(COLOURS)[schedule["workflow"] % len(COLOURS)]
    finished = ~np.isnan(schedule["finish_s"])
    stop = np.where(finished, schedule["finish_s"], end_s)
    for rows, hatch in ((finished, None), (~finished, UNFINISHED_HATCH)):
        axes.barh(
            schedule["server"][rows],
            (stop - schedule["start_s"])[rows],
            left=schedule["start_s"][rows],
            height=0.82,
            color=colours[rows],
            edgecolor="white",
            linewidth=0.5,
            hatch=hatch,
        )
    is_numbered = lane_in >= NUMBERED_LANE_IN
    if is_numbered:
        for row, until in zip(schedule, stop, strict=True):
            if until - row["start_s"] >= NUMBERED_SHARE * span:
                middle = (row["start_s"] + until) / 2
                box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8}
                axes.text(middle, row["server"], row["workflow"], ha="center", va="center", fontsize=7, bbox=box)
    workflow, first = np.unique(schedule["workflow"], return_index=True)
    top = -0.5 - ARRIVALS_IN / lane_in
    axes.scatter(
        schedule["arrival_s"][first],
        np.full(len(workflow), (top - 0.5) / 2),
        s=25,
        marker="v",
        color=np.array(COLOURS)[workflow % len(COLOURS)],
    )
    _label_servers(axes, cluster, max(1, math.ceil(LABEL_IN / lane_in)))
    axes.set_xlim(0, span)
    axes.set_ylim(servers - 0.5, top)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("server")
    axes.grid(axis="x", color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=11)
    legend: dict[str, Artist] = {
        f"task (colour{' and number' if is_numbered else ''}: its workflow)": Patch(facecolor="0.6"),
        "not finished at the end": Patch(facecolor="0.6", edgecolor="white", hatch=UNFINISHED_HATCH),
        "arrival of a workflow": Line2D([], [], color="0.4", marker="v", linestyle="none"),
    }
    figure.legend(
        list(legend.values()), list(legend), loc="outside lower left", ncols=len(legend), fontsize=8, frameon=False
    )
    return figure


def to_rgb(figure: Figure) -> NDArray[np.uint8]:
    """The figure as an image (H, W, 3)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _label_servers(axes: Axes, cluster: ClusterConfig, every: int) -> None:
    """Number every few servers, name the tiers on the right and set them apart by lines."""
    axes.set_yticks(range(0, cluster.num_servers, every))
    axes.tick_params(labelsize=9)
    first = 0
    for tier in cluster.tiers:
        label = f"{tier.name} ({tier.count})"
        axes.text(
            1.01, first + (tier.count - 1) / 2, label, transform=axes.get_yaxis_transform(), va="center", fontsize=9
        )
        first += tier.count
        if first < cluster.num_servers:
            axes.axhline(first - 0.5, color="0.3", linewidth=0.9)
