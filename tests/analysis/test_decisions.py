"""Invalid decisions by cause, and utilisation by tier."""

from __future__ import annotations

from rllib_scale_analysis.tables import methods, render

from artificial_results import episode_row, typed_episodes


def test_the_table_of_literal_rows() -> None:
    rows = [
        episode_row("scale", seed, 16, 0, decisions=10 * seed, invalid_no_fit=seed, utilisation=0.5, utilisation_a=0.25)
        for seed in (1, 3)
    ]
    row = methods.behaviour_table(typed_episodes(rows), 16).iloc[0]
    assert (row["decisions"], row["invalid_no_fit"], row["invalid_busy_avoidable"]) == (20.0, 2.0, 0.0)
    assert (row["utilisation"], row["tier_a"], row["seeds"], row["seeds_note"]) == (0.5, 0.25, 2, "no interval")


def test_a_tier_by_the_name_of_an_intervals_end_is_no_interval() -> None:
    rows = [episode_row("scale", 1, 16, 0, utilisation=0.5, utilisation_low=0.25, utilisation_high=0.75)]
    table = methods.behaviour_table(typed_episodes(rows), 16)
    assert {"utilisation", "tier_low", "tier_high"} <= set(render.stems(table))
