"""Planners as pure functions: the examples of their paper, an independent implementation, literal cases."""

import numpy as np
import pytest

from rllib_scale.schedulers.list_scheduling import Timelines, cpop, heft
from schedulers.instances import saga_schedule
from schedulers.textbook import Textbook
from seeds import each_of

# Topcuoglu et al. 2002, fig. 2 and table 2: execution times on P1, P2, P3; edges with their communication cost.
ON_1 = [14, 13, 11, 13, 12, 13, 7, 5, 18, 21]
ON_2 = [16, 19, 13, 8, 13, 16, 15, 11, 12, 7]
ON_3 = [9, 18, 19, 17, 10, 9, 11, 14, 20, 16]
EXECUTION = np.array([ON_1, ON_2, ON_3], dtype=np.float64).T
COSTS = {
    **{(1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23},
    **{(4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13},
}
EDGES = np.array(list(COSTS)) - 1
COST = np.array(list(COSTS.values()), dtype=np.float64)


def test_heft_plans_the_example_of_its_paper():
    plan = heft(EXECUTION, EDGES, COST)
    assert plan.makespan_s == 80
    assert (plan.server + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]
    assert plan.start_s.tolist() == [0, 27, 9, 18, 28, 26, 38, 57, 56, 73]


def test_cpop_plans_the_example_of_its_paper():
    plan = cpop(EXECUTION, EDGES, COST)
    assert plan.makespan_s == 86
    assert (plan.server + 1)[[0, 1, 8, 9]].tolist() == [2, 2, 2, 2]  # the critical path n1, n2, n9, n10


def random_dag(rng, most_tasks):
    """(T,) demands and (E, 2) edges over shuffled task numbers; one or several entries and exits."""
    n = int(rng.integers(1, most_tasks + 1))
    names, density = rng.permutation(n), rng.uniform(0.05, 0.8)
    edges = [(names[i], names[j]) for i in range(n) for j in range(i + 1, n) if rng.random() < density]
    return rng.uniform(1, 20, n), np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@each_of(range(250))
def test_heft_equals_anrg_saga(seed):
    from saga.schedulers.heft import HeftScheduler

    rng = np.random.default_rng(seed)
    compute, edges = random_dag(rng, 14)
    capacity = rng.uniform(0.5, 5, rng.integers(1, 7))
    bandwidth, latency = rng.uniform(0.2, 10), rng.choice([0.0, 0.5])
    output = rng.uniform(0, 20, len(edges))
    # It knows no latency: as much data more takes the same time.
    sizes = dict(zip(map(tuple, edges.tolist()), (output + latency * bandwidth).tolist(), strict=True))
    expected = saga_schedule(HeftScheduler(), capacity, compute, sizes, bandwidth)

    delay = output / bandwidth + latency
    p = len(capacity)
    mean_delay = delay * (p - 1) / (p + 1)  # its mean counts each server's zero delay to itself as a pair
    plan = heft(compute[:, None] / capacity, edges, delay, mean_delay)
    assert plan.server.tolist() == [expected[k][0] for k in range(len(compute))]
    np.testing.assert_allclose(plan.start_s, [expected[k][1] for k in range(len(compute))], rtol=1e-9, atol=1e-9)


@each_of(range(200))
def test_both_equal_the_formulas_of_their_paper(seed):
    """Saga's HEFT is that of the paper, its CPOP is not: its downward rank adds the wrong task's cost."""
    rng = np.random.default_rng([seed, 1])
    compute, edges = random_dag(rng, 12)
    execution = compute[:, None] * rng.uniform(0.2, 2, (len(compute), rng.integers(1, 6)))
    delay = rng.uniform(0, 20, len(edges)) * rng.choice([0.1, 1.0, 3.0])
    expected = Textbook(execution, edges, delay)
    for plan, placed in (
        (heft(execution, edges, delay), expected.heft()),
        (cpop(execution, edges, delay), expected.cpop()),
    ):
        assert plan.server.tolist() == [placed[k][0] for k in range(len(compute))]
        np.testing.assert_allclose(plan.start_s, [placed[k][1] for k in range(len(compute))], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(plan.finish_s, [placed[k][2] for k in range(len(compute))], rtol=1e-9, atol=1e-9)


def without(edges, delay, idle):
    """The edges between tasks that are not `idle`, and one of no delay where a way leads through these alone."""
    delays, new = {}, dict(zip(map(tuple, edges.tolist()), delay.tolist(), strict=True))
    while new:
        (i, j), way = new.popitem()
        delays[i, j] = way
        ways = ((i, int(k)) for k in edges[edges[:, 0] == j, 1] if idle[j])
        new |= {way: 0.0 for way in ways if way not in delays and way not in new}
    kept = sorted(edge for edge in delays if not idle[list(edge)].any())
    return np.array(kept, dtype=np.int64).reshape(-1, 2), np.array([delays[edge] for edge in kept])


@pytest.mark.parametrize("planner", [heft, cpop])
@each_of(range(200))
def test_tasks_without_work_change_nothing_but_what_they_tie_together(seed, planner):
    """Planned as if they were not there, with their successors after their predecessors; they end when these do."""
    rng = np.random.default_rng([seed, 2])
    compute, edges = random_dag(rng, 14)
    idle = rng.random(len(compute)) < rng.uniform(0.1, 0.8)
    if idle.all():
        return
    capacity, delay = rng.uniform(0.5, 5, rng.integers(1, 5)), rng.uniform(0, 8, len(edges))
    execution = np.where(idle, 0.0, compute)[:, None] / capacity
    plan = planner(execution, edges, delay)
    busy, (links, costs) = np.flatnonzero(~idle), without(edges, delay, idle)
    row = np.cumsum(~idle) - 1
    expected = planner(execution[busy], row[links], costs)
    assert plan.server[busy].tolist() == expected.server.tolist()
    np.testing.assert_allclose(plan.start_s[busy], expected.start_s, rtol=1e-9, atol=1e-9)
    for k in np.flatnonzero(idle):
        before = plan.finish_s[edges[edges[:, 1] == k, 0]]
        assert (plan.server[k], plan.start_s[k], plan.finish_s[k]) == (-1, *[before.max(initial=0.0)] * 2)


def test_a_task_is_planned_after_its_predecessors_where_one_without_work_lies_between():
    """Task 2 leads to 0 through 1, which has no work and the rank of 0: one of 1 s and one of 4 s on each server."""
    execution, edges = np.array([[4.0, 4.0], [0.0, 0.0], [1.0, 1.0]]), np.array([[1, 0], [2, 1]])
    for planner in (heft, cpop):
        plan = planner(execution, edges)
        assert (plan.start_s.tolist(), plan.finish_s.tolist()) == ([1, 1, 0], [5, 1, 1])
        assert plan.server[1] == -1


def test_a_transfer_takes_the_server_where_the_problem_says_so():
    """Outputs of 2 and 3 s, each from its own server, for a third task: on the second of these, or on a third."""
    execution, edges = np.array([[4.0, 9.0], [9.0, 4.0], [6.0, 6.0]]), np.array([[0, 2], [1, 2]])
    overlapped = heft(execution, edges, np.array([2.0, 3.0]))
    assert (overlapped.server[2], overlapped.start_s[2], overlapped.finish_s[2]) == (1, 6, 12)
    taken = heft(execution, edges, np.array([2.0, 3.0]), moved_on_server=True)
    assert (taken.server[2], taken.start_s[2], taken.finish_s[2]) == (1, 4, 12)
    elsewhere = np.array([[4.0, 9.0, np.inf], [9.0, 4.0, np.inf], [np.inf, np.inf, 6.0]])
    assert heft(elsewhere, edges, np.array([2.0, 3.0])).finish_s[2] == 4 + 3 + 6  # both at once
    assert heft(elsewhere, edges, np.array([2.0, 3.0]), moved_on_server=True).finish_s[2] == 4 + 2 + 3 + 6


def test_a_gap_is_taken_where_it_is_long_enough():
    lines, none = Timelines(1), np.zeros((0, 2), dtype=np.int64)
    first = heft(np.array([[2.0], [3.0]]), np.array([[0, 1]]), timelines=lines)
    assert first.start_s.tolist() == [0, 2]
    lines.lines.start[0, 1], lines.lines.end[0, 1] = 4.0, 7.0  # as if the second waited for data from elsewhere
    assert heft(np.array([[2.5]]), none, timelines=lines).start_s.tolist() == [7]
    assert heft(np.array([[2.0]]), none, timelines=lines).start_s.tolist() == [2]


def test_cpop_leaves_a_path_that_no_server_can_hold_to_the_finish_times():
    execution = np.array([[1.0, np.inf], [np.inf, 1.0]])
    plan = cpop(execution, np.array([[0, 1]]))
    assert plan.server.tolist() == [0, 1]
    assert plan.makespan_s == 2


def test_cpop_takes_the_server_that_ends_the_path_first_after_what_is_planned():
    lines = Timelines(2)
    path, edges = np.array([[4.0, 2.0], [4.0, 2.0]]), np.array([[0, 1]])
    assert [cpop(path, edges, timelines=lines).server.tolist() for _ in range(3)] == [[1, 1], [0, 0], [1, 1]]
