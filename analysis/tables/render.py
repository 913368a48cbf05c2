"""Tables as HTML, CSV, LaTeX and on a terminal. All of them print numbers by `format_value`.

A table is a pandas DataFrame whose statistics share a stem: `completed` is a mean, `completed_sd` its standard
deviation, `completed_low` and `completed_high` its interval, `completed_verdict` the outcome of its test,
`completed_p_adjusted` the p-value behind that, `completed_better` a probability, and `seeds_note` a remark. They are
printed as one cell, "8.37 ± 2.15 [7.90, 8.84]"; CSV keeps these columns in full precision.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..labels import direction, label

SUFFIXES = ("_sd", "_low", "_high", "_verdict", "_note", "_p_adjusted", "_better")
NAME_WIDTH = 28
"""Longer names wrap on a terminal."""
_BEHIND_SIGNS = re.compile(r"(?<=[,;=:/_(])|(?<=[.-])(?!\d)")
HEADING_WIDTH = 12
"""Width of a column's heading there; longer words are on their own line."""

DECIMALS = 2
FEATURE_DECIMALS = 3
"""For statistics of the attention feature, as in [SCALE, Table 5]."""
MISSING = "–"  # noqa: RUF001 (an en dash)

LATEX = str.maketrans({"±": r"$\pm$", "λ": r"$\lambda$", "²": "$^2$", MISSING: "--", "<": "$<$", ">": "$>$"})
"""Signs that pandas leaves as they are."""
OPTIONAL_COLUMNS = (
    *("paper_completed", "paper_response_mean_s", "without_response", "above_bound_percent"),
    *("paper_feature_covariance", "paper_feature_kl"),
)
SHOWN_IF_ANY = ("unfinished", "invalid_share")
"""Printed only where one of their values is not 0."""
TEXT_COLUMNS = (
    "variant",
    "question",
    "observability",
    "trained",
    "first",
    "second",
    "scenario",
    "mask",
    "decision",
    "worst_in",
    "drift",
    "measure",
    "servers",
)


def format_value(value: object, decimals: int = DECIMALS) -> str:
    """One value as it is printed everywhere: integers whole, other numbers with `decimals`, missing as "–".

    >>> format_value(4.578), format_value(30), format_value(-0.001), format_value(float("nan"))
    ('4.58', '30', '0.00', '–')
    """
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def format_p(value: float) -> str:
    """A p-value: three decimals, or one digit where these would all be 0.

    >>> format_p(0.0312), format_p(0.00002), format_p(0.0), format_p(float("nan"))
    ('0.031', '2e-05', '0.000', '–')
    """
    return f"{value:.0e}" if 0 < value < 0.001 else format_value(value, 3)


def format_field(value: object, column: str) -> str:
    """One value of a column: p-values by `format_p`, others by `format_value`."""
    if column.endswith("_p_adjusted") and isinstance(value, float):
        return format_p(value)
    is_feature = column.removeprefix("paper_").startswith(("feature_", "drift_"))
    return format_value(value, FEATURE_DECIMALS if is_feature else DECIMALS)


def stems(table: pd.DataFrame) -> list[str]:
    """The columns that are printed: those that are no part of another cell; optional ones if they have values.

    Of SHOWN_IF_ANY those with a value that is not 0.
    """
    columns = [str(column) for column in table.columns]
    taken = {c for c in columns for suffix in SUFFIXES if c.endswith(suffix) and c.removesuffix(suffix) in columns}
    unused = {c for c in OPTIONAL_COLUMNS if c in columns and table[c].isna().all()}
    unused |= {c for c in SHOWN_IF_ANY if c in columns and (table[c] == 0).all()}
    return [c for c in columns if c not in taken and c not in unused]


def cell_lines(row: Mapping[Any, Any] | pd.Series, stem: str) -> list[str]:
    """The lines of a printed cell: "mean ± sd"; if there is an interval, "[low, high]" and the verdict."""
    value, sd, low, high, verdict, note, p, better = (
        format_field(row.get(stem + suffix), stem + suffix) for suffix in ("", *SUFFIXES)
    )
    if note in ("fixed", "rules"):
        return [note]  # in place of no seeds
    lines = [value + ("" if sd == MISSING else f" ± {sd}") + ("" if note == MISSING else f", {note}")]
    if low != MISSING:
        lines.append(f"[{low}, {high}]")
        if verdict != MISSING:
            lines.append(verdict + ("" if p == MISSING else f", p {p}"))
        if better != MISSING:
            lines.append(f"P {better}")
    return lines


