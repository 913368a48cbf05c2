"""What a search draws, what it scores by, and the trials that it becomes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import kstest

from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.config.search import SearchConfig, points, recent
from rllib_scale.config.yaml_files import build_model
from rllib_scale.loading import sweep_from

LAMBDAS = {
    "srr.lambda_decorrelation": {"loguniform": [1e-4, 1.0]},
    "srr.lambda_kl": {"loguniform": [1e-5, 0.1]},
}


def search(**data: Any) -> SearchConfig:
    return build_model(SearchConfig, {"space": LAMBDAS, **data}, "test")


def sweep(**data: Any) -> SweepConfig:
    return sweep_from({"name": "test", "methods": ["scale"], **data}, "test")


def test_loguniform_draws_have_uniform_logarithms_within_their_bounds() -> None:
    drawn = np.array([point["srr.lambda_kl"] for point in points(search(samples=400))])
    shares = (np.log(drawn) - math.log(1e-5)) / (math.log(0.1) - math.log(1e-5))
    assert kstest(shares, "uniform").pvalue > 0.01
    assert 0 <= shares.min() < 0.02
    assert 0.98 < shares.max() <= 1


def test_draws_are_in_their_range_or_one_of_a_choice_and_of_four_digits() -> None:
    space = {"ppo.gamma": {"uniform": [0.9, 0.99]}, "ppo.passes": {"choice": [2, 4, 8]}}
    drawn = points(search(space=space, samples=200))
    gammas = [point["ppo.gamma"] for point in drawn]
    assert 0.9 <= min(gammas) < 0.902 < 0.988 < max(gammas) <= 0.99
    assert gammas == [float(f"{gamma:.4g}") for gamma in gammas]
    assert {point["ppo.passes"] for point in drawn} == {2, 4, 8}
    assert points(None) == points(search(space={})) == [{}]


def test_draws_depend_on_the_seed_alone_and_more_samples_leave_the_first_what_they_are() -> None:
    assert points(search(samples=8)) == points(search(samples=16))[:8]
    assert points(search(seed=1)) != points(search(seed=2))


def test_points_become_cells_with_their_seeds_and_a_grid() -> None:
    config = sweep(seeds=[1, 2], grid={"ppo.gamma": [0.9, 0.99]}, search={"space": LAMBDAS, "samples": 3})
    trials = make_plan(config, "test").trials
    assert len(trials) == 2 * 2 * 3
    assert {trial.config.srr.lambda_kl for trial in trials} == {
        point["srr.lambda_kl"] for point in points(config.search)
    }
    assert {trial.label for trial in trials} == {"ppo.gamma=0.9", "ppo.gamma=0.99"}
    # A trial is what its values are, whoever chose them.
    first = trials[0].config
    by_hand = sweep(seeds=[1], ppo={"gamma": 0.9}, srr=first.srr.model_dump())
    assert [trial.config.trial_id for trial in make_plan(by_hand, "test").trials] == [first.trial_id]


def test_members_of_a_population_are_cells_of_their_own() -> None:
    plain, population = (
        make_plan(sweep(search={"space": LAMBDAS, "samples": 2, "scheduler": scheduler}), "test").trials
        for scheduler in ("asha", "pbt")
    )
    assert not {trial.config.trial_id for trial in plain} & {trial.config.trial_id for trial in population}


def test_score_is_the_mean_of_the_last_epochs_with_an_episode() -> None:
    curve = [{"completed": value} for value in (1.0, 5.0, math.nan, 7.0, math.nan)]
    assert recent(curve, "completed", 2) == 6
    assert math.isnan(recent(curve[2:3], "completed", 2))
    scores = {"a": 1.0, "b": math.nan, "c": 3.0, "d": 3.0, "e": 1.0}
    assert [search(metric=metric).better(scores) for metric in ("completed", "response_mean_s")] == ["c", "a"]
    assert search().better({"b": math.nan}) is None
