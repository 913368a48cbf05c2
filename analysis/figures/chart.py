"""Charts as data. `draw` draws them with matplotlib, `dashboard.charts` with plotly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..stats.intervals import COVERAGE
from .style import OTHERS, Look

INTERVAL = f"Bars: 95 % interval over seeds of a learned method, from 5 seeds on ({COVERAGE}). Long ones are cut."
"""Explanation of error bars in figures of single methods."""


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

    @property
    def ranges(self) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
        """Ends of the axes x and y; None where the points decide. Long intervals leave the picture, see `span`."""
        own = None if self.grid is not None or self.log_y else span(self.marks, bool(self.rows))
        return self.x_range or (own if self.rows else None), self.y_range or (None if self.rows else own)


@dataclass(frozen=True, eq=False)
class Chart:
    """Panels in rows of `columns`, a legend above and a caption below. Without panels the caption gives the reason."""

    panels: Sequence[Panel] = ()
    caption: str = ""
    columns: int = 2


def span(marks: Sequence[Marks], in_rows: bool) -> tuple[float, float] | None:
    """Ends of the axis of values, which no single wide interval sets; None without intervals.

    All points and 0 where it is near are on it. An interval reaches beyond the points by their range, or by the median
    width of an interval if that is more.
    """
    every = [one for one in marks if one.low is not None]
    if not every:
        return None
    points = np.concatenate([np.asarray(one.x if in_rows else one.y, float) for one in marks])
    low, high = (np.concatenate([np.asarray(getattr(one, end), float) for one in every]) for end in ("low", "high"))
    known = np.isfinite(low) & np.isfinite(high)
    if not known.any() or not np.isfinite(points).any():
        return None
    first, last = float(np.nanmin(points)), float(np.nanmax(points))
    widths = np.sort(high[known] - low[known])
    room = max(last - first, float(widths[(len(widths) - 1) // 2]))
    start, end = max(first - room, min(first, low[known].min())), min(last + room, max(last, high[known].max()))
    pad = 0.05 * (end - start)
    return (start - pad, end + pad) if pad > 0 else None


MOST_IN_ROWS = 3
"""With so few numbers of servers a line against N would say nothing between them: each is a point of its own."""
AT_SCALES = (Look("#0072B2", "o", ""), Look("#D55E00", "s", ""), Look("#009E73", "^", ""))


def in_rows(
    table: pd.DataFrame, names: Sequence[str], column: str, ends: Sequence[str], hover: Sequence[str] = ()
) -> list[Marks]:
    """A row for each variant with a point for each of a few numbers of servers, which have a colour each.

    Args:
        table: rows of variant and test_servers.
        names: of the rows, from the top.
        column: what is shown.
        ends: columns of the interval's ends; none if empty.
        hover: texts of the table's rows.
    """
    scales = sorted({int(n) for n in table["test_servers"]})
    texts = pd.Series(list(hover), table.index) if len(hover) else None
    found = []
    for position, (scale, look) in enumerate(zip(scales, AT_SCALES, strict=False)):
        rows = table[(table["test_servers"] == scale) & table["variant"].isin(names)]
        at = rows["variant"].map(list(names).index).to_numpy(float) + 0.22 * (position - (len(scales) - 1) / 2)
        low, high = (rows[end] for end in ends) if ends else (None, None)
        said = [] if texts is None else list(texts[rows.index])
        found.append(Marks(rows[column], at, look, f"N = {scale}", low=low, high=high, hover=said))
    return found


def low_to_high(values: pd.Series) -> str:
    """'5', or '3 to 5' where values differ."""
    low, high = values.min(), values.max()
    return "unknown" if pd.isna(low) else f"{int(low)}" if low == high else f"{int(low)} to {int(high)}"


def count_range(counts: pd.Series, noun: str) -> str:
    """'5 seeds', or '3 to 5 seeds' where the counts differ."""
    return f"{low_to_high(counts)} {noun}{'' if counts.max() == 1 else 's'}"


def counts(table: pd.DataFrame) -> str:
    """The numbers of seeds and episodes behind a table of variants, as a sentence."""
    rules = table["seeds_note"].isin(["fixed", "rules"])
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
