"""On a backend, as on a live cluster, a policy makes the schedule that it makes in the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.cases import random_mode_config, random_mode_workload
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.evaluation.play import play
from rllib_scale.observation.backend import run
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.policy import load_policy
from rllib_scale.schedulers.rules import RULES, make_scheduler
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.simulator.record import SCHEDULE
from rllib_scale.workloads.model import Workload


def set_fields(env: EnvConfig, section: str, **values: Any) -> EnvConfig:
    return EnvConfig.model_validate(env.model_dump() | {section: getattr(env, section).model_dump() | values})


def schedules(scheduler: Any, env: EnvConfig, seed: int, workload: Workload | None = None) -> list[np.ndarray]:
    """By the engine's steps; on a backend."""
    stepped = play(scheduler, env, seed, [0], workload=workload).schedule()
    played = scheduler.problem(env)
    backend = SimulatedBackend(played, seed, 0, workload)
    scheduler.reset([(seed, 0)])
    run(scheduler, backend, played)
    return [stepped, backend.engine.schedule()]


def check_same(schedule: np.ndarray, expected: np.ndarray) -> None:
    for column in SCHEDULE.names or ():
        np.testing.assert_array_equal(schedule[column], expected[column], column)


SEVERAL = {"on_busy": "reserve", "order": "open", "candidates": 3}


@pytest.mark.parametrize(
    ("name", "decision"), [("steady-0.7", {}), ("paper", {"on_busy": "reserve"}), ("steady-0.7", SEVERAL)]
)
def test_a_policy_plays_as_in_the_engine(name: str, decision: dict[str, Any]) -> None:
    """Of several candidates it decides on the first."""
    env = set_fields(scenario(name), "decision", **decision)
    stepped, dispatched = schedules(load_policy("zoo:scale", mask=env.episode.mask), env, seed=5)
    assert len(stepped) > 10
    check_same(dispatched, stepped)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31), name=st.sampled_from(sorted(RULES)))
def test_rules_play_as_in_the_engine_in_every_mode_without_invalid_answers(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    env = random_mode_config(rng)
    workload = Workload.from_dict(random_mode_workload(rng, env, False), "random")
    env = set_fields(env, "episode", max_decisions=None, idle_advance="event")
    if env.decision.on_busy == "step":
        env = set_fields(set_fields(env, "episode", mask="feasible"), "decision", order=env.decision.level1)
    scheduler: Policy = make_scheduler(name, env.observation, env.episode.mask)
    stepped, dispatched = schedules(scheduler, env, seed, workload)
    check_same(dispatched, stepped)


def test_without_a_mask_a_task_waits_for_an_event_and_costs_no_step() -> None:
    env = scenario("paper")
    stepped, dispatched = schedules(make_scheduler("earliest-finish", env.observation), env, seed=5)
    assert not np.array_equal(stepped, dispatched)
    events = {0.0, *dispatched["arrival_s"], *dispatched["finish_s"]}
    assert set(dispatched["start_s"]) <= events
    assert not set(stepped["start_s"]) <= {0.0, *stepped["arrival_s"], *stepped["finish_s"]}
