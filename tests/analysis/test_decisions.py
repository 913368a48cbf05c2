"""Invalid decisions by cause, utilisation by tier, and tables over the weights of SRR."""

from __future__ import annotations

import itertools

from rllib_scale_analysis.tables import decisions as behaviour
from rllib_scale_analysis.tables import lambdas, render

from artificial_results import SEEDS, artificial_episodes, episode_row, typed_episodes

PAIRS = [*itertools.product((0.0, 0.001, 0.1), (0.0, 0.01))][:-1]  # one pair was not trained


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


# ---------------------------------------------------------------------- the weights of SRR


def grid_rows(methods: tuple[str, ...] = ("scale",)) -> list[dict[str, object]]:
    rows = []
    for number, (first, second) in enumerate(PAIRS):
        for row in artificial_episodes(seeds=SEEDS[:2], scales=(16, 32), methods=methods, episodes=2):
            weights = {"lambda_decorrelation": first, "lambda_kl": second, "trial_id": f"{row['trial_id']}-{number}"}
            rows.append(row | weights | {"completed": number + row["episode"]})
    return rows


def test_grids_are_those_of_one_method_with_the_same_other_settings() -> None:
    others = artificial_episodes(seeds=SEEDS[:2], scales=(16,), episodes=2)
    wider = [r | {"overrides": "network.embedding_dim=32", "trial_id": r["trial_id"] + "w"} for r in grid_rows()]
    grids = lambdas.lambda_grids(typed_episodes([*grid_rows(), *wider, *others]))
    assert [len(grid[["lambda_decorrelation", "lambda_kl"]].drop_duplicates()) for grid in grids] == [6, 5]
    assert [lambdas.grid_name(grid) for grid in grids] == ["scale", "scale (network.embedding_dim=32)"]
    assert lambdas.lambda_grids(typed_episodes(others)) == []


def test_the_table_has_the_mean_of_each_pair_that_was_trained() -> None:
    (grid,) = lambdas.lambda_grids(typed_episodes(grid_rows()))
    table = lambdas.lambda_table(grid, 16)
    assert table[[*lambdas.AXES, "completed"]].to_numpy().tolist() == [[*p, n + 0.5] for n, p in enumerate(PAIRS)]
