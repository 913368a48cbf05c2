"""Heat maps over the weights of SRR."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis.figures import draw
from rllib_scale_analysis.figures.decisions import lambda_heatmaps
from rllib_scale_analysis.tables import lambdas

from artificial_results import SEEDS, artificial_episodes, typed_episodes
from figure_checks import drawn_whole
from rllib_scale.errors import UserError

PAIRS = [*itertools.product((0.0, 0.001, 0.1), (0.0, 0.01))][:-1]  # one pair was not trained


def grid_rows(methods: tuple[str, ...] = ("scale",)) -> list[dict[str, object]]:
    rows = []
    for number, (first, second) in enumerate(PAIRS):
        for row in artificial_episodes(seeds=SEEDS[:2], scales=(16, 32), methods=methods, episodes=2):
            weights = {"lambda_decorrelation": first, "lambda_kl": second, "cell": f"{row['cell']}-{number}"}
            rows.append(row | weights | {"completed": number + row["episode"]})
    return rows


def test_grids_are_those_of_one_method_with_the_same_other_settings() -> None:
    others = artificial_episodes(seeds=SEEDS[:2], scales=(16,), episodes=2)
    wider = [r | {"overrides": "network.embedding_dim=32", "cell": r["cell"] + "w"} for r in grid_rows()]
    grids = lambdas.lambda_grids(typed_episodes([*grid_rows(), *wider, *others]))
    assert [len(grid[["lambda_decorrelation", "lambda_kl"]].drop_duplicates()) for grid in grids] == [6, 5]
    assert [lambdas.grid_name(grid) for grid in grids] == ["scale", "scale (network.embedding_dim=32)"]
    assert lambdas.lambda_grids(typed_episodes(others)) == []
    assert lambdas.lambda_grids(typed_episodes([])) == []


def test_every_cell_of_the_map_prints_the_mean_of_its_pair() -> None:
    (grid,) = lambdas.lambda_grids(typed_episodes(grid_rows()))
    chart = lambda_heatmaps(lambdas.lambda_table(grid, 16))
    drawn_whole(draw.draw(chart))
    cells = chart.panels[0].grid
    assert cells is not None
    assert (list(cells.values.index), list(cells.values.columns)) == (["0", "0.001", "0.1"], ["0", "0.01"])
    np.testing.assert_array_equal(cells.values, [[0.5, 1.5], [2.5, 3.5], [4.5, np.nan]])
    assert cells.texts.to_numpy().ravel()[:5].tolist() == [f"{n + 0.5:.2f}" for n in range(5)]
    assert "Blank: not trained, or no value." in chart.caption


def test_mixed_settings_and_no_rows() -> None:
    episodes = typed_episodes(grid_rows())
    with pytest.raises(UserError, match="mixes masks"):
        lambdas.lambda_table(pd.concat([episodes, episodes.assign(mask="feasible")]), 16)
    assert not lambda_heatmaps(lambdas.lambda_table(episodes, 99)).panels
