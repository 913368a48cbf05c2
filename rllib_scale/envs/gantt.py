"""Gantt charts of schedules: one lane a place of a server, one bar a started task; as pictures, or as a film."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from rllib_scale.config import ClusterConfig
from rllib_scale.envs.places import first_places, places_of, with_places

COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
"""Okabe and Ito's palette, distinguishable by colour-blind readers; workflow w has colour w modulo its length."""
UNFINISHED_HATCH = "////"

WIDTH_IN, DPI = 8.0, 140
"""So wide that the text can be read where the picture is shown at 720 pixels."""
LANE_IN, THINNEST_LANE_IN, LANES_IN = 0.3, 0.11, 9.0
"""Height of a lane: the first; thinner where the lanes would not fit the last; but no thinner than the second."""
SHARED_LANE_IN = 0.17
"""Height of a lane at most, where charts are compared: they are to be seen at once."""
MARGINS_IN, TITLE_IN, TALLEST_IN = 1.0, 0.5, 18.0
MOST_LANES = 2000
"""Lanes of a chart: more of them were thinner than a pixel."""
ARRIVALS_IN = 0.18
"""Height of the strip above the first lane in which arrivals are marked."""
FRAMES, FRAME_MS, LAST_MS, PALETTE = 120, 60, 2000, 64
"""Of an animation: number of frames, time per frame and of the last, and number of colours."""
LABEL_IN = 0.16
"""Room that a server's number needs; where lanes are thinner, only some servers are numbered."""
NUMBERED_SHARE, NUMBERED_LANE_IN = 0.028, 0.15
"""A bar shows its workflow's number where it covers this share of the time axis in a lane of this height."""


