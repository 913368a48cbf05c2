"""The generator: topologies keep the promise of their names, and every distribution is the configured one.

The seeds are fixed, so a statistical check either always passes or always fails; bounds are 5 standard errors.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, NormalConfig, WorkloadConfig
from rllib_scale.workloads.generators import generate

SIGMAS = 5


def config(servers=16, horizon_s=1000.0, episode=None, **workload):
    return EnvConfig(
        cluster=ClusterConfig(servers=servers),
        workload=WorkloadConfig(**workload),
        episode=EpisodeConfig(horizon_s=horizon_s, **(episode or {})),
    )


def dags(horizon_s=1000.0, **workload):
    """(n, n) bool of each drawn workflow: whether task i precedes task j."""
    drawn = generate(config(horizon_s=horizon_s, **workload), 1, 0)
    assert drawn.num_workflows > 100
    for w in range(drawn.num_workflows):
        n = drawn.task_offsets[w + 1] - drawn.task_offsets[w]
        precedes = np.zeros((n, n), dtype=bool)
        precedes[tuple(drawn.edges[drawn.edge_offsets[w] : drawn.edge_offsets[w + 1]].T)] = True
        yield precedes


def layers(dag):
    """Depth of each task: its layer, as a task of a later layer has a predecessor in the layer before."""
    depth = np.zeros(len(dag), dtype=int)
    for task in range(1, len(dag)):
        depth[task] = max(depth[dag[:, task]] + 1, default=0)
    return depth


def assert_mean(values, expected):
    values = np.asarray(values, dtype=float)
    assert abs(values.mean() - expected) <= SIGMAS * values.std() / np.sqrt(len(values))


# ------------------------------------------------------------------- topologies


def test_the_sizes_of_workflows_are_uniform():
    sizes = np.diff(generate(config(horizon_s=6000), 3, 0).task_offsets)
    counts = Counter(sizes.tolist())
    assert set(counts) == {3, 4, 5, 6, 7, 8}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-6


def test_a_chain_is_a_chain():
    for dag in dags(topology="chain", min_tasks=1):
        np.testing.assert_array_equal(dag, np.eye(len(dag), k=1))


@pytest.mark.parametrize("branching", [1, 2, 3])
def test_in_a_tree_every_task_but_the_root_has_one_predecessor(branching):
    most = 0
    for dag in dags(topology="tree", branching=branching, max_tasks=15):
        assert dag.sum(axis=0).tolist() == [0] + [1] * (len(dag) - 1)
        most = max(most, dag.sum(axis=1).max())
    assert most == branching


def test_fork_join_has_one_source_and_one_sink_around_parallel_tasks():
    for dag in dags(topology="fork-join", min_tasks=1):
        (source,), (sink,) = (np.flatnonzero(~dag.any(axis=axis)) for axis in (0, 1))
        middle = np.setdiff1d(np.arange(len(dag)), [source, sink])
        if len(dag) >= 3:
            assert dag[source, middle].all()
            assert dag[middle, sink].all()
            assert dag.sum() == 2 * len(middle)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_layered_edges_join_neighbouring_layers_of_bounded_width(width):
    widest = 0
    for dag in dags(topology="layered", layer_width=width, max_tasks=15):
        layer = layers(dag)
        before, after = np.nonzero(dag)
        assert (layer[before] + 1 == layer[after]).all()
        widest = max(widest, np.bincount(layer).max())
    assert widest == width


def test_layers_are_joined_by_the_edge_probability_and_never_torn_apart():
    for dag in dags(topology="layered", edge_probability=1.0, min_tasks=8):
        layer = layers(dag)
        np.testing.assert_array_equal(dag, layer[:, None] + 1 == layer)
    for dag in dags(topology="layered", edge_probability=0.0, min_tasks=8):
        assert dag.sum(axis=0).max() == 1
        assert (~dag.any(axis=0)).sum() <= 3  # the first layer alone: layer_width is 3


@pytest.mark.parametrize("most", [1, 2, 4])
def test_random_predecessors_gives_one_root_and_a_few_distinct_earlier_predecessors(most):
    counts, sources = [], np.zeros(5)
    for dag in dags(topology="random-predecessors", max_predecessors=most):
        assert not np.tril(dag).any()
        before = dag.sum(axis=0)
        assert ((before >= 1) & (before <= most))[1:].all()
        counts += before[most:].tolist()
        sources += dag[:5, 5] if len(dag) > 5 else 0
    assert_mean(counts, (1 + most) / 2)
    assert stats.chisquare(sources).pvalue > 1e-6  # each earlier node as likely


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.75, 1.0])
def test_erdos_renyi_has_each_forward_edge_with_the_probability(probability):
    drawn = np.array(list(dags(topology="erdos-renyi", edge_probability=probability, min_tasks=8)))
    forward = drawn[:, *np.triu_indices(8, k=1)]
    assert not np.tril(drawn).any()
    error = np.sqrt(probability * (1 - probability) / forward.size)
    assert abs(forward.mean() - probability) <= SIGMAS * error
    if 0 < probability < 1:
        assert stats.chisquare(forward.sum(axis=0)).pvalue > 1e-6  # near enough: counts are binomial


# ------------------------------------------------------------------- demands


def test_the_papers_demands_have_the_papers_bounds_and_means():
    workload = generate(config(horizon_s=8000), 5, 0)
    compute, memory, output = workload.compute_gflop, workload.memory_gb, workload.output_gb
    assert compute.min() > 1
    assert_mean(compute, stats.truncnorm.mean(-3, np.inf, loc=10, scale=3))
    assert compute.std() == pytest.approx(stats.truncnorm.std(-3, np.inf, loc=10, scale=3), rel=0.02)
    assert memory.min() == 1
    assert memory.max() <= 80
    below = stats.norm.cdf(1, 16, 8)
    assert abs(np.mean(memory == 1) - below) < SIGMAS * np.sqrt(below / len(memory))
    assert_mean(memory, stats.norm.expect(lambda x: np.clip(x, 1, 80), loc=16, scale=8))
    assert output.min() == 0.01
    assert_mean(output, stats.norm.expect(lambda x: max(x, 0.01), loc=0.5, scale=0.2))


def test_truncate_redraws_and_clip_moves_to_the_edge():
    bounds = {"mean": 10, "std": 4, "low": 8, "high": 15}
    normal = stats.norm(10, 4)

    truncated = generate(config(compute_gflop=NormalConfig(**bounds, bound="truncate")), 1, 0).compute_gflop
    assert truncated.min() > 8
    assert truncated.max() < 15
    expected = stats.truncnorm(-0.5, 1.25, loc=10, scale=4)
    assert stats.kstest(truncated, expected.cdf).pvalue > 1e-6

    clipped = generate(config(compute_gflop=NormalConfig(**bounds, bound="clip")), 1, 0).compute_gflop
    for edge, mass in ((8, normal.cdf(8)), (15, normal.sf(15))):
        assert abs(np.mean(clipped == edge) - mass) < SIGMAS * np.sqrt(mass * (1 - mass) / len(clipped))
    inside = clipped[(clipped > 8) & (clipped < 15)]
    assert stats.kstest(inside, expected.cdf).pvalue > 1e-6


def test_the_demands_of_a_task_and_of_neighbouring_tasks_are_independent():
    workload = generate(config(horizon_s=3000), 2, 0)
    columns = (workload.compute_gflop, workload.memory_gb, workload.output_gb)
    pairs = [*itertools.combinations(columns, 2), *((column[1:], column[:-1]) for column in columns)]
    for a, b in pairs:
        assert abs(np.corrcoef(a, b)[0, 1]) < SIGMAS / np.sqrt(len(a))


def test_no_spread_gives_the_mean_itself():
    workload = generate(config(compute_gflop=NormalConfig(mean=7, std=0, low=1), min_tasks=4, max_tasks=4), 1, 0)
    assert set(workload.compute_gflop.tolist()) == {7.0}
    assert set(np.diff(workload.task_offsets).tolist()) == {4}


# ------------------------------------------------------------------- arrivals


@pytest.mark.parametrize(("servers", "rate"), [(16, 1.0), (32, 2.0), (128, 8.0)])
def test_arrivals_are_poisson_at_a_rate_in_proportion_to_the_servers(servers, rate):
    horizon = 3000 / rate
    arrivals = generate(config(servers=servers, horizon_s=horizon), 7, 0).arrival_s
    assert abs(len(arrivals) - 3000) < SIGMAS * np.sqrt(3000)
    gaps = np.diff(arrivals, prepend=0.0)
    assert stats.kstest(gaps, "expon", args=(0, 1 / rate)).pvalue > 1e-6
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < SIGMAS / np.sqrt(len(gaps))
    counts = np.histogram(arrivals, bins=200, range=(0, horizon))[0]
    assert counts.var() / counts.mean() == pytest.approx(1, abs=SIGMAS * np.sqrt(2 / 200))
    assert arrivals[0] > 0
    assert arrivals[-1] <= horizon


def test_the_first_arrival_waits_for_an_exponential_gap_or_comes_at_zero():
    waits = [generate(config(horizon_s=12), 1, episode).arrival_s[0] for episode in range(400)]
    assert stats.kstest(waits, "expon").pvalue > 1e-6
    at_zero = [generate(config(horizon_s=12, episode={"first_arrival": "at-zero"}), 1, e).arrival_s for e in range(400)]
    assert {arrivals[0] for arrivals in at_zero} == {0.0}
    assert stats.kstest([a[1] for a in at_zero if len(a) > 1], "expon").pvalue > 1e-6


def test_arrivals_stop_at_arrivals_until_whatever_the_horizon():
    for until, horizon in ((50.0, 500.0), (500.0, 50.0)):
        arrivals = generate(config(horizon_s=horizon, episode={"arrivals_until_s": until}), 1, 0).arrival_s
        assert until - 15 < arrivals[-1] <= until


@pytest.mark.parametrize("servers", [16, 64])
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_offered_load_is_work_per_second_over_capacity(servers, load):
    problem = config(
        servers=servers,
        horizon_s=200000 / servers,
        offered_load=load,
        compute_gflop=NormalConfig(mean=6, std=4, low=4, bound="truncate"),  # its mean is far from 6
    )
    workload = generate(problem, 11, 0)
    work = np.add.reduceat(workload.compute_gflop, workload.task_offsets[:-1])
    offered = work.sum() / problem.episode.horizon_s / problem.cluster.total_gflops
    # a compound Poisson sum has relative variance E[x^2] / (n E[x]^2)
    error = np.sqrt(np.mean(work**2) / len(work)) / work.mean()
    assert abs(offered / load - 1) < SIGMAS * error
    assert error < 0.02
