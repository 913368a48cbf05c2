"""The estimate of a sweep's CPU time: what it is in proportion to, and what it leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from rllib_scale import presets
from rllib_scale.loading import load_sweep, sweep_from
from rllib_scale.sweeps.cpu_time import START_S, SWEEP_S, cpu_hours, sentence
from rllib_scale.sweeps.planning import make_plan

RULES = {"scales": [16], "heuristics": ["fastest-idle"]}


def hours(**data: Any) -> float:
    return cpu_hours(make_plan(sweep_from({"name": "x", "evaluation": RULES} | data, "test"), "test"))[0]


@pytest.mark.parametrize("method", ["scale", "dqn", "sac", "context-price", "decima"])
def test_it_grows_with_epochs_and_seeds_alone(method: str) -> None:
    def of(epochs: int, seeds: int) -> float:
        given = {"scenario": "steady-0.7", "methods": [method], "seeds": list(range(seeds))}
        return hours(**given, algorithm={"epochs": epochs})

    one, two = of(10, 1), of(20, 1)
    assert of(30, 1) - two == pytest.approx(two - one)
    assert of(10, 3) - of(10, 2) == pytest.approx(of(10, 2) - one)
    assert one > (SWEEP_S + START_S) / 3600


def test_every_preset_has_an_estimate_and_given_workloads_are_left_out() -> None:
    for name in presets.names():
        plan = make_plan(load_sweep(presets.sweep_file(name)), name)
        known, left_out = cpu_hours(plan)
        assert 0 < known < 1e5 or left_out, name
        given = sum(not unit.env.workload.is_synthetic for unit in plan.units)
        assert (f"{given:,} evaluation" in sentence(plan)) == (given > 0), name
