"""The league of literal rows: ranks, the worst ratio and where it is, who takes part, the interval."""

from __future__ import annotations

import numpy as np
import pytest
from rllib_scale_analysis.tables.league import league

from artificial_results import episode_row, typed_episodes


def rows(name: str, scenario: str, *responses: float) -> list[dict[str, object]]:
    return [episode_row(name, None, 16, e, response_censored_s=r, scenario=scenario) for e, r in enumerate(responses)]


def test_ranks_and_the_worst_ratio_of_literal_rows() -> None:
    table = league(
        typed_episodes(
            [
                *(rows("fastest-idle", "spot", 10.0) + rows("reserve", "spot", 20.0) + rows("price", "spot", 40.0)),
                *(rows("fastest-idle", "burst", 9.0) + rows("reserve", "burst", 3.0) + rows("price", "burst", 4.0)),
                *(rows("fastest-idle", "deep", 5.0) + rows("reserve", "deep", 5.0) + rows("price", "deep", 6.0)),
                *rows("random-feasible", "spot", 1.0),  # played in one of the three: takes no part
            ]
        )
    )
    assert table["variant"].tolist() == ["reserve", "fastest-idle", "price"]
    assert table["mean_rank"].tolist() == pytest.approx([(2 + 1 + 1.5) / 3, (1 + 3 + 1.5) / 3, (3 + 2 + 3) / 3])
    assert table["worst_ratio"].tolist() == [2.0, 3.0, 4.0]
    assert table["worst_in"].tolist() == ["spot", "burst", "spot"]
    assert table["mean_rank_low"].isna().all()
    assert (table["problems"] == 3).all()


def test_a_policy_that_completed_nothing_takes_no_part() -> None:
    content = []
    for scenario in ("spot", "burst", "deep"):
        content += rows("fastest-idle", scenario, 10.0) + rows("price", scenario, 9.0)
        content += rows("reserve", scenario, float("nan"))
    assert league(typed_episodes(content))["variant"].tolist() == ["price", "fastest-idle"]


def test_an_interval_holds_the_mean_rank_and_is_a_point_where_nothing_is_in_doubt() -> None:
    rng = np.random.default_rng(0)
    content = []
    for scenario in ("spot", "burst", "deep"):
        base = rng.uniform(5, 10, 12)
        content += rows("fastest-idle", scenario, *base.tolist())
        content += rows("reserve", scenario, *(base * rng.uniform(0.9, 1.1, 12)).tolist())
        content += rows("price", scenario, *(base * 3).tolist())
    table = league(typed_episodes(content)).set_index("variant")
    assert table.loc["price", ["mean_rank_low", "mean_rank", "mean_rank_high"]].tolist() == [3, 3, 3]
    assert table.loc["reserve", "mean_rank_low"] < table.loc["reserve", "mean_rank_high"]
    assert (table["mean_rank_low"] <= table["mean_rank"]).all()
    assert (table["mean_rank"] <= table["mean_rank_high"]).all()


def test_the_share_of_the_gap_that_is_closed_is_the_mean_over_problems() -> None:
    content = []
    for scenario, response in (("spot", 7.0), ("burst", 9.0), ("deep", 12.0)):  # of 10, above a bound of 4
        content += rows("fastest-idle", scenario, 10.0, 10.0) + rows("price", scenario, response - 1, response + 1)
    table = league(typed_episodes([row | {"bound_capacity_s": 4.0} for row in content])).set_index("variant")
    assert table["gap_closed_percent"].to_dict() == pytest.approx(
        {"price": (50 + 100 / 6 - 100 / 3) / 3, "fastest-idle": 0}
    )
    assert league(typed_episodes(content))["gap_closed_percent"].isna().all(), "without a bound"


def test_two_problems_are_no_league() -> None:
    assert league(typed_episodes(rows("price", "spot", 1.0) + rows("price", "burst", 2.0))).empty
