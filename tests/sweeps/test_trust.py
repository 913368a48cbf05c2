"""Checkpoints are pickles: those that this account did not write here are loaded with --trust alone."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from local_ray import LOCAL_RAY
from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import CONTENTS, check_format, epoch_of, latest_checkpoint, seal
from sweep_runs import SHORT, refused, succeed

pytestmark = LOCAL_RAY
SWEEP = f"""
name: tiny
methods: [scale]
training: {{epochs: 2, {SHORT}}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
checkpoints: {{every_epochs: 1}}
"""


class Poison:
    """Makes a folder when it is loaded, and is then what was there before."""

    def __init__(self, original: bytes, path: Path) -> None:
        make, load = f"makedirs({str(path)!r}, exist_ok=True)", f"loads({original!r})"
        self.code = f"__import__('os').{make} or __import__('pickle').{load}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (self.code,)


def poison(checkpoint: Path, touched: Path) -> None:
    """Poison every pickle of a checkpoint, which stays whole."""
    for path in checkpoint.rglob("*.pkl"):
        path.write_bytes(pickle.dumps(Poison(path.read_bytes(), touched)))
    (checkpoint / CONTENTS).unlink()
    seal(checkpoint, 1)
    assert epoch_of(checkpoint) == 1


def last_checkpoint(results: Path) -> Path:
    (policy,) = (path.name for path in (results / "trials" / "run-001").iterdir() if path.is_dir())
    found = latest_checkpoint(results / "trials", policy)
    assert isinstance(found, Location)
    assert found.local is not None
    return found.local


def test_checkpoints_of_somebody_else_are_not_unpickled_without_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file, own, foreign, touched = (tmp_path / name for name in ("tiny.yaml", "own", "foreign", "touched"))
    file.write_text(SWEEP)
    succeed("sweep", file, "--results", own)
    shutil.rmtree(own / "policies")
    shutil.rmtree(last_checkpoint(own))  # the training has one of its two epochs
    shutil.copytree(own, foreign)
    poison(last_checkpoint(foreign), touched)

    assert "--trust" in refused("sweep", file, "--results", foreign)
    assert not touched.exists()
    succeed("sweep", file, "--results", foreign, "--trust")
    assert touched.exists(), "what the refusal was for"
    assert "0 of 1 trainings are finished, 1 resume" in succeed("sweep", file, "--results", own)


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    seal(tmp_path, 3)
    check_format(Location(str(tmp_path)))
    contents = json.loads((tmp_path / CONTENTS).read_text())
    (tmp_path / CONTENTS).write_text(json.dumps(contents | {"format": 1, "version": "0.2.0"}))
    with pytest.raises(UserError, match=r"version 0\.2\.0 of rllib-scale.*cannot resume from it.*--results"):
        check_format(Location(str(tmp_path)))
