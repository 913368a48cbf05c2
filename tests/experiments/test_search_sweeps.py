"""Searches on a local Ray through the command line: what they train, stop and change, and that it is done once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.slow]

from rllib_scale.configio import load_model  # noqa: E402
from rllib_scale.experiments.plan import SweepConfig, expand  # noqa: E402
from rllib_scale.experiments.results import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table  # noqa: E402

STEPS = 64
SWEEP = """
name: search
methods: [scale]
training: {epochs: 8, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}
env: {episode: {horizon_s: 1}}
evaluation: {scales: [8], episodes: 1, heuristics: [], features: false}
checkpoints: {every_epochs: 2}
search:
  metric: episode_return
  space:
    srr.lambda_decorrelation: {loguniform: [1.0e-3, 1.0]}
    srr.lambda_kl: {loguniform: [1.0e-4, 0.1]}
"""


def run(folder: Path, *settings: str) -> str:
    """Run the sweep in the folder; returns what it said."""
    (folder / "search.yaml").write_text(SWEEP)
    words = ["sweep", str(folder / "search.yaml"), "--results", str(folder / "results")]
    words += [part for setting in settings for part in ("--set", setting)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "MLFLOW_"))}
    done = subprocess.run(
        [sys.executable, "-m", "rllib_scale", *words],
        capture_output=True,
        text=True,
        timeout=400,
        env=environment | {"HOME": str(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def snapshot(results: Path) -> dict[Path, int]:
    parts = ("policies", "trials", "evaluations")
    return {path: path.stat().st_mtime_ns for part in parts for path in (results / part).rglob("*") if path.is_file()}


def test_asha_stops_the_worse_for_good_and_the_best_is_named(tmp_path: Path) -> None:
    settings = ["search.scheduler=asha", "search.samples=5", f"search.asha.grace_steps={2 * STEPS}"]
    settings += ["search.asha.reduction_factor=2"]
    said = run(tmp_path, *settings)
    results = tmp_path / "results"
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS).set_index("cell")
    assert len(episodes) == 5
    stopped = episodes[episodes["epochs"] < 8]
    assert len(stopped) > 0
    assert (episodes["epochs"] == 8).any()
    assert (stopped["overrides"] == "stopped=asha").all()
    assert (episodes.drop(stopped.index)["overrides"] == "").all()
    assert (episodes["env_steps"] == STEPS * episodes["epochs"]).all()
    trained = read_table(results / "training.parquet", TRAINING_COLUMNS).groupby("cell")["epoch"].max()
    assert trained.to_dict() == episodes["epochs"].to_dict()
    assert "best in training: scale, srr.lambda_decorrelation=" in said
    assert "episode_return" in said

    before = snapshot(results)
    again = run(tmp_path, *settings)
    assert snapshot(results) == before
    assert again.splitlines()[-1] == said.splitlines()[-1]

    (marks := results / "stopped").rename(tmp_path / "elsewhere")  # as where the scheduler never was
    assert "go on" in run(tmp_path, *settings[1:])
    assert not marks.exists()
    whole = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert whole["epochs"].tolist() == [8] * 5
    assert whole["overrides"].tolist() == [""] * 5


def test_a_population_changes_settings_on_the_way(tmp_path: Path) -> None:
    settings = ["search.scheduler=pbt", "search.samples=4", f"search.pbt.interval_steps={2 * STEPS}"]
    settings += ["search.pbt.quantile=0.5", "checkpoints.keep=4", "training.epochs=20"]
    run(tmp_path, *settings)
    results = tmp_path / "results"
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    (tmp_path / "pbt.yaml").write_text(SWEEP)
    cells = expand(load_model(SweepConfig, tmp_path / "pbt.yaml", settings), "test")
    initial = {"; ".join(f"{path}={value}" for path, value in cell.overrides) for cell in cells}
    assert training.groupby("cell")["epoch"].agg(list).to_dict() == {cell.trial.cell: [*range(1, 21)] for cell in cells}
    assert set(training["settings"]) > initial  # some were tried that no member began with
    before = snapshot(results)
    run(tmp_path, *settings)
    assert snapshot(results) == before


def test_optuna_trains_batch_after_batch_and_curves_are_tracked(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    settings = ["search.sampler=optuna", "search.samples=4", "search.batch=2", "training.epochs=3"]
    said = run(tmp_path, *settings, "tracking=[mlflow, wandb]")
    results = tmp_path / "results"
    assert len(read_table(results / "episodes.parquet", EPISODE_COLUMNS)) == 4
    names = {path.name for path in (results / "policies").iterdir()}
    runs = [
        {path.name for path in run.iterdir() if path.is_dir()} for run in sorted((results / "trials").glob("run-*"))
    ]
    assert [len(run) for run in runs] == [2, 2]
    assert set.union(*runs) == names
    assert "best in training" in said

    client = mlflow.MlflowClient(f"sqlite:///{results / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("search")
    tracked = client.search_runs([experiment.experiment_id])
    assert {entry.data.tags["trial_name"] for entry in tracked} == names
    for entry in tracked:
        assert len(client.get_metric_history(entry.info.run_id, "policy_loss")) == 3
    assert len(list((results / "wandb").glob("offline-run-*/*.wandb"))) == 4
    events = [*(results / "trials").glob("run-*/*/events.out.tfevents.*")]
    assert {path.parent.name for path in events} == names
    assert all(path.stat().st_size > 500 for path in events)

    before = snapshot(results)
    again = run(tmp_path, *settings)
    assert snapshot(results) == before
    assert [line for line in again.splitlines() if "best" in line] == [
        line for line in said.splitlines() if "best" in line
    ]
    curve = json.loads((results / "policies" / min(names) / "curve.json").read_text())
    assert [row["epoch"] for row in curve] == [1, 2, 3]
