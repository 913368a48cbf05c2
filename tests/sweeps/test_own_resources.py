"""Each training of a sweep has the resources of its own settings, and a method the settings of its own."""

from __future__ import annotations

from pathlib import Path

from local_ray import LOCAL_RAY
from rllib_scale.loading import load_sweep
from rllib_scale.sweeps.planning import make_plan
from sweep_runs import SHORT, episodes, succeed

pytestmark = LOCAL_RAY
SWEEP = f"""
name: own
methods: [{{crossattn: {{algorithm: {{epochs: 1, {SHORT}}}}}}}, {{dqn: {{network: {{name: cross-attention}}}}}}]
seeds: [1, 2]
algorithm: {{steps_per_epoch: 64, num_envs: 2, epochs: 2}}
grid: {{resources.env_runners: [0, 1]}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
"""


def test_trainings_with_other_numbers_of_runners_are_trained_in_one_sweep(tmp_path: Path) -> None:
    """All of them got the resources of the sweep, and those that needed more never started."""
    file, results = tmp_path / "own.yaml", tmp_path / "results"
    file.write_text(SWEEP)
    said = succeed("sweep", file, "--results", results)
    assert "each needs 1 to 2 CPUs" in said
    trials = make_plan(load_sweep(file), "test").trials
    assert {(trial.config.method, trial.config.network.name) for trial in trials} == {
        (method, "cross-attention") for method in ("crossattn", "dqn")
    }
    assert set(episodes(results)["scheduler"]) == {trial.planned_id for trial in trials}
    assert len(trials) == 2 * 2 * 2
