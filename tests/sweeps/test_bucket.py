"""Sweeps whose results are in a bucket, on a real S3 server: each finished part is there at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_ray import LOCAL_RAY
from rllib_scale.config.planning import make_plan
from rllib_scale.loading import load_sweep
from rllib_scale.results.storage import Location, fetch, results_folder
from rllib_scale.sweeps.run import run_sweep
from s3_server import s3_server
from sweep_runs import SHORT, await_that, episodes, epochs, kill, refused, start

pytestmark = LOCAL_RAY
RULES = """
name: rules
methods: []
evaluation: {scales: [8], episodes: 1, heuristics: [fastest-idle, round-robin]}
"""
SWEEP = f"""
name: bucket
methods: [scale]
seeds: [1, 2]
training: {{epochs: 60, {SHORT}}}
evaluation: {{scales: [8, 16], episodes: 2, heuristics: [], features: false}}
checkpoints: {{every_epochs: 5}}
"""


def test_manifest_and_rows_of_each_unit_are_in_the_bucket_before_the_sweep_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    config = load_sweep(tmp_path / "rules.yaml")
    there: list[set[str]] = []
    with s3_server(monkeypatch) as bucket:
        place = Location(bucket % "rules")

        def say(line: str) -> None:
            if "evaluations 2/2 done" in line:
                there.append(set(place.files()))

        with results_folder(str(place), say) as (folder, mirror):
            assert run_sweep(make_plan(config, "rules.yaml"), folder, None, say, mirror=mirror) == []
        fetch(place, tmp_path / "here", say)
        none = (bucket % "rules").replace("s3://bucket/", "s3://no-such-bucket/")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where what cannot be copied is kept
        assert "cannot be written" in refused("sweep", tmp_path / "rules.yaml", "--results", none)
    (units,) = there
    assert len([name for name in units if name.startswith("evaluations/")]) == 2
    assert "manifest.json" in units
    assert "episodes.parquet" not in units
    assert len(episodes(tmp_path / "here")) == 2


@pytest.mark.slow
def test_a_sweep_is_killed_and_resumed_from_checkpoints_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bucket.yaml").write_text(SWEEP)
    with s3_server(monkeypatch) as bucket:
        place = Location(bucket % "a")
        first = start(tmp_path, "sweep", tmp_path / "bucket.yaml", "--results", place)
        await_that(lambda: sum(name.endswith("contents.json") for name in place.files()) >= 3, first)
        kill(first)
        second = start(tmp_path, "sweep", tmp_path / "bucket.yaml", "--results", place)
        said, errors = second.communicate(timeout=400)
        assert second.returncode == 0, errors
        assert "0 of 2 trainings are finished, 2 resume" in said
        fetch(place, tmp_path / "here", str)
    assert epochs(tmp_path / "here") == {1: [*range(1, 61)], 2: [*range(1, 61)]}
    assert len(episodes(tmp_path / "here")) == 2 * 2 * 2
    assert (tmp_path / "here" / "report" / "report.html").is_file()
