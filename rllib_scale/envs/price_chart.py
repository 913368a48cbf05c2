"""The prices of `context-price` over one episode, with the load that they follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SIZE_IN = (11.0, 7.5)
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
"""Of Okabe and Ito's palette."""


def draw_prices(clock_s: np.ndarray, panels: Sequence[tuple[str, Mapping[str, np.ndarray]]], title: str = "") -> Figure:
    """Panels one above the other on one time axis, each with lines that hold their value until the next event.

    Args:
        clock_s: (E,) when the events were [s].
        panels: label of the vertical axis, and name of each line -> its values (E,).
        title: above the first panel.
    """
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(len(panels), sharex=True))
    for ax, (label, lines) in zip(axes, panels, strict=True):
        for (name, values), colour in zip(lines.items(), COLOURS * len(lines), strict=False):
            ax.step(clock_s, values, where="post", label=name, color=colour, linewidth=1.2)
        ax.set_ylabel(label)
        ax.grid(alpha=0.25)
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes[0].set_title(title)
    axes[-1].set_xlabel("time (s)")
    return figure
