"""Drawing workloads: Poisson arrivals, task distributions and named DAG topologies.

Only (seed, episode) decides a workload. Each environment has a separate random number generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, cast, get_args

import numpy as np

from rllib_scale import plugins
from rllib_scale.compiled import compiled
from rllib_scale.config import EnvConfig, NormalConfig, Topology
from rllib_scale.errors import UserError
from rllib_scale.plugins import unpinned
from rllib_scale.workloads.arrivals import WAVE, draw_gap, end_of_arrivals, wave_of
from rllib_scale.workloads.fitted import draw_fitted, table_of
from rllib_scale.workloads.model import TASK_DEMAND, Workload
from rllib_scale.workloads.random_numbers import integer, new_generator, uniform
from rllib_scale.workloads.traces import draw_from_trace, part_of_trace

TOPOLOGIES: tuple[str, ...] = get_args(Topology)
RANDOM_PREDECESSORS, CHAIN, FORK_JOIN, LAYERED, ERDOS_RENYI, TREE = map(
    TOPOLOGIES.index, ("random-predecessors", "chain", "fork-join", "layered", "erdos-renyi", "tree")
)

_NORMAL = np.dtype([("mean", "f8"), ("std", "f8"), ("low", "f8"), ("high", "f8"), ("truncate", "i8")])
PARAMETERS = np.dtype(
    [
        ("rate", "f8"),  # workflows per second
        ("wave", WAVE),  # of the rate
        ("first_at_zero", "i8"),
        ("min_tasks", "i8"),
        ("max_tasks", "i8"),
        ("compute", _NORMAL),  # GFLOP
        ("memory", _NORMAL),  # GB
        ("output", _NORMAL),  # GB
        ("delays", "i8"),  # whether tasks have release delays
        ("delay", _NORMAL),  # s
        ("topology", "i8"),
        ("max_predecessors", "i8"),
        ("layer_width", "i8"),
        ("edge_probability", "f8"),
        ("branching", "i8"),
    ]
)


def parameters(config: EnvConfig) -> np.ndarray:
    """The workload part of a config as a record array (1,) for compiled code."""
    w = config.workload

    def normal(d: NormalConfig) -> tuple[float, float, float, float, int]:
        return d.mean, d.std, d.low, math.inf if d.high is None else d.high, int(d.bound == "truncate")

    row = (
        config.arrival_rate,
        wave_of(config)[0],
        int(config.episode.first_arrival == "at-zero"),
        w.min_tasks,
        w.max_tasks,
        normal(w.compute_gflop),
        normal(w.memory_gb),
        normal(w.output_gb),
        int(w.delay_s is not None),
        normal(w.delay_s or w.output_gb),
        TOPOLOGIES.index(w.topology),
        w.max_predecessors,
        w.layer_width,
        w.edge_probability,
        w.branching,
    )
    return np.array([row], dtype=PARAMETERS)


def most_edges(config: EnvConfig) -> int:
    """Upper bound on the edges of one workflow."""
    k = config.workload.max_tasks
    if config.workload.topology == "random-predecessors":
        return min(config.workload.max_predecessors * k, k * (k - 1) // 2)
    if config.workload.topology in ("chain", "tree", "fork-join"):
        return 2 * k
    if config.workload.topology == "layered":
        return min(config.workload.layer_width * k, k * (k - 1) // 2)
    return k * (k - 1) // 2


@compiled
def _normal(rng, dist):  # type: ignore[no-untyped-def]
    while True:
        radius = math.sqrt(-2.0 * math.log(1.0 - uniform(rng)))
        x = dist.mean + dist.std * radius * math.cos(2.0 * math.pi * uniform(rng))
        if dist.low <= x <= dist.high:
            return x
        if not dist.truncate:
            return min(max(x, dist.low), dist.high)


# ---------------------------------------------------------------------- one workflow


@compiled
def draw_arrival(rng, p, is_first, clock):  # type: ignore[no-untyped-def]
    """Arrival of the next workflow, after the previous one, or the start, at `clock`."""
    if is_first and p.first_at_zero:
        return clock
    return clock + draw_gap(rng, p.rate, p.wave, clock)


@compiled
def draw_workflow(rng, p, tasks, edges):  # type: ignore[no-untyped-def]
    """Draw one workflow: demands into `tasks` (.compute, .memory, .output, .delay, .places), edges into `edges` (E, 2).

    Tasks are numbered so that every edge leads to a higher index. Returns (number of tasks, number of edges).
    """
    n = integer(rng, p.min_tasks, p.max_tasks)
    for k in range(n):
        tasks[k].compute = _normal(rng, p.compute)
        tasks[k].memory = _normal(rng, p.memory)
        tasks[k].output = _normal(rng, p.output)
        tasks[k].delay = _normal(rng, p.delay) if p.delays else 0.0
        tasks[k].places = 1
    if p.topology == RANDOM_PREDECESSORS:
        return n, _random_predecessors(rng, n, p.max_predecessors, edges)
    if p.topology == CHAIN:
        for k in range(n - 1):
            edges[k, 0], edges[k, 1] = k, k + 1
        return n, n - 1
    if p.topology == FORK_JOIN:
        return n, _fork_join(n, edges)
    if p.topology == LAYERED:
        return n, _layered(rng, n, p.layer_width, p.edge_probability, edges)
    if p.topology == ERDOS_RENYI:
        return n, _erdos_renyi(rng, n, p.edge_probability, edges)
    return n, _tree(rng, n, p.branching, edges)


@compiled
def _random_predecessors(rng, n, most, edges):  # type: ignore[no-untyped-def]
    """One root; every later node draws 1 to `most` distinct earlier nodes."""
    e = 0
    for k in range(1, n):
        first = e
        for _ in range(min(integer(rng, 1, most), k)):
            while True:
                source = integer(rng, 0, k - 1)
                is_new = True
                for i in range(first, e):
                    if edges[i, 0] == source:
                        is_new = False
                if is_new:
                    break
            edges[e, 0], edges[e, 1] = source, k
            e += 1
    return e


@compiled
def _fork_join(n, edges):  # type: ignore[no-untyped-def]
    """One source, parallel branches of one task, one sink; a chain if there are fewer than three tasks."""
    if n == 1:
        return 0
    if n == 2:
        edges[0, 0], edges[0, 1] = 0, 1
        return 1
    e = 0
    for k in range(1, n - 1):
        edges[e, 0], edges[e, 1] = 0, k
        edges[e + 1, 0], edges[e + 1, 1] = k, n - 1
        e += 2
    return e


@compiled
def _layered(rng, n, width, probability, edges):  # type: ignore[no-untyped-def]
    """Layers of 1 to `width` tasks; a task follows each of the layer before with `probability`, at least one."""
    e = 0
    previous, start = 0, 0
    while start < n:
        end = min(n, start + integer(rng, 1, width))
        if start > 0:
            for k in range(start, end):
                before = e
                for source in range(previous, start):
                    if uniform(rng) < probability:
                        edges[e, 0], edges[e, 1] = source, k
                        e += 1
                if e == before:
                    edges[e, 0], edges[e, 1] = integer(rng, previous, start - 1), k
                    e += 1
        previous, start = start, end
    return e


@compiled
def _erdos_renyi(rng, n, probability, edges):  # type: ignore[no-untyped-def]
    """Each of the n (n - 1) / 2 forward edges with `probability`."""
    e = 0
    for k in range(1, n):
        for source in range(k):
            if uniform(rng) < probability:
                edges[e, 0], edges[e, 1] = source, k
                e += 1
    return e


@partial(compiled, allocates=True)
def _tree(rng, n, branching, edges):  # type: ignore[no-untyped-def]
    """An out-tree: each later node hangs below an earlier one with fewer than `branching` children, drawn uniformly."""
    children = np.zeros(n, dtype=np.int64)
    for k in range(1, n):
        while True:
            parent = integer(rng, 0, k - 1)
            if children[parent] < branching:
                break
        children[parent] += 1
        edges[k - 1, 0], edges[k - 1, 1] = parent, k
    return n - 1


# ---------------------------------------------------------------------- a whole workload


def estimate_parameters(error: float) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm of a lognormal with mean 1 and coefficient of variation `error`."""
    variance = math.log1p(error**2)
    return -variance / 2, math.sqrt(variance)


