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


def dags(workload):
    """(number of tasks, list of edges) of each workflow."""
    for w in range(workload.num_workflows):
        edges = workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]]
        yield int(workload.task_offsets[w + 1] - workload.task_offsets[w]), [tuple(edge) for edge in edges.tolist()]


def predecessors(n, edges):
    return [[before for before, after in edges if after == task] for task in range(n)]


def successors(n, edges):
    return [[after for before, after in edges if before == task] for task in range(n)]


def layers(n, edges):
    """Depth of each task: its layer, as a task of a later layer has a predecessor in the layer before."""
    depth = [0] * n
    for task, before in enumerate(predecessors(n, edges)):
        depth[task] = max((depth[p] + 1 for p in before), default=0)
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
    for n, edges in dags(generate(config(topology="chain", min_tasks=1), 1, 0)):
        assert edges == [(k, k + 1) for k in range(n - 1)]


@pytest.mark.parametrize("branching", [1, 2, 3])
def test_in_a_tree_every_task_but_the_root_has_one_predecessor(branching):
    most = 0
    for n, edges in dags(generate(config(topology="tree", branching=branching, max_tasks=15), 1, 0)):
        assert [len(before) for before in predecessors(n, edges)] == [0] + [1] * (n - 1)
        most = max(most, *(len(after) for after in successors(n, edges)))
    assert most == branching


def test_fork_join_has_one_source_and_one_sink_around_parallel_tasks():
    for n, edges in dags(generate(config(topology="fork-join", min_tasks=1), 1, 0)):
        before, after = predecessors(n, edges), successors(n, edges)
        sources = [t for t in range(n) if not before[t]]
        sinks = [t for t in range(n) if not after[t]]
        assert len(sources) == len(sinks) == 1
        if n >= 3:
            middle = set(range(n)) - {*sources, *sinks}
            assert all(before[t] == sources and after[t] == sinks for t in middle)
            assert len(edges) == 2 * len(middle)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_layered_edges_join_neighbouring_layers_of_bounded_width(width):
    widest = 0
    for n, edges in dags(generate(config(topology="layered", layer_width=width, max_tasks=15), 1, 0)):
        layer = layers(n, edges)
        assert all(layer[a] + 1 == layer[b] for a, b in edges)
        widest = max(widest, *Counter(layer).values())
    assert widest == width


def test_layers_are_joined_by_the_edge_probability_and_never_torn_apart():
    dense = generate(config(topology="layered", edge_probability=1.0, min_tasks=8), 1, 0)
    for n, edges in dags(dense):
        layer = layers(n, edges)
        assert sorted(edges) == [(a, b) for a in range(n) for b in range(n) if layer[a] + 1 == layer[b]]
    sparse = generate(config(topology="layered", edge_probability=0.0, min_tasks=8), 1, 0)
    for n, edges in dags(sparse):
        counts = [len(p) for p in predecessors(n, edges)]
        assert max(counts) == 1
        assert counts.count(0) <= 3  # the first layer alone: layer_width is 3


@pytest.mark.parametrize("most", [1, 2, 4])
def test_random_predecessors_gives_one_root_and_a_few_distinct_earlier_predecessors(most):
    counts, sources = [], []
    for n, edges in dags(generate(config(topology="random-predecessors", max_predecessors=most), 1, 0)):
        before = predecessors(n, edges)
        assert not before[0]
        for task in range(1, n):
            assert 1 <= len(before[task]) <= min(most, task)
            assert all(p < task for p in before[task])
        counts += [len(before[task]) for task in range(most, n)]
        sources += [p for task in range(5, n) for p in before[task] if task == 5]
    assert_mean(counts, (1 + most) / 2)
    assert stats.chisquare(list(Counter(sources).values())).pvalue > 1e-6  # each earlier node as likely
    assert set(sources) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.75, 1.0])
def test_erdos_renyi_has_each_forward_edge_with_the_probability(probability):
    hits, pairs = 0, 0
    by_pair = Counter()
    for n, edges in dags(generate(config(topology="erdos-renyi", edge_probability=probability, min_tasks=8), 1, 0)):
        assert all(a < b for a, b in edges)
        hits += len(edges)
        pairs += n * (n - 1) // 2
        by_pair.update(edges)
    error = np.sqrt(probability * (1 - probability) / pairs)
    assert abs(hits / pairs - probability) <= SIGMAS * error
    if 0 < probability < 1:
        assert set(by_pair) == set(itertools.combinations(range(8), 2))
        assert stats.chisquare(list(by_pair.values())).pvalue > 1e-6  # near enough: counts are binomial


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
