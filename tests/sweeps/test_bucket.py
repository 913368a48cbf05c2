"""Sweeps whose results are in a bucket, on a real S3 server."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from local_ray import LOCAL_RAY
from rllib_scale.results.lock import held
from rllib_scale.results.storage import Location, fetch
from rllib_scale.sweeps.sweep import Sweep
from s3_server import s3_server
from sweep_runs import SHORT, await_that, episodes, epochs, kill, refused, run, start, succeed

pytestmark = LOCAL_RAY
EPOCHS = 150
SWEEP = f"""
name: bucket
methods: [scale]
seeds: [1]
algorithm: {{epochs: {EPOCHS}, {SHORT}}}
evaluation: {{scales: [8, 16], episodes: 2, heuristics: [fastest-idle], features: false}}
checkpoints: {{every_epochs: 5}}
"""


def saved(place: Location) -> set[str]:
    """The checkpoints in a bucket."""
    return {name for name in place.files() if name.endswith(".zip")}


def test_a_sweep_is_killed_twice_terminated_and_ended_with_its_results_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path))  # which remembers that its checkpoints may be unpickled
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "bucket.yaml"
    file.write_text(SWEEP)
    with s3_server() as bucket:
        place = Location(bucket % "a")
        assert "bucket does not exist" in refused("sweep", file, "--results", "s3://none/a?" + str(place).split("?")[1])
        with held(place, beat_s=0.2):
            assert "another sweep runs there" in refused("sweep", file, "--results", place)
        assert "no manifest.json" in refused("status", place)
        first = start(tmp_path, "sweep", file, "--results", place)
        await_that(lambda: "manifest.json" in place.files(), first)
        kill(first)
        assert not saved(place), "nothing was trained yet"
        second = start(tmp_path, "sweep", file, "--results", place)
        await_that(lambda: len(saved(place)) > 0, second)
        kill(second)
        before = saved(place)
        added: list[object] = []
        add_rows = Sweep.add_rows
        monkeypatch.setattr(
            Sweep, "add_rows", lambda self, unit, *rows: (add_rows(self, unit, *rows), added.append(unit))
        )
        assert terminated(file, place, lambda: bool(saved(place) - before) and len(added) >= 2) == 130
        assert saved(place) - before, "the training resumed, and saved itself"
        assert len(episodes(place)) == 2 * 2, "of the rule"

        *_, report, last = succeed("sweep", file, "--results", place).splitlines()
        page = Location(report.removeprefix("The report is "))
        assert page.read().lower().startswith(b"<!doctype html>")
        program, *words = shlex.split(last.removeprefix("To copy all results: "))
        assert program == "rllib-scale"
        succeed(*words)
        shown = json.loads(succeed("status", place, "--json"))
        succeed("report", place, "--output", tmp_path / "report")
        assert not [*(tmp_path / "temporary").glob("rllib-scale-*")], "nothing stays on this machine"
    assert epochs(tmp_path / "results" / "a") == {1: [*range(1, EPOCHS + 1)]}
    assert len(episodes(tmp_path / "results" / "a")) == 2 * 2 * 2
    assert [(each["state"], each["epoch"]) for each in shown["trainings"]] == [("finished", EPOCHS)]
    assert shown["evaluations"] == {"done": 4, "planned": 4}
    assert (tmp_path / "report" / "report.html").is_file()


def terminated(file: Path, place: Location, is_due: Callable[[], bool]) -> int:
    """Exit code of a sweep in this process that receives SIGTERM once that holds."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def terminate() -> None:
        while not is_due():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    try:
        return run("sweep", file, "--results", place).exit_code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.mark.slow
def test_a_store_that_refuses_every_tenth_request(tmp_path: Path) -> None:
    (tmp_path / "bucket.yaml").write_text(SWEEP)
    with s3_server(refuse_every=10) as bucket:
        place = Location(bucket % "a")
        first = start(tmp_path, "sweep", tmp_path / "bucket.yaml", "--results", place)
        await_that(lambda: len(saved(place)) > 0, first)
        kill(first)
        second = start(tmp_path, "sweep", tmp_path / "bucket.yaml", "--results", place)
        said, errors = second.communicate(timeout=1800)
        assert second.returncode == 0, errors
        assert "0 of 1 trainings are finished, 1 resume" in said
        fetch(place, tmp_path / "here", print)
    assert epochs(tmp_path / "here") == {1: [*range(1, EPOCHS + 1)]}
    assert len(episodes(tmp_path / "here")) == 2 * 2 * 2
    assert (tmp_path / "here" / "report" / "report.html").is_file()
