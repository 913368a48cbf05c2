"""No scheduler is below a bound: rules and random answers on random instances in every mode, and the exact optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bounds.instances import problem, random_instance, workload
from bounds.optimum import optimal_response
from reference.cases import labelled, random_mode_config, random_mode_workload
from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import SCHEDULERS, make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

ROUNDING = 1e-9


def bounds(env: EnvConfig, work: Workload) -> tuple[float, float]:
    """Critical path and capacity bound."""
    found = lower_bounds(env, work)
    return found["bound_critical_path_s"], found["bound_capacity_s"]


def reached(env: EnvConfig, work: Workload, seed: int) -> float:
    """The least response of all rules and of random answers."""
    engine, rng = Engine(env), np.random.default_rng(seed)
    engine.reset([0], [0], workload=work)
    while not engine.done[0]:
        engine.step(rng.integers(engine.num_rows, size=1))
    rules = [make_scheduler(name, env.observation, mask=env.episode.mask) for name in SCHEDULERS]
    played = [engine, *(play(rule, env, seed, [0], work) for rule in rules)]
    return min(each.metrics()["response_censored_s"] for each in played)


@pytest.mark.parametrize("cases", [range(25), pytest.param(range(25, 200), marks=pytest.mark.slow)])
def test_no_scheduler_beats_a_bound(cases: range) -> None:
    binding = 0
    for case in cases:
        env, work = random_instance(case, most_tasks=24)
        critical_path, capacity = bounds(env, work)
        if math.isnan(capacity):
            assert work.arrival_s[0] > env.episode.horizon_s
            continue
        assert critical_path <= capacity + ROUNDING
        assert reached(env, work, case) >= capacity - ROUNDING, case
        binding += capacity > 1.05 * critical_path
    assert binding > len(cases) / 5  # or the capacity bound would hardly be put to the test


@pytest.mark.parametrize("cases", [range(1000, 1010), pytest.param(range(1010, 1040), marks=pytest.mark.slow)])
def test_the_optimum_lies_between_the_bounds_and_every_rule(cases: range) -> None:
    for case in cases:
        env, work = random_instance(case, most_tasks=7)
        if work.arrival_s[0] <= env.episode.horizon_s:
            lower, upper = optimal_response(env, work)
            assert lower <= upper + ROUNDING
            assert upper - lower < 0.01  # a few ticks of 1 ms
            assert max(bounds(env, work)) <= upper + ROUNDING
            assert lower <= reached(env, work, case) + ROUNDING


@pytest.mark.parametrize(
    ("env", "work", "expected"),
    [
        # On one server the long task waits for the short one that is to come: 1 and 12 s, not 10 and 10.
        (problem((1, 1.0, 8.0)), workload((0, [10], []), (1, [1], [])), 6.5),
        # The fast server is the only one for the large task of the chain (4 s); its predecessor takes 1 s there first.
        # The lone task would take 4 s on it, and takes 8 s beside it.
        (
            problem((1, 1.0, 8.0), (1, 2.0, 80.0)),
            workload((0, [2, (8, 50)], [[0, 1]]), (0, [8], [])),
            (1 + 5 + 8) / 3,
        ),
        # Short first: 1, and 4 s for the cut one. Long first: 3 and 4. What arrives later does not count.
        (problem((1, 1.0, 8.0), horizon_s=4.0), workload((0, [1, 3.5], []), (5, [1], [])), (1 + 4) / 2),
    ],
    ids=["waits", "memory and predecessors", "horizon"],
)
def test_the_optimum_by_hand(env: EnvConfig, work: Workload, expected: float) -> None:
    assert optimal_response(env, work) == pytest.approx((expected, expected))


def test_bounds_hold_in_every_mode_or_say_that_they_do_not() -> None:
    seen = set()
    for case in range(100):
        rng = np.random.default_rng([case, 7])
        env = random_mode_config(rng)
        given = None
        if case % 2:
            env, content = labelled(env, random_mode_workload(rng, env, False), case)
            given = Workload.from_dict(content, "labels and places")
        found = lower_bounds(env, given or generate(env, case, 0))
        response = greedy_response(env, case, rng, given)
        for bound in found.values():
            assert math.isnan(bound) or response >= bound - ROUNDING, case
        if not math.isnan(found["bound_critical_path_s"]):
            seen.add(math.isnan(found["bound_capacity_s"]))
    assert seen == {False}


def greedy_response(env: EnvConfig, case: int, rng: np.random.Generator, given: Workload | None) -> float:
    """Of random answers that start a task where one can start."""
    engine = Engine(env)
    engine.reset([case], [0], workload=given)
    passes = engine.candidates * engine.num_rows
    while not engine.done[0]:
        fit = engine.fit[0].reshape(-1)
        action = int(rng.choice(np.flatnonzero(fit == fit.max()))) if fit.any() else passes
        engine.step([action if engine.answerable(np.array([action]))[0] else passes])
    return float(engine.metrics()["response_censored_s"])
