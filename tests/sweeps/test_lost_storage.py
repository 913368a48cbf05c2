"""Sweeps whose disk fills up or goes away in the middle: one clear error, and the same command resumes afterwards."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from marks import slow
from rllib_scale.sweeps import progress
from sweep_runs import SHORT, episodes, epochs, refused, saved_epoch, succeed

pytestmark = LOCAL_RAY
SWEEP = f"""
name: lost
methods: [scale]
seeds: [1]
algorithm: {{epochs: 200, {SHORT}}}
evaluation: {{scales: [8], episodes: 2, heuristics: [], features: false}}
checkpoints: {{every_epochs: 5}}
"""


def when_saved(results: Path, act: Callable[[Path], object]) -> None:
    """Act in the background on the folder of the first training as soon as it has a whole checkpoint."""

    def wait() -> None:
        while not (whole := [c for c in results.glob("trials/run-001/*/checkpoint_*") if saved_epoch(c) > 0]):
            time.sleep(0.02)
        act(whole[0].parent)

    threading.Thread(target=wait, daemon=True).start()


def assert_resumes(file: Path, results: Path, last_epoch: int = 200) -> None:
    assert "0 of 1 trainings are finished, 1 resume" in succeed("sweep", file, "--results", results)
    assert episodes(results)["episode"].tolist() == [0, 1]
    assert epochs(results) == {1: [*range(1, last_epoch + 1)]}


@pytest.mark.parametrize("left", ["nothing", slow("a file")])
def test_a_shared_folder_that_goes_away_and_comes_back(
    tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Gone without a trace, as a disk that is unmounted, or with something else in its place.

    In the first case it is noticed while a checkpoint is on its way, which then fails.
    """
    shared, away, file = tmp_path / "shared", tmp_path / "away", tmp_path / "lost.yaml"
    shared.mkdir()
    file.write_text(SWEEP)
    if left == "nothing":
        file.write_text(SWEEP.replace("every_epochs: 5", "every_epochs: 1").replace("epochs: 200", "epochs: 60"))
        monkeypatch.setattr(progress, "CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(logging.getLogger("ray"), "handlers", [caplog.handler])

    def go_away(_: Path) -> None:
        shared.rename(away)
        if left == "a file":
            shared.touch()

    when_saved(shared / "results", go_away)
    line = refused("sweep", file, "--results", shared / "results")
    assert line.startswith(f"Error: {shared / 'results'}: gone in the middle")
    assert "the same command resumes" in line
    assert "Unhandled error" not in caplog.text, "of the checkpoint on its way, by Ray"
    assert not list(shared.rglob("*.parquet")), "nothing is taken for results of the sweep"
    if left == "a file":
        shared.unlink()
    else:
        shutil.rmtree(shared)
    away.rename(shared)
    assert_resumes(file, shared / "results", 60 if left == "nothing" else 200)


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """From the twentieth checkpoint on there is no room."""
    results, file = tmp_path / "results", tmp_path / "lost.yaml"
    file.write_text(SWEEP)
    full: list[Path] = []

    def fill(trial: Path) -> None:
        for number in range(20, 100):
            full.append(trial / f"checkpoint_{number:06d}")
            full[-1].mkdir()
            (full[-1] / f"epoch-{5 * number + 5:06d}.zip").symlink_to("/dev/full")

    when_saved(results, fill)
    line = refused("sweep", file, "--results", results)
    assert line.startswith(f"Error: {results}: No space left on device")
    assert "the same command resumes" in line
    for folder in full:
        shutil.rmtree(folder, ignore_errors=True)
    assert_resumes(file, results)
