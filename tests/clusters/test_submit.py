"""A sweep as a Ray job on two nodes with a token, by the lines that docs/cluster.md gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
pytestmark = [pytest.mark.cluster, pytest.mark.ray, pytest.mark.slow]

from loopback import PLANTED, Loopback, documented  # noqa: E402

from rllib_scale.results.tables import EPISODE_COLUMNS, read_table  # noqa: E402

SECRETS = (".env", "key.pem", "private.key", "auth_token", "sub/.env")


def files_with(folder: Path, secret: str) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


def ran(loopback: Loopback, line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = loopback.run(loopback.here(line))
    assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
    return done


def test_a_job_sends_no_secret_streams_its_log_and_is_resumed_under_a_new_id(loopback: Loopback) -> None:
    for name in SECRETS:
        (loopback.clone / name).parent.mkdir(exist_ok=True)
        (loopback.clone / name).write_text(PLANTED)
    package = loopback.clone / "rllib_scale"  # the code of the working directory is what runs
    package.mkdir()
    (package / "__init__.py").write_text(f"raise SystemExit({3})")
    (submit,) = (line for line in documented("Without a cloud") if line.startswith("ray job submit"))
    ran(loopback, submit.replace("--submission-id smoke", "--submission-id other-code"), code=1)
    (package / "__init__.py").unlink()
    package.rmdir()

    lines = [line for line in documented("Without a cloud") if not line.startswith("ray start")]
    done = {line: ran(loopback, line) for line in lines}
    assert "trainings 1/1 done" in done[submit].stdout
    here = loopback.clone / "results" / "smoke"
    assert len(read_table(here / "episodes.parquet", EPISODE_COLUMNS)) == 2 * 2
    assert (here / "report" / "report.html").is_file()

    assert "smoke already exists" in ran(loopback, submit, code=1).stderr
    resumed = ran(loopback, submit.replace("--submission-id smoke", "--submission-id smoke-2"))
    assert "1 of 1 trainings are finished" in resumed.stdout
    wrong = ran(loopback, f"{submit.replace('--submission-id smoke', '--submission-id wrong')} --set seeds=x", code=1)
    assert "seeds" in wrong.stdout  # the job's own error

    assert files_with(loopback.base / "home", loopback.token)  # the search finds it where it is
    uploaded = [*loopback.base.glob("ray*/session_2*/runtime_resources/working_dir_files/*/tune_configs")]
    assert uploaded
    for secret in (loopback.token, PLANTED):
        assert not files_with(loopback.shared, secret)
        assert not files_with(here, secret)
        assert not [path for folder in loopback.base.glob("ray*/session_2*") for path in files_with(folder, secret)]
        assert not any(secret in run.stdout + run.stderr for run in done.values())
