"""Sweeps as Ray jobs on two nodes with a token: submitted, followed, fetched, gone on with, and failed."""

from __future__ import annotations

import json
import pickle
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
pytestmark = [pytest.mark.cluster, pytest.mark.ray]

from loopback import PLANTED, SWEEP, Loopback, documented  # noqa: E402

from rllib_scale.results.storage import Location  # noqa: E402
from rllib_scale.results.tables import EPISODE_COLUMNS, read_table  # noqa: E402
from rllib_scale.sweeps.checkpoints import epoch_of, latest_checkpoint  # noqa: E402


def files_with(folder: Path, secret: str) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


@pytest.fixture(scope="module")
def documented_runs(loopback: Loopback) -> dict[str, subprocess.CompletedProcess[str]]:
    """Every line of "Without a cloud" but `ray start`, in order."""
    lines = [line for line in documented("Without a cloud") if not line.startswith("ray start")]
    return {line: loopback.run(loopback.here(line)) for line in lines}


def test_every_documented_line_runs(documented_runs: dict[str, subprocess.CompletedProcess[str]]) -> None:
    programs = [" ".join(line.split()[:2]) for line in documented_runs]
    assert programs.count("rllib-scale submit") == programs.count("rllib-scale fetch") == 1
    for line, done in documented_runs.items():
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_log_of_the_job_arrives_and_its_results_are_fetched_whole(
    documented_runs: dict[str, subprocess.CompletedProcess[str]], loopback: Loopback
) -> None:
    (submitted,) = (done for line, done in documented_runs.items() if line.startswith("rllib-scale submit"))
    assert "trainings 1/1 done" in submitted.stdout
    there, here = loopback.shared / "results" / "smoke", loopback.clone / "results" / "smoke"
    assert len(read_table(here / "episodes.parquet", EPISODE_COLUMNS)) == 2 * 2
    names = {
        p.relative_to(there) for p in there.rglob("*") if p.is_file() and p.relative_to(there).parts[0] != "trials"
    }
    assert {p.relative_to(here) for p in here.rglob("*") if p.is_file()} == names
    assert all((here / name).read_bytes() == (there / name).read_bytes() for name in names if name.parts[0] != "report")


def test_no_secret_is_in_results_manifest_or_logs(
    documented_runs: dict[str, subprocess.CompletedProcess[str]], loopback: Loopback
) -> None:
    assert files_with(loopback.base / "home", loopback.token)  # the search finds it where it is
    for secret in (loopback.token, PLANTED):
        assert not files_with(loopback.shared, secret)
        assert not files_with(loopback.clone, secret)
        assert not [path for logs in loopback.base.glob("ray*/session_2*/logs") for path in files_with(logs, secret)]
        assert not any(secret in done.stdout + done.stderr for done in documented_runs.values())


def test_submitting_again_while_it_runs_follows_the_same_job(loopback: Loopback) -> None:
    """To a URI, from a working directory whose results are too large to send."""
    folder = loopback.base / "work"
    (folder / "results").mkdir(parents=True)
    (folder / "tiny.yaml").write_text(SWEEP)
    with (folder / "results" / "large.bin").open("wb") as file:
        file.truncate(2**40)  # would take hours to pack
    place = f"file://{loopback.shared}/uri"
    command = f"rllib-scale submit tiny.yaml --address {loopback.server} --results {place} --set seeds=[7]"
    first = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=loopback.environment, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    submitted = first.stdout.readline()
    assert submitted.startswith("Submitted as raysubmit_")
    second = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=loopback.environment, capture_output=True, text=True, timeout=300
    )
    rest = first.stdout.read()
    first.wait(timeout=300)
    assert first.returncode == second.returncode == 0, rest + second.stderr
    assert second.stdout.splitlines()[0] == submitted.replace("Submitted", "Runs already").rstrip()
    assert second.stdout.splitlines()[2:] == rest.splitlines()[1:]

    assert rest.rstrip().endswith(f"The results are in {place}")
    assert (loopback.shared / "uri" / "manifest.json").is_file()
    assert len(read_table(loopback.shared / "uri" / "episodes.parquet", EPISODE_COLUMNS)) == 2 * 2
    fetched = loopback.run(f"rllib-scale fetch {place} with_trials --trials")
    assert fetched.returncode == 0, fetched.stderr
    (policy,) = (loopback.clone / "with_trials" / "policies").iterdir()
    checkpoint = latest_checkpoint(loopback.clone / "with_trials" / "trials", policy.name)
    assert checkpoint is not None
    assert epoch_of(checkpoint) == 2


