"""What is sent to a cluster, and what is refused before anything is."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from rllib_scale.clusters import jobs
from rllib_scale.clusters.jobs import SweepJob, pack
from rllib_scale.errors import UserError


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name in ("sub/tiny.yaml", "code.py", "results/a/large.bin", ".git/HEAD", ".venv/lib.so", ".env", "key.pem"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("name: tiny\nmethods: [scale]\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "run.log").touch()
    return folder


def test_results_secrets_and_caches_are_not_sent(work: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(pack(work, tmp_path)) as package:
        assert {name for name in package.namelist() if not name.endswith("/")} >= {"sub/tiny.yaml", "code.py"}
        sent = " ".join(package.namelist())
    for kept_back in ("results", ".git/", ".venv", ".env", "key.pem", "run.log"):
        assert kept_back not in sent


def test_too_large_a_package_is_refused_by_name(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "data.bin").write_bytes(os.urandom(3_000_000))
    monkeypatch.setattr(jobs, "MAX_PACKAGE_BYTES", 2_000_000)
    with pytest.raises(UserError, match=r"3 MB packed, valid: 2 MB; the largest: data.bin \(3 MB\)"):
        pack(work, tmp_path)


def test_the_command_on_the_head(work: Path) -> None:
    job = SweepJob(work / "sub" / "tiny.yaml", "s3://bucket/a b", ("seeds=[1, 2]",), trust=True)
    assert job.entrypoint(work) == (
        "python -m rllib_scale sweep sub/tiny.yaml --address auto "
        "--results 's3://bucket/a b' --trust --set 'seeds=[1, 2]'"
    )


@pytest.mark.parametrize(
    ("results", "file", "message"),
    [
        ("results/tiny", "sub/tiny.yaml", "must be an absolute path that every node sees, or an s3:// or gs:// URI"),
        ("http://host/tiny", "sub/tiny.yaml", "unknown scheme 'http'"),
        ("/shared/tiny", "../outside.yaml", "must be below the working directory"),
        ("/shared/tiny", "code.yaml", "cannot be read"),
    ],
)
def test_what_cannot_work_is_refused_before_it_is_sent(work: Path, results: str, file: str, message: str) -> None:
    (work.parent / "outside.yaml").write_text("name: tiny\nmethods: [scale]\n")
    with pytest.raises(UserError, match=message):
        SweepJob(work / file, results).entrypoint(work)
