"""Curves in MLflow and W&B, by the real packages, on this machine alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local_ray import LOCAL_RAY
from sweep_runs import SHORT, refused, succeed, training

pytestmark = LOCAL_RAY
SWEEP = f"""
name: tracked
methods: [scale]
algorithm: {{epochs: 3, {SHORT}}}
grid: {{algorithm.learning_rate: [1.0e-3, 1.0e-4]}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The command without its trackers."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "tracked.yaml").write_text(SWEEP)
    return ["sweep", tmp_path / "tracked.yaml", "--results", tmp_path / "results"]


def test_mlflow_has_settings_and_curve_of_each_training(tmp_path: Path, words: list[object]) -> None:
    mlflow = pytest.importorskip("mlflow")
    succeed(*words, settings=["tracking=[mlflow]"])
    results = tmp_path / "results"
    client = mlflow.MlflowClient(f"sqlite:///{results / 'mlflow.db'}")
    tracked = client.search_runs([client.get_experiment_by_name("tracked").experiment_id])
    assert {entry.info.run_name for entry in tracked} == {path.name for path in (results / "policies").iterdir()}
    assert {entry.data.params["settings/algorithm.learning_rate"] for entry in tracked} == {"0.001", "0.0001"}
    assert not {"MLFLOW_TRACKING_URI", "TUNE_MAX_PENDING_TRIALS_PG"} & os.environ.keys(), "of this sweep alone"
    for entry in tracked:
        assert entry.info.status == "FINISHED"
        rows = training(results).query(f"scheduler == '{entry.data.params['settings/scheduler']}'")
        history = client.get_metric_history(entry.info.run_id, "policy_loss")
        curve = {point.step: point.value for point in history}
        assert curve == dict(zip(rows["epoch"], rows["policy_loss"], strict=True))


def test_a_tracker_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, words: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/tracked.yaml")
    line = refused(*words, settings=["tracking=[mlflow]"])
    assert line.startswith("Error: tracking: mlflow cannot be used")


@pytest.mark.slow
def test_wandb_writes_an_offline_run_for_each_training(
    tmp_path: Path, words: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    succeed(*words, settings=["tracking=[wandb]"])
    runs = list((tmp_path / "results" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(runs) == 2
    assert all(b"policy_loss" in path.read_bytes() for path in runs)