def test_a_failing_job_gives_its_exit_code_and_its_last_lines(loopback: Loopback) -> None:
    (loopback.shared / "taken").mkdir()
    (loopback.shared / "taken" / "file").touch()
    place = loopback.shared / "taken"
    done = loopback.run(f"rllib-scale submit tune_configs/smoke.yaml --address {loopback.server} --results {place}")
    assert done.returncode == 2
    end = done.stdout[done.stdout.index("Its last lines:") :]
    assert f"Error: {place}: not empty and without a manifest.json" in end


def test_a_wrong_token_and_a_missing_server_are_told_in_one_line(loopback: Loopback) -> None:
    line = f"rllib-scale submit tune_configs/smoke.yaml --results {loopback.shared}/none --address"
    refused = loopback.run(f"RAY_AUTH_TOKEN={'0' * 64} {line} {loopback.server}")
    absent = loopback.run(f"{line} http://127.0.0.1:1")
    tokenless = loopback.run(f"HOME={loopback.shared} rllib-scale doctor --address {loopback.address}")
    assert (refused.returncode, absent.returncode, tokenless.returncode) == (2, 2, 1)
    assert "token" in refused.stderr
    assert "no job server answers there" in absent.stderr
    assert len(refused.stderr.splitlines()) == len(absent.stderr.splitlines()) == 1
    assert "RAY_AUTH_TOKEN_PATH" in tokenless.stdout


def test_checkpoints_of_somebody_else_are_not_unpickled_without_trust(
    documented_runs: dict[str, subprocess.CompletedProcess[str]], loopback: Loopback
) -> None:
    own, foreign = loopback.shared / "results" / "smoke", loopback.shared / "foreign"
    (policy,) = (own / "policies").iterdir()
    last = latest_checkpoint(own / "trials", policy.name)
    assert last is not None
    assert last.local is not None
    shutil.rmtree(policy)
    shutil.rmtree(last.local)  # the training has one of its two epochs
    shutil.copytree(own, foreign)
    touched = loopback.base / "touched"
    poison(foreign, policy.name, touched)

    def sweep(results: Path, *options: str) -> subprocess.CompletedProcess[str]:
        words = ["rllib-scale", "sweep", "tune_configs/smoke.yaml", "--address", loopback.address]
        return loopback.run(shlex.join([*words, "--results", str(results), *options]))

    refused = sweep(foreign)
    assert refused.returncode == 2
    assert "--trust" in refused.stderr
    assert not touched.exists()
    trusted = sweep(foreign, "--trust")
    assert trusted.returncode == 0, trusted.stderr
    assert touched.exists()  # what the refusal was for
    resumed = sweep(own)
    assert resumed.returncode == 0, resumed.stderr
    assert "0 of 1 trainings are finished, 1 go on" in resumed.stdout


class Poison:
    """Makes a folder when it is loaded, and is then what was there before."""

    def __init__(self, original: bytes, path: Path) -> None:
        make, load = f"makedirs({str(path)!r}, exist_ok=True)", f"loads({original!r})"
        self.code = f"__import__('os').{make} or __import__('pickle').{load}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (self.code,)


def poison(results: Path, trial: str, touched: Path) -> None:
    """Poison every pickle of the last checkpoint."""
    checkpoint = latest_checkpoint(results / "trials", trial)
    assert checkpoint is not None
    assert checkpoint.local is not None
    for path in checkpoint.local.rglob("*.pkl"):
        path.write_bytes(pickle.dumps(Poison(path.read_bytes(), touched)))
    contents = checkpoint.local / "contents.json"
    described = json.loads(contents.read_text())
    described["sizes"] = {name: (checkpoint.local / name).stat().st_size for name in described["sizes"]}
    contents.write_text(json.dumps(described))
    assert epoch_of(Location(checkpoint.local)) == 1
