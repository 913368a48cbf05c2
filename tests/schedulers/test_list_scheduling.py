"""Planners as pure functions: the examples of their paper, an independent implementation, literal cases."""

import numpy as np
import pytest

from rllib_scale.schedulers.list_scheduling import Timelines, cpop, heft
from schedulers.instances import saga_schedule
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
