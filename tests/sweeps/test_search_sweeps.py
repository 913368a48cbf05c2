"""Searches: what they train, stop and change on a local Ray, that it is done once, and how ASHA resumes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.tune.schedulers import TrialScheduler

from local_ray import LOCAL_RAY
from rllib_scale.config.plan import Trial
from rllib_scale.config.search import ASHAConfig, SearchConfig
from rllib_scale.loading import load_sweep
from rllib_scale.policies.policy import load_policy
from rllib_scale.results.storage import Location
from rllib_scale.rl.ppo.ppo_learner import cosine
from rllib_scale.sweeps.checkpoints import newest_checkpoints
from rllib_scale.sweeps.history import history
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.stopping import ResumedASHA
from sweep_runs import SHORT, episodes, file_times, succeed, trained_with, training

pytestmark = LOCAL_RAY
STEPS = 64
SWEEP = f"""
name: search
methods: [scale]
algorithm: {{epochs: 6, {SHORT}}}
env: {{episode: {{horizon_s: 1}}}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
checkpoints: {{every_epochs: 2}}
search: {{metric: episode_return}}
"""
SPACE = "search.space={algorithm.learning_rate: {loguniform: [1.0e-4, 0.1]}}"


def run(folder: Path, *settings: str) -> str:
    """Run the sweep in the folder; returns what it said."""
    (folder / "search.yaml").write_text(SWEEP)
    return succeed("sweep", folder / "search.yaml", "--results", folder / "results", settings=settings)


def test_asha_stops_the_worse_for_good_and_the_best_is_named(tmp_path: Path) -> None:
    """One after the other: the second, whose steps are far too large, is compared with the first at its first rung."""
    settings = ["grid.algorithm.learning_rate=[1.0e-3, 1.0]", "resources.max_concurrent=1"]
    asha = ["search.scheduler=asha", f"search.asha.grace_steps={2 * STEPS}", "search.asha.reduction_factor=2"]
    said = run(tmp_path, *settings, *asha)
    results = tmp_path / "results"
    assert ends(results) == {(2, 1.0), (6, 0.001)}
    assert training(results).groupby("scheduler")["epoch"].max().sort_values().tolist() == [2, 6]
    (best,) = [line for line in said.splitlines() if line.startswith("best in training")]
    assert "algorithm.learning_rate=0.001: episode_return" in best

    finished = [results / part for part in ("policies", "trials", "episodes")]
    before = file_times(*finished)
    assert best in run(tmp_path, *settings, *asha)
    assert file_times(*finished) == before

    assert "1 of 2 trainings are finished, 1 resume" in run(tmp_path, *settings), "without the scheduler"
    assert ends(results) == {(2, 1.0), (6, 1.0), (6, 0.001)}, "the stopped training is another one"


def ends(results: Path) -> set[tuple[int, float]]:
    """Epochs and learning rate of the trainings that were evaluated."""
    found = [trained_with(results)[one] for one in set(episodes(results)["scheduler"])]
    return {(s["stop"]["epochs"] or s["algorithm"]["epochs"], s["algorithm"]["learning_rate"]) for s in found}


def curve_of(results: Path, trained: Trial) -> list[dict[str, Any]]:
    return newest_checkpoints(Location(str(results / "trials")))[trained.name].curve()


@pytest.mark.slow
def test_a_population_changes_settings_on_the_way(tmp_path: Path) -> None:
    """At each comparison the worse of two members goes on as a copy of the better, with another learning rate.

    With this seed the one that trains first is the worse: compared as soon as it arrives, it would have nobody to copy.
    """
    settings = [SPACE, "seeds=[2]", "search.scheduler=pbt", "search.samples=2", "search.pbt.quantile=0.5"]
    settings += [f"search.pbt.interval_steps={2 * STEPS}", f"resources.cpus={ray.cluster_resources()['CPU']}"]
    said = run(tmp_path, *settings)
    trials = make_plan(load_sweep(tmp_path / "search.yaml", settings), "test").trials
    curves = {trial.name: curve_of(tmp_path / "results", trial) for trial in trials}
    assert [[row["epoch"] for row in curve] for curve in curves.values()] == [[*range(1, 7)]] * 2
    one, other = curves.values()
    exact = ("settings", "member", "policy_loss")  # compared at the same epoch, the last of which is the fourth
    assert [[row[key] for key in exact] for row in one[:4]] == [[row[key] for key in exact] for row in other[:4]]
    better = one[3]["member"]  # it goes on with its own settings
    assert {row["member"] for row in curves[better][4:]} == {better}
    assert curves[better][5]["settings"] == one[3]["settings"]
    path = "algorithm.learning_rate"
    for trial in trials:
        curve = curves[trial.name]
        assert curve[0]["settings"][path] in [member.config.setting(path) for member in trials]
        trained = load_policy(tmp_path / "results" / "policies" / trial.name).trial
        assert trained.algorithm.learning_rate == curve[5]["settings"][path]  # as trained, not as drawn
        changes = [row["epoch"] for row in history(curve, trial.name)]
        assert changes == [
            1,
            *(row["epoch"] for row in curve[1:] if row["member"] != curve[row["epoch"] - 2]["member"]),
        ]
        for row in curve:
            assert row["learning_rate"] == pytest.approx(cosine(row["epoch"] - 1, row["settings"][path], 5e-5, 6))
    (best,) = [line for line in said.splitlines() if line.startswith("best in training")]
    assert any(f"learning_rate={curve[5]['settings'][path]}:" in best for curve in curves.values())
    assert not {"settings", "member"} & set(training(tmp_path / "results").columns)


SEARCH = SearchConfig(
    metric="response_mean_s", scheduler="asha", window=1, asha=ASHAConfig(grace_steps=100, reduction_factor=2)
)


def trial(name: str) -> Any:
    return SimpleNamespace(trial_id=f"id-{name}", config={"trial": name})


def curve(response: float, epochs: int) -> list[dict[str, float]]:
    return [{"env_steps": 100 * epoch, "response_mean_s": response} for epoch in range(1, epochs + 1)]


def feed(scheduler: ResumedASHA, one: Any, rows: list[dict[str, float]]) -> list[str]:
    scheduler.on_trial_add(None, one)
    results = [{"env_steps": row["env_steps"], "score": row["response_mean_s"]} for row in rows]
    return [scheduler.on_trial_result(None, one, result) for result in results]


def test_the_worse_of_two_stops_at_the_first_rung_also_if_the_better_ended_before_an_interruption() -> None:
    scheduler = ResumedASHA(SEARCH, 800, {}, ["good", "bad"])
    assert feed(scheduler, trial("good"), curve(10.0, 1)) == [TrialScheduler.CONTINUE]
    assert feed(scheduler, trial("bad"), curve(20.0, 1)) == [TrialScheduler.STOP]
    resumed = ResumedASHA(SEARCH, 800, {"good": curve(10.0, 8)}, ["bad"])
    assert feed(resumed, trial("bad"), curve(20.0, 1)) == [TrialScheduler.STOP]


def test_a_training_that_goes_on_is_not_judged_again_at_rungs_it_has_passed() -> None:
    """At 300 steps it has passed the rungs at 100 and 200, and judges others there."""
    scheduler = ResumedASHA(SEARCH, 800, {"on": curve(20.0, 3)}, ["on", "new"])
    on = trial("on")
    scheduler.on_trial_add(None, on)
    assert feed(scheduler, trial("new"), curve(10.0, 2)) == [TrialScheduler.CONTINUE] * 2
    later = scheduler.on_trial_result(None, on, {"env_steps": 350, "score": 20.0})
    assert later == TrialScheduler.CONTINUE
    assert feed(scheduler, trial("worse"), curve(30.0, 1)) == [TrialScheduler.STOP]


def test_a_training_is_judged_as_soon_as_an_episode_has_ended() -> None:
    nothing = float("nan")
    scheduler = ResumedASHA(SEARCH, 800, {"none": curve(nothing, 8)}, [])
    late = curve(nothing, 1) + curve(20.0, 2)[1:]
    assert feed(scheduler, trial("late"), late) == [TrialScheduler.CONTINUE] * 2  # nobody has a score to compare with
    assert feed(scheduler, trial("better"), curve(10.0, 2)) == [TrialScheduler.CONTINUE] * 2
    assert feed(scheduler, trial("worse"), curve(nothing, 1) + curve(30.0, 2)[1:])[1] == TrialScheduler.STOP
    scheduler.on_trial_complete(None, trial("never"), {"env_steps": 800, "score": nothing})
