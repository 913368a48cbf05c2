"""An episode played again is the one that its row tells of, or it is refused; its decisions can be looked into."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from played_results import play_folder
from rllib_scale.cli import main
from rllib_scale.errors import UserError
from rllib_scale.evaluation.inspection import AVOIDABLE, IDLE, NO_FIT, STARTED, UNAVOIDABLE, inspect_episode, look
from rllib_scale.evaluation.replay import Replay
from rllib_scale.results.columns import METRIC_COLUMNS
from seeds import examples

CAUSES = {"invalid_no_fit": NO_FIT, "invalid_busy_avoidable": AVOIDABLE, "invalid_busy_unavoidable": UNAVOIDABLE}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Random policies and heuristics on three episodes, as a sweep leaves them, and the rows."""
    home = tmp_path_factory.mktemp("played") / "r"
    evaluation = {
        "scales": [16, 32],
        "episodes": 3,
        "masks": ["none", "feasible"],
        "decisions": ["argmax", "sample"],
        "heuristics": ["fastest-idle", "random-feasible", "round-robin", "heft"],
        "features": False,
    }
    methods = ["scale", "attention-model", "set-transformer", "ppo"]
    return home, play_folder(home, methods=methods, seeds=[1], evaluation=evaluation)


@examples(25)
@given(data=st.data())
def test_the_whole_episode_comes_back(played: tuple[Path, pd.DataFrame], data: st.DataObject) -> None:
    folder, rows = played
    row = rows.iloc[data.draw(st.integers(0, len(rows) - 1))]
    episode = Replay(folder).episode(row)
    metrics = episode.engine.metrics()
    for name in METRIC_COLUMNS:
        assert metrics[name] == pytest.approx(float(row[name]), nan_ok=True), name
    assert (~np.isnan(episode.schedule["finish_s"])).sum() == row["completed"]
    assert episode.end_s == row["duration_s"]
    assert episode.unit.env.cluster.num_servers == row["test_servers"]


def test_charts_of_two_rows_have_a_bar_for_every_started_task(played: tuple[Path, pd.DataFrame]) -> None:
    folder, rows = played
    same = (rows["test_servers"] == 16) & (rows["mask"] == "none") & (rows["episode"] == 1)
    chosen = [rows[same & (rows["method"] == method)].iloc[0] for method in ("scale", "fastest-idle")]
    replay = Replay(folder)
    figure = replay(chosen, ["above", "below"])
    assert [len(axes.patches) for axes in figure.axes] == [len(replay.episode(row).schedule) for row in chosen]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["above", "below"]


def test_of_several_folders_that_whose_plan_leads_to_the_row_is_played(
    played: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    folder, rows = played
    play_folder(tmp_path / "other", methods=[], evaluation={"scales": [8], "heuristics": ["fastest-idle"]})
    row = rows[rows["kind"] == "training"].iloc[0]
    assert Replay(tmp_path / "other", folder).episode(row).engine.metrics()["completed"] == row["completed"]


def test_what_cannot_be_played_again_is_refused_by_name(played: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    folder, rows = played
    row = rows[rows["kind"] == "training"].iloc[0]
    with pytest.raises(
        UserError, match=r"scale-s1-\w+ at N = 16.*has completed \d+, its row says 999.*another version"
    ):
        Replay(folder).episode({**row, "completed": 999})
    with pytest.raises(UserError, match=r"no plan has an evaluation of scheduler \w+, problem of-another-world"):
        Replay(folder).episode({**row, "problem": "of-another-world"})
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folder / "manifest.json", bare)
    with pytest.raises(UserError, match=row["scheduler"]):
        Replay(bare).episode(row)
    (bare / "manifest.json").unlink()
    with pytest.raises(UserError, match="without a plan"):
        Replay(bare).episode(row)


def test_the_report_command_draws_schedules(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    evaluation = {"scales": [16], "episodes": 2, "heuristics": ["fastest-idle"], "features": False}
    play_folder(folder, methods=["scale"], seeds=[1], evaluation=evaluation)
    found = CliRunner().invoke(main, ["report", str(folder)])
    assert found.exit_code == 0, found.output
    assert "report.html" in " ".join(found.output.split())
    page = (folder / "report" / "report.html").read_text()
    assert "One workload under fastest-idle and scale" in page
    assert "Not drawn" not in page


# ---------------------------------------------------------------------- decision by decision


def of(
    rows: pd.DataFrame, method: str, servers: int = 16, mask: str = "none", decision: str = "argmax"
) -> dict[str, Any]:
    """Its third episode."""
    place = {"method": method, "test_servers": servers, "mask": mask, "decision": decision, "episode": 2}
    (row,) = [row for row in rows.to_dict("records") if place.items() <= row.items()]
    return row


@pytest.mark.parametrize(
    ("method", "place", "has_attention"),
    [
        ("scale", {}, True),
        ("scale", {"servers": 32, "mask": "feasible"}, True),
        ("scale", {"decision": "sample"}, True),
        ("attention-model", {}, True),
        ("set-transformer", {"mask": "feasible"}, False),
        ("ppo", {}, False),
        ("round-robin", {"servers": 32}, None),
        ("heft", {}, None),
    ],
)
def test_decisions_are_those_that_the_engine_carried_out_and_the_server_is_the_most_probable(
    played: tuple[Path, pd.DataFrame], method: str, place: dict[str, Any], has_attention: bool | None
) -> None:
    """Of heuristics there are neither probabilities nor attention."""
    row = of(played[1], method, **place)
    inspected = inspect_episode(Replay(played[0]), row)
    decisions, schedule = inspected.decisions, inspected.episode.schedule
    assert len(decisions) == row["decisions"]
    started = decisions[decisions["outcome"] == STARTED]
    assert len(started) == len(schedule) > 0
    for name in ("workflow", "task", "server"):
        assert started[name].tolist() == schedule[name].tolist()
    assert started["clock_s"].tolist() == schedule["start_s"].tolist()
    for metric, cause in CAUSES.items():
        assert (decisions["outcome"] == cause).sum() == row[metric]
    assert schedule["arrival_s"].tolist() == inspected.workload.arrival_s[schedule["workflow"]].tolist()
    for k in range(0, len(decisions), 5):
        view = look(inspected, k)
        assert (view is None) == (has_attention is None)
        if view is None:
            continue
        assert view.probabilities.sum() == pytest.approx(1)
        chosen = view.probabilities[decisions["server"][k]]
        if row["decision"] == "argmax":
            assert chosen == pytest.approx(view.probabilities.max(), rel=1e-4)
        servers = inspected.servers(k)
        assert servers is not None
        assert (decisions["outcome"][k] == STARTED) == (servers[decisions["server"][k]] == IDLE)
        if row["mask"] == "feasible":
            assert (view.probabilities[servers != IDLE] == 0).all()
        assert (view.attention is not None) == has_attention
        if view.attention is not None:
            assert view.attention.shape == (2, 4, row["test_servers"])
            assert view.attention.sum(-1) == pytest.approx(np.ones((2, 4)))


def test_observations_of_a_huge_episode_are_not_kept(
    played: tuple[Path, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = of(played[1], "scale")
    monkeypatch.setattr("rllib_scale.evaluation.inspection.MOST_BYTES", 10_000)
    inspected = inspect_episode(Replay(played[0]), row)
    assert len(inspected.decisions) == row["decisions"]
    assert (inspected.observations, inspected.servers(0), look(inspected, 0)) == (None, None, None)
