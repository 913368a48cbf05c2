"""Sweeps whose results are in a bucket, on a real S3 server: each finished part is there at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from local_ray import LOCAL_RAY
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.yaml_files import load_model
from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location, fetch, results_folder
from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table
from rllib_scale.sweeps.run import run_sweep
from s3_server import s3_server

pytestmark = LOCAL_RAY
RULES = """
name: rules
methods: []
evaluation: {scales: [8], episodes: 1, heuristics: [fastest-idle, round-robin]}
"""
SWEEP = """
name: bucket
methods: [scale]
seeds: [1, 2]
training: {epochs: 60, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}
evaluation: {scales: [8, 16], episodes: 2, heuristics: [], features: false}
checkpoints: {every_epochs: 5}
"""


def test_manifest_and_rows_of_each_unit_are_in_the_bucket_before_the_sweep_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    config = load_model(SweepConfig, tmp_path / "rules.yaml")
    there: list[set[str]] = []
    with s3_server(monkeypatch) as bucket:
        place = Location(bucket % "rules")

        def say(line: str) -> None:
            if "evaluations 2/2 done" in line:
                there.append(set(place.files()))

        with results_folder(str(place), say) as (folder, mirror):
            assert run_sweep(config, folder, "rules.yaml", None, say, mirror=mirror) == []
        (units,) = there
        assert len([name for name in units if name.startswith("evaluations/")]) == 2
        assert "manifest.json" in units
        assert "episodes.parquet" not in units
        fetch(place, tmp_path / "here", say)
    assert len(read_table(tmp_path / "here" / "episodes.parquet", EPISODE_COLUMNS)) == 2


def test_a_bucket_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    config = load_model(SweepConfig, tmp_path / "rules.yaml")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said: list[str] = []
    with s3_server(monkeypatch) as bucket:
        none = (bucket % "rules").replace("s3://bucket/", "s3://no-such-bucket/")
        with (
            pytest.raises(UserError, match="cannot be written"),
            results_folder(none, said.append) as (folder, mirror),
        ):
            run_sweep(config, folder, "rules.yaml", None, said.append, mirror=mirror)
    assert not [line for line in said if "evaluations" in line]


@pytest.mark.slow
def test_a_sweep_is_killed_and_resumed_from_checkpoints_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bucket.yaml").write_text(SWEEP)
    with s3_server(monkeypatch) as bucket:
        place = Location(bucket % "a")

        def sweep() -> subprocess.Popen[str]:
            words = ["sweep", str(tmp_path / "bucket.yaml"), "--results", str(place)]
            return subprocess.Popen(
                [sys.executable, "-m", "rllib_scale", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | {"HOME": str(tmp_path)},
                start_new_session=True,
            )

        first = sweep()
        deadline = time.monotonic() + 240
        while sum(name.endswith("contents.json") for name in place.files()) < 3:
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
        said, _ = (second := sweep()).communicate(timeout=400)
        assert second.returncode == 0, said
        assert "0 of 2 trainings are finished, 2 go on" in said
        fetch(place, tmp_path / "here", str)
    training = read_table(tmp_path / "here" / "training.parquet", TRAINING_COLUMNS)
    assert training.groupby("train_seed")["epoch"].agg(list).to_dict() == {1: [*range(1, 61)], 2: [*range(1, 61)]}
    assert len(read_table(tmp_path / "here" / "episodes.parquet", EPISODE_COLUMNS)) == 2 * 2 * 2
    assert (tmp_path / "here" / "report" / "report.html").is_file()
