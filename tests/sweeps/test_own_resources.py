"""Each training of a sweep has the resources of its own settings, and a method the settings of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

from local_ray import LOCAL_RAY
from rllib_scale.clusters.session import ray_session
from rllib_scale.loading import load_sweep
from rllib_scale.sweeps import tuning
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.sweep import Sweep
from sweep_runs import SHORT, episodes, succeed

pytestmark = LOCAL_RAY
SWEEP = f"""
name: own
methods: [{{crossattn: {{algorithm: {{epochs: 1, {SHORT}}}}}}}, {{dqn: {{network: {{name: cross-attention}}}}}}]
seeds: [1]
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
    assert len(trials) == 2 * 2


def test_what_tune_loads_for_each_training_is_of_one_size_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the resources of all, so that the start of 10,000 trainings took hours."""
    file, sizes = tmp_path / "own.yaml", list[int]()
    file.write_text(SWEEP)

    def run(trainable: Any, **_: Any) -> None:
        sizes.append(len(cloudpickle.dumps(trainable)))

    monkeypatch.setattr("ray.tune.run", run)
    with ray_session(num_cpus=1):
        for count in (1, 50):
            plan = make_plan(load_sweep(file, [f"seeds={[*range(count)]}"]), "test")
            sweep = Sweep(plan, tmp_path / str(count), print)
            sweep.open()
            tuning._fit(sweep, plan.trials, {}, None, Evaluations(sweep, False, 1))
    assert abs(sizes[1] - sizes[0]) < 49, "less than a byte for each further seed"
