"""ASHA that goes on with what it knew, and members of a population that keep their names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.tune.schedulers import TrialScheduler

from rllib_scale.config.search import ASHAConfig, SearchConfig
from rllib_scale.sweeps.stopping import GoingOnASHA, score_of

SEARCH = SearchConfig(
    metric="response_mean_s", scheduler="asha", window=1, asha=ASHAConfig(grace_steps=100, reduction_factor=2)
)


def trial(name: str) -> Any:
    return SimpleNamespace(trial_id=f"id-{name}", config={"trial": name})


def curve(response: float, epochs: int) -> list[dict[str, float]]:
    return [{"env_steps": 100 * epoch, "response_mean_s": response} for epoch in range(1, epochs + 1)]


def feed(scheduler: GoingOnASHA, one: Any, rows: list[dict[str, float]]) -> list[str]:
    scheduler.on_trial_add(None, one)
    return [
        scheduler.on_trial_result(None, one, {"env_steps": row["env_steps"], "score": row["response_mean_s"]})
        for row in rows
    ]


def test_the_worse_of_two_stops_at_the_first_rung() -> None:
    scheduler = GoingOnASHA(SEARCH, 800, {}, ["good", "bad"])
    assert feed(scheduler, trial("good"), curve(10.0, 1)) == [TrialScheduler.CONTINUE]
    assert feed(scheduler, trial("bad"), curve(20.0, 1)) == [TrialScheduler.STOP]


def test_a_training_finished_before_the_interruption_still_counts() -> None:
    scheduler = GoingOnASHA(SEARCH, 800, {"good": curve(10.0, 8)}, ["bad"])
    assert feed(scheduler, trial("bad"), curve(20.0, 1)) == [TrialScheduler.STOP]


def test_a_training_that_goes_on_is_not_judged_again_at_rungs_it_has_passed() -> None:
    """At 300 steps it has passed the rungs at 100 and 200, and judges others there."""
    curves = {"on": curve(20.0, 3)}
    scheduler = GoingOnASHA(SEARCH, 800, curves, ["on", "new"])
    on = trial("on")
    scheduler.on_trial_add(None, on)
    assert feed(scheduler, trial("new"), curve(10.0, 2)) == [TrialScheduler.CONTINUE] * 2
    later = scheduler.on_trial_result(None, on, {"env_steps": 350, "score": 20.0})
    assert later == TrialScheduler.CONTINUE
    assert feed(scheduler, trial("worse"), curve(30.0, 1)) == [TrialScheduler.STOP]


def test_without_an_ended_episode_a_training_is_worse_than_any() -> None:
    assert score_of([{"response_mean_s": float("nan")}], SEARCH) > 1e20
    best = SearchConfig(metric="completed")
    assert score_of([{"completed": float("nan")}], best) < -1e20
