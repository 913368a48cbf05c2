"""What version 0.1 left: finished results are read as any others, an unfinished training is refused in one line.

`version_0_1/results` was written by it, from `tiny.yaml` beside it; Tune's folder and the report are left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from rllib_scale_analysis.dashboard.store import Store
from rllib_scale_analysis.load import load

from rllib_scale import __version__
from rllib_scale.cli import main
from rllib_scale.config.base import ADDED, Model, digest, identity
from rllib_scale.evaluation.replay import Replay
from rllib_scale.policies.policy import load_policy
from rllib_scale.results.tables import EPISODE_COLUMNS, read_manifest, read_table, write_table

OLD = Path(__file__).parent / "version_0_1"
TRAINING = "scale-s3-f7683f131c78"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the results."""
    return Path(shutil.copytree(OLD / "results", tmp_path / "results"))


def sweep(results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["sweep", str(OLD / "tiny.yaml"), "--results", str(results), *options]
    return subprocess.run([sys.executable, "-m", "rllib_scale", *words], capture_output=True, text=True, timeout=240)


def test_report_and_dashboard_read_it(old: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(old)])
    assert done.exit_code == 0, done.output
    page = (old / "report" / "report.html").read_text()
    assert "scale" in page
    assert "older version" not in done.output + page
    snapshot = Store(old).snapshot()
    assert [(training.name, training.state) for training in snapshot.trainings] == [(TRAINING, "finished")]
    assert len(snapshot.episodes) == len(pd.read_parquet(old / "episodes.parquet"))
    assert snapshot.notes == ()


def test_what_it_had_nothing_of_is_read_as_none(old: Path) -> None:
    later = ["waits", "passed", "failed_attempts", "preempted_attempts", "lost_s"]
    path = old / "episodes.parquet"
    written = pd.read_parquet(path)
    assert not set(later) & set(written)
    assert (load(old).episodes[later] == 0).all(axis=None)
    both = [
        written,
        written.assign(episode=9, **dict.fromkeys(later, 3)),
    ]  # joined
    write_table(path, pd.concat(both, ignore_index=True))
    rows = read_table(path, EPISODE_COLUMNS)
    assert [rows.loc[rows["episode"] == 9, name].unique().tolist() for name in later] == [[3]] * 5
    assert (rows.loc[rows["episode"] != 9, later] == 0).all(axis=None)


def test_its_episodes_are_played_again_and_its_policy_evaluated(old: Path) -> None:
    rows = read_table(old / "episodes.parquet", EPISODE_COLUMNS)
    assert set(rows["information"]) == {"waiting tasks"}
    replay = Replay(old)
    for _, row in rows.iterrows():
        assert replay.episode(row).engine.metrics()["completed"] == row["completed"]
    assert load_policy(old / "policies" / TRAINING).epochs == 2
    done = CliRunner().invoke(main, ["evaluate", str(old / "policies" / TRAINING), "--scales=16", "--episodes=2"])
    assert done.exit_code == 0, done.output


@pytest.mark.ray
def test_a_sweep_does_nothing_of_it_again(old: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in old.glob("*/**/*") if path.is_file()}
    done = sweep(old)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 trainings are finished" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {path.name for path in (old / "evaluations").iterdir()} == {
        path.name for path in (OLD / "results" / "evaluations").iterdir()
    }
    manifest = read_manifest(old)
    assert manifest is not None
    assert manifest["versions"]["rllib-scale"] == __version__


@pytest.mark.ray
def test_an_unfinished_training_of_it_is_refused_in_one_line(old: Path) -> None:
    shutil.rmtree(old / "policies" / TRAINING)
    checkpoint = old / "trials" / "run-001" / TRAINING / "checkpoint_000000"
    checkpoint.mkdir(parents=True)
    (checkpoint / "contents.json").write_text(json.dumps({"epoch": 1, "sizes": {}}))  # as it wrote it
    done = sweep(old, "--trust")
    assert done.returncode == 2, done.stdout
    (line,) = done.stderr.splitlines()
    assert "checkpoint_000000: version 0.1 of rllib-scale left this training unfinished" in line
    assert f"version {__version__} cannot go on" in line


def test_an_added_setting_leaves_hashes_what_they_were_until_it_is_set() -> None:
    from pydantic import Field

    class Inner(Model):
        old: int = 1
        new: int = Field(default=2, json_schema_extra=ADDED)

    class Outer(Model):
        inner: Inner = Inner()
        several: tuple[Inner, ...] = (Inner(), Inner(new=3))
        new: Inner = Field(default=Inner(), json_schema_extra=ADDED)

    assert identity(Outer()) == {"inner": {"old": 1}, "several": [{"old": 1}, {"old": 1, "new": 3}]}
    assert identity(Outer(new=Inner(new=5)))["new"] == {"old": 1, "new": 5}
    assert digest(identity(Outer())) != digest(identity(Outer(inner=Inner(new=4))))
