"""Lower bounds: by hand, against every rule on random instances, and against the exact optimum."""

import math

import numpy as np
import pandas as pd
import pytest

from bounds.optimum import optimal_response
from reference.cases import pick, random_workload
from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.config import SCENARIOS, ClusterConfig, EnvConfig, EpisodeConfig, TierConfig, WorkloadConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.schedulers.rules import SCHEDULERS, make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

ROUNDING = 1e-9


def problem(*tiers, horizon_s=1000.0, **episode):
    """A problem from tiers of (count, GFLOPS, GB)."""
    return EnvConfig(
        cluster=ClusterConfig(
            tiers=[
                TierConfig(name=f"tier_{k}", count=count, compute_gflops=speed, memory_gb=memory)
                for k, (count, speed, memory) in enumerate(tiers)
            ]
        ),
        workload=WorkloadConfig(memory_gb={"mean": 2, "std": 0, "low": 1, "high": max(t[2] for t in tiers)}),
        episode=EpisodeConfig(horizon_s=horizon_s, **episode),
    )


def workload(*workflows):
    """Workflows of (arrival, tasks, edges); a task is its compute demand, or (compute demand, memory)."""
    return Workload.from_dict(
        {
            "format": "rllib-scale-workload",
            "version": 1,
            "workflows": [
                {
                    "arrival_s": float(arrival),
                    "tasks": [
                        {"compute_gflop": float(c), "memory_gb": float(m), "output_gb": 0.0}
                        for c, m in (task if isinstance(task, tuple) else (task, 1) for task in tasks)
                    ],
                    "edges": edges,
                }
                for arrival, tasks, edges in workflows
            ],
        },
        "test",
    )


def bounds(env, work):
    found = lower_bounds(env, work)
    return found["bound_critical_path_s"], found["bound_capacity_s"]


# ------------------------------------------------------------------- by hand


def test_critical_path_takes_the_fastest_server_that_fits():
    env = problem((1, 1.0, 80.0), (1, 4.0, 8.0))
    # 3 leads to 0 against its number: 1 s, 1 + 2 s. 1 does not fit the fast server: 5 s. 2 follows 0 and 1: 5 + 1 s.
    diamond = (10, [8, (5, 50), 4, 4], [[0, 2], [1, 2], [3, 0]])
    assert bounds(env, workload(diamond))[0] == pytest.approx((3 + 5 + 6 + 1) / 4)


def test_critical_path_counts_up_to_the_horizon_what_arrived_until_then():
    env = problem((1, 4.0, 8.0), horizon_s=3.5)
    chain, at_the_end, late = (1, [8, 4], [[0, 1]]), (3.5, [8], []), (3.6, [8], [])
    work = workload(chain, at_the_end, late)
    played = play(make_scheduler("fastest-idle", env.observation), env, 0, [0], work).metrics()
    assert played["arrived"] == 3
    assert bounds(env, work)[0] == pytest.approx(((3 - 1) + (3.5 - 1) + 0) / 3)


def test_one_server_in_order_of_length():
    env = problem((1, 1.0, 8.0))
    assert bounds(env, workload((0, [3, 1, 2], []))) == pytest.approx((2, (1 + 3 + 6) / 3))


def test_one_server_is_interrupted_for_a_shorter_task_that_arrives_later():
    env = problem((1, 1.0, 8.0))
    assert bounds(env, workload((0, [10], []), (1, [1], []))) == pytest.approx((11 / 2, (11 + 1) / 2))


def test_a_task_is_not_processed_before_its_predecessors_can_be_done():
    env = problem((1, 1.0, 8.0))
    # The second of the chain, released at 4, interrupts the first: 3, 5 and 8 s. Released at 0: 1, 4 and 8 s.
    assert bounds(env, workload((0, [4, 1, 3], [[0, 1]])))[1] == pytest.approx((3 + 5 + 8) / 3)


def test_capacity_is_that_of_all_servers():
    env = problem((3, 1.0, 8.0), (1, 2.0, 8.0))
    # 5 GFLOPS in all: 20 tasks of 1 GFLOP finish every 0.2 s, but none before 0.5 s.
    finish = np.maximum(0.2 * np.arange(1, 21), 0.5)
    assert bounds(env, workload((0, [1] * 20, [])))[1] == pytest.approx(finish.mean())


def test_large_tasks_share_the_large_servers_alone():
    env = problem((1, 1.0, 8.0), (1, 1.0, 80.0))
    large, small = (4, 50), (4, 4)
    assert bounds(env, workload((0, [large, large, small], [])))[1] == pytest.approx((4 + 8 + 4) / 3)


