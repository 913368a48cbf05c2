"""Figures 3 to 6: the numbers of our tables and the paper's beside them, drawn whole."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from rllib_scale_analysis.figures import paper_figures
from rllib_scale_analysis.tables.methods import table3, table4

from artificial_results import SEEDS, artificial_episodes, artificial_training, typed_episodes, typed_training
from figure_checks import caption, drawn_whole
from rllib_scale.errors import UserError

EPISODES = typed_episodes(artificial_episodes(episodes=3))


def bars(figure: Figure) -> dict[str, dict[str, float]]:
    """Tick label -> {"ours": height, "paper": height}."""
    axes = figure.axes[0]
    found: dict[str, dict[str, float]] = {label.get_text(): {} for label in axes.get_xticklabels()}
    for bar in axes.patches:
        middle = bar.get_x() + bar.get_width() / 2
        name = axes.get_xticklabels()[round(middle)].get_text()
        found[name]["paper" if bar.get_hatch() else "ours"] = bar.get_height()
    return found


@pytest.mark.parametrize(
    ("draw", "metric", "papers"),
    [
        (paper_figures.figure3, "completed", [8.37, 8.10, 5.93, 4.03, 4.30, 4.00]),
        (paper_figures.figure4, "response_mean_s", [4.58, 4.65, 4.50, 4.37, 4.45, 4.88]),
    ],
)
def test_bars_are_table3_beside_the_paper(draw, metric: str, papers: list[float]) -> None:
    figure = draw(EPISODES)
    drawn_whole(figure)
    drawn = bars(figure)
    assert list(drawn) == ["scale", "crossattn", "sac", "ppo", "ppo-srr", "dqn"]
    assert [values["paper"] for values in drawn.values()] == papers
    ours = table3(EPISODES).set_index("variant")[metric]
    assert {name: values["ours"] for name, values in drawn.items() if "ours" in values} == pytest.approx(
        {name: ours[name] for name in ("scale", "crossattn", "ppo")}
    )
    assert "Not among these results: sac, ppo-srr, dqn." in caption(figure)
    printed = {text.get_text() for text in figure.axes[0].texts}
    assert printed >= {f"{value:.2f}" for value in [*papers, ours["scale"]]}


def test_response_against_servers_shows_ours_and_the_papers_at_the_papers_scales() -> None:
    figure = paper_figures.figure5(EPISODES)
    drawn_whole(figure)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert list(lines["the paper's scale"].get_ydata()) == [4.58, 5.57, 6.22]
    assert list(lines["the paper's crossattn"].get_ydata()) == [4.65, 5.70, 6.83]
    table = table4(EPISODES)
    for name in ("scale", "crossattn"):
        own = table[(table["variant"] == name) & table["test_servers"].isin([16, 32, 48])]
        np.testing.assert_allclose(lines[name].get_ydata(), own["response_mean_s"])
        assert list(lines[name].get_xdata()) == [16, 32, 48]
    assert "ppo" not in lines


def test_training_curves_of_the_papers_methods_alone() -> None:
    rows = artificial_training(epochs=10)
    grid = [r | {"lambda_kl": 0.1, "cell": r["cell"] + "-grid"} for r in rows if r["method"] == "scale"]
    figure = paper_figures.figure6(typed_training(rows + grid))
    drawn_whole(figure)
    thick = {line.get_label() for line in figure.axes[0].get_lines() if line.get_linewidth() > 2}
    assert thick == {"scale (λ2=0.001)", "crossattn", "ppo"}
    assert sum(line.get_linewidth() < 1 for line in figure.axes[0].get_lines()) == 3 * len(SEEDS)


def test_of_several_trainings_the_longest_counts() -> None:
    rows = artificial_episodes(methods=("scale",), scales=(16,), episodes=2)
    longer = [r | {"epochs": 1000, "cell": r["cell"] + "-long", "completed": 1} for r in rows]
    episodes = typed_episodes(longer + rows)
    assert paper_figures.papers_variants(episodes) == {"scale": "scale (1000 epochs)"}
    assert bars(paper_figures.figure3(episodes))["scale"]["ours"] == 1


@pytest.mark.parametrize("draw", [paper_figures.figure3, paper_figures.figure4, paper_figures.figure5])
def test_only_the_papers_setting_is_taken(draw) -> None:
    with pytest.raises(UserError, match="not of the paper's setting: scenario paper, mask none, decision argmax"):
        draw(EPISODES.assign(mask="feasible"))
    for rows in (EPISODES.iloc[:0], EPISODES[EPISODES["kind"] == "heuristic"]):
        assert "none of the" in draw(rows).axes[0].texts[0].get_text()


def test_one_seed_and_a_missing_value_are_drawn() -> None:
    one = artificial_episodes(seeds=SEEDS[:1], scales=(16,), methods=("scale", "ppo"), episodes=1)
    episodes = typed_episodes([r | ({"response_mean_s": np.nan} if r["method"] == "ppo" else {}) for r in one])
    figure = paper_figures.figure4(episodes)
    drawn_whole(figure)
    assert np.isnan(bars(figure)["ppo"]["ours"])
    assert "Thick" not in caption(figure)
