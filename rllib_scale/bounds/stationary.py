"""A lower bound on the mean response in the long run: the Lagrangian of machine time, workflow by workflow.

In a stationary state no class of servers is busy for more seconds a second than it has places. Put a price on a second
there: then the mean over workflows of the least sum of finish times and prices of the seconds spent, queues left out,
less the price of all seconds there are, bounds the mean sum of finish times under any scheduler, however much it knows
in advance (Lagrangian relaxation: Fisher, Management Science 27, 1981). Any prices give a bound; those of a subgradient
ascent give a good one. The least sum is over all ways to give the tasks of a workflow to classes.

It is a statement about means: over a stationary process of arrivals, with the tail of a finite episode left out, or of
workflows as they are drawn. An episode that begins empty and drains at its end may be below it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled
from rllib_scale.config import EnvConfig
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.sample import sample_workflows

Floats = NDArray[np.float64]

WORKFLOWS = 6000
"""Sampled: a third of them decides the prices, the others what the bound is with these."""
ASCENT_STEPS = 60
MOST_NODES = 4000
"""Of the search for the cheapest assignment of one workflow; beyond, a weaker bound on it takes its place."""


class StationaryBound(NamedTuple):
    """A bound on the mean response over tasks [s]; all NaN where there is no stationary state, or no bound."""

    response_s: float
    standard_error_s: float
    """Of the sample."""
    prices: tuple[float, ...]
    """Of a second on each tier, in seconds of response."""


def stationary_bound(env: EnvConfig, workflows: int = WORKFLOWS) -> StationaryBound:
    """Bound on the mean response of all tasks in the long run, for any scheduler.

    Transfers take no time in it, servers are there all the time with all places at full speed; demands are the true
    ones. None is known where tasks may go on on another server (`preemption: resume`), or at a load of 1 and above.

    Args:
        env: the problem; its horizon and the end of arrivals play no part.
        workflows: in the sample.

    Raises:
        UserError: the workload has no sample, or a task of it fits no server.
    """
    sample = sample_workflows(env, workflows)
    tiers = env.cluster.tiers
    sample.workload.check_fits(max(tier.memory_gb for tier in tiers), "workload")
    if env.decision.preemption == "resume" or sample.offered_load(env) >= 1.0:
        return StationaryBound(math.nan, math.nan, (math.nan,) * len(tiers))
    places = np.array([tier.count * tier.max_concurrent for tier in tiers], dtype=np.float64)
    available = places / sample.rate
    third = np.arange(sample.workload.num_workflows) % 3 == 0
    tuned, held = (
        sample.workload.take(numbers, np.zeros(len(numbers))) for numbers in map(np.flatnonzero, (third, ~third))
    )
    speed = np.array([tier.compute_gflops for tier in tiers])
    memory = np.array([tier.memory_gb for tier in tiers])
    price, best, best_price = np.zeros(len(tiers)), -math.inf, np.zeros(len(tiers))
    step = tuned.num_tasks / max(1, tuned.num_workflows)
    for k in range(ASCENT_STEPS):
        cost, seconds = cheapest(tuned, speed, memory, price)
        value, used = float(cost.mean() - price @ available), seconds.mean(axis=0)
        if value > best:
            best, best_price = value, price
        price = np.maximum(0.0, price + step / math.sqrt(1 + k) * (used - available) / np.maximum(used, available))
    sizes = np.diff(held.task_offsets)
    gained = cheapest(held, speed, memory, best_price)[0] - best_price @ available
    response = float(gained.sum() / sizes.sum())
    error = float(np.std(gained - response * sizes) / math.sqrt(len(sizes)) / sizes.mean())
    return StationaryBound(response, error, tuple(best_price.tolist()))


def cheapest(workload: Workload, speed: np.ndarray, memory: np.ndarray, price: np.ndarray) -> tuple[Floats, Floats]:
    """Least sum of responses and of prices of the seconds spent, of each workflow without queues.

    Args:
        workload: of W workflows.
        speed: (K,) GFLOPS of each class.
        memory: (K,) GB.
        price: (K,) of a second there.

    Returns:
        (W,) that, or less where the search for it is too long; (W, K) seconds spent at it, about.
    """
    w = workload
    cost, seconds = np.zeros(w.num_workflows), np.zeros((w.num_workflows, len(speed)))
    tasks = (w.task_offsets, w.compute_gflop, w.memory_gb, w.delay_s)
    _cheapest(*tasks, w.edge_offsets, w.edges, speed, memory, price, MOST_NODES, cost, seconds)
    return cost, seconds


@partial(compiled, allocates=True)
def _cheapest(  # type: ignore[no-untyped-def]
    task_offsets, compute, memory, delay, edge_offsets, edges, speed, limit, price, most_nodes, cost, seconds
):
    """Writes `cost` (W,) and `seconds` (W, K).

    A search in depth over the classes of the tasks, predecessors first. What is left costs at least its critical path
    and the least prices. Two bounds stand in where the search takes more than `most_nodes`: all of that, and each task
    on the class of the least (followers + price) x time, where followers are those of a forest of paths.
    """
    num_classes = len(speed)
    for w in range(len(cost)):
        first, n = task_offsets[w], task_offsets[w + 1] - task_offsets[w]
        links = edges[edge_offsets[w] : edge_offsets[w + 1]]
        missing = np.zeros(n, dtype=np.int64)
        begin = np.searchsorted(links[:, 0], np.arange(n + 1))
        for e in range(len(links)):
            missing[links[e, 1]] += 1
        before_begin = np.zeros(n + 2, dtype=np.int64)
        order, tail = np.empty(n, dtype=np.int64), 0
        for task in range(n):
            before_begin[task + 1] = before_begin[task] + missing[task]
            if missing[task] == 0:
                order[tail] = task
                tail += 1
        before, filled = np.empty(len(links), dtype=np.int64), before_begin.copy()
        for at in range(n):
            task = order[at]
            for e in range(begin[task], begin[task + 1]):
                successor = links[e, 1]
                before[filled[successor]] = at
                filled[successor] += 1
                missing[successor] -= 1
                if missing[successor] == 0:
                    order[tail] = successor
                    tail += 1
        # By position in the order from here on.
        lasts, least = np.full((n, num_classes), np.inf), np.zeros(n + 1)
        finish, parent = np.zeros(n), np.full(n, -1)
        for at in range(n):
            task = order[at]
            fastest, lowest = np.inf, np.inf
            for k in range(num_classes):
                if memory[first + task] <= limit[k]:
                    lasts[at, k] = compute[first + task] / speed[k]
                    fastest, lowest = min(fastest, lasts[at, k]), min(lowest, price[k] * lasts[at, k])
            start = 0.0
            for e in range(before_begin[task], before_begin[task + 1]):
                if finish[before[e]] > start:
                    start, parent[at] = finish[before[e]], before[e]
            finish[at] = start + delay[first + task] + fastest
            least[at] = finish[at] + lowest
        for at in range(n - 1, -1, -1):
            least[at] += least[at + 1]
        followers = np.ones(n)
        for at in range(n - 1, -1, -1):
            if parent[at] >= 0:
                followers[parent[at]] += followers[at]
        chosen, best, forest = np.zeros(n, dtype=np.int64), 0.0, 0.0
        for at in range(n):
            task, cheap = order[at], np.inf
            for k in range(num_classes):
                if (followers[at] + price[k]) * lasts[at, k] < cheap:
                    cheap, chosen[at] = (followers[at] + price[k]) * lasts[at, k], k
            forest += cheap + followers[at] * delay[first + task]
            start = 0.0
            for e in range(before_begin[task], before_begin[task + 1]):
                start = max(start, finish[before[e]])
            finish[at] = start + delay[first + task] + lasts[at, chosen[at]]
            best += finish[at] + price[chosen[at]] * lasts[at, chosen[at]]
        bound = max(forest, least[0])
        nodes, at = 0, 0
        choice, spent = np.full(n, -1), np.zeros(n + 1)
        while at >= 0 and best > bound * (1.0 + 1e-12) and nodes <= most_nodes:
            choice[at] += 1
            k = choice[at]
            if k == num_classes:
                choice[at] = -1
                at -= 1
                continue
            if lasts[at, k] == np.inf:
                continue
            nodes += 1
            task, start = order[at], 0.0
            for e in range(before_begin[task], before_begin[task + 1]):
                start = max(start, finish[before[e]])
            finish[at] = start + delay[first + task] + lasts[at, k]
            spent[at + 1] = spent[at] + finish[at] + price[k] * lasts[at, k]
            if spent[at + 1] + least[at + 1] >= best:
                continue
            if at == n - 1:
                best = spent[n]
                chosen[:] = choice
            else:
                at += 1
        cost[w] = bound if nodes > most_nodes else best
        for at in range(n):
            seconds[w, chosen[at]] += lasts[at, chosen[at]]
