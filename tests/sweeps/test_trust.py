"""Checkpoints are pickles: those that this account did not write here are loaded with --trust alone."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import epoch_of, latest_checkpoint

pytestmark = LOCAL_RAY
SWEEP = """
name: tiny
methods: [scale]
training: {epochs: 2, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}
evaluation: {scales: [8], episodes: 1, heuristics: [], features: false}
checkpoints: {every_epochs: 1}
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
    contents = checkpoint / "contents.json"
    described = json.loads(contents.read_text())
    described["sizes"] = {name: (checkpoint / name).stat().st_size for name in described["sizes"]}
    contents.write_text(json.dumps(described))
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

    def sweep(results: Path, *options: str) -> Result:
        return CliRunner().invoke(main, ["sweep", str(file), "--results", str(results), *options])

    first = sweep(own)
    assert first.exit_code == 0, first.output
    shutil.rmtree(own / "policies")
    shutil.rmtree(last_checkpoint(own))  # the training has one of its two epochs
    shutil.copytree(own, foreign)
    poison(last_checkpoint(foreign), touched)

    refused = sweep(foreign)
    assert refused.exit_code == 2
    assert "--trust" in refused.stderr
    assert not touched.exists()
    trusted = sweep(foreign, "--trust")
    assert trusted.exit_code == 0, trusted.output
    assert touched.exists()  # what the refusal was for
    resumed = sweep(own)
    assert resumed.exit_code == 0, resumed.output
    assert "0 of 1 trainings are finished, 1 go on" in resumed.stdout
