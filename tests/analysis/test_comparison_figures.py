"""Figures that compare: colours are verdicts, the better side is the right one, ranks share ties."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rllib_scale_analysis.dashboard import charts
from rllib_scale_analysis.figures import comparison, draw
from rllib_scale_analysis.tables.comparisons import paired_table
from rllib_scale_analysis.tables.methods import table4

from artificial_results import artificial_episodes, episode_row, typed_episodes
from figure_checks import drawn_whole, named

METRIC = "response_censored_s"


@pytest.fixture(scope="module")
def episodes() -> pd.DataFrame:
    return typed_episodes(artificial_episodes())


@pytest.fixture(scope="module")
def paired(episodes: pd.DataFrame) -> pd.DataFrame:
    table = paired_table(episodes)
    return table[table["test_servers"] == 16].reset_index(drop=True)


def test_differences_hold_the_table_per_server_in_the_colour_of_the_verdict(paired: pd.DataFrame) -> None:
    chart = comparison.differences(paired)
    assert [
        panel.x_label.replace("\n", " ").partition(" (left")[0].partition(" (right")[0] for panel in chart.panels
    ] == [
        "completed per server",
        "response of completed tasks (s)",
        "mean response of all tasks that arrived (s)",
    ]
    for panel, metric, per in zip(chart.panels, ("completed", "response_mean_s", METRIC), (16, 1, 1), strict=True):
        assert len(panel.rows) == len(paired)
        found = {}
        for side, marks in named(panel).items():
            for row, value in zip(np.asarray(marks.y), np.asarray(marks.x), strict=True):
                found[int(row)] = (side, value)
        for row, verdict in enumerate(paired[f"{metric}_verdict"]):
            side, value = found[row]
            assert value == pytest.approx(paired[metric][row] / per)
            first_is_better = verdict == ("higher" if metric == "completed" else "lower")
            decided = verdict in ("lower", "higher")
            assert side == ("undecided" if not decided else f"{'first' if first_is_better else 'second'} is better")
    assert {*paired["completed_verdict"], *paired[f"{METRIC}_verdict"]} >= {"lower", "undecided"}


def test_the_forest_is_better_to_the_right_whatever_the_endpoint(paired: pd.DataFrame, episodes: pd.DataFrame) -> None:
    means = table4(episodes).query("test_servers == 16").set_index("variant")
    for metric, sign in (("completed", 1), (METRIC, -1)):
        chart = comparison.forest({"paper": (paired, metric)}, {"paper": means[metric].to_dict()})
        drawn_whole(draw.draw(chart))
        assert charts.plot(chart).data
        assert [panel.title for panel in chart.panels] == [
            "Does SRR help?",
            "Does learning beat the rule?",
            "Which learned method is better?",
        ]
        own = paired[paired["question"] == "rule"].reset_index(drop=True)
        for marks in chart.panels[1].marks:
            for row, value, low, high in zip(marks.y, marks.x, marks.low, marks.high, strict=True):
                expected = sign * 100 * own[metric][row] / means[metric]["fastest-idle"]
                assert value == pytest.approx(expected)
                assert low <= value <= high
                assert (value > 0) == (marks.name == "first is better") or marks.name == "undecided"
    ties = paired.assign(**dict.fromkeys((METRIC, f"{METRIC}_low", f"{METRIC}_high"), 0.0))
    tied = comparison.forest({"paper": (ties, METRIC)}, {"paper": means[METRIC].to_dict()})
    drawn_whole(draw.draw(tied))
    assert {panel.x_range for panel in tied.panels} == {(-1.0, 1.0)}, "trainings that are equal"
    few = paired.assign(**{f"{METRIC}_low": np.nan})
    assert not comparison.forest({"paper": (few, METRIC)}, {"paper": means[METRIC].to_dict()}).panels


def test_ranks_share_ties_and_leave_what_was_not_played_blank() -> None:
    values = {"scale": 3.0, "large-only": 2.0, "fastest-idle": 2.0, "heft": 9.0}
    rows = [episode_row(n, 1 if n == "scale" else None, 16, 0, response_censored_s=v) for n, v in values.items()]
    table = table4(typed_episodes(rows))
    fewer = table[table["variant"] != "heft"].assign(completed=[1.0, 5.0, 3.0])
    chart = comparison.ranks({"a": (table, METRIC), "b": (fewer, "completed")})
    drawn_whole(draw.draw(chart))
    grid = chart.panels[0].grid
    assert grid is not None
    found = grid.texts
    assert found["a"].to_dict() == {"large-only": "1", "fastest-idle": "1", "scale": "3", "heft": "4"}
    best = {str(name): rank for name, rank in found["b"].items()}
    assert sorted(rank for name, rank in best.items() if name != "heft") == ["1", "2", "3"]
    assert best["heft"] == ""


@pytest.mark.parametrize("count", [2, 7, 12])
def test_ranks_of_any_number_of_settings_with_long_names_are_drawn_whole(count: int) -> None:
    rows = [episode_row(n, None, 16, 0, response_censored_s=v) for n, v in {"lmetric:gate=1": 3.0, "gate": 2.0}.items()]
    table, common = table4(typed_episodes(rows)), "service.trace=kv-cache-tester-350.jsonl.gz#sha256=b0dd9c4a6a77e3ee"
    names = [f"agents-replicas with {common}; service.part=test; service.sessions={live}" for live in range(count)]
    for labels in (names, [f"scenario-{number} with {'x' * 90}={number}" for number in range(count)]):
        chart = comparison.ranks({name: (table, METRIC) for name in labels})
        figure = draw.draw(chart)
        with warnings.catch_warnings(action="error"):
            FigureCanvasAgg(figure).draw()
        inside = figure.axes[0].get_window_extent()
        assert inside.width > 150
        assert inside.height > 20 * len(table)
    columns = list(comparison.ranks({name: (table, METRIC) for name in names}).panels[0].grid.values)  # type: ignore[union-attr]
    assert columns == [f"agents-replicas with service.sessions={live}" for live in range(count)]
    assert common in comparison.ranks({name: (table, METRIC) for name in names}).caption
