"""Checkpoints are pickles: those that this account did not write here are loaded with --trust alone."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path

import pytest

from local_ray import LOCAL_RAY
from rllib_scale import __version__
from rllib_scale.errors import UserError
from rllib_scale.sweeps import checkpoints
from rllib_scale.sweeps.checkpoints import check_formats, newest_checkpoints, newest_in, reading, writing
from sweep_runs import SHORT, refused, succeed

pytestmark = LOCAL_RAY
SWEEP = f"""
name: tiny
methods: [scale]
algorithm: {{epochs: 2, {SHORT}}}
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
    found = newest_in(checkpoint)
    assert found is not None
    with reading(found) as folder:
        for path in folder.rglob("*.pkl"):
            path.write_bytes(pickle.dumps(Poison(path.read_bytes(), touched)))
        with writing(checkpoint, 1) as content:
            shutil.copytree(folder, content, dirs_exist_ok=True)
    assert newest_in(checkpoint) == found


def last_checkpoint(results: Path) -> Path:
    (found,) = newest_checkpoints(results / "trials").values()
    assert found.file.local is not None
    return found.file.local.parent


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


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(tmp_path / "run-001" / "a" / "checkpoint_000001", 3):
        pass
    check_formats(newest_checkpoints(tmp_path).values())
    monkeypatch.setattr(checkpoints, "FORMAT", checkpoints.FORMAT + 1)
    with pytest.raises(UserError, match=rf"version {re.escape(__version__)} of rllib-scale.*cannot resume.*--results"):
        check_formats(newest_checkpoints(tmp_path).values())
