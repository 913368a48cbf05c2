"""Optuna suggests settings, learns from the scores in the results, and goes on where a sweep was extended."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("optuna")

from local_ray import LOCAL_RAY
from rllib_scale.config.plan import Trial
from rllib_scale.config.search import SearchConfig
from rllib_scale.errors import UserError
from rllib_scale.loading import load_sweep, sweep_from
from rllib_scale.policies.policy import load_policy
from rllib_scale.results.dataset import read
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.suggestions import Suggestions
from sweep_runs import SHORT, episodes, file_times, succeed

pytestmark = LOCAL_RAY
PATH = "algorithm.learning_rate"
SWEEP = f"""
name: search
methods: [scale]
algorithm: {{epochs: 2, {SHORT}}}
env: {{episode: {{horizon_s: 1}}}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
search:
  algorithm: optuna
  samples: 2
  metric: [episode_return, response_mean_s]
  space:
    {PATH}: {{loguniform: [1.0e-4, 0.1]}}
    algorithm.passes: {{uniform: [1, 3]}}
    srr.lambda_kl: {{choice: [0.0, 0.1]}}
"""


def test_suggested_trainings_are_named_by_their_settings_and_more_of_them_go_on_with_the_study(tmp_path: Path) -> None:
    file, results = tmp_path / "search.yaml", tmp_path / "results"
    file.write_text(SWEEP)
    said = succeed("sweep", file, "--results", results)
    assert "no other beats in all" in said
    before = file_times(results / "policies")
    assert "2 of 3 trainings are finished" in succeed(
        "sweep", file, "--results", results, settings=["search.samples=3"]
    )
    assert before.items() <= file_times(results / "policies").items()

    rows, changes = episodes(results), read(Location(str(results)), "history")
    plan = make_plan(load_sweep(file, ["search.samples=3"]), "test")
    assert len(rows) == len(plan.trials) == 3
    for trial in plan.trials:
        suggested = {
            row["setting"]: json.loads(row["value"])
            for row in changes[changes["trial"] == trial.name].to_dict("records")
        }
        assert suggested.keys() == {PATH, "algorithm.passes", "srr.lambda_kl"}
        trained = load_policy(results / "policies" / trial.name).trial
        assert {path: trained.setting(path) for path in suggested} == suggested
        assert trained.trial_id in set(rows["scheduler"]), "the same training in a grid has this name, too"


def search(**settings: Any) -> SearchConfig:
    space = {PATH: {"uniform": [0.01, 1.0]}}
    return SearchConfig.model_validate({"algorithm": "optuna", "space": space, "samples": 60} | settings)


def trials_of(search: SearchConfig) -> tuple[Trial, ...]:
    data = {"name": "x", "methods": ["scale"], "search": search.model_dump(mode="json", exclude_defaults=True)}
    return make_plan(sweep_from(data, "x"), "x").trials


def curve(rate: float, **metrics: float) -> list[dict[str, Any]]:
    values = {"episode_return": -abs(rate - 0.8), "response_mean_s": 1.0, "completed": 1.0} | metrics
    return [{"settings": {PATH: rate}, "member": "x", **values}]


def test_it_learns_from_the_scores_in_the_results_and_keeps_the_settings_of_what_goes_on() -> None:
    trials = trials_of(search())
    done, on, pending = trials[:30], trials[30], trials[30:]
    rates = np.random.default_rng(1).uniform(0.01, 1.0, 30).round(4).tolist()
    curves = {trial.name: curve(rate) for trial, rate in zip(done, rates, strict=True)} | {on.name: curve(0.1234)}
    suggestions = Suggestions(search(), pending, curves)
    found = [suggestions.suggest(str(number)) for number in range(30)]
    assert [each["trial"] for each in found] == [trial.name for trial in pending]
    assert found[0][PATH] == 0.1234
    assert all(each["settings"][PATH] == each[PATH] == float(f"{each[PATH]:.4g}") for each in found)
    assert np.median([abs(each[PATH] - 0.8) for each in found[1:]]) < 0.15, "near the best of the results"
    assert suggestions.suggest("31") == "FINISHED"
    fewer = {name: rows for name, rows in curves.items() if name != on.name}
    assert Suggestions(search(), trials[30:32], fewer).suggest("0")[PATH] not in rates, "no point twice"


def test_with_several_metrics_the_best_are_those_that_no_others_beat() -> None:
    metrics = search(metric=["response_mean_s", "completed"])
    scores = {
        "fast": (1.0, 5.0),
        "full": (2.0, 9.0),
        "worse": (2.0, 8.0),
        "same": (1.0, 5.0),
        "none": (math.nan, 10.0),
    }
    assert metrics.best(scores) == ["fast", "full", "same"]
    assert Suggestions(metrics, trials_of(metrics)[:1], {}).suggest("0")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seeds": [1, 2]}, "search.algorithm optuna .* one method and one seed"),
        ({"grid": {"algorithm.clip": [0.1, 0.2]}}, "search.algorithm optuna .* leave out grid"),
        ({"search": {"space": {"env.workload.offered_load": {"choice": [0.5]}}}}, "search.space.env.workload.*random"),
        (
            {"search": {"space": {"algorithm.minibatch_size": {"choice": [256, 100]}}}},
            "is not a multiple of",
        ),
        ({"search": {"space": {PATH: {"uniform": [0.1, 2.0]}}}}, "learning_rate"),
        ({"search": {"space": {}}}, "algorithm optuna suggests settings of `space`, which is empty"),
        ({"search": {"scheduler": "pbt"}}, "valid with algorithm optuna: none, asha"),
        ({"search": {"scheduler": "asha", "metric": ["completed", "episode_return"]}}, "by one metric, not by 2"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused_before_anything_is_trained(changed: dict[str, Any], said: str) -> None:
    data = {"name": "x", "methods": ["scale"], "search": search().model_dump(mode="json", exclude_defaults=True)}
    settings = data["search"] | changed.pop("search", {})
    with pytest.raises(UserError, match=said):
        make_plan(sweep_from(data | changed | {"search": settings}, "x"), "x")
