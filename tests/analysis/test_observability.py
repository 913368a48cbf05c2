"""What methods are told: a column of every ranking, and a line where it is not the same for all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rllib_scale_analysis.load import load
from rllib_scale_analysis.report.summary import best_lines
from rllib_scale_analysis.report.terminal import print_report
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.rows import observability_note
from rllib_scale_analysis.tables.methods import table3, table4
from rllib_scale_analysis.tables.relative import against_base

from artificial_results import episode_row, typed_episodes, write_folder
from parsed_html import Parsed

NOTE = "The methods do not all observe the same: heft: clairvoyant; the others: waiting tasks."


def rule(name: str, level: float, **values: Any) -> list[dict[str, Any]]:
    """Three rows of a rule."""
    outcome = {"completed": 10, "arrived": 10, "decisions": 10, "response_mean_s": level, "response_censored_s": level}
    return [episode_row(name, None, 16, e, **(outcome | values)) for e in range(3)]


MIXED = [*rule("heft", 4.0), *rule("fastest-idle", 5.0), *rule("price", 4.5)]


@pytest.mark.parametrize("make", [table3, table4])
def test_a_ranking_has_a_column_and_a_line_where_it_mixes(make: Any) -> None:
    table = make(typed_episodes(MIXED))
    assert dict(zip(table["variant"], table["observability"], strict=True)) == {
        "heft": "clairvoyant",
        "price": "waiting tasks",
        "fastest-idle": "waiting tasks",
    }
    assert observability_note(table) == NOTE
    assert observability_note(make(typed_episodes(MIXED[3:]))) is None


def test_who_is_best_is_said_beside_the_base_rule_and_who_observes_something_else() -> None:
    episodes = typed_episodes(MIXED)
    first, note = best_lines(table3(episodes), 16, "completed", against_base(episodes))
    said = "On 16 servers heft has the lowest mean response of all tasks that arrived, 4.00 s: 20.0 % less than "
    assert first.startswith(f"{said}fastest-idle on the same 3 episodes"), "all complete as many tasks"
    assert note == NOTE
    assert best_lines(table3(typed_episodes(MIXED[:3])), 16, "completed", against_base(episodes)) == []


def test_page_and_terminal_say_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "results", MIXED, [])
    page = Parsed(write_report(folder).read_text())
    assert page.text.count(NOTE) >= 3  # in the summary, under Table 3 and under Table 4
    assert "clairvoyant" in page.within("td")
    console = Console(width=200, file=io.StringIO())
    print_report(load(folder), console)
    under = console.file.getvalue().partition("Table 3")[2]
    assert "observes" in under.partition(NOTE)[0]
    assert NOTE in under
