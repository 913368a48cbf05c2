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
from rllib_scale.sweeps.checkpoints import check_format, epoch_of, latest_checkpoint, reading, writing
from sweep_runs import SHORT, refused, succeed

pytestmark = LOCAL_RAY
SWEEP = f"""
name: tiny
methods: [scale]
training: {{epochs: 2}}
ppo: {{{SHORT}}}
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
    with reading(checkpoint) as folder:
        for path in folder.rglob("*.pkl"):
            path.write_bytes(pickle.dumps(Poison(path.read_bytes(), touched)))
        with writing(checkpoint, 1) as content:
            shutil.copytree(folder, content, dirs_exist_ok=True)
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
    trial = tmp_path / "run-001" / "a"
    with writing(trial / "checkpoint_000001", 3):
        pass
    newest = latest_checkpoint(tmp_path, "a")
    assert newest is not None
    check_format(newest)
    shutil.rmtree(trial)
    (trial / "checkpoint_000001").mkdir(parents=True)
    contents = {"format": 3, "version": "0.2.0", "epoch": 3, "sizes": {}}  # which stood beside the other files
    (trial / "checkpoint_000001" / "contents.json").write_text(json.dumps(contents))
    older = latest_checkpoint(tmp_path, "a")
    assert older is not None
    with pytest.raises(UserError, match=r"version 0\.2\.0 of rllib-scale.*cannot resume from it.*--results"):
        check_format(older)
