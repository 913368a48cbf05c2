"""The report on a terminal: its summary and the main tables of the first setting, on about two screens."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.text import Text

from ..load import Results
from ..rows import observability_note
from ..tables import render
from ..tables.methods import BOUND
from .overview import five_lines, missing
from .sections import NamedFigure, NamedTable, Section, sections

TABLE3_SHOWN = (
    *("variant", "completed", "response_mean_s", "response_censored_s", "paper_completed", "paper_response_mean_s"),
    *(BOUND, "seeds"),
)
"""Columns of Table 3; the first ones are kept if not all fit."""
BY_SERVERS = {"response_mean_s": "response (s)", "completed": "completed tasks"}
HOW_TO_READ = (
    "mean ± standard deviation over the episodes of a seed, [95 % interval over seeds]. A response covers completed "
    "tasks alone, the censored one every arrived task: a policy that completes less shows a lower response."
)


def print_report(results: Results, console: Console, content: list[Section] | None = None) -> None:
    """Print the summary and the main tables in the console's width; `report.write_report` writes the rest.

    Args:
        results: of a folder.
        console: to print on.
        content: the sections of the report, if they were made already.
    """
    content = list(sections(results)) if content is None else content
    for line in five_lines(results, content):
        console.print(Text(f"- {line}"))
    if lines := missing(results, content):
        console.print(Text("\nFailed or missing", style="bold"))
        for line in lines:
            console.print(Text(f"- {line}"))
    section = next((section for section in content if section.tables), Section("", ""))
    of_kind = {named.name.partition("-")[0]: named for named in reversed(section.tables)}
    if "table3" in of_kind:
        note = observability_note(of_kind["table3"].shown)
        shown = TABLE3_SHOWN if note is None else (*TABLE3_SHOWN, "observability")
        _print_table(console, of_kind["table3"].shown, of_kind["table3"].title, shown)
        if note is not None:
            console.print(Text(note, style="dim"))
    if "table4" in of_kind:
        for metric, name in BY_SERVERS.items():
            table = by_servers(of_kind["table4"].shown, metric)
            if len(table.columns) > 2:
                _print_table(console, table, f"Table 4: {name} against the number of servers", tuple(table.columns))
    console.print()
    if section.note:
        console.print(Text(section.note, style="dim"))
    if section.tables:
        console.print(Text(f"How to read: {HOW_TO_READ}", style="dim"))
    counts = [
        sum(isinstance(item, kind) for one in content for item in one.items) for kind in (NamedTable, NamedFigure)
    ]
    console.print(Text("All tables ({}) and figures ({}) of all settings: report.html.".format(*counts)))


def by_servers(table4: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means of one metric: a row for each variant, a column "N=16" for each number of servers."""
    names = list(dict.fromkeys(table4["variant"]))
    wide = table4.pivot(index="variant", columns="test_servers", values=metric).reindex(names)
    wide.columns = pd.Index([f"N={servers}" for servers in wide.columns])
    return wide.reset_index()


def _print_table(console: Console, table: pd.DataFrame, title: str, columns: tuple[str, ...]) -> None:
    shown, left_out = render.to_terminal(table, title, columns, console.width)
    console.print()
    console.print(shown, crop=False)
    if left_out:
        console.print(Text(f"Left out here, in the CSV: {', '.join(left_out)}.", style="dim"))
