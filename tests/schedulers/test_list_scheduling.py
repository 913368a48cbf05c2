"""Planners as pure functions: the examples of their paper, an independent implementation, the rules of every plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_scale.schedulers.list_scheduling import Timelines, cpop, heft
from seeds import each_of

# Topcuoglu et al. 2002, fig. 2 and table 2: execution times on P1, P2, P3; edges with their communication cost.
EXECUTION = np.array(
    [
        [14, 16, 9],
        [13, 19, 18],
        [11, 13, 19],
        [13, 8, 17],
        [12, 13, 10],
        [13, 16, 9],
        [7, 15, 11],
        [5, 11, 14],
        [18, 12, 20],
        [21, 7, 16],
    ],
    dtype=np.float64,
)
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
    from saga import Network, TaskGraph
    from saga.schedulers.heft import HeftScheduler

    rng = np.random.default_rng(seed)
    compute, edges = random_dag(rng, 14)
    capacity = rng.uniform(0.5, 5, rng.integers(1, 7))
    bandwidth, latency = rng.uniform(0.2, 10), rng.choice([0.0, 0.5])
    output = rng.uniform(0, 20, len(edges))
    names = [f"{j}" for j in range(len(capacity))]
    pairs = [(a, b, bandwidth) for a in names for b in names if a < b]
    network = Network.create(nodes=list(zip(names, capacity.tolist(), strict=True)), edges=pairs)
    # It knows no latency: as much data more takes the same time.
    sizes = (output + latency * bandwidth).tolist()
    graph = TaskGraph.create(
        tasks=[(f"{k}", c) for k, c in enumerate(compute.tolist())],
        dependencies=[(f"{i}", f"{j}", size) for (i, j), size in zip(edges.tolist(), sizes, strict=True)],
    )
    expected = HeftScheduler().schedule(network, graph)

    delay = output / bandwidth + latency
    p = len(capacity)
    mean_delay = delay * (p - 1) / (p + 1)  # its mean counts each server's zero delay to itself as a pair
    plan = heft(compute[:, None] / capacity, edges, delay, mean_delay)
    assert plan.makespan_s == pytest.approx(expected.makespan, rel=1e-9)
    placed = {task.name: (int(node), task.start) for node, tasks in expected.mapping.items() for task in tasks}
    for k in range(len(compute)):
        server, start = placed[f"{k}"]
        assert plan.server[k] == server
        assert plan.start_s[k] == pytest.approx(start, rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([heft, cpop]))
def test_plans_on_top_of_plans_keep_every_rule(seed, planner):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 6))
    lines = Timelines(p)
    lines.free_at = rng.uniform(0, 5, p)
    busy = [[] for _ in range(p)]
    for w in range(5):
        compute, edges = random_dag(rng, 10)
        execution = compute[:, None] / rng.uniform(0.5, 5, p)
        execution[rng.random(execution.shape) < 0.3] = np.inf  # too small for the task
        execution[:, int(rng.integers(p))] = compute
        delay = rng.uniform(0, 5, len(edges))
        earlier = {j: lines.start[j, : lines.count[j]].tolist() for j in range(p)}
        plan = planner(execution, edges, delay, timelines=lines, first_row=100 * w)
        duration = execution[np.arange(len(compute)), plan.server]
        assert np.isfinite(duration).all()
        assert plan.finish_s == pytest.approx(plan.start_s + duration)
        assert (plan.start_s >= lines.free_at[plan.server]).all()
        for (i, j), cost in zip(edges.tolist(), delay, strict=True):
            assert plan.start_s[j] >= plan.finish_s[i] + (cost if plan.server[i] != plan.server[j] else 0) - 1e-9
        for k, j in enumerate(plan.server.tolist()):
            busy[j].append((plan.start_s[k], plan.finish_s[k], 100 * w + k))
        for j in range(p):
            busy[j].sort()
            assert [row for *_, row in busy[j]] == lines.row[j, : lines.count[j]].tolist()
            assert set(earlier[j]) <= set(lines.start[j, : lines.count[j]].tolist())  # earlier plans do not move
            assert all(a[1] <= b[0] + 1e-9 for a, b in zip(busy[j], busy[j][1:], strict=False))


def test_a_gap_is_taken_where_it_is_long_enough():
    lines, none = Timelines(1), np.zeros((0, 2), dtype=np.int64)
    first = heft(np.array([[2.0], [3.0]]), np.array([[0, 1]]), timelines=lines)
    assert first.start_s.tolist() == [0, 2]
    lines.start[0, 1], lines.end[0, 1] = 4.0, 7.0  # as if the second waited for data from elsewhere
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
