"""Output of the command line: tables, JSON and lines of progress."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

JSON = "rllib_scale.json"


def _make_writable() -> None:
    """Discard output to a closed stream, and print a question mark for a character that the encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


_make_writable()
# Without emoji: rich would replace `:loop:` in `agent.py:loop:`.
console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`: the command prints its table as JSON, alone on stdout, and lines of progress on stderr."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[JSON] = value

    option = click.option(
        "--json", is_flag=True, expose_value=False, callback=note, help="Print JSON in place of the table."
    )
    return option(command)


def show(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str | Callable[[Any], Any]],
    title: str = "",
    content: Any = None,
    caption: str = "",
) -> None:
    """Print rows as a table, or with `--json` as JSON, in which numbers that are not finite are null.

    Args:
        rows: plain data.
        columns: heading -> a key of the rows, or a function of a row; floats have three
            decimals, or three digits below 1.
        title: above the table.
        content: what `--json` prints; the rows by default.
        caption: below the table.
    """
    if wants_json():
        print(json.dumps(_plain(rows if content is None else content), indent=2, allow_nan=False))
        return
    table = Table(
        title=escape(title) or None,
        title_justify="left",
        caption=escape(caption) or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    shown = [[_cell(row.get(key) if isinstance(key, str) else key(row)) for row in rows] for key in columns.values()]
    widest = [max(map(len, (heading, *cells))) for heading, cells in zip(columns, shown, strict=True)]
    is_wide = sum(widest) + 3 * len(columns) > console.width
    numbers = [all(cell[:1] in set("+-0123456789") for cell in cells) for cells in shown]
    headings, taken = _broken(columns, shown, numbers, words=True) if is_wide else (list(columns), 0)
    if is_wide and not numbers[0]:  # numbers in a name stay whole, too: it is broken behind a comma or a colon
        room = console.width - taken
        if room < max((len(part) for cell in shown[0] for part in _PARTS.split(cell)), default=0):
            headings, taken = _broken(columns, shown, numbers, words=False)
        shown[0] = [_folded(cell, console.width - taken) for cell in shown[0]]
    for position, heading in enumerate(headings):
        is_whole = position == 0 or (numbers[position] and is_wide)
        justify: JustifyMethod = "right" if numbers[position] else "left"
        cells = [line for cell in shown[position] for line in cell.split("\n")] if is_whole else [""]
        widest_cell = max(map(len, cells), default=0)
        table.add_column(heading, justify=justify, no_wrap=is_whole, overflow="fold", min_width=widest_cell)
    for line in zip(*shown, strict=True):
        table.add_row(*line)
    console.print(table)


def _broken(
    columns: Iterable[str], shown: Sequence[Sequence[str]], numbers: Sequence[bool], words: bool
) -> tuple[list[str], int]:
    """Headings of columns of numbers in lines as short as these, and as `words`; and what all but the first need."""
    headings, taken = list[str](), 0
    for heading, cells, is_number in zip(columns, shown, numbers, strict=True):
        if is_number:  # numbers stay whole: only their heading is broken
            heading = textwrap.fill(heading, max(7, *map(len, [*(heading.split() if words else ()), *cells])))
        widest = max(map(len, (*heading.split("\n"), *cells)))
        taken += 3 + (widest if is_number else min(widest, TEXT_WIDTH)) if headings else 0
        headings.append(heading)
    return headings, taken


TEXT_WIDTH = 24
"""Least width of a column of text."""
_PARTS = re.compile(r"(?<=[,:])")


def _folded(text: str, width: int) -> str:
    """Lines of at most this width, where commas and colons allow it.

    >>> print(_folded("lmetric:gate=1,order=3,active_for_s=160", 24))
    lmetric:gate=1,order=3,
    active_for_s=160
    """
    lines = [""]
    for part in _PARTS.split(text):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part if lines[-1] else part.lstrip()
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if not math.isfinite(value) else f"{value:.3f}" if abs(value) >= 1 else f"{value:.3g}"
    return "" if value is None else escape(str(value))


def wants_json() -> bool:
    """Whether the running command has the option `--json`."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(JSON))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(line: str) -> None:
    """Print a line of progress and flush it."""
    if wants_json():
        errors.print(line, markup=False)
        return
    console.print(line, markup=False, soft_wrap=True)
    sys.stdout.flush()