def to_csv(table: pd.DataFrame) -> str:
    """CSV text in full precision; missing values are empty."""
    return table.to_csv(index=False)


def to_latex(table: pd.DataFrame) -> str:
    """A LaTeX tabular, with the rules of booktabs."""
    columns = stems(table)
    rows = [[" ".join(cell_lines(row, column)) for column in columns] for row in table.to_dict("records")]
    printed = pd.DataFrame(rows, columns=[label(column) for column in columns])
    places = "".join("l" if column in TEXT_COLUMNS else "r" for column in columns)
    text = printed.to_latex(index=False, escape=True, column_format=places).translate(LATEX)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)


def to_html(table: pd.DataFrame) -> str:
    """An HTML table; the lines below a mean are small."""
    columns = stems(table)
    kind = {column: ' class="text"' if column in TEXT_COLUMNS else "" for column in columns}
    long = {column for column in TEXT_COLUMNS if column in columns and _longest(table[column]) > NAME_WIDTH}
    kind |= dict.fromkeys(long, ' class="text long"')
    out = ["<table>\n<thead><tr>"]
    better = {c: f" <small>{direction(c)}</small>" if direction(c) else "" for c in columns}
    out += [f'<th scope="col"{kind[c]}>{html.escape(label(c))}{better[c]}</th>' for c in columns]
    out.append("</tr></thead>\n<tbody>\n")
    for row in table.to_dict("records"):
        out.append("<tr>")
        for column in columns:
            first, *others = (html.escape(line) for line in cell_lines(row, column))
            if column in long:
                first = _BEHIND_SIGNS.sub("<wbr>", first)
            out.append(f"<td{kind[column]}>{first}{''.join(f' <small>{line}</small>' for line in others)}</td>")
        out.append("</tr>\n")
    return "".join([*out, "</tbody>\n</table>"])


def to_terminal(table: pd.DataFrame, title: str, columns: Sequence[str], width: int) -> tuple[Group, list[str]]:
    """A titled table of the first columns that fit a terminal, and the headings of those left out.

    Args:
        table: the table.
        title: printed above it.
        columns: that may be shown; the first always is.
        width: of the terminal, in characters. No number is cut off or wrapped.
    """
    printed = [column for column in columns if column in stems(table)]
    shown = list(printed)
    wide = Console(width=10_000)
    while len(shown) > 1 and wide.measure(_rich_table(table, shown)).maximum > width:
        shown.pop()
    left_out = [label(column) for column in printed[len(shown) :]]
    return Group(Text(title, style="bold"), _rich_table(table, shown)), left_out


def wrapped(name: str, width: int = NAME_WIDTH) -> str:
    """A name in lines of at most so many characters: broken at spaces, long words behind signs, never in a number.

    >>> wrapped("scale (algorithm.learning_rate=0.0003, λ2=0.01)", 20).splitlines()
    ['scale (algorithm.', 'learning_rate=', '0.0003, λ2=0.01)']
    """
    lines = [""]
    for word in re.findall(r"\S+\s*", name):
        for part in _BEHIND_SIGNS.split(word) if len(word.rstrip()) > width else [word]:
            if lines[-1] and len((lines[-1] + part).rstrip()) > width:
                lines.append("")
            lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def _longest(values: pd.Series) -> int:
    return max((len(str(value)) for value in values), default=0)


def _rich_table(rows: pd.DataFrame, columns: Sequence[str]) -> Table:
    rich_table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        is_text = column in TEXT_COLUMNS
        how: dict[str, Any] = {"max_width": NAME_WIDTH, "overflow": "fold"} if is_text else {"no_wrap": True}
        heading = [*textwrap.wrap(label(column), HEADING_WIDTH), *direction(column).rsplit(maxsplit=1)]
        rich_table.add_column("\n".join(heading), justify="left" if is_text else "right", **how)
    for row in rows.to_dict("records"):
        cells = {column: "\n".join(cell_lines(row, column)) for column in columns}
        rich_table.add_row(*(Text(wrapped(cell) if name in TEXT_COLUMNS else cell) for name, cell in cells.items()))
    return rich_table
