"""The style of every figure: one palette, a fixed colour and marker per method, text legible at half width."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from ..methods import METHODS

DPI = 200
MOST_LARGE = 12
"""Entries of a legend in large letters."""
CELLS = "cividis"
"""Colour map of heat maps; colour-blind readers can distinguish it."""
SPARE_COLOURS = ("#CC6677", "#AA4499", "#225555", "#BB5566", "#666633", "#7F5FBF")
MOST_SHADES = 4
"""With more variants a method's shades cannot be distinguished: each variant has a colour of its own."""
VARIANT_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#882255", "#999933", "#332288", "#44AA99", "#A6761D", "#666666"),
)
MARKERS = "os^DvPX<>ph*d8"
RC: dict[Any, Any] = {
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.labelsize": 12,
    "legend.fontsize": 11,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 7,
    "hatch.linewidth": 0.6,
}
SVG_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rllib-scale",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],  # Verdana's letters are as wide
}


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of one variant; a rule's markers are hollow."""

    colour: str
    marker: str
    line: str
    hollow: bool = False


OTHERS = Look("#9AA0A8", "o", "-")
"""Look of variants beyond those with a look of their own."""


def looks(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, Look]:
    """Variant -> Look. A method has the same colour in every figure; a few variants are lighter shades of it.

    Args:
        frame: rows with variant, method and, if rules are among them, kind.
        names: the variants, in the order of `load.variants`.
    """
    firsts = frame.drop_duplicates("variant")
    method_of = dict(zip(firsts["variant"], firsts["method"], strict=True))
    heuristics = set(firsts.loc[firsts["kind"] == "heuristic", "variant"]) if "kind" in firsts else set()
    result: dict[str, Look] = {}
    for name in names:
        method = str(method_of[name])
        siblings = [n for n in names if method_of[n] == method]
        position = siblings.index(name)
        spare = zlib.crc32(method.encode())
        colour, marker = METHODS.get(method, (SPARE_COLOURS[spare % len(SPARE_COLOURS)], MARKERS[spare % len(MARKERS)]))
        shade = 0.65 * position / max(1, len(siblings) - 1)
        red, green, blue = (1 - (1 - part) * (1 - shade) for part in mpl.colors.to_rgb(colour))
        if len(siblings) > MOST_SHADES and name not in heuristics:
            red, green, blue = mpl.colors.to_rgb(VARIANT_COLOURS[len(result) % len(VARIANT_COLOURS)])
        if position:
            marker = MARKERS[(MARKERS.index(marker) + position) % len(MARKERS)]
        result[name] = Look(
            mpl.colors.to_hex((red, green, blue)), marker, "--" if name in heuristics else "-", name in heuristics
        )
    return result


def caption_text(width: float, text: str) -> str:
    """A caption in lines that fit into a figure of this width [inch]."""
    return textwrap.fill(text, int(width * 12.5))


def caption(figure: Figure, text: str) -> None:
    """Write a caption under the axes, wrapped to the figure's width."""
    figure.supxlabel(caption_text(figure.get_figwidth(), text), fontsize=10, x=0.02, ha="left", color="0.25")


def legend_columns(width: float, labels: Sequence[str]) -> int:
    """Number of columns of a legend that its longest entry allows in a figure of this width [inch]."""
    longest = max((len(label) for label in labels), default=0)
    letters = 11 if len(labels) <= MOST_LARGE else 14
    return max(1, min(len(labels), int(width * letters / (longest + 6))))


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend above the axes."""
    columns = legend_columns(figure.get_figwidth(), labels)
    size = 11 if len(labels) <= MOST_LARGE else 8.5
    how: dict[str, Any] = {"ncols": columns, "columnspacing": 1.2, "handlelength": 2.2, "fontsize": size}
    figure.legend(handles, labels, loc="outside upper left", **how)
