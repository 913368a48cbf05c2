"""The report on a terminal: its summary and the main tables of the first setting, on about two screens."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.text import Text

from ..load import Results
from ..rows import observability_note
from ..tables import render
from ..tables.methods import BOUND, HEADLINE
from .live import sections
from .overview import five_lines, remarks
from .sections import NamedFigure, NamedTable, Section

TABLE3_SHOWN = (
    *("variant", *HEADLINE, "completed", "response_mean_s", "paper_completed", "paper_response_mean_s"),
    *(BOUND, "seeds"),
)
"""Columns of Table 3; the first ones are kept if not all fit."""
SHOWN = {"table3": TABLE3_SHOWN, "table4": ("test_servers", *TABLE3_SHOWN)}
"""Columns shown of the tables that a sweep may be about; of others all are shown."""
HOW_TO_READ = (
    "mean ± standard deviation over the episodes of a seed, [95 % interval over seeds]. JCT: job completion time of a "
    "workflow. In the mean over all tasks that arrived, a task that is not done counts up to the end of the episode; "
    "the response of completed tasks leaves it out, and is lower for a policy that completes less."
)


def print_report(results: Results, console: Console, content: list[Section] | None = None) -> None:
    """Print the summary and the main tables in the console's width; `report.write_report` writes the rest.

    Args:
        results: of a folder.
        console: to print on.
        content: the sections of the report, if they were made already.
    """
    content = list(sections(results)) if content is None else content
    for line in five_lines(content):
        console.print(Text(f"- {line}"))
    for heading, lines in remarks(results).items():
        console.print(Text(f"\n{heading}", style="bold"))
        for line in lines:
            console.print(Text(f"- {line}"))
    how = HOW_TO_READ
    section = next((section for section in content if section.tables), Section("", ""))
    kind = section.main_kind(results.sweep)
    if any(named.name.startswith(f"{kind}-") for named in section.tables):
        main = section.table(kind)
        how = how if kind in SHOWN else main.how
        note = observability_note(main.shown) if "observability" in main.shown else None
        shown = SHOWN.get(kind) or tuple(map(str, main.shown.columns))
        _print_table(console, main.shown, main.title, shown if note is None else (*shown, "observability"))
        if note is not None:
            console.print(Text(note, style="dim"))
    elif section.tables:  # of a family of problems
        how, table = section.tables[0].how, section.tables[0].shown
        _print_table(console, table, section.tables[0].title, tuple(map(str, table.columns)))
    console.print()
    if section.note:
        console.print(Text(section.note, style="dim"))
    if section.tables:
        console.print(Text(f"How to read: {how}", style="dim"))
    counts = [
        sum(isinstance(item, kind) for one in content for item in one.items) for kind in (NamedTable, NamedFigure)
    ]
    console.print(Text("All tables ({}) and figures ({}) of all settings: report.html.".format(*counts)))


def _print_table(console: Console, table: pd.DataFrame, title: str, columns: tuple[str, ...]) -> None:
    shown, left_out = render.to_terminal(table, title, columns, console.width)
    console.print()
    console.print(shown, crop=False)
    if left_out:
        console.print(Text(f"Left out here, in the CSV: {', '.join(left_out)}.", style="dim"))
