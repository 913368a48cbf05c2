"""The first lines of a report: ties, the measure that its first figure ranks by, what failed, and the next steps."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console
from rllib_scale_analysis.load import load
from rllib_scale_analysis.report.overview import next_steps, remarks
from rllib_scale_analysis.report.sections import glance, sections
from rllib_scale_analysis.report.summary import best_lines
from rllib_scale_analysis.report.terminal import print_report
from rllib_scale_analysis.tables.methods import table3
from rllib_scale_analysis.tables.relative import against_base

from artificial_results import episode_row, typed_episodes, write_folder


def rule(name: str, level: float, **values: Any) -> list[dict[str, Any]]:
    """Three rows of a rule that completes all tasks."""
    outcome = {"completed": 10, "arrived": 10, "decisions": 10, "response_mean_s": level, "response_censored_s": level}
    return [episode_row(name, None, 16, e, **(outcome | values)) for e in range(3)]


def test_of_two_equal_methods_neither_is_the_best() -> None:
    episodes = typed_episodes([*rule("price", 4.0), *rule("heft", 4.0), *rule("fastest-idle", 5.0)])
    first, *_ = best_lines(table3(episodes), 16, "completed", against_base(episodes))
    assert first.startswith("On 16 servers heft and price have the lowest mean response"), first


def test_the_first_figure_shows_the_measure_of_the_verdict(tmp_path: Path) -> None:
    """Where all tasks complete, both responses are equal: the one that the verdict names is plotted."""
    rows = [*rule("price", 4.0, scenario="steady-0.7"), *rule("fastest-idle", 5.0, scenario="steady-0.7")]
    content = list(sections(load(write_folder(tmp_path / "results", rows, []))))
    assert "lowest mean response of all tasks" in content[0].best[0]
    shown = [panel.x_label for figure in glance(content) if "methods" in figure.name for panel in figure.chart.panels]
    assert [label.startswith("mean response of all tasks") for label in shown] == [True], shown


def test_a_note_is_no_failure_and_the_next_step_names_the_problem(tmp_path: Path) -> None:
    seeds = ({}, {"eval_seed": 7})
    rows = [
        row
        for seed in seeds
        for name, level in (("price", 4.0), ("fastest-idle", 5.0))
        for row in rule(name, level, scenario="steady-0.7", **seed)
    ]
    results = load(write_folder(tmp_path / "results", rows, []))
    assert list(remarks(results)) == ["Notes on the rows"], remarks(results)
    console = Console(width=200, file=io.StringIO())
    print_report(results, console)
    assert "Failed" not in console.file.getvalue()  # type: ignore[attr-defined]
    steps = dict(next_steps(results, list(sections(results))))
    said = "rllib-scale evaluate price fastest-idle --scenario steady-0.7 --scales 16 --workload FILE.json"
    assert steps["Compare schedulers on your own workload"] == said