def generate(config: EnvConfig, seed: int, episode: int) -> Workload:
    """The workload of (seed, episode): every workflow that arrives until `arrivals_until_s`, or else the horizon.

    The engine draws the same synthetic workflows in compiled code. It calls this function for traces,
    fitted tables and custom generators.

    Raises:
        UserError: the trace or the table is missing, has changed, or has tasks that fit no server; or a custom
            generator fails or gives no workload; or servers are replicas, which play sessions.
    """
    if config.on_replicas:
        raise UserError("service replica: plays sessions, and no workflows are drawn")
    if config.workload.trace is not None:
        return draw_from_trace(config, config.workload.trace, seed, episode)
    if config.workload.fitted is not None:
        return draw_fitted(config, config.workload.fitted, seed, episode)
    if config.workload.generator is not None:
        return _draw_custom(config, config.workload.generator, seed, episode)
    p, until, rng = parameters(config)[0], end_of_arrivals(config), new_generator(seed, episode)
    tasks = np.zeros(config.workload.max_tasks, dtype=TASK_DEMAND)
    edges = np.zeros((max(1, most_edges(config)), 2), dtype=np.int64)
    arrivals: list[float] = []
    demands: list[np.ndarray] = []
    links: list[np.ndarray] = []
    clock = draw_arrival(rng, p, True, 0.0)
    while clock <= until:
        n, e = draw_workflow(rng, p, tasks, edges)
        arrivals.append(clock)
        demands.append(tasks[:n].copy())
        order = np.lexsort((edges[:e, 1], edges[:e, 0]))
        links.append(edges[:e][order])
        clock = draw_arrival(rng, p, False, clock)
    demand = np.concatenate([np.zeros(0, dtype=TASK_DEMAND), *demands])
    return Workload(
        arrival_s=np.array(arrivals, dtype=np.float64),
        task_offsets=np.cumsum([0, *(len(d) for d in demands)], dtype=np.int64),
        compute_gflop=demand["compute"].copy(),
        memory_gb=demand["memory"].copy(),
        output_gb=demand["output"].copy(),
        delay_s=demand["delay"].copy(),
        edge_offsets=np.cumsum([0, *(len(x) for x in links)], dtype=np.int64),
        edges=np.concatenate([np.zeros((0, 2), dtype=np.int64), *links]),
    )


