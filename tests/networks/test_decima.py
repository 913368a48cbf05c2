"""The graph network: messages by hand, what it sees, whom it may choose, and that names mean nothing to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from networks.probabilities import probabilities
from rllib_scale.config import DecimaConfig
from rllib_scale.networks.decima import Decima, Embedded, pass_messages
from rllib_scale.networks.graph import NODE, PAIR, SERVER, after_start, graph_of, pairs_of
from rllib_scale.observation.answers import Answer
from rllib_scale.observation.starting import Starting
from small_moments import DIAMOND, OBSERVATION, TWO_FLOWS, moments, permuted, renumbered, workload


@pytest.fixture
def network() -> Decima:
    torch.manual_seed(3)
    return Decima(OBSERVATION, DecimaConfig(name="decima"))


def test_messages_on_a_diamond_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 1.0], [3.0, -1.0], [4.0, 2.0]])
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    e = pass_messages(x, edges, np.array([2, 1, 1, 0]), lambda u: 2 * u, lambda s: s + 1)
    # The sink: x. 1: 2 (4, 2) + 1 + x = (11, 6). 2: (12, 4). 0: 2 (11 + 12, 6 + 4) + 1 + x = (48, 21).
    np.testing.assert_array_equal(e, [[48, 21], [11, 6], [12, 4], [4, 2]])


def test_what_is_said_is_made_something_of_after_it_is_added_up() -> None:
    """F and g stand where the paper has them: f on each successor, g on the sum."""
    x, edges = torch.tensor([[0.0], [-3.0], [2.0]]), np.array([[0, 1], [0, 2]])
    e = pass_messages(x, edges, np.array([1, 0, 0]), torch.relu, lambda s: s**2)
    assert e[:, 0].tolist() == [4.0, -3.0, 2.0]  # (0 + 2)^2; with f on the sum it would be 0, with g on each 4, too
    e = pass_messages(x.abs(), edges, np.array([1, 0, 0]), torch.relu, lambda s: s**2)
    assert e[:, 0].tolist() == [25.0, 3.0, 2.0]  # (3 + 2)^2, not 9 + 4


def test_a_demand_reaches_the_ancestors_and_not_the_siblings(network: Decima) -> None:
    more_of_1 = workload((0.0, [(8.0, 4.0), (5.0, 12.0), *DIAMOND[1][2:]], DIAMOND[2]))
    graphs = [graph_of(Starting(moments(given)[0]), OBSERVATION) for given in (workload(DIAMOND), more_of_1)]
    with torch.no_grad():
        first, second = (Embedded(network, [graph]).e[:, len(NODE) :].numpy() for graph in graphs)
    assert (np.abs(first - second).max(axis=1) > 1e-7).tolist() == [True, True, False, False]


def test_a_moment_as_a_graph_by_hand() -> None:
    _, snapshot = moments(TWO_FLOWS, answers=[[Answer(0, 0, 2), Answer(1, 1, 0)]])
    assert snapshot.clock_s == 2.0  # the diamond's first task has ended; its others, and a task of 12 GB, wait
    now = Starting(snapshot)
    graph = graph_of(now, OBSERVATION)
    assert snapshot.ready[["workflow", "task"]].tolist() == [(0, 1), (0, 2), (1, 0)]
    assert graph.waiting.tolist() == [0, 1, 3]
    assert graph.workflow.tolist() == [0, 0, 0, 1, 1]
    assert graph.edges.tolist() == [[0, 2], [1, 2]]
    assert graph.level[[0, 1, 2]].tolist() == [1, 1, 0]
    age, all_rows = math.log1p(2 / 4), 2 / 3
    expected = [  # compute, memory, waits, runs, left, age, waited, siblings, open_rows, at_hand
        [4 / 16, 12 / 16, 1, 0, 0, age, 0, math.log(3), 1 / 3, 1],  # its input is on the fast row
        [16 / 16, 4 / 16, 1, 0, 0, age, 0, math.log(3), all_rows, 1],
        [2 / 16, 4 / 16, 0, 0, 0, age, 0, math.log(3), 0, 0],
        [4 / 16, 12 / 16, 1, 0, 0, age, age, math.log(2), 1 / 3, 1],
        [12 / 16, 2 / 16, 0, 1, 10 / 4, age, 0, math.log(2), 0, 0],
    ]
    np.testing.assert_allclose(graph.nodes, expected, rtol=1e-6)
    rows = [  # capacity, memory, free_memory, ahead, open
        [1 / 4, 8 / 16, 6 / 16, math.log1p(10 / 4), 0],
        [1 / 4, 8 / 16, 8 / 16, 0, 1],
        [1, 1, 1, 0, 1],
    ]
    np.testing.assert_allclose(graph.servers, rows, rtol=1e-6)
    moved = math.log1p((1.0 / snapshot.bandwidth_gb_s + snapshot.latency_s) / 4)
    pairs = [[4.0, moved, 2 / 16], [4.0, moved, 4 / 16], [1.0, 0, 12 / 16]]  # of the task of 16 GFLOP and 4 GB
    np.testing.assert_allclose(pairs_of(now, [1], OBSERVATION)[0], pairs, rtol=1e-6)
    assert (len(NODE), len(SERVER), len(PAIR)) == (10, 5, 3)


def test_a_start_within_a_moment_shows_as_the_simulator_will_show_it() -> None:
    """But for who waits: the task that runs is node 3, and what it takes of the fast row is gone."""
    now = Starting(moments(TWO_FLOWS)[0])
    before = graph_of(now, OBSERVATION)
    now.start(2, 2)
    after = after_start(before, now, OBSERVATION)
    assert before.nodes[5, 2] == 1, "what was seen before stays as it was"
    assert after.startable.tolist() == [True, False, False]
    np.testing.assert_allclose(after.nodes[5], [12 / 16, 2 / 16, 0, 1, 3 / 4, 0, 0, math.log(2), 0, 0], rtol=1e-6)
    np.testing.assert_allclose(after.servers[2], [1, 1, 14 / 16, math.log1p(3 / 4), 0], rtol=1e-6)


def test_what_is_drawn_is_drawn_by_the_probabilities_that_it_learns_from(network: Decima) -> None:
    now = Starting(moments(TWO_FLOWS)[0])
    graph, draws = graph_of(now, OBSERVATION), np.random.default_rng(1).random((4000, 2))
    with torch.no_grad():
        steps = network.choose([now] * 4000, [graph] * 4000, draws)
        logs, _ = network.log_probabilities(steps)
    p, counts = probabilities(network, now)[0], np.zeros((3, 3))
    np.testing.assert_array_equal(p > 0, now.can_start)
    assert p.sum() == pytest.approx(1.0)
    for step in steps:
        counts[step.task, step.server] += 1
    np.testing.assert_allclose(counts / 4000, p, atol=0.03)
    assert (counts[~now.can_start] == 0).all()
    np.testing.assert_allclose(logs.exp().numpy(), [p[step.task, step.server] for step in steps], rtol=1e-4)
    best = network.choose([now], [graph], None)[0]
    assert best.task == p.sum(axis=1).argmax()
    assert best.server == p[best.task].argmax()


def test_the_order_of_rows_and_of_workflows_means_nothing(network: Decima) -> None:
    snapshot, order = moments(TWO_FLOWS)[0], [2, 0, 1]
    p = probabilities(network, Starting(snapshot))[0]
    np.testing.assert_allclose(probabilities(network, Starting(permuted(snapshot, order)))[0], p[:, order], rtol=1e-5)
    assert p[:, 2].sum() != pytest.approx(p[:, 0].sum()), "rows that differ are told apart"
    np.testing.assert_allclose(p[:, 0], p[:, 1], rtol=1e-5, err_msg="rows that are alike are not")
    np.testing.assert_allclose(probabilities(network, Starting(renumbered(snapshot)))[0], p, rtol=1e-5)
    assert len(set(np.round(p.sum(axis=1), 6))) == 3, "tasks that differ are told apart"


def test_who_is_beside_it_in_a_batch_means_nothing(network: Decima) -> None:
    graphs = [graph_of(Starting(s), OBSERVATION) for s in moments(TWO_FLOWS, answers=[[Answer(0, 0, 2)]])]
    with torch.no_grad():
        both = network.task_logs(Embedded(network, graphs), graphs).numpy()
        for line, graph in zip(both, graphs, strict=True):
            alone = network.task_logs(Embedded(network, [graph]), [graph]).numpy()[0]
            np.testing.assert_allclose(line[: len(alone)][graph.startable], alone[graph.startable], rtol=1e-4)
    assert len(graphs[0].waiting) != len(graphs[1].waiting)