def test_capacity_counts_up_to_the_horizon():
    env = problem((1, 1.0, 8.0), horizon_s=5.0)
    assert bounds(env, workload((0, [2, 2, 2], [])))[1] == pytest.approx((2 + 4 + 5) / 3)


def test_prices_share_out_the_fast_server():
    """A task a second, 2 s on the one fast server and 8 s on a slow one: every other one can run fast, mean 5 s."""
    env = problem((1, 4.0, 8.0), (8, 1.0, 8.0))
    critical_path, capacity = bounds(env, workload(*((t, [8], []) for t in range(200))))
    assert critical_path == pytest.approx(2)
    assert 4.85 < capacity <= 5


def test_prices_prefer_the_task_that_others_follow():
    """Chains of two such tasks, every 2 s: at best the first runs fast, the second slowly, 2 and 10 s after arrival."""
    env = problem((1, 4.0, 8.0), (8, 1.0, 8.0))
    critical_path, capacity = bounds(env, workload(*((2 * t, [8, 8], [[0, 1]]) for t in range(200))))
    assert critical_path == pytest.approx(3)
    assert 5.85 < capacity <= 6


def test_prices_under_a_horizon_never_count_more_than_the_time_up_to_it():
    env = problem((1, 4.0, 8.0), (8, 1.0, 8.0), horizon_s=6.0)
    work = workload((0, [8] * 9, []))
    # One fast server finishes at 2, 4 and 6 s; the slow ones would at 8 s.
    assert bounds(env, work)[1] <= (2 + 4 + 7 * 6) / 9


@pytest.mark.parametrize("episode", [{"max_decisions": 5}, {}])
def test_no_bound_where_the_scheduler_decides_what_arrives_or_nothing_does(episode):
    work = workload((0 if episode else 2000, [1], []))
    assert all(math.isnan(x) for x in bounds(problem((1, 1.0, 8.0), **episode), work))


def test_task_that_fits_no_server_is_refused():
    with pytest.raises(UserError, match=r"workflow 0, task 0 .* fits no server"):
        lower_bounds(problem((1, 1.0, 8.0)), workload((0, [(1, 9)], [])))


def test_the_capacity_bound_is_worth_having_at_every_load():
    """A simple rule, about 15 % above the best that is known, is not far above the bound."""
    for name in ("steady-0.5", "steady-0.7", "steady-0.9"):
        env = SCENARIOS[name][0]
        rows = pd.DataFrame(evaluate(make_scheduler("fastest-idle", env.observation, mask="feasible"), env, 1000, 5))
        mean = rows.mean()
        assert mean["response_censored_s"] / mean["bound_capacity_s"] < (1.6 if name == "steady-0.9" else 1.45)
        assert mean["bound_capacity_s"] > 1.14 * mean["bound_critical_path_s"]


# ------------------------------------------------------------------- in the rows of an evaluation


@pytest.mark.parametrize("first_arrival", ["exponential", "at-zero"])
@pytest.mark.parametrize("arrivals_until_s", [None, 8.0])
def test_evaluation_rows_hold_the_bounds_of_their_own_episode(first_arrival, arrivals_until_s):
    env = problem((2, 1.0, 8.0), (2, 4.0, 80.0), horizon_s=20.0, first_arrival=first_arrival)
    env = env.model_copy(update={"episode": env.episode.model_copy(update={"arrivals_until_s": arrivals_until_s})})
    rows = evaluate(make_scheduler("fastest-idle", env.observation), env, seed=3, episodes=20)
    assert len({row["bound_capacity_s"] for row in rows}) > 10
    for row in rows:
        work = generate(env, 3, row["episode"])
        assert row["arrived"] == work.num_tasks
        if row["arrived"]:
            assert (row["bound_critical_path_s"], row["bound_capacity_s"]) == bounds(env, work)
            assert row["bound_critical_path_s"] <= row["bound_capacity_s"] + ROUNDING
            assert row["bound_capacity_s"] <= row["response_censored_s"] + ROUNDING


# ------------------------------------------------------------------- against schedulers


def random_instance(rng, most_tasks):
    """A small cluster and a workload that keeps it busy; on half of them events coincide."""
    speeds, memories = (1.0, 2.0, 4.0), (4.0, 16.0, 64.0)
    tiers = [(int(rng.integers(1, 3)), pick(rng, *speeds), pick(rng, *memories)) for _ in range(rng.integers(1, 4))]
    env = problem(
        *tiers,
        horizon_s=pick(rng, 500.0, float(rng.uniform(2, 25))),
        mask=pick(rng, "none", "feasible"),
        clock_step_s=pick(rng, 0.1, 0.5),
    )
    within = env.model_copy(update={"episode": EpisodeConfig(horizon_s=float(rng.uniform(1, 30)))})
    while True:
        work = Workload.from_dict(random_workload(rng, within, grid=bool(rng.integers(2))), "test")
        if work.num_tasks <= most_tasks:
            return env, work


