"""Per cent against the base rule: literal rows, pairing by episode and by settings."""

import math

import numpy as np
import pytest
from rllib_scale_analysis import select, settings
from rllib_scale_analysis.figures import comparison
from rllib_scale_analysis.figures.style import looks
from rllib_scale_analysis.rows import variants
from rllib_scale_analysis.tables.relative import against_base

from artificial_results import episode_row, typed_episodes
from figure_checks import named

RESPONSE = "against_base_response_censored_s"


def rule(name: str, *responses: float, **more: object) -> list[dict]:
    return [episode_row(name, None, 16, e, response_censored_s=r, **more) for e, r in enumerate(responses)]


def test_per_cent_of_literal_rows() -> None:
    """The mean of the logarithms of 1/2 and 2 is 0: doubled here and halved there is no change."""
    rows = [*rule("fastest-idle", 4.0, 8.0), *rule("large-only", 2.0, 16.0), *rule("round-robin", 3.0, 6.0)]
    table = against_base(typed_episodes(rows)).set_index("variant")
    assert set(table.index) == {"large-only", "round-robin"}, "the base is 0 against itself"
    assert table.loc["large-only", RESPONSE] == pytest.approx(0.0)
    assert table.loc["round-robin", RESPONSE] == pytest.approx(-25.0)
    assert math.isnan(table.loc["round-robin", f"{RESPONSE}_low"]), "two episodes carry no interval"


def test_an_interval_is_over_paired_episodes() -> None:
    """Episodes that differ hundredfold have the same ratio: the interval is as narrow as the ratios are."""
    base = [1.0, 10.0, 100.0, 3.0, 30.0, 300.0]
    ratios = [0.88, 0.90, 0.92, 0.89, 0.91, 0.90]
    rows = [*rule("fastest-idle", *base), *rule("large-only", *(b * r for b, r in zip(base, ratios, strict=True)))]
    row = against_base(typed_episodes(rows)).iloc[0]
    assert -13 < row[f"{RESPONSE}_low"] < row[RESPONSE] < row[f"{RESPONSE}_high"] < -7
    assert row["seeds_note"] == "fixed"
    learned = [
        episode_row("scale", seed, 16, e, response_censored_s=b * (0.9 + 0.01 * seed))
        for seed in range(5)
        for e, b in enumerate(base)
    ]
    table = against_base(typed_episodes([*rows, *learned])).set_index("variant")
    row = table.loc["scale"]
    assert row[f"{RESPONSE}_low"] < row[RESPONSE] < row[f"{RESPONSE}_high"] < 0
    assert (row["seeds"], row["episodes"], len(table)) == (5, 6, 2)


def test_one_failed_seed_of_five_leaves_an_interval_that_decides_nothing() -> None:
    rows = rule("fastest-idle", *[10.0] * 30)
    for seed, response in enumerate((10.01, 10.02, 10.03, 10.04, 14.0)):
        rows += [episode_row("scale", seed, 16, e, response_censored_s=response) for e in range(30)]
    row = against_base(typed_episodes(rows)).iloc[0]
    assert 7 < row[RESPONSE] < 8
    assert -20 < row[f"{RESPONSE}_low"] < 0
    assert 0 < row[f"{RESPONSE}_high"] < 40


def test_a_rule_that_was_asked_in_several_ways_is_compared_with_what_was_asked_alike() -> None:
    own, another = {"decision.on_busy": "reserve"}, {"decision.on_busy": "other"}
    rows = [*rule("fastest-idle", 10.0), *rule("fastest-idle", 20.0, asked=own)]
    rows += rule("large-only", 10.0, asked=own)
    rows += rule("round-robin", 9.0, asked=another)
    table = against_base(typed_episodes(rows)).set_index("variant")[RESPONSE].round(6)
    assert table.to_dict() == {"large-only": -50.0, "round-robin": -10.0}


