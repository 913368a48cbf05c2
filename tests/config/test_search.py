"""What a search draws, what it scores by, and the trials that it becomes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.search import SearchConfig, check_acts, points, recent
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan

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


@given(st.floats(1e-6, 1e6), st.floats(1.0001, 1e4), st.sampled_from(["uniform", "loguniform"]), st.integers(0, 99))
def test_draws_are_in_their_range_and_of_four_digits(low: float, ratio: float, kind: str, seed: int) -> None:
    bounds = [low, low * ratio]
    for point in points(search(space={"algorithm.reward_unit": {kind: bounds}}, samples=20, seed=seed)):
        value = point["algorithm.reward_unit"]
        assert bounds[0] <= value <= bounds[1]
        assert value in (*bounds, float(f"{value:.4g}"))


def test_draws_are_spread_over_their_range_integers_where_the_setting_is_one_or_of_a_choice() -> None:
    space = {
        "algorithm.gamma": {"uniform": [0, 1]},
        "algorithm.passes": {"uniform": [2, 4]},
        "network.num_heads": {"choice": [2, 4, 8]},
    }
    drawn = points(search(space=space, samples=200))
    gammas = [point["algorithm.gamma"] for point in drawn]
    assert 0 <= min(gammas) < 0.02 < 0.98 < max(gammas) <= 1
    passes = [point["algorithm.passes"] for point in drawn]
    assert {type(each) for each in passes} == {int}
    assert all(50 < passes.count(each) < 85 for each in (2, 3, 4))
    assert {point["network.num_heads"] for point in drawn} == {2, 4, 8}
    assert points(None) == points(search(space={})) == [{}]
    with pytest.raises(UserError, match=r"search.space.algorithm.passes \[2.1, 2.9\]: there is no integer"):
        points(search(space={"algorithm.passes": {"uniform": [2.1, 2.9]}}))


def test_draws_depend_on_the_seed_alone_and_more_samples_leave_the_first_what_they_are() -> None:
    assert points(search(samples=8)) == points(search(samples=16))[:8]
    assert points(search(seed=1)) != points(search(seed=2))


def test_points_become_cells_with_their_seeds_and_a_grid() -> None:
    config = sweep(seeds=[1, 2], grid={"algorithm.gamma": [0.9, 0.99]}, search={"space": LAMBDAS, "samples": 3})
    trials = make_plan(config, "test").trials
    assert len(trials) == 2 * 2 * 3
    assert {trial.config.srr.lambda_kl for trial in trials} == {
        point["srr.lambda_kl"] for point in points(config.search)
    }
    assert {trial.config.algorithm.gamma for trial in trials} == {0.9, 0.99}
    # A trial is what its values are, whoever chose them.
    first = trials[0].config
    by_hand = sweep(seeds=[1], algorithm={"gamma": 0.9}, srr=first.srr.model_dump())
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
    scores = {"a": [1.0], "b": [math.nan], "c": [3.0], "d": [3.0], "e": [1.0]}
    assert search(metric="completed").best(scores) == ["c", "d"]
    assert search(metric="response_mean_s").best(scores) == ["a", "e"]
    assert search().best({"b": [math.nan]}) == []


@given(st.integers(1, 50), st.integers(1, 9), st.integers(1, 500), st.sampled_from(["asha", "pbt"]))
def test_a_scheduler_acts_if_an_epoch_before_the_last_ends_at_its_interval_or_later(
    epochs: int, steps: int, interval: int, scheduler: str
) -> None:
    config = search(scheduler=scheduler, asha={"grace_steps": interval}, pbt={"interval_steps": interval})
    ppo = {"epochs": epochs, "steps_per_epoch": 32 * steps, "minibatch_size": 32}
    trial = TrialConfig.of("scale", seed=1, algorithm=ppo)
    if any(epoch * 32 * steps >= interval for epoch in range(1, epochs)):
        check_acts(config, [trial])
    else:
        with pytest.raises(UserError, match=f"{interval}: the trainings end after {epochs * 32 * steps} env steps"):
            check_acts(config, [trial])
