"""Charts as data. `draw` draws them with matplotlib, `dashboard.charts` with plotly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..stats.intervals import COVERAGE
from .style import OTHERS, Look

INTERVAL = f"Bars: 95 % interval over seeds of a learned method, from 5 seeds on ({COVERAGE})."
"""What an error bar means in every figure of single methods."""


@dataclass(frozen=True, eq=False)
class Marks:
    """The marks of one variant, or of one of its seeds, in a panel.

    Attributes:
        x, y: (P,) coordinates; on a panel with rows y is the row's number from the top.
        look: colour, marker and line; points alone without a line.
        name: its entry in the legend, which lists each name once; none if empty.
        low, high: (P,) ends of intervals, along x on a panel with rows, else along y.
        thin: whether it is one of several seeds beside their mean or median.
        size: of markers; 1 is the usual size.
        hover: (P,) texts that the dashboard shows under the pointer.
    """

    x: Any
    y: Any
    look: Look
    name: str = ""
    low: Any = None
    high: Any = None
    thin: bool = False
    size: float = 1.0
    hover: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Grid:
    """A heat map of numbers, NaN left blank, with `texts` in its cells."""

    values: pd.DataFrame
    texts: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes:
        rows: labels of rows from the top, in place of a vertical axis.
        scales: numbers of servers N on a logarithmic horizontal axis.
        zero: "x" or "y": the axis on which 0 is marked.
        grid: a heat map in place of marks.
    """

    marks: Sequence[Marks] = ()
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    rows: Sequence[str] = ()
    scales: Sequence[int] = ()
    zero: str = ""
    log_y: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    grid: Grid | None = None


@dataclass(frozen=True, eq=False)
class Chart:
    """Panels in rows of `columns`, a legend above and a caption below. Without panels the caption gives the reason."""

    panels: Sequence[Panel] = ()
    caption: str = ""
    columns: int = 2


def count_range(counts: pd.Series, noun: str) -> str:
    """'5 seeds', or '3 to 5 seeds' where the counts differ."""
    low, high = int(counts.min()), int(counts.max())
    return f"{low if low == high else f'{low} to {high}'} {noun}{'' if high == 1 else 's'}"


def counts(table: pd.DataFrame) -> str:
    """The numbers of seeds and episodes behind a table of variants, as a sentence."""
    rules = table["seeds_note"].isin(["rule", "rules"])
    parts = []
    for rows, name in ((table[~rules], "Learned methods"), (table[rules], "rules")):
        if len(rows):
            seeds = f"{count_range(rows['seeds'], 'seed')} of " if name == "Learned methods" else ""
            parts.append(f"{name}: {seeds}{count_range(rows['episodes'], 'episode')}")
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]}."


def shifted(scales: Sequence[int], count: int) -> np.ndarray:
    """Factors (count,) that move points aside from their N so that they do not cover each other."""
    gap = float(min(np.diff(np.log2(sorted(scales))), default=1.0))
    width = min(0.03, 0.3 * gap / count) if len(scales) > 1 else 0.7 / count
    return 2.0 ** (width * (np.arange(count) - (count - 1) / 2))


def in_grey(lines: pd.DataFrame, count: int) -> Marks:
    """Lines (x, variant) of the `count` variants that are not told apart, in one trace with gaps."""
    along = np.tile([*lines.index, np.nan], lines.shape[1])
    values = np.vstack([lines.to_numpy(float), np.full(lines.shape[1], np.nan)]).T.ravel()
    return Marks(along, values, OTHERS, f"{count} others", thin=True)


def varies(table: pd.DataFrame, metric: str) -> bool:
    """Whether a metric differs among the rows of a table: a panel of one value or of constants is left out."""
    values = table[metric].dropna().astype(float) if metric in table else pd.Series(dtype=float)
    return len(values) > 1 and not np.isclose(values, values.iloc[0], rtol=1e-9).all()
