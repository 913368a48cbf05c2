"""Invalid decisions by cause and utilisation by tier."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis.tables import decisions as behaviour
from rllib_scale_analysis.tables import render

from artificial_results import SEEDS, artificial_episodes, episode_row, typed_episodes
from figure_checks import caption, drawn_whole
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
    assert "utilisation: low | utilisation: high" in render.to_markdown(table)
    assert "| 0.50 | 0.25 | 0.75 |" in render.to_markdown(table)


def test_bars_of_decisions_are_the_table_and_add_up() -> None:
    figure = behaviour.invalid_decisions(EPISODES, 32)
    drawn_whole(figure)
    table = behaviour.behaviour_table(EPISODES, 32)
    widths = np.array([bar.get_width() for bar in figure.axes[0].patches]).reshape(4, len(table))
    np.testing.assert_allclose(widths.sum(axis=0), table["decisions"])
    for row, cause in zip(widths[1:], behaviour.CAUSES, strict=True):
        np.testing.assert_allclose(row, table[cause])
    assert "5 seeds of 2 episodes" in caption(figure)


def test_bars_of_utilisation_are_the_table() -> None:
    figure = behaviour.utilisation_by_tier(EPISODES, 16)
    drawn_whole(figure)
    table = behaviour.behaviour_table(EPISODES, 16)
    containers = {container.get_label(): container for container in figure.axes[0].containers}
    assert set(containers) == {"small", "medium", "large"}
    for tier, container in containers.items():
        np.testing.assert_allclose([bar.get_width() for bar in container], table[f"tier_{tier}"])


@pytest.mark.parametrize("draw", [behaviour.invalid_decisions, behaviour.utilisation_by_tier])
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [episode_row("scale", 1, 16, 0)],
        [episode_row("scale", 1, 16, 0, decisions=None, utilisation=np.nan, utilisation_large=np.nan)],
        artificial_episodes(seeds=SEEDS[:1], scales=(16,), episodes=1),
    ],
)
def test_hardly_anything_is_drawn_whole(draw, rows: list[dict[str, object]]) -> None:
    drawn_whole(draw(typed_episodes(rows), 16))


@pytest.mark.parametrize(
    "make", [behaviour.behaviour_table, behaviour.invalid_decisions, behaviour.utilisation_by_tier]
)
def test_mixed_settings_are_refused(make) -> None:
    with pytest.raises(UserError, match="mixes masks"):
        make(pd.concat([EPISODES, EPISODES.assign(mask="feasible")]), 16)