@dataclass(frozen=True, eq=False)
class Chart:
    """Content of one chart, drawn by matplotlib here and by plotly on the dashboard.

    Attributes:
        schedule: structured rows with workflow, task, server, arrival_s, start_s, finish_s (NaN: not finished).
        cluster: the servers; lanes are their places, grouped by tiers.
        end_s: to where the bars of unfinished tasks are hatched, in s.
        title: above the chart.
    """

    schedule: np.ndarray
    cluster: ClusterConfig
    end_s: float
    title: str = ""

    def __post_init__(self) -> None:
        if any(tier.replica is not None for tier in self.cluster.tiers):
            object.__setattr__(self, "cluster", with_places(self.schedule, self.cluster))

    @cached_property
    def lanes(self) -> NDArray[np.int64]:
        """(S,) the lane of each row: the place on which it runs."""
        return places_of(self.schedule, self.cluster)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """(S,) whether each row finished; the bars of the others are hatched."""
        return np.asarray(~np.isnan(self.schedule["finish_s"]))

    @property
    def stop_s(self) -> NDArray[np.float64]:
        """(S,) where each bar ends."""
        return np.where(self.finished, self.schedule["finish_s"], self.end_s)

    @property
    def colours(self) -> list[str]:
        """(S,) of the bars: those of their workflows."""
        return colours_of(self.schedule["workflow"])

    @property
    def arrivals(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The workflows that have a row, and when each arrived."""
        workflow, first = np.unique(self.schedule["workflow"], return_index=True)
        return workflow, self.schedule["arrival_s"][first]

    @property
    def tiers(self) -> list[tuple[str, int, int]]:
        """Label beside the lanes of each tier, its first lane, and the first lane of the next tier."""
        ends = np.cumsum([tier.count * tier.max_concurrent for tier in self.cluster.tiers]).tolist()
        labels = [f"{tier.name} ({tier.count})" for tier in self.cluster.tiers]
        return list(zip(labels, [0, *ends], ends, strict=False))

    def numbered(self, lanes: int) -> dict[int, float]:
        """Servers that are at least a given number of lanes apart, and the middle of the lanes of each."""
        every = math.ceil(lanes / min(tier.max_concurrent for tier in self.cluster.tiers))
        first = first_places(self.cluster)
        middles = (first[:-1] + first[1:] - 1) / 2
        return dict(list(enumerate(middles.tolist()))[::every])


def colours_of(workflows: NDArray[np.int64]) -> list[str]:
    """The colour of each workflow."""
    return [COLOURS[number % len(COLOURS)] for number in workflows.tolist()]


def draw_gantt(schedule: np.ndarray, cluster: ClusterConfig, end_s: float, title: str = "") -> Figure:
    """`draw_gantts` of one chart."""
    return draw_gantts([Chart(schedule, cluster, end_s, title)])


def draw_gantts(charts: Sequence[Chart], title: str = "") -> Figure:
    """Draw schedules one above the other on one time axis, which ends with the last of them.

    Each shows its rows as bars and the arrivals of the workflows that have a row. A workflow has one colour in all.

    Args:
        charts: what to draw, from top to bottom.
        title: above them all.

    Returns:
        A figure outside pyplot's management: save it with `figure.savefig(path)`, nothing needs closing.
    """
    lanes = [chart.cluster.num_places for chart in charts]
    highest_in = LANE_IN if len(charts) == 1 else SHARED_LANE_IN
    lane_in = min(highest_in, max(LANES_IN / sum(lanes), THINNEST_LANE_IN))
    height = min(TALLEST_IN, MARGINS_IN + TITLE_IN * len(charts) + lane_in * sum(lanes))
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(charts), 1, sharex=True, squeeze=False, height_ratios=lanes)
    span = max(chart.end_s for chart in charts) or 1.0
    for axes, chart in zip(panels.flat, charts, strict=True):
        _draw(axes, chart, span, lane_in)
    panels.flat[-1].set_xlabel("time (s)")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    legend: dict[str, Artist] = {
        f"task (colour{' and number' if lane_in >= NUMBERED_LANE_IN else ''}: its workflow)": Patch(facecolor="0.6"),
        "arrival of a workflow": Line2D([], [], color="0.4", marker="v", linestyle="none"),
    }
    if not all(chart.finished.all() for chart in charts):
        legend["not finished at the end"] = Patch(facecolor="0.6", edgecolor="white", hatch=UNFINISHED_HATCH)
    figure.legend(
        list(legend.values()), list(legend), loc="outside lower left", ncols=len(legend), fontsize=8, frameon=False
    )
    return figure


def _draw(axes: Axes, chart: Chart, span: float, lane_in: float) -> None:
    """One chart on a time axis of `span` s, its lanes about `lane_in` inches high."""
    schedule, lanes = chart.schedule, chart.lanes
    finished, stop, colours = chart.finished, chart.stop_s, np.array(chart.colours)
    for rows, hatch in ((finished, None), (~finished, UNFINISHED_HATCH)):
        bars = axes.barh(
            lanes[rows],
            (stop - schedule["start_s"])[rows],
            left=schedule["start_s"][rows],
            height=0.82,
            color=colours[rows],
            edgecolor="white",
            linewidth=0.5,
            hatch=hatch,
        )
        for bar, row in zip(bars, schedule[rows], strict=True):
            bar.set_gid(f"task-{row['workflow']}-{row['task']}")  # the id of its element in an SVG
    if lane_in >= NUMBERED_LANE_IN:
        for row, lane, until in zip(schedule, lanes, stop, strict=True):
            if until - row["start_s"] >= NUMBERED_SHARE * span:
                middle = (row["start_s"] + until) / 2
                box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8}
                axes.text(middle, lane, row["workflow"], ha="center", va="center", fontsize=7, bbox=box)
    workflow, arrival_s = chart.arrivals
    top = -0.5 - ARRIVALS_IN / lane_in
    axes.scatter(arrival_s, np.full(len(workflow), (top - 0.5) / 2), s=25, marker="v", color=colours_of(workflow))
    _label_servers(axes, chart, max(1, math.ceil(LABEL_IN / lane_in)))
    axes.set_xlim(0, span)
    axes.set_ylim(chart.cluster.num_places - 0.5, top)
    axes.set_ylabel("server")
    axes.grid(axis="x", color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(chart.title, loc="left", fontsize=11)


def to_rgb(figure: Figure) -> NDArray[np.uint8]:
    """The figure as an image (H, W, 3)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def film(figure: Figure, frames: int = FRAMES) -> list[Image.Image]:
    """Schedules as they come about: pictures from the beginning to the whole, in one palette.

    Args:
        figure: of `draw_gantts`.
        frames: how many, evenly spread over the time axis.
    """
    whole = to_rgb(figure)
    boxes = [axes.get_window_extent() for axes in figure.axes]
    first, last = round(boxes[0].x0), round(boxes[0].x1)
    palette = Image.fromarray(whole).quantize(PALETTE)
    pictures = []
    for now in np.linspace(first, last, frames).round().astype(int):
        image = whole.copy()
        for box in boxes if now < last else ():
            rows = slice(round(len(whole) - box.y1) + 1, round(len(whole) - box.y0))
            image[rows, now + 1 : last] = 255
            image[rows, now : now + 2] = 0
        pictures.append(Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE))
    return pictures


def save_film(pictures: Sequence[Image.Image], path: Path | BinaryIO) -> None:
    """Write pictures to a file as a GIF that shows the last picture for a while and loops."""
    first, *others = pictures
    waits = [FRAME_MS] * len(others) + [LAST_MS]
    first.save(path, format="GIF", save_all=True, append_images=others, duration=waits, loop=0)


def _label_servers(axes: Axes, chart: Chart, every: int) -> None:
    """Number every few servers, name the tiers on the right and set them apart by lines."""
    numbered = chart.numbered(every)
    axes.set_yticks(list(numbered.values()), labels=list(map(str, numbered)))
    axes.tick_params(labelsize=9)
    for label, first, end in chart.tiers:
        middle = (first + end - 1) / 2
        axes.text(1.01, middle, label, transform=axes.get_yaxis_transform(), va="center", fontsize=9)
        if end < chart.cluster.num_places:
            axes.axhline(end - 0.5, color="0.3", linewidth=0.9)