def test_only_episodes_that_both_played_count_and_without_the_base_there_is_nothing_to_compare_with() -> None:
    rows = [*rule("fastest-idle", 4.0), *rule("large-only", 2.0, 16.0)]
    row = against_base(typed_episodes(rows)).iloc[0]
    assert (row[RESPONSE], row["episodes"]) == (pytest.approx(-50.0), 1)
    assert against_base(typed_episodes(rule("large-only", 1.0))).empty


def test_the_figure_has_a_panel_a_setting_and_a_line_a_variant() -> None:
    rows = typed_episodes(
        episode_row(name, None, n, e, scenario=scenario, response_censored_s=4.0 + e + len(name))
        for scenario in ("steady-0.5", "steady-0.9")
        for name in ("fastest-idle", "large-only", "round-robin")
        for n in (16, 32, 48, 64)
        for e in range(5)
    )
    tables = {setting[0]: against_base(select(rows, *setting)) for setting in settings(rows)}
    chart = comparison.against_base(tables, looks(rows, variants(rows)))
    assert [panel.title for panel in chart.panels] == ["steady-0.5", "steady-0.9"]
    for panel in chart.panels:
        assert sorted(named(panel)) == ["large-only", "round-robin"]
        for name, marks in named(panel).items():
            own = tables[panel.title][tables[panel.title]["variant"] == name]
            np.testing.assert_allclose(marks.y, own[RESPONSE])
    one = {name: table[table["test_servers"] == 16] for name, table in tables.items()}
    (first, *_) = comparison.against_base(one, looks(rows, variants(rows))).panels
    assert list(first.rows) == ["large-only", "round-robin"]


def test_the_gap_to_the_bound_is_closed_by_the_share_that_is_gained() -> None:
    """Base 12 and 8 over bounds of 6 and 4: of a gap of 10 in all, 9 and 7 gain 4; without a bound nothing counts."""
    base = [
        episode_row("fastest-idle", None, 16, e, response_censored_s=r, bound_capacity_s=b)
        for e, (r, b) in enumerate([(12.0, 6.0), (8.0, 4.0), (100.0, math.nan)])
    ]
    table = against_base(typed_episodes([*base, *rule("large-only", 9.0, 7.0, 1.0), *rule("round-robin", 6.0, 4.0)]))
    gap = table.set_index("variant")["gap_closed_percent"]
    assert gap["large-only"] == pytest.approx(40.0)
    assert gap["round-robin"] == pytest.approx(100.0)
    at_bound = [episode_row(name, None, 16, 0, response_censored_s=5.0, bound_capacity_s=5.0) for name in gap.index]
    at_bound.append(episode_row("fastest-idle", None, 16, 0, response_censored_s=5.0, bound_capacity_s=5.0))
    assert against_base(typed_episodes(at_bound))["gap_closed_percent"].isna().all()
    assert "gap_closed_percent" not in against_base(
        typed_episodes([*rule("fastest-idle", 4.0), *rule("large-only", 2)])
    )


def test_the_interval_of_the_gap_is_paired_by_episode() -> None:
    """Half of every gap is gained, however wide it is: that has no spread."""
    rows = []
    for e, (bound, gap) in enumerate([(4.0, 2.0), (5.0, 8.0), (6.0, 1.0), (3.0, 5.0), (4.0, 4.0), (9.0, 3.0)]):
        rows += [
            episode_row(name, None, 16, e, response_censored_s=bound + share * gap, bound_capacity_s=bound)
            for name, share in (("fastest-idle", 1.0), ("large-only", 0.5), ("round-robin", 0.5 + 0.02 * (-1) ** e))
        ]
    table = against_base(typed_episodes(rows)).set_index("variant")
    assert table.loc["large-only", "gap_closed_percent"] == pytest.approx(50.0)
    assert math.isnan(table.loc["large-only", "gap_closed_percent_low"]), "no spread, no interval"
    noisy = table.loc["round-robin"]
    assert noisy["gap_closed_percent_low"] < noisy["gap_closed_percent"] < noisy["gap_closed_percent_high"]
    assert noisy["gap_closed_percent_low"] > 44
    assert noisy["gap_closed_percent_high"] < 56
