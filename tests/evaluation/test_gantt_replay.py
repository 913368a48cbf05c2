"""An evaluation episode played again is the one that its row tells of, or it is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from played_results import play_folder
from rllib_scale.cli import main
from rllib_scale.errors import UserError
from rllib_scale.evaluation.replay import Replay
from rllib_scale.results.tables import METRIC_COLUMNS

EVALUATION: dict[str, Any] = {
    "scales": [16, 32],
    "episodes": 2,
    "masks": ["none", "feasible"],
    "decisions": ["argmax", "sample"],
    "heuristics": ["fastest-idle", "random-feasible", "heft"],
    "features": False,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    home = tmp_path_factory.mktemp("played") / "r"
    return home, play_folder(home, methods=["scale", "ppo"], seeds=[1, 2], evaluation=EVALUATION)


@settings(max_examples=25, deadline=None)
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


def test_a_reproduction_keeps_its_policies_and_config_in_its_parts(
    played: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    folder, rows = played
    whole = tmp_path / "whole"
    shutil.copytree(folder / "policies", whole / "parts" / "table4" / "policies")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"] = {"table4": manifest["config"]}
    (whole / "manifest.json").write_text(json.dumps(manifest))
    row = rows[rows["kind"] == "learned"].iloc[0]
    assert Replay(whole).episode(row).engine.metrics()["completed"] == row["completed"]


def test_what_cannot_be_played_again_is_refused_by_name(played: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    folder, rows = played
    row = rows[rows["kind"] == "learned"].iloc[0]
    with pytest.raises(UserError, match=r"scale-s1 at N = 16.*has completed \d+, its row says 999.*another version"):
        Replay(folder).episode({**row, "completed": 999})
    with pytest.raises(UserError, match=r"no evaluation of scale-s1 at N = 17, scenario paper, episode 0"):
        Replay(folder).episode({**row, "test_servers": 17})
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folder / "manifest.json", bare)
    with pytest.raises(UserError, match=row["cell"]):
        Replay(bare).episode(row)
    (bare / "manifest.json").unlink()
    with pytest.raises(UserError, match="no evaluation of"):
        Replay(bare).episode(row)


def test_the_report_command_draws_schedules(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    evaluation = {"scales": [16], "episodes": 2, "heuristics": ["fastest-idle"], "features": False}
    play_folder(folder, methods=["scale"], seeds=[1], evaluation=evaluation)
    found = CliRunner().invoke(main, ["report", str(folder)])
    assert found.exit_code == 0, found.output
    assert "report.html" in " ".join(found.output.split())
    page = (folder / "report" / "report.html").read_text()
    assert "Schedules of one episode: scale and fastest-idle" in page
    assert "Not drawn" not in page