def _draw_custom(config: EnvConfig, name: str, seed: int, episode: int) -> Workload:
    drawn = plugins.call("generator", name, _custom(name), config, np.random.default_rng([seed, episode]))
    if not isinstance(drawn, Workload):
        valid = "a rllib_scale.workloads.model.Workload"
        raise UserError(f"generator {unpinned(name)!r}: gave a {type(drawn).__name__}; valid: {valid}")
    drawn.check_fits(config.cluster, f"generator {unpinned(name)!r}")
    in_time = np.flatnonzero(drawn.arrival_s <= end_of_arrivals(config))
    return drawn if len(in_time) == drawn.num_workflows else drawn.take(in_time, drawn.arrival_s[in_time])


@lru_cache(maxsize=8)
def _custom(name: str) -> Callable[..., Any]:
    """The function of a pinned custom generator."""
    found = plugins.load("generator", name, [])[0]
    if not callable(found):
        valid = "a function of an EnvConfig and a numpy.random.Generator"
        raise UserError(f"generator {unpinned(name)!r}: is a {type(found).__name__}; valid: {valid}")
    return cast(Callable[..., Any], found)


def check_source(config: EnvConfig) -> None:
    """Check that workloads can be drawn: that a trace or a table exists and fits the cluster, or a generator works.

    Raises:
        UserError: see `generate`.
    """
    if config.workload.trace is not None:
        part_of_trace(config, config.workload.trace)
    if config.workload.fitted is not None:
        table_of(config, config.workload.fitted)
    if config.workload.generator is not None:
        generate(config, 0, 0)
