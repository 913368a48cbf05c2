"""The report on a terminal: short, whole, and it says where the rest is."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rllib_scale_analysis import load
from rllib_scale_analysis.report.overview import five_lines
from rllib_scale_analysis.report.sections import NamedTable, sections
from rllib_scale_analysis.report.terminal import print_report
from rllib_scale_analysis.rows import MOST_SHOWN

from artificial_results import artificial_episodes, artificial_training, changed, write_folder


def printed(folder: Path, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_report(load(folder), console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_about_two_screens_and_wraps_no_table(results_folder: Path, width: int) -> None:
    lines = printed(results_folder, width).splitlines()
    assert len(lines) <= 110
    assert max(map(len, lines)) <= width
    left_out = [line for line in lines if line.startswith("Left out here, in the CSV: ")]
    assert len(left_out) == (width < 100)


def test_of_many_settings_it_shows_the_lines_of_the_page_and_the_tables_of_the_first(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1, 2), scales=(16, 32), episodes=1)
    others = [row | {"scenario": f"steady-{n}", "mask": "feasible"} for n in range(3) for row in rows]
    folder = write_folder(tmp_path / "r", [*rows, *others], artificial_training((1, 2), epochs=3))
    text = printed(folder, 10_000)
    content = list(sections(load(folder)))
    assert [line[2:] for line in text.splitlines() if line.startswith("- ")] == five_lines(content)
    assert text.count("Table 3") == 1
    items = [item for section in content for item in section.items]
    tables = sum(isinstance(item, NamedTable) for item in items)
    assert f"All tables ({tables}) and figures ({len(items) - tables}) of all settings: report.html." in text


def test_of_many_variants_the_best_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=1)
    grid = [changed(row, {"srr.lambda_kl": n / 100}) for n in range(30) for row in rows]
    text = printed(write_folder(tmp_path / "r", grid, []))
    assert len(re.findall(r"^scale \(λ2=", text.split("Table 3")[1], re.MULTILINE)) == MOST_SHOWN
    assert f"Shown are the {MOST_SHOWN} best of 30 learned variants" in text
