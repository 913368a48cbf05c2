"""Searches on a local Ray through the command line: what they train, stop and change, and that it is done once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import ray
from click.testing import CliRunner

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.config.plan import SweepConfig, expand
from rllib_scale.config.yaml_files import load_model
from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table

pytestmark = LOCAL_RAY
STEPS = 64
SWEEP = f"""
name: search
methods: [scale]
training: {{epochs: 6, steps_per_epoch: {STEPS}, minibatch_size: 32, passes: 1, num_envs: 2}}
env: {{episode: {{horizon_s: 1}}}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
checkpoints: {{every_epochs: 2}}
search: {{metric: episode_return}}
"""
SPACE = "search.space={training.learning_rate: {loguniform: [1.0e-4, 0.1]}}"


def run(folder: Path, *settings: str) -> str:
    """Run the sweep in the folder; returns what it said."""
    (folder / "search.yaml").write_text(SWEEP)
    words = ["sweep", str(folder / "search.yaml"), "--results", str(folder / "results")]
    done = CliRunner().invoke(main, words + [part for setting in settings for part in ("--set", setting)])
    assert done.exit_code == 0, done.output
    return done.stdout


def snapshot(results: Path) -> dict[Path, int]:
    parts = ("policies", "trials", "evaluations")
    return {path: path.stat().st_mtime_ns for part in parts for path in (results / part).rglob("*") if path.is_file()}


def test_asha_stops_the_worse_for_good_and_the_best_is_named(tmp_path: Path) -> None:
    """One after the other: the second, whose steps are far too large, is compared with the first at its first rung."""
    settings = ["grid.training.learning_rate=[1.0e-3, 10.0]", "resources.max_concurrent=1"]
    asha = ["search.scheduler=asha", f"search.asha.grace_steps={2 * STEPS}", "search.asha.reduction_factor=2"]
    said = run(tmp_path, *settings, *asha)
    results = tmp_path / "results"
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS).sort_values("epochs")
    assert episodes["epochs"].tolist() == [2, 6]
    assert episodes["env_steps"].tolist() == [2 * STEPS, 6 * STEPS]
    labels = ["training.learning_rate=10.0; stopped=asha", "training.learning_rate=0.001"]
    assert episodes["overrides"].tolist() == labels
    trained = read_table(results / "training.parquet", TRAINING_COLUMNS).groupby("cell")["epoch"].max()
    assert trained.to_dict() == episodes.set_index("cell")["epochs"].to_dict()
    (best,) = [line for line in said.splitlines() if line.startswith("best in training")]
    assert "training.learning_rate=0.001: episode_return" in best

    before = snapshot(results)
    assert best in run(tmp_path, *settings, *asha)
    assert snapshot(results) == before

    (marks := results / "stopped").rename(tmp_path / "elsewhere")  # as where the scheduler never was
    assert "1 of 2 trainings are finished, 1 go on" in run(tmp_path, *settings)
    assert not marks.exists()
    whole = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert whole["epochs"].tolist() == [6, 6]
    assert not whole["overrides"].str.contains("stopped").any()


@pytest.mark.slow
def test_a_population_changes_settings_on_the_way(tmp_path: Path) -> None:
    """At each comparison the worse of two members goes on as a copy of the better, with another learning rate.

    With this seed the one that trains first is the worse: compared as soon as it arrives, it would have nobody to copy.
    """
    settings = [SPACE, "seeds=[2]", "search.scheduler=pbt", "search.samples=2", "search.pbt.quantile=0.5"]
    settings += [
        f"search.pbt.interval_steps={2 * STEPS}",
        f"resources.cpus={ray.cluster_resources()['CPU']}",
    ]  # one after the other
    run(tmp_path, *settings)
    results = tmp_path / "results"
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    (tmp_path / "pbt.yaml").write_text(SWEEP)
    cells = expand(load_model(SweepConfig, tmp_path / "pbt.yaml", settings), "test")
    initial = {"; ".join(f"{path}={value}" for path, value in cell.overrides) for cell in cells}
    assert training.groupby("cell")["epoch"].agg(list).to_dict() == {cell.trial.cell: [*range(1, 7)] for cell in cells}
    assert set(training["settings"][training["epoch"] <= 2]) <= initial  # of a copy, as of what it was copied from
    one, other = (rows.set_index("epoch")[["settings", "policy_loss"]] for _, rows in training.groupby("cell"))
    pd.testing.assert_frame_equal(one.loc[:4], other.loc[:4], check_exact=True)  # compared at the same epoch, the last
    before = set(one["settings"].loc[:4])
    after = [set(rows["settings"].loc[5:]) for rows in (one, other)]
    assert sorted(len(settings - before) for settings in after) == [0, 1]  # the better keeps its own
