"""The rows of `analysis/studies/reproduction`, played again: every metric is the published one, to the digit.

What the engine, the rules, the dispatchers and the policies' compiled networks do in the paper's problem may get
faster, not different. The lower bounds have tests of their own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from rllib_scale.evaluation.play import play
from rllib_scale.evaluation.replay import UNIT_KEY, Replay
from rllib_scale.results import dataset
from rllib_scale.results.columns import METRIC_COLUMNS, UTILISATION_PREFIX
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.reproduce import PARTS
from sweep_runs import named

FOLDER = Path(__file__).parents[2] / "analysis" / "studies" / "reproduction"
HOMES = [Location(str(FOLDER / name)) for name in PARTS]
REPLAY = Replay(*HOMES)


@cache
def published() -> pd.DataFrame:
    """The rows of the rules, and of the trainings whose policies are kept."""
    rows = pd.concat([named(dataset.read(home, "episodes"), home) for home in HOMES], ignore_index=True)
    shipped = {path.name.rsplit("-", 1)[1] for path in (FOLDER / "table4" / "policies").iterdir()}
    return rows[(rows["kind"] == "rule") | rows["scheduler"].isin(shipped)]


def check_played_again(rows: pd.DataFrame) -> None:
    """Play the episodes of the rows, a unit at a time, and compare all that was measured."""
    metrics = [name for name in rows if name in METRIC_COLUMNS or name.startswith(UTILISATION_PREFIX)]
    assert len(metrics) == len(METRIC_COLUMNS) + 3  # tiers
    for _, unit_rows in rows.groupby(list(UNIT_KEY), sort=False):
        unit = REPLAY.unit(unit_rows.iloc[0])
        engine = play(REPLAY.player(unit), unit.env, unit.seed, unit_rows["episode"].tolist())
        again = pd.DataFrame([engine.metrics(b) for b in range(engine.num_envs)])[metrics]
        expected = unit_rows[metrics].reset_index(drop=True)
        where = {name: unit.columns[name] for name in UNIT_KEY}
        censored = again.pop("response_censored_s"), expected.pop("response_censored_s")
        pd.testing.assert_frame_equal(again, expected, check_exact=True, check_dtype=False, obj=str(where))
        # The rows were made by a version that added up the unfinished workflows in another order.
        pd.testing.assert_series_equal(*censored, rtol=1e-14, atol=0, obj=str(where))


@pytest.mark.parametrize(("method", "scenario"), [("scale", "paper"), ("heft", "overload-1.1")])
def test_some_episodes_give_the_published_rows(method: str, scenario: str) -> None:
    rows = published()
    rows = rows[(rows["method"] == method) & (rows["scenario"] == scenario)]
    rows = rows[rows["test_servers"].isin([16, 48]) & (rows["episode"] < 2)]
    assert len(rows) == (2 if scenario != "paper" else 4) * 2  # scales, both masks in the paper's problem, episodes
    check_played_again(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "scenario"),
    published()[["method", "scenario"]].drop_duplicates().sort_values(["scenario", "method"]).to_numpy().tolist(),
)
def test_all_episodes_give_the_published_rows(method: str, scenario: str) -> None:
    rows = published()
    rows = rows[(rows["method"] == method) & (rows["scenario"] == scenario)].sort_values("test_servers")
    check_played_again(rows)