def random_decisions(rng, env, work):
    """Censored response of an episode in which the server is drawn from all."""
    engine = Engine(env)
    engine.reset([0], [0], workload=work)
    while not engine.done[0]:
        engine.step(rng.integers(engine.num_slots, size=1))
    return engine.metrics()["response_censored_s"]


@pytest.mark.parametrize("instances", [range(25), pytest.param(range(25, 1000), marks=pytest.mark.slow)])
def test_no_scheduler_beats_a_bound_on_1000_random_instances(instances):
    binding = 0
    for instance in instances:
        rng = np.random.default_rng([7, instance])
        env, work = random_instance(rng, most_tasks=24)
        critical_path, capacity = bounds(env, work)
        if math.isnan(capacity):
            assert work.arrival_s[0] > env.episode.horizon_s
            continue
        assert critical_path <= capacity + ROUNDING
        binding += capacity > 1.05 * critical_path
        reached = {"random": random_decisions(rng, env, work)}
        for name in SCHEDULERS:
            scheduler = make_scheduler(name, env.observation, mask=env.episode.mask)
            reached[name] = play(scheduler, env, instance, [0], work).metrics()["response_censored_s"]
        assert min(reached.values()) >= capacity - ROUNDING, (instance, reached)
    assert binding > len(instances) / 5  # or the capacity bound would hardly be put to the test


# ------------------------------------------------------------------- the exact optimum


def test_the_optimum_waits_where_that_pays():
    """On one server the long task waits for the short one that is to come: 1 and 12 s, not 10 and 10."""
    env = problem((1, 1.0, 8.0))
    optimum = optimal_response(env, workload((0, [10], []), (1, [1], [])), ticks_per_s=1)
    assert optimum.proven
    assert (optimum.lower_s, optimum.upper_s) == pytest.approx((6.5, 6.5))


def test_the_optimum_knows_servers_memory_and_predecessors():
    # The fast server is the only one for the large task of the chain (4 s); its predecessor takes 1 s there first. The
    # lone task would take 4 s on it, and takes 8 s beside it.
    env = problem((1, 1.0, 8.0), (1, 2.0, 80.0))
    work = workload((0, [2, (8, 50)], [[0, 1]]), (0, [8], []))
    optimum = optimal_response(env, work, ticks_per_s=1)
    assert (optimum.lower_s, optimum.upper_s) == pytest.approx(((1 + 5 + 8) / 3,) * 2)


def test_the_optimum_under_a_horizon_counts_up_to_it():
    # Short first: 1, and 4 s for the cut one. Long first: 3 and 4. What arrives later does not count.
    work = workload((0, [1, 3.5], []), (5, [1], []))
    optimum = optimal_response(problem((1, 1.0, 8.0), horizon_s=4.0), work, ticks_per_s=2)
    assert (optimum.lower_s, optimum.upper_s) == pytest.approx(((1 + 4) / 2,) * 2)


def test_the_optimum_of_times_between_ticks_is_enclosed():
    env = problem((1, 3.0, 8.0))
    optimum = optimal_response(env, workload((0.05, [1, 2], [])), ticks_per_s=10)
    exact = (1 / 3 + 1) / 2
    assert optimum.upper_s == pytest.approx(exact)
    assert exact - 0.2 < optimum.lower_s < exact


def test_ticks_longer_than_a_task_are_refused():
    with pytest.raises(ValueError, match="ticks_per_s 1: the shortest"):
        optimal_response(problem((1, 2.0, 8.0)), workload((0, [1], [])), ticks_per_s=1)


@pytest.mark.parametrize("instances", [range(10), pytest.param(range(10, 40), marks=pytest.mark.slow)])
def test_the_optimum_lies_between_the_bounds_and_every_rule(instances):
    for instance in instances:
        rng = np.random.default_rng([11, instance])
        env, work = random_instance(rng, most_tasks=7)
        if work.arrival_s[0] > env.episode.horizon_s:
            continue
        optimum = optimal_response(env, work)
        assert optimum.proven
        assert optimum.lower_s <= optimum.upper_s + ROUNDING
        assert optimum.upper_s - optimum.lower_s < 0.01  # a few ticks of 1 ms
        critical_path, capacity = bounds(env, work)
        assert critical_path <= capacity + ROUNDING
        assert capacity <= optimum.upper_s + ROUNDING
        for name in SCHEDULERS:
            scheduler = make_scheduler(name, env.observation, mask=env.episode.mask)
            assert optimum.lower_s <= play(scheduler, env, 0, [0], work).metrics()["response_censored_s"] + ROUNDING
