"""Sweeps whose disk fills up or goes away in the middle: one clear error, and the same command goes on afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from rllib_scale.cli import main  # noqa: E402
from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table  # noqa: E402
from rllib_scale.sweeps.checkpoints import epoch_of  # noqa: E402

EPOCHS = 200
SWEEP = f"""
name: lost
methods: [scale]
seeds: [1]
training: {{epochs: {EPOCHS}, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}}
evaluation: {{scales: [8], episodes: 2, heuristics: [], features: false}}
checkpoints: {{every_epochs: 5}}
"""


def sweep(base: Path, results: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rllib_scale", "sweep", str(base / "lost.yaml"), "--results", str(results), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HOME": str(base)},
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the sweep's YAML and the results of one seed."""
    folder = tmp_path_factory.mktemp("lost")
    (folder / "lost.yaml").write_text(SWEEP)
    _, stderr = (first := sweep(folder, folder / "results")).communicate(timeout=240)
    assert first.returncode == 0, stderr
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("no mount here")
    if mounted.returncode:
        pytest.skip(f"no right to mount: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def kept(results: Path) -> dict[Path, bytes]:
    """What was finished before, but for Tune's own files."""
    paths = [*results.glob("*.parquet"), *(p for p in results.glob("policies/*/*") if p.is_file())]
    return {path.relative_to(results): path.read_bytes() for path in paths}


def in_the_middle(base: Path, results: Path) -> subprocess.Popen[str]:
    """A sweep of one seed more, just after it has saved a whole checkpoint: its files arrive in any order."""
    shutil.copytree(base / "results", results)
    process = sweep(base, results, "--set", "seeds=[1, 2]", "--trust")
    deadline = time.monotonic() + 120
    while all(epoch_of(checkpoint) < 0 for checkpoint in results.glob("trials/run-002/*-s2-*/checkpoint_*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def assert_one_error(process: subprocess.Popen[str], why: str) -> None:
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 2, stdout + stderr
    assert stderr.count("\n") == 1, stderr
    assert stderr.startswith("Error: ")
    assert why in stderr
    assert "the same command goes on" in stderr
    assert "Traceback" not in stdout


def assert_goes_on(base: Path, results: Path) -> None:
    process = sweep(base, results, "--set", "seeds=[1, 2]", "--trust")
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert "1 of 2 trainings are finished, 1 go on" in stdout
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert episodes.groupby("train_seed")["episode"].agg(list).to_dict() == {1: [0, 1], 2: [0, 1]}
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    epochs = [*range(1, EPOCHS + 1)]
    assert training.groupby("train_seed")["epoch"].agg(list).to_dict() == {1: epochs, 2: epochs}


@pytest.mark.slow
def test_a_full_disk(base: Path, small_disk: Path) -> None:
    results = small_disk / "results"
    process = in_the_middle(base, results)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert_one_error(process, "No space left on device")
    assert kept(results).items() >= kept(base / "results").items()
    ballast.unlink()
    assert_goes_on(base, results)


@pytest.mark.slow
@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_a_shared_folder_that_comes_back(base: Path, tmp_path: Path, left: str) -> None:
    """Gone without a trace, as a disk that is unmounted, or with something else in its place."""
    shared, away = tmp_path / "shared", tmp_path / "away"
    shared.mkdir()
    process = in_the_middle(base, shared / "results")
    shared.rename(away)
    if left == "a file":
        shared.touch()
    assert_one_error(process, f"{shared / 'results'}: gone in the middle")
    assert kept(away / "results").items() >= kept(base / "results").items()
    if left == "a file":
        shared.unlink()
    else:
        shutil.rmtree(shared, ignore_errors=True)
    away.rename(shared)
    assert_goes_on(base, shared / "results")


@pytest.mark.usefixtures("local_ray")
def test_a_shared_folder_that_goes_away(tmp_path: Path) -> None:
    shared, results = tmp_path / "shared", tmp_path / "shared" / "results"
    shared.mkdir()
    (tmp_path / "lost.yaml").write_text(SWEEP)

    def go_away() -> None:
        while all(epoch_of(checkpoint) < 0 for checkpoint in results.glob("trials/run-001/*/checkpoint_*")):
            time.sleep(0.02)
        shared.rename(tmp_path / "away")

    threading.Thread(target=go_away, daemon=True).start()
    done = CliRunner().invoke(main, ["sweep", str(tmp_path / "lost.yaml"), "--results", str(results)])
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {results}: gone in the middle")
    assert "the same command goes on" in line
    assert not list(shared.rglob("*.parquet")), "nothing is taken for results of the sweep"
