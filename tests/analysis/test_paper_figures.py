"""Figure 5: the numbers of our table and the paper's beside them, drawn whole."""

from __future__ import annotations

import numpy as np
from rllib_scale_analysis.figures import draw, evaluation
from rllib_scale_analysis.tables.methods import table4

from artificial_results import artificial_episodes, typed_episodes
from figure_checks import drawn_whole, named

EPISODES = typed_episodes(artificial_episodes(episodes=3))


def test_response_against_servers_shows_ours_and_the_papers_at_the_papers_scales() -> None:
    chart = evaluation.figure5(table4(EPISODES), evaluation.papers_variants(EPISODES))
    drawn_whole(draw.draw(chart))
    lines = named(chart.panels[0])
    assert list(lines["the paper's scale"].y) == [4.58, 5.57, 6.22]
    assert list(lines["the paper's crossattn"].y) == [4.65, 5.70, 6.83]
    table = table4(EPISODES)
    for name in ("scale", "crossattn"):
        own = table[(table["variant"] == name) & table["test_servers"].isin([16, 32, 48])]
        np.testing.assert_allclose(lines[name].y, own["response_mean_s"])
        assert list(lines[name].x) == [16, 32, 48]
    assert "ppo" not in lines
    rules = EPISODES[EPISODES["kind"] == "heuristic"]
    assert not evaluation.figure5(table4(rules), {}).panels


def test_of_several_trainings_the_longest_counts() -> None:
    rows = artificial_episodes(methods=("scale",), scales=(16,), episodes=2)
    longer = [r | {"epochs": 1000, "cell": r["cell"] + "-long", "completed": 1} for r in rows]
    episodes = typed_episodes(longer + rows)
    assert evaluation.papers_variants(episodes) == {"scale": "scale (1000 epochs)"}
