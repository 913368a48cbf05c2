"""Invalid decisions by cause and utilisation by tier."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis.figures import decisions, draw
from rllib_scale_analysis.tables import decisions as behaviour
from rllib_scale_analysis.tables import render

from artificial_results import SEEDS, artificial_episodes, episode_row, typed_episodes
from figure_checks import drawn_whole, named
from rllib_scale.errors import UserError

EPISODES = typed_episodes(
    row | {"utilisation_small": 0.1, "utilisation_medium": 0.5} for row in artificial_episodes(episodes=2)
)


def test_the_table_of_literal_rows() -> None:
    rows = [
        episode_row("scale", seed, 16, 0, decisions=10 * seed, invalid_no_fit=seed, utilisation=0.5, utilisation_a=0.25)
        for seed in (1, 3)
    ]
    row = behaviour.behaviour_table(typed_episodes(rows), 16).iloc[0]
    assert (row["decisions"], row["invalid_no_fit"], row["invalid_busy_avoidable"]) == (20.0, 2.0, 0.0)
    assert (row["utilisation"], row["tier_a"], row["seeds"], row["seeds_note"]) == (0.5, 0.25, 2, "no CI")


def test_a_tier_by_the_name_of_an_intervals_end_is_no_interval() -> None:
    rows = [episode_row("scale", 1, 16, 0, utilisation=0.5, utilisation_low=0.25, utilisation_high=0.75)]
    table = behaviour.behaviour_table(typed_episodes(rows), 16)
    assert {"utilisation", "tier_low", "tier_high"} <= set(render.stems(table))


def test_bars_of_decisions_are_the_table_and_add_up() -> None:
    table = behaviour.behaviour_table(EPISODES, 32)
    chart = decisions.invalid_decisions(table)
    drawn_whole(draw.draw(chart))
    marks = chart.panels[0].marks
    widths = np.array([np.asarray(one.x) - one.bars for one in marks])
    np.testing.assert_allclose(widths.sum(axis=0), table["decisions"])
    for row, cause in zip(widths[1:], behaviour.CAUSES, strict=True):
        np.testing.assert_allclose(row, table[cause])
    assert "5 seeds of 2 episodes" in chart.caption


def test_bars_of_utilisation_are_the_table() -> None:
    table = behaviour.behaviour_table(EPISODES, 16)
    chart = decisions.utilisation_by_tier(table)
    drawn_whole(draw.draw(chart))
    shown = named(chart.panels[0])
    assert set(shown) == {"small", "medium", "large"}
    for tier, marks in shown.items():
        np.testing.assert_allclose(marks.x, table[f"tier_{tier}"])


def test_without_an_invalid_decision_there_is_no_figure_of_them() -> None:
    table = behaviour.behaviour_table(typed_episodes([episode_row("scale", 1, 16, 0, decisions=9)]), 16)
    assert not decisions.invalid_decisions(table).panels


@pytest.mark.parametrize("make", [decisions.invalid_decisions, decisions.utilisation_by_tier])
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [episode_row("scale", 1, 16, 0)],
        [episode_row("scale", 1, 16, 0, decisions=None, utilisation=np.nan, utilisation_large=np.nan)],
        artificial_episodes(seeds=SEEDS[:1], scales=(16,), episodes=1),
    ],
)
def test_hardly_anything_is_drawn_whole(make, rows: list[dict[str, object]]) -> None:
    drawn_whole(draw.draw(make(behaviour.behaviour_table(typed_episodes(rows), 16))))


def test_mixed_settings_are_refused() -> None:
    with pytest.raises(UserError, match="mixes masks"):
        behaviour.behaviour_table(pd.concat([EPISODES, EPISODES.assign(mask="feasible")]), 16)
