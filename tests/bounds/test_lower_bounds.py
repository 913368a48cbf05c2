"""Lower bounds by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from bounds.instances import problem, workload
from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.config import SCENARIOS
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate


def bounds(env, work):
    found = lower_bounds(env, work)
    return found["bound_critical_path_s"], found["bound_capacity_s"]


def test_critical_path_takes_the_fastest_server_that_fits():
    env = problem((1, 1.0, 80.0), (1, 4.0, 8.0))
    # 3 leads to 0 against its number: 1 s, 1 + 2 s. 1 does not fit the fast server: 5 s. 2 follows 0 and 1: 5 + 1 s.
    diamond = (10, [8, (5, 50), 4, 4], [[0, 2], [1, 2], [3, 0]])
    assert bounds(env, workload(diamond))[0] == pytest.approx((3 + 5 + 6 + 1) / 4)


def test_critical_path_counts_up_to_the_horizon_what_arrived_until_then():
    env = problem((1, 4.0, 8.0), horizon_s=3.5)
    chain, at_the_end, late = (1, [8, 4], [[0, 1]]), (3.5, [8], []), (3.6, [8], [])
    work = workload(chain, at_the_end, late)
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


def test_a_task_at_the_tolerance_of_fits_shares_the_small_servers():
    """Five tasks of a byte's half more than the five small servers have: all run at once, for a second."""
    env, work = problem((5, 1.0, 8.0), (1, 1.0, 80.0)), workload((0, [(1, 8 + 5e-10)] * 5, []))
    (row,) = evaluate(make_scheduler("fastest-idle", env.observation, mask="feasible"), env, 0, 1, given=work)
    assert row["response_censored_s"] == 1
    assert bounds(env, work) == (1, 1)
    # At the tolerance of the largest server, a task is in the sum as any other.
    alone = problem((1, 1.0, 8.0))
    assert bounds(alone, workload((0, [(2, 8 + 5e-10), (1, 8)], []))) == pytest.approx((1.5, 2))


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
    assert all(math.isnan(x) for x in bounds(problem((1, 1.0, 8.0), episode=episode), work))


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


@pytest.mark.parametrize("arrivals_until_s", [None, 8.0])
def test_evaluation_rows_hold_the_bounds_of_their_own_episode(arrivals_until_s):
    episode = {"first_arrival": "at-zero", "arrivals_until_s": arrivals_until_s}
    env = problem((2, 1.0, 8.0), (2, 4.0, 80.0), horizon_s=20.0, episode=episode)
    rows = evaluate(make_scheduler("fastest-idle", env.observation), env, seed=3, episodes=20)
    assert len({row["bound_capacity_s"] for row in rows}) > 10
    for row in rows:
        work = generate(env, 3, row["episode"])
        assert row["arrived"] == work.num_tasks
        assert (row["bound_critical_path_s"], row["bound_capacity_s"]) == bounds(env, work)
