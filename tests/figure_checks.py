"""What a figure must pass: every text whole, no label over another."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rllib_scale_analysis.figures.chart import Marks, Panel


def drawn_whole(figure: Figure) -> np.ndarray:
    """The pixels of the figure, once every text lies within it and no tick label of an axis overlaps the next."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    undrawn = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = axis.get_major_ticks()
        drawn = [tick.label1 for tick in ticks if axis.axes.axison and low <= tick.get_loc() <= high]
        undrawn |= {tick.label1 for tick in ticks} - set(drawn)
        boxes = [label.get_window_extent(renderer) for label in drawn if label.get_visible() and label.get_text()]
        for one, following in itertools.pairwise(boxes):
            assert not one.overlaps(following), [label.get_text() for label in drawn]
    whole = figure.bbox.padded(1)
    for text in set(figure.findobj(mpl.text.Text)) - undrawn:
        if text.get_visible() and text.get_text().strip():
            box = text.get_window_extent(renderer)
            assert whole.contains(*box.min), text.get_text()
            assert whole.contains(*box.max), text.get_text()
    return np.asarray(canvas.buffer_rgba())


def named(panel: Panel) -> dict[str, Marks]:
    """The marks of a panel that are in its legend, by their names."""
    return {marks.name: marks for marks in panel.marks if marks.name}
