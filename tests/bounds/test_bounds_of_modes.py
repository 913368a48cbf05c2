"""Bounds hold in every mode, or say that they do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.mode_cases import random_mode_config
from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate

CASES = range(150)


def played(case: int) -> tuple[dict[str, float], dict[str, float]]:
    """Bounds and metrics of an episode that a greedy, random player plays."""
    rng = np.random.default_rng([case, 7])
    config = random_mode_config(rng)
    engine = Engine(config)
    engine.reset([case], [0])
    while not engine.done[0]:
        mask = engine.mask[0]
        rows = np.flatnonzero(mask[: engine.candidates * engine.num_slots])
        fit = engine.fit[0].reshape(-1)
        best = rows[fit[rows] == fit[rows].max()] if len(rows) else rows
        action = int(rng.choice(best)) if len(best) and fit[best[0]] else engine.candidates * engine.num_slots
        engine.step([action if engine.answerable(np.array([action]))[0] else engine.candidates * engine.num_slots])
    return lower_bounds(config, generate(config, case, 0)), engine.metrics()


@pytest.mark.parametrize("case", CASES)
def test_no_episode_is_better_than_its_bounds(case: int) -> None:
    bounds, metrics = played(case)
    for name in ("bound_critical_path_s", "bound_capacity_s"):
        if not math.isnan(bounds[name]):
            assert metrics["response_censored_s"] >= bounds[name] - 1e-9, name


def test_where_a_task_may_move_on_there_is_no_capacity_bound() -> None:
    seen = set()
    for case in CASES:
        config = random_mode_config(np.random.default_rng([case, 7]))
        bounds = lower_bounds(config, generate(config, case, 0))
        if not math.isnan(bounds["bound_critical_path_s"]):
            seen.add((config.decision.preemption, math.isnan(bounds["bound_capacity_s"])))
    assert seen == {("none", False), ("restart", False), ("resume", True)}
