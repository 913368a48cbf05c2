"""One number, one text: page, LaTeX and terminal, for results that were really played."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rllib_scale_analysis import load
from rllib_scale_analysis import settings as settings_of
from rllib_scale_analysis.load import Results, select
from rllib_scale_analysis.report.sections import NamedTable, sections
from rllib_scale_analysis.report.terminal import TABLE3_SHOWN, print_report
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.tables import methods as tables
from rllib_scale_analysis.tables import render

from parsed_html import Parsed
from played_results import play_folder

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-\d+)?(?![\w.])")


def numbers(text: str) -> list[str]:
    return sorted(NUMBER.findall(text))


def page_cells(named: NamedTable) -> str:
    return " ".join(Parsed(render.to_html(named.table)).within("td"))


def check_tables(found: Results) -> None:
    """The rows of each table, without its headings, hold the same numbers in every form."""
    named_tables = [named for section in sections(found) for named in section.tables]
    assert {named.name.split("-")[0] for named in named_tables} >= {"table3", "table4", "table5", "paired"}
    for named in named_tables:
        console = Console(width=100_000, file=io.StringIO(), color_system=None)
        terminal, left_out = render.to_terminal(named.table, "title", render.stems(named.table), console.width)
        assert left_out == []
        console.print(terminal)
        latex = render.to_latex(named.table).replace("$-$", "-").split(r"\midrule")[1]
        expected = numbers(page_cells(named))
        assert numbers(latex) == numbers(re.split("─{3,}", console.file.getvalue())[-1]) == expected


def check_terminal(found: Results, report: Path) -> None:
    """The report on a terminal holds numbers of the page alone, and all of the tables it shows."""
    console = Console(width=1000, file=io.StringIO(), color_system=None)
    print_report(found, console)
    said = set(numbers(console.file.getvalue()))
    counts = re.search(r"All tables \((\d+)\) and figures \((\d+)\)", console.file.getvalue())
    assert counts is not None
    on_page = set(numbers(Parsed(report.read_text(encoding="utf-8")).text))
    assert said <= on_page | set(counts.groups()) | {"95", "4"}  # of the sentence on intervals, and "Table 4"
    rows = select(found.episodes, *settings_of(found.episodes)[0])
    table3 = tables.table3(rows, tables.training_scales(rows)[0])
    shown = [f"{c}{end}" for c in TABLE3_SHOWN for end in ("", *render.SUFFIXES) if f"{c}{end}" in table3]
    assert set(numbers(page_cells(NamedTable("", "", table3[shown], "")))) <= said


def test_on_results_that_were_really_played(tmp_path: Path) -> None:
    evaluation = {"scales": [16, 32], "episodes": 2, "heuristics": ["fastest-idle"]}
    play_folder(tmp_path / "r", methods=["scale", "crossattn"], seeds=[1, 2, 3, 4, 5], evaluation=evaluation)
    found = load(tmp_path / "r")
    check_tables(found)
    check_terminal(found, write_report(tmp_path / "r"))
