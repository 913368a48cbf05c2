"""Short trainings share the processes that fit, and each process trains one after the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem

pytest.importorskip("ray")

from local_ray import LOCAL_RAY, RAY_CPUS
from rllib_scale.sweeps.progress import TuneProgress
from rllib_scale.sweeps.tune_loop import UploadOfChanges
from sweep_runs import SHORT, succeed

pytestmark = LOCAL_RAY
TRAININGS = 6
SWEEP = f"""
name: short
methods: [scale]
seeds: {[*range(TRAININGS)]}
algorithm: {{epochs: 2, {SHORT}}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
"""


def test_short_trainings_use_several_processes_again_and_again_and_the_driver_keeps_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainings that are shorter than the start of a process."""
    ended: list[Any] = []
    monkeypatch.setattr(TuneProgress, "on_experiment_end", lambda self, trials, **_: ended.extend(trials))
    (tmp_path / "short.yaml").write_text(SWEEP)
    succeed("sweep", tmp_path / "short.yaml", "--results", tmp_path / "out")
    curves = [*tmp_path.glob("out/trials/run-001/*/result.json")]
    processes = [json.loads(line)["pid"] for path in curves for line in path.read_text().splitlines()]
    assert len(processes) == 2 * TRAININGS
    # Fewer if one process is ready for the next training before another one has started.
    assert len(set(processes)) <= RAY_CPUS

    assert len(ended) == TRAININGS
    for metadata in (trial.run_metadata for trial in ended):
        assert not metadata.last_result
        assert not metadata.metric_analysis
        assert not any(result.metrics for result in metadata.checkpoint_manager.best_checkpoint_results)
    assert not any(path.stat().st_size > 2 for path in tmp_path.glob("out/trials/run-001/experiment_state-*"))


def test_an_upload_sends_what_has_changed_since_the_last(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "trial").mkdir(parents=True)
    for name in ("kept", "trial/changed"):
        (here / name).write_text("one")
    syncer = UploadOfChanges(LocalFileSystem())

    def upload() -> dict[str, str]:
        assert syncer.sync_up(str(here), str(there))
        syncer.wait()
        return {str(path.relative_to(there)): path.read_text() for path in there.rglob("*") if path.is_file()}

    assert upload() == {"kept": "one", "trial/changed": "one"}
    (there / "kept").unlink()
    (here / "trial" / "changed").write_text("other")
    assert upload() == {"trial/changed": "other"}
