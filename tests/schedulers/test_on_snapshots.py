"""A scheduler that decides from snapshots alone makes the schedule that it makes in the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from networks.observations import random_network
from reference.mode_cases import random_mode_config, random_mode_workload
from rllib_scale.config import EnvConfig, TrialConfig, scenario
from rllib_scale.evaluation.play import Player, play, run
from rllib_scale.observation.answers import OPEN
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.policies.policy import TrainedPolicy, load_policy
from rllib_scale.schedulers.on_snapshots import OnSnapshots
from rllib_scale.schedulers.rules import RULES, make_scheduler
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.record import SCHEDULE
from rllib_scale.workloads.model import Workload

POLICIES = Path(__file__).parents[2] / "analysis" / "reproduction" / "policies"


def set_fields(env: EnvConfig, section: str, **values: Any) -> EnvConfig:
    return EnvConfig.model_validate(env.model_dump() | {section: getattr(env, section).model_dump() | values})


def schedules(scheduler: Any, env: EnvConfig, seed: int, workload: Workload | None = None) -> list[np.ndarray]:
    """By the engine's steps; on a backend, from snapshots."""
    stepped = play(scheduler, env, seed, [0], workload=workload).schedule()
    backend, dispatcher = SimulatedBackend(env, seed, 0, workload), OnSnapshots(scheduler, env)
    dispatcher.reset([(seed, 0)])
    run(dispatcher, backend)
    return [stepped, backend.engine.schedule()]


def check_same(schedule: np.ndarray, expected: np.ndarray) -> None:
    for column in SCHEDULE.names or ():
        np.testing.assert_array_equal(schedule[column], expected[column], column)


@pytest.mark.parametrize("policy", sorted(path.name for path in POLICIES.iterdir()))
@pytest.mark.parametrize(
    ("name", "servers", "decision"),
    [("steady-0.7", 16, {}), ("overload-1.1", 32, {}), ("paper", 16, {"on_busy": "reserve"})],
)
def test_a_policy_plays_as_in_the_engine(policy: str, name: str, servers: int, decision: dict[str, Any]) -> None:
    env = set_fields(scenario(name).at_scale(servers), "decision", **decision)
    stepped, dispatched = schedules(load_policy(POLICIES / policy, mask=env.episode.mask), env, seed=5)
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
    scheduler: Player = make_scheduler(name, env.observation, env.episode.mask)
    stepped, dispatched = schedules(scheduler, env, seed, workload)
    check_same(dispatched, stepped)


def test_without_a_mask_a_task_waits_for_an_event_and_costs_no_step() -> None:
    env = scenario("paper")
    stepped, dispatched = schedules(make_scheduler("earliest-finish", env.observation), env, seed=5)
    assert not np.array_equal(stepped, dispatched)
    events = {0.0, *dispatched["arrival_s"], *dispatched["finish_s"]}
    assert set(dispatched["start_s"]) <= events
    assert not set(stepped["start_s"]) <= {0.0, *stepped["arrival_s"], *stepped["finish_s"]}


@pytest.mark.parametrize("features", FEATURE_SETS)
def test_of_several_candidates_a_scheduler_decides_on_the_first(features: str) -> None:
    env = set_fields(scenario("steady-0.7"), "observation", feature_set=features)
    several = set_fields(env, "decision", order="open", candidates=3)
    engines = [Engine(config) for config in (env, several)]
    policy = TrainedPolicy(random_network(), TrialConfig(), epochs=1)
    every = [policy, *(make_scheduler(name, env.observation) for name in RULES)]
    schedulers = [scheduler for scheduler in every if scheduler.observation.feature_set == features]
    assert len(schedulers) >= 6
    for engine in engines:
        engine.reset([5], [0])
    for _ in range(50):
        for scheduler in schedulers:
            answers = []
            for engine in engines:
                scheduler.reset([(5, 0)])
                answers.append(scheduler(engine.observation, engine.fit).tolist())
            assert answers[0] == answers[1]
        for engine in engines:
            engine.step(np.flatnonzero(engine.fit[0, 0] == OPEN)[:1])
        if engines[1].offers() == [] or engines[0].offers()[0] != engines[1].offers()[0]:
            break  # with several candidates a decision is wanted where any of them has an open row
    assert engines[0].schedule().size > 5


def test_each_environment_of_a_batch_has_draws_of_its_own() -> None:
    env = scenario("steady-0.7").at_scale(8)
    rule = make_scheduler("random-feasible", env.observation, "feasible")
    batch = play(OnSnapshots(rule, env), env, 3, [0, 1])
    for b in range(2):
        check_same(batch.schedule(b), play(rule, env, 3, [b]).schedule())
