"""Curves in MLflow and W&B, by the real packages, on this machine alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.results.tables import TRAINING_COLUMNS, read_table
from rllib_scale.sweeps import tracking

pytestmark = LOCAL_RAY
SWEEP = """
name: tracked
methods: [scale]
training: {epochs: 3, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}
grid: {training.learning_rate: [1.0e-3, 1.0e-4]}
evaluation: {scales: [8], episodes: 1, heuristics: [], features: false}
"""


def sweep(folder: Path, tracker: str) -> Result:
    (folder / "tracked.yaml").write_text(f"{SWEEP}tracking: [{tracker}]\n")
    return CliRunner().invoke(main, ["sweep", str(folder / "tracked.yaml"), "--results", str(folder / "results")])


def test_mlflow_has_settings_and_curve_of_each_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "as it was")  # which MLflow changes
    done = sweep(tmp_path, "mlflow")
    assert done.exit_code == 0, done.output
    results = tmp_path / "results"
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    client = mlflow.MlflowClient(f"sqlite:///{results / 'mlflow.db'}")
    tracked = client.search_runs([client.get_experiment_by_name("tracked").experiment_id])
    assert {entry.info.run_name for entry in tracked} == {path.name for path in (results / "policies").iterdir()}
    assert {entry.data.params["settings/training.learning_rate"] for entry in tracked} == {"0.001", "0.0001"}
    for entry in tracked:
        assert entry.info.status == "FINISHED"
        rows = training[training["cell"] == entry.data.params["settings/cell"]]
        history = client.get_metric_history(entry.info.run_id, "policy_loss")
        assert {point.step: point.value for point in history} == dict(
            zip(rows["epoch"], rows["policy_loss"], strict=True)
        )


def test_a_tracker_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "as it was")
    monkeypatch.setattr(tracking, "SERVER", f"sqlite:///{tmp_path}/tracked.yaml")
    refused = sweep(tmp_path, "mlflow")
    assert refused.exit_code == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith("Error: tracking: mlflow cannot be used")


@pytest.mark.slow
def test_wandb_writes_an_offline_run_for_each_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    done = sweep(tmp_path, "wandb")
    assert done.exit_code == 0, done.output
    runs = list((tmp_path / "results" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(runs) == 2
    assert all(b"policy_loss" in path.read_bytes() for path in runs)
