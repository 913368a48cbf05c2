"""Figures: what they show, that matplotlib and plotly draw the same, and that nothing is cut off."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from rllib_scale_analysis.dashboard import charts
from rllib_scale_analysis.figures import draw, evaluation, style
from rllib_scale_analysis.figures.chart import Chart, Panel
from rllib_scale_analysis.load import variants
from rllib_scale_analysis.tables.methods import table3, table4

from artificial_results import LEVELS, SEEDS, artificial_episodes, episode_row, typed_episodes
from figure_checks import drawn_whole, named

Rows = list[dict[str, object]]


def looks(rows: pd.DataFrame) -> dict[str, style.Look]:
    return style.looks(rows, variants(rows))


def methods(rows: pd.DataFrame) -> Chart:
    return evaluation.methods(table3(rows), looks(rows))


def against_servers(rows: pd.DataFrame) -> Chart:
    return evaluation.against_servers(table4(rows), looks(rows))


def throughput(rows: pd.DataFrame) -> Chart:
    return evaluation.throughput(evaluation.seed_means(rows), looks(rows))


FIGURES = (methods, against_servers, throughput)


def many_methods() -> Rows:
    """Twelve variants, three of them a lambda grid, one of them without any completed task."""
    rows = artificial_episodes(seeds=SEEDS[:2], episodes=2)
    for weight in (0.1, 1.0):
        grid = artificial_episodes(seeds=SEEDS[:2], methods=("scale",), episodes=2)
        rows += [r | {"lambda_decorrelation": weight, "cell": f"{r['cell']}-{weight}"} for r in grid]
    nothing = artificial_episodes(methods=("ppo",), episodes=2)
    return rows + [
        r | {"method": "dqn", "cell": "dqn" + r["cell"], "completed": 0, "response_mean_s": math.nan} for r in nothing
    ]


CASES: dict[str, Rows] = {
    "sweep": artificial_episodes(episodes=2),
    "one seed": artificial_episodes(seeds=SEEDS[:1], episodes=2),
    "one scale": artificial_episodes(scales=(16,), episodes=2),
    "one row": [episode_row("scale", 1, 16, 0, response_mean_s=4.0, completed=8)],
    "heuristics": artificial_episodes(methods=tuple(LEVELS)[3:], episodes=2),
    "nothing completed": [episode_row("scale", 1, 16, e, response_mean_s=math.nan) for e in range(2)],
    "twelve": many_methods(),
    "empty": [],
}


@pytest.mark.parametrize("make", FIGURES)
@pytest.mark.parametrize(
    "case",
    [
        *("sweep", "one row", "twelve", "empty"),
        *(
            pytest.param(c, marks=pytest.mark.slow)
            for c in ("one seed", "one scale", "heuristics", "nothing completed")
        ),
    ],
)
def test_every_case_is_drawn_whole_and_not_blank(make: Callable[[pd.DataFrame], Chart], case: str) -> None:
    chart = make(typed_episodes(CASES[case]))
    pixels = drawn_whole(draw.draw(chart))
    assert 0.002 < (pixels[..., :3].min(axis=2) < 230).mean() < 0.6
    assert bool(charts.plot(chart).data) == bool(chart.panels)


@pytest.mark.parametrize("make", FIGURES)
def test_plotly_draws_the_points_of_the_chart(make: Callable[[pd.DataFrame], Chart]) -> None:
    chart = make(typed_episodes(CASES["sweep"]))
    for dark in (False, True):
        traces = charts.plot(chart, dark).data
        marks = [marks for panel in chart.panels for marks in panel.marks]
        assert len(traces) == len(marks)
        for trace, own in zip(traces, marks, strict=True):
            np.testing.assert_array_equal(np.asarray(trace.x, float), np.asarray(own.x, float))
            np.testing.assert_array_equal(np.asarray(trace.y, float), np.asarray(own.y, float))
        in_legend = [trace.name for trace in traces if trace.showlegend]
        assert len(in_legend) == len(set(in_legend)) == len({own.name for own in marks if own.name})


def test_a_figure_is_saved_as_svg_with_its_text_as_text_and_always_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.svg" for number in range(2)]
    for path in paths:
        draw.save(draw.draw(methods(typed_episodes(CASES["heuristics"]))), path)
    first, second = (path.read_text() for path in paths)
    assert first == second
    assert ">fastest-idle</text>" in first
    assert ">completed tasks</text>" in first


def test_a_figure_is_saved_as_png_of_200_dpi_and_nothing_else(tmp_path: Path) -> None:
    figure = draw.draw(methods(typed_episodes(CASES["heuristics"])))
    path = tmp_path / "figure.png"
    draw.save(figure, path)
    pixels = image.imread(path)
    width, height = figure.get_size_inches()
    assert pixels.shape[:2] == (round(height * 200), round(width * 200))
    assert pixels.std() > 0.05
    assert list(tmp_path.iterdir()) == [path]


def panel(chart: Chart, label: str) -> Panel:
    return next(one for one in chart.panels if label in (one.x_label, one.y_label))


def test_lines_hold_the_numbers_of_table4() -> None:
    episodes = typed_episodes(CASES["sweep"])
    table = table4(episodes)
    for label, metric in (("response (s)", "response_mean_s"), ("completed tasks per server", "completed")):
        lines = named(panel(against_servers(episodes), label))
        assert list(lines) == variants(episodes)
        for name, marks in lines.items():
            rows = table[table["variant"] == name]
            per = rows["test_servers"] if metric == "completed" else 1
            np.testing.assert_allclose(marks.y, (rows[metric] / per).to_numpy(float))
            np.testing.assert_allclose(np.log2(marks.x), np.log2(rows["test_servers"].to_numpy(float)), atol=0.11)


def test_an_error_bar_means_one_thing_and_rules_have_none() -> None:
    for case in ("sweep", "one seed"):
        rows = typed_episodes(CASES[case])
        chart = against_servers(rows)
        assert "Bars: 95 % interval over seeds" in chart.caption
        assert "standard deviation" not in chart.caption
        table = table4(rows)
        for name, marks in named(panel(chart, "response (s)")).items():
            own = table[table["variant"] == name]
            if looks(rows)[name].hollow:
                assert marks.low is None
            else:
                np.testing.assert_array_equal(marks.low, own["response_mean_s_low"])
        claimed = [m for p in chart.panels for m in p.marks if m.low is not None and np.isfinite(m.low).any()]
        assert bool(claimed) == (case == "sweep")


def test_no_line_joins_scales_of_different_numbers_of_episodes() -> None:
    rows = artificial_episodes(seeds=SEEDS[:1], methods=("scale",), episodes=3)
    rows = [r for r in rows if r["test_servers"] != 48 or r["episode"] < 2]
    chart = against_servers(typed_episodes(rows))
    pieces = [np.round(marks.x).tolist() for marks in panel(chart, "response (s)").marks]
    assert pieces == [[16, 32], [48], [128]]
    assert "Lines join scales with the same number of episodes." in chart.caption


def test_an_outcome_that_is_the_same_for_all_has_no_panel() -> None:
    rows = typed_episodes(r | {"completed": 9, "unfinished": 0} for r in CASES["sweep"])
    labels = [one.x_label for one in methods(rows).panels]
    assert labels == ["response (s)", "censored response (s)"]
    assert not throughput(rows).panels


def test_rows_hold_the_numbers_of_table3_and_the_paper() -> None:
    episodes = typed_episodes(CASES["sweep"])
    chart, table = methods(episodes), table3(episodes)
    metrics = ("completed", "unfinished", "response_mean_s", "response_censored_s")
    for one, metric in zip(chart.panels, metrics, strict=True):
        assert list(one.rows) == list(table["variant"])
        ours = [marks for marks in one.marks if marks.look is not evaluation.PAPER]
        np.testing.assert_allclose([float(np.asarray(marks.x)[0]) for marks in ours], table[metric])
        assert [int(marks.y[0]) for marks in ours] == list(range(len(table)))
    stated = chart.panels[0].marks[-1]
    np.testing.assert_array_equal(np.asarray(stated.x, float)[:3], [8.37, 8.10, 4.03])


def test_scatter_holds_a_panel_per_scale_with_means_and_seeds() -> None:
    episodes = typed_episodes(CASES["sweep"])
    chart = throughput(episodes)
    assert [one.title for one in chart.panels] == ["N = 16", "N = 32", "N = 48", "N = 128"]
    large = named(chart.panels[1])["scale"]
    row = table4(episodes).query("variant == 'scale' and test_servers == 32").iloc[0]
    assert (large.x[0], large.y[0]) == pytest.approx((row["completed"], row["response_mean_s"]))
    assert sorted(len(marks.x) for marks in chart.panels[1].marks)[-2:] == [5, 5]
    text = throughput(typed_episodes(CASES["twelve"])).caption
    assert "Without a point, as no task completed: dqn" in text


def test_captions_say_seeds_and_episodes() -> None:
    for case, said in (("sweep", "5 seeds of 2 episodes"), ("one seed", "1 seed of 2 episodes")):
        assert said in against_servers(typed_episodes(CASES[case])).caption


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
