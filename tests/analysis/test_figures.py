"""Figures: what they show, that matplotlib and plotly draw the same, and that nothing is cut off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from rllib_scale_analysis.dashboard import charts
from rllib_scale_analysis.figures import comparison, draw, evaluation, style
from rllib_scale_analysis.figures.chart import Chart, Panel
from rllib_scale_analysis.methods import METHODS as KNOWN
from rllib_scale_analysis.rows import variants
from rllib_scale_analysis.tables.comparisons import paired_table
from rllib_scale_analysis.tables.methods import table3, table4
from rllib_scale_analysis.tables.relative import against_base

from artificial_results import (
    SEEDS,
    artificial_episodes,
    as_in_the_paper,
    changed,
    episode_row,
    typed_episodes,
)
from figure_checks import drawn_whole, named
from rllib_scale.config import METHODS

Rows = list[dict[str, object]]


def looks(rows: pd.DataFrame) -> dict[str, style.Look]:
    return style.looks(rows, variants(rows))


PLOTTED: dict[str, Callable[[pd.DataFrame], Chart]] = {
    "methods": lambda rows: evaluation.methods(table3(rows), looks(rows)),
    "against servers": lambda rows: evaluation.against_servers(table4(rows), looks(rows)),
}
FIGURES = PLOTTED | {
    "differences": lambda rows: comparison.differences(paired_table(rows)),
    "against the base": lambda rows: comparison.against_base({"paper": against_base(rows)}, looks(rows)),
}


def chart_of(name: str, rows: Iterable[dict[str, object]] | pd.DataFrame) -> Chart:
    return FIGURES[name](rows if isinstance(rows, pd.DataFrame) else typed_episodes(rows))


def many_methods() -> Rows:
    """Twelve variants, three of them a lambda grid, one of them without any completed task."""
    rows = artificial_episodes(seeds=SEEDS[:2], episodes=2)
    for weight in (0.1, 1.0):
        grid = artificial_episodes(seeds=SEEDS[:2], methods=("scale",), episodes=2)
        rows += [changed(r, {"srr.lambda_decorrelation": weight}) for r in grid]
    nothing = artificial_episodes(methods=("ppo",), episodes=2)
    return rows + [r | {"method": "dqn", "completed": 0, "response_mean_s": math.nan} for r in nothing]


CASES: dict[str, Rows] = {
    "sweep": as_in_the_paper(artificial_episodes(episodes=3)),
    "twelve": many_methods(),
    "one row": [episode_row("scale", 1, 16, 0, response_mean_s=4.0, completed=8)],
    "no value": [episode_row("scale", 1, 16, 0, decisions=None, response_mean_s=math.nan, utilisation_large=math.nan)],
    "empty": [],
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_drawn_whole_and_not_blank(name: str, case: str) -> None:
    chart = chart_of(name, CASES[case])
    assert bool(charts.plot(chart).data) == bool(chart.panels)
    assert chart.panels or (case != "sweep" and chart.caption)
    if chart.panels:
        assert (drawn_whole(draw.draw(chart))[..., :3].min(axis=2) < 230).mean() > 0.002


def widened(table: pd.DataFrame) -> pd.DataFrame:
    """The table with one absurd interval of each metric."""
    ends = {f"_{end}": value for end, value in (("low", -1e6), ("high", 1e6))}
    table = table.copy()
    for column in [c for c in table if str(c).endswith(tuple(ends)) and table[c].notna().any()]:
        table.loc[table[column].first_valid_index(), column] = ends[str(column)[str(column).rindex("_") :]]
    return table


WIDENED: dict[str, Callable[[pd.DataFrame], Chart]] = {
    "methods": lambda rows: evaluation.methods(widened(table3(rows)), looks(rows)),
    "against servers": lambda rows: evaluation.against_servers(widened(table4(rows)), looks(rows)),
    "few servers": lambda rows: evaluation.against_servers(
        widened(table4(rows).query("test_servers < 48")), looks(rows)
    ),
    "differences": lambda rows: comparison.differences(widened(paired_table(rows))),
    "forest": lambda rows: comparison.forest(
        {"paper": (widened(paired_table(rows)), "completed")}, {"paper": dict.fromkeys(rows["variant"], 10.0)}
    ),
    "against the base": lambda rows: comparison.against_base({"paper": widened(against_base(rows))}, looks(rows)),
}


@pytest.mark.parametrize("name", WIDENED)
def test_one_very_wide_interval_never_sets_the_axis(name: str) -> None:
    chart = WIDENED[name](typed_episodes(CASES["sweep"]))
    plotted, figure = charts.plot(chart), draw.draw(chart)
    wide = 0
    for number, (panel, axes) in enumerate(zip(chart.panels, figure.axes, strict=False)):
        low, high = axes.get_xlim() if panel.rows else axes.get_ylim()
        assert high - low < 1e5, panel
        is_wide = any(np.any(np.asarray(m.high, float) > 1e5) for m in panel.marks if m.low is not None)
        wide += is_wide
        axis = plotted.layout[f"{'x' if panel.rows else 'y'}axis{number + 1 if number else ''}"]
        assert not is_wide or axis.range == pytest.approx((low, high))
    assert wide, "the absurd interval is in the picture"


def test_up_to_three_numbers_of_servers_are_points_in_rows_not_an_axis_with_nothing_in_between() -> None:
    rows = typed_episodes(CASES["sweep"])
    for scales in ((16,), (16, 48), (16, 32, 48)):
        few = rows[rows["test_servers"].isin(scales)]
        for chart in (chart_of("against servers", few), chart_of("against the base", few)):
            assert chart.panels
            for one in chart.panels:
                assert not one.scales
                assert list(one.rows)
                assert list(named(one)) == [f"N = {n}" for n in scales]
    table = table4(few)
    one = panel(chart_of("against servers", few), "response of completed")
    for name, marks in named(one).items():
        own = table[table["test_servers"] == int(name.removeprefix("N = "))]
        assert dict(zip(np.round(marks.y).astype(int), marks.x, strict=True)) == pytest.approx(
            {
                one.rows.index(variant): value
                for variant, value in zip(own["variant"], own["response_mean_s"], strict=True)
            }
        )


@pytest.mark.parametrize("name", PLOTTED)
def test_plotly_draws_the_points_of_the_chart(name: str) -> None:
    chart = chart_of(name, CASES["sweep"])
    traces = charts.plot(chart).data
    marks = [marks for panel in chart.panels for marks in panel.marks]
    for trace, own in zip(traces, marks, strict=True):
        np.testing.assert_array_equal(np.asarray(trace.x, float), np.asarray(own.x, float))
        np.testing.assert_array_equal(np.asarray(trace.y, float), np.asarray(own.y, float))
    in_legend = [trace.name for trace in traces if trace.showlegend]
    assert len(in_legend) == len(set(in_legend)) == len({own.name for own in marks if own.name})


def test_a_figure_is_saved_as_svg_with_its_text_as_text_always_the_same_and_as_png_of_200_dpi(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("0.svg", "1.svg", "figure.png")]
    for path in paths:
        figure = draw.draw(chart_of("methods", CASES["sweep"]))
        draw.save(figure, path)
    first, second = (path.read_text() for path in paths[:2])
    assert first == second
    assert ">fastest-idle</text>" in first
    assert ">completed tasks</text>" in first.replace("</tspan>", "</text>")
    assert ">(higher is better)</text>" in first.replace("</tspan>", "</text>")
    width, height = figure.get_size_inches()
    pixels = image.imread(paths[2])
    assert pixels.shape[:2] == (round(height * 200), round(width * 200))
    assert sorted(tmp_path.iterdir()) == paths


def panel(chart: Chart, label: str) -> Panel:
    return next(one for one in chart.panels if label in (one.x_label.split("\n")[0], one.y_label.split("\n")[0]))


def test_lines_hold_the_numbers_of_table4_and_rules_have_no_error_bar() -> None:
    episodes = typed_episodes(CASES["sweep"])
    table, chart = table4(episodes), chart_of("against servers", episodes)
    for label, metric in (("response of completed", "response_mean_s"), ("completed per server", "completed")):
        lines = named(panel(chart, label))
        assert list(lines) == variants(episodes)
        for name, marks in lines.items():
            rows = table[table["variant"] == name]
            per = rows["test_servers"] if metric == "completed" else 1
            np.testing.assert_allclose(marks.y, (rows[metric] / per).to_numpy(float))
            np.testing.assert_allclose(np.log2(marks.x), np.log2(rows["test_servers"].to_numpy(float)), atol=0.11)
            if looks(episodes)[name].hollow:
                assert marks.low is None
            else:
                np.testing.assert_allclose(marks.low, (rows[f"{metric}_low"] / per).to_numpy(float))
    assert "5 seeds of 3 episodes" in chart.caption
    assert "Bars: 95 % interval over seeds" in chart.caption


def test_one_seed_claims_no_interval() -> None:
    chart = chart_of("against servers", artificial_episodes(seeds=SEEDS[:1], methods=("scale",), episodes=3))
    assert all(np.isnan(np.asarray(marks.low, float)).all() for one in chart.panels for marks in one.marks)


def test_an_outcome_that_is_the_same_for_all_has_no_panel() -> None:
    rows = typed_episodes(r | {"completed": 9, "unfinished": 0} for r in CASES["sweep"])
    labels = [one.x_label.replace("\n", " ").partition(" (lower")[0] for one in chart_of("methods", rows).panels]
    assert labels == ["response of completed tasks (s)", "mean response of all tasks that arrived (s)"]
    same = rows.assign(response_censored_s=rows["response_mean_s"])
    assert len(chart_of("methods", same).panels) == 1, "nothing is drawn twice"
    assert not chart_of("methods", artificial_episodes(methods=("scale",), episodes=2)).panels, "nothing to compare"


def test_rows_hold_the_numbers_of_table3_and_the_paper() -> None:
    episodes = typed_episodes(CASES["sweep"])
    chart, table = chart_of("methods", episodes), table3(episodes)
    metrics = ("completed", "response_mean_s", "response_censored_s")
    for one, metric in zip(chart.panels, metrics, strict=True):
        assert list(one.rows) == list(table["variant"])
        ours = [marks for marks in one.marks if marks.look is not evaluation.PAPER]
        np.testing.assert_allclose([float(np.asarray(marks.x)[0]) for marks in ours], table[metric])
        assert [int(marks.y[0]) for marks in ours] == list(range(len(table)))
    stated = chart.panels[0].marks[-1]
    np.testing.assert_array_equal(np.asarray(stated.x, float)[:3], [8.37, 8.10, 4.03])


def test_against_few_servers_the_best_at_the_fewest_comes_first_by_the_metric_that_ranks() -> None:
    rows = typed_episodes(CASES["sweep"])
    few = rows[rows["test_servers"].isin((16, 48))]
    table = table4(few)
    chart = evaluation.against_servers(table, looks(few), by="response_censored_s")
    at_16 = table[table["test_servers"] == 16].sort_values("response_censored_s")
    assert list(chart.panels[0].rows or ()) == list(at_16["variant"])
    most = evaluation.against_servers(table, looks(few), by="completed").panels[0].rows or ()
    assert list(most) == list(table[table["test_servers"] == 16].sort_values("completed", ascending=False)["variant"])


def test_the_papers_means_stand_at_the_papers_scales() -> None:
    response = panel(chart_of("against servers", CASES["sweep"]), "response of completed")
    stated = [marks for marks in response.marks if marks.look.hollow and not marks.look.line and len(marks.x)]
    assert [list(marks.y) for marks in stated] == [[4.58, 5.57, 6.22], [4.65, 5.70, 6.83], [4.37]]
    assert list(stated[0].x) == [16, 32, 48]


def test_a_method_keeps_its_colour_and_its_variants_are_shades_of_it() -> None:
    everyone, grid = typed_episodes(CASES["sweep"]), typed_episodes(CASES["twelve"])
    alone = everyone[everyone["variant"] == "crossattn"]
    colour = style.looks(alone, ["crossattn"])["crossattn"].colour
    assert looks(everyone)["crossattn"].colour == colour
    of = looks(grid)
    assert len({(look.colour, look.marker) for look in of.values()}) == len(of) == 12
    assert len({look.colour for name, look in of.items() if name.startswith("scale")}) == 3
    assert {look.line for name, look in of.items() if name in ("scale (λ1=1)", "crossattn")} == {"-"}
    assert of["large-only"].line == "--"
    assert of["large-only"].hollow
    assert set(METHODS) <= set(KNOWN)
    colours = [colour for colour, _ in KNOWN.values()] + list(style.SPARE_COLOURS)
    assert len(set(colours)) == len(colours), "every method has a colour that no other has"
