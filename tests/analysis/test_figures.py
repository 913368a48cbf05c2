"""Figures: what they show, that they are drawn, and that nothing is cut off."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from rllib_scale_analysis.figures import evaluation as figures
from rllib_scale_analysis.figures import style
from rllib_scale_analysis.load import variants
from rllib_scale_analysis.tables.methods import table3, table4

from artificial_results import LEVELS, SEEDS, artificial_episodes, episode_row, typed_episodes
from figure_checks import caption, drawn_whole
from rllib_scale.errors import UserError

EVALUATION_FIGURES = (figures.against_servers, figures.method_bars, figures.throughput_against_response)


def many_methods() -> list[dict[str, object]]:
    """Twelve variants, three of them a lambda grid, one of them without any completed task."""
    rows = artificial_episodes(seeds=SEEDS[:2], episodes=2)
    for weight in (0.1, 1.0):
        grid = artificial_episodes(seeds=SEEDS[:2], methods=("scale",), episodes=2)
        rows += [r | {"lambda_decorrelation": weight, "cell": f"{r['cell']}-{weight}"} for r in grid]
    nothing = artificial_episodes(methods=("ppo",), episodes=2)
    return rows + [
        r | {"method": "dqn", "cell": "dqn" + r["cell"], "completed": 0, "response_mean_s": math.nan} for r in nothing
    ]


CASES = {
    "sweep": artificial_episodes(episodes=2),
    "one seed": artificial_episodes(seeds=SEEDS[:1], episodes=2),
    "one scale": artificial_episodes(scales=(16,), episodes=2),
    "one row": [episode_row("scale", 1, 16, 0, response_mean_s=4.0, completed=8)],
    "heuristics": artificial_episodes(methods=tuple(LEVELS)[3:], episodes=2),
    "nothing completed": [episode_row("scale", 1, 16, e, response_mean_s=math.nan) for e in range(2)],
    "twelve": many_methods(),
    "empty": [],
}


@pytest.mark.parametrize("draw", EVALUATION_FIGURES)
@pytest.mark.parametrize("case", CASES)
def test_every_case_is_drawn_whole_and_not_blank(draw, case: str) -> None:
    pixels = drawn_whole(draw(typed_episodes(CASES[case])))
    assert 0.002 < (pixels[..., :3].min(axis=2) < 230).mean() < 0.6


def test_a_figure_is_saved_as_svg_with_its_text_as_text_and_always_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.svg" for number in range(2)]
    for path in paths:
        figures.save(figures.method_bars(typed_episodes(CASES["heuristics"])), path)
    first, second = (path.read_text() for path in paths)
    assert first == second
    assert ">fastest-idle</text>" in first
    assert ">completed tasks</text>" in first


def test_a_figure_is_saved_as_png_of_200_dpi_and_nothing_else(tmp_path: Path) -> None:
    figure = figures.method_bars(typed_episodes(CASES["heuristics"]))
    path = tmp_path / "figure.png"
    figures.save(figure, path)
    pixels = image.imread(path)
    width, height = figure.get_size_inches()
    assert pixels.shape[:2] == (round(height * 200), round(width * 200))
    assert pixels.std() > 0.05
    assert list(tmp_path.iterdir()) == [path]


def test_lines_hold_the_numbers_of_table4() -> None:
    episodes = typed_episodes(CASES["sweep"])
    figure = figures.against_servers(episodes)
    table = table4(episodes)
    for axes, metric in zip(figure.axes, ("response_mean_s", "completed"), strict=True):
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert list(lines) == variants(episodes)
        for name, line in lines.items():
            rows = table[table["variant"] == name]
            per = rows["test_servers"] if metric == "completed" else 1
            np.testing.assert_allclose(line.get_ydata(), (rows[metric] / per).to_numpy(float))
            np.testing.assert_allclose(
                np.log2(line.get_xdata()), np.log2(rows["test_servers"].to_numpy(float)), atol=0.1
            )


def test_bars_hold_the_numbers_of_table3_and_the_paper() -> None:
    episodes = typed_episodes(CASES["sweep"])
    figure = figures.method_bars(episodes)
    table = table3(episodes)
    metrics = ("completed", "unfinished", "response_mean_s", "response_censored_s")
    for axes, metric in zip(figure.axes, metrics, strict=True):
        np.testing.assert_allclose([bar.get_width() for bar in axes.patches], table[metric])
    diamonds = [line for line in figure.axes[0].get_lines() if line.get_marker() == "D"]
    np.testing.assert_array_equal(diamonds[0].get_xdata()[:3], [8.37, 8.10, 4.03])
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == list(table["variant"])


def test_scatter_holds_a_panel_per_scale_with_means_and_seeds() -> None:
    episodes = typed_episodes(CASES["sweep"])
    figure = figures.throughput_against_response(episodes)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["N = 16", "N = 32", "N = 48", "N = 128"]
    lines = figure.axes[1].get_lines()
    large = next(line for line in lines if line.get_label() == "scale")
    row = table4(episodes).query("variant == 'scale' and test_servers == 32").iloc[0]
    assert (large.get_xdata()[0], large.get_ydata()[0]) == (row["completed"], row["response_mean_s"])
    assert sorted(len(line.get_xdata()) for line in lines)[-2:] == [5, 5]


def test_captions_say_seeds_episodes_and_what_the_band_is() -> None:
    for case, said in (("sweep", "5 seeds of 2 episodes"), ("one seed", "1 seed of 2 episodes")):
        text = caption(figures.against_servers(typed_episodes(CASES[case])))
        assert said in text
        assert ("95 % interval over seeds" in text) == (case == "sweep")
        assert ("standard deviation over the episodes" in text) == (case == "one seed")
    assert "Fewer than 5 seeds: no interval" in caption(figures.method_bars(typed_episodes(CASES["one seed"])))
    text = caption(figures.throughput_against_response(typed_episodes(CASES["twelve"])))
    assert "Without a point, as no task completed: dqn" in text


def test_bands_give_way_to_bars_where_many_would_cover_each_other() -> None:
    few = figures.against_servers(typed_episodes(CASES["sweep"])).axes[0]
    rules = figures.against_servers(typed_episodes(CASES["heuristics"])).axes[0]
    band, bar = mpl.collections.FillBetweenPolyCollection, mpl.collections.LineCollection
    assert sum(isinstance(c, band) for c in few.collections) == 2  # scale and crossattn; ppo has one scale
    assert sum(isinstance(c, bar) for c in few.collections) == 1
    assert sum(isinstance(c, band) for c in rules.collections) == 0
    assert sum(isinstance(c, bar) for c in rules.collections) == 6


@pytest.mark.parametrize("draw", EVALUATION_FIGURES)
def test_a_figure_refuses_mixed_settings(draw) -> None:
    episodes = typed_episodes(CASES["one seed"])
    with pytest.raises(UserError, match="mixes masks"):
        draw(pd.concat([episodes, episodes.assign(mask="feasible")]))


def test_a_method_keeps_its_colour_and_its_variants_are_shades_of_it() -> None:
    everyone, grid = typed_episodes(CASES["sweep"]), typed_episodes(CASES["twelve"])
    alone = everyone[everyone["variant"] == "crossattn"]
    colour = style.looks(alone, ["crossattn"])["crossattn"].colour
    assert style.looks(everyone, variants(everyone))["crossattn"].colour == colour
    looks = style.looks(grid, variants(grid))
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(looks) == 12
    assert len({look.colour for name, look in looks.items() if name.startswith("scale")}) == 3
    assert {look.line for name, look in looks.items() if name in ("scale (λ1=1)", "crossattn")} == {"-"}
    assert looks["large-only"].line == "--"
