"""Lower bounds on the mean response of an episode: what no scheduler can beat, however much it knows in advance.

They bound `response_censored_s`: the mean over every arrived task of min(finish, horizon) - arrival of its workflow.
All of them let communication delay nothing, every server be there all the time with all its places at full speed,
take decisions in any order, and know the future: they hold, and are wide, where a problem has more of that.

- *Critical path*: every task runs as early as its predecessors and its release delay allow, each on the fastest server
  that fits it.
- *Single machine*: the servers that can hold a set of tasks are replaced by one preemptive machine of their summed
  speed. Shortest remaining processing time first, with each task released at its critical-path start, has at every
  moment the fewest unfinished tasks of all schedules of that machine (Schrage, Operations Research 16, 1968), hence of
  the cluster, where a task of several places has as many times its work. So the i-th completion among the tasks is no
  earlier than the i-th of that machine and than the i-th smallest critical path. Bounds of disjoint sets of tasks add
  up: the tasks are split by the memory they need.
- *Prices*: Lagrangian relaxation of the machine time of each tier, with prices by a subgradient ascent (Fisher,
  Management Science 27, 1981). Any prices give a bound; `_cheapest` says why. Release delays count for
  nothing in it.
"""

from __future__ import annotations

import heapq
import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled
from rllib_scale.config import EnvConfig
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.model import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ASCENT_STEPS = 40
WINDOW_ENDS = (1.0, 2.0, 3.0)
"""Time after the last arrival at which machine time stops having a price, in mean critical-path responses."""


def lower_bounds(env: EnvConfig, workload: Workload) -> dict[str, float]:
    """Bounds on `response_censored_s` of any scheduler that plays the workload.

    Returns:
        `bound_critical_path_s` and `bound_capacity_s` [s], the latter never lower: the best of all bounds. NaN where
        no task arrives, or where `max_decisions` may end the episode, so that the scheduler decides what has arrived.

    Raises:
        UserError: a task fits no server.
    """
    workload.check_fits(env.cluster, "workload")
    horizon = env.episode.horizon_s
    if env.episode.max_decisions is not None or workload.num_workflows == 0 or workload.arrival_s[0] > horizon:
        return {"bound_critical_path_s": math.nan, "bound_capacity_s": math.nan}
    tasks = _relax(env, workload)
    critical_path = float(np.minimum(tasks.earliest_finish, horizon).sum())
    capacity = max(critical_path, _single_machine_bound(env, tasks), _price_bound(env, tasks))
    arrivals, count = float(tasks.arrival.sum()), len(tasks.arrival)
    return {
        "bound_critical_path_s": (critical_path - arrivals) / count,
        "bound_capacity_s": (capacity - arrivals) / count,
    }


class _Tasks(NamedTuple):
    """The T tasks that arrive until the horizon, predecessors before successors; K tiers."""

    workflow: Ints  # (T,)
    arrival: Floats  # (T,) s, of the workflow
    compute: Floats  # (T,) GFLOP
    memory: Floats  # (T,) GB
    places: Floats  # (T,) that it takes of a server
    execution: Floats  # (T, K) s on each tier, inf where the task does not fit
    earliest_start: Floats  # (T,) s, on the critical path
    earliest_finish: Floats  # (T,) s, on the critical path
    parent: Ints  # (T,) the predecessor that finishes last on the critical path, -1 of a root


def _relax(env: EnvConfig, workload: Workload) -> _Tasks:
    arrived = int(np.searchsorted(workload.arrival_s, env.episode.horizon_s, side="right"))
    task_offsets, edge_offsets = workload.task_offsets[: arrived + 1], workload.edge_offsets[: arrived + 1]
    workflow = np.repeat(np.arange(arrived), np.diff(task_offsets))
    of_edge = np.repeat(np.arange(arrived), np.diff(edge_offsets))
    edges = workload.edges[: edge_offsets[-1]] + task_offsets[of_edge][:, None]
    compute, memory = workload.compute_gflop[: len(workflow)], workload.memory_gb[: len(workflow)]
    speeds = np.array([tier.compute_gflops for tier in env.cluster.tiers])
    memories = np.array([tier.memory_gb for tier in env.cluster.tiers])
    labels, offered = workload.labels_on(env.cluster)[: len(workflow)], np.array(env.cluster.labels_of_tiers)
    places, there = workload.places[: len(workflow)], np.array([tier.max_concurrent for tier in env.cluster.tiers])
    needs = memory[:, None], places[:, None], labels[:, None]
    execution = np.where(fits(*needs, memories, there, offered), compute[:, None] / speeds, np.inf)
    arrival, fastest = workload.arrival_s[workflow], execution.min(axis=1)
    order, start, parent = critical_paths(arrival, workload.delay_s[: len(workflow)], fastest, edges)
    return _Tasks(
        workflow=workflow[order],
        arrival=arrival[order],
        compute=compute[order],
        memory=memory[order],
        places=places[order].astype(np.float64),
        execution=execution[order],
        earliest_start=start[order],
        earliest_finish=(start + fastest)[order],
        parent=parent[order],
    )


def critical_path_s(env: EnvConfig, workload: Workload) -> Floats:
    """(W,) response of each workflow without queues and transfers, every task on the fastest server that fits it [s].

    Of the workflows that arrive until the horizon.
    """
    tasks = _relax(env, workload)
    longest = np.zeros(int(tasks.workflow.max(initial=-1)) + 1)
    np.maximum.at(longest, tasks.workflow, tasks.earliest_finish - tasks.arrival)
    return longest


@partial(compiled, allocates=True)
def critical_paths(arrival, delay, fastest, edges):  # type: ignore[no-untyped-def]
    """Topological order (T,) by Kahn's algorithm; start (T,) on the critical path; critical predecessor (T,).

    `edges` (E, 2) holds task rows, in order of the predecessor. The critical predecessor, -1 of a root, is a position
    in the order, everything else is by task row.
    """
    num_tasks = len(arrival)
    first_edge = np.searchsorted(edges[:, 0], np.arange(num_tasks + 1))
    # Kahn's algorithm; the longest path is relaxed in the same pass, as predecessors come first.
    missing = np.zeros(num_tasks, dtype=np.int64)
    for successor in edges[:, 1]:
        missing[successor] += 1
    order = np.empty(num_tasks, dtype=np.int64)
    tail = 0
    for task in range(num_tasks):
        if missing[task] == 0:
            order[tail] = task
            tail += 1
    start, parent = arrival.copy(), np.full(num_tasks, -1)
    for position in range(num_tasks):
        task = order[position]
        start[task] += delay[task]
        finish = start[task] + fastest[task]
        for edge in range(first_edge[task], first_edge[task + 1]):
            successor = edges[edge, 1]
            if finish > start[successor]:
                start[successor], parent[successor] = finish, position
            missing[successor] -= 1
            if missing[successor] == 0:
                order[tail] = successor
                tail += 1
    return order, start, parent


# ---------------------------------------------------------------------- single machine


def _single_machine_bound(env: EnvConfig, tasks: _Tasks) -> float:
    """Bound on the sum of min(finish, horizon), by the best split of the tasks into ranges of memory."""
    sizes = np.unique([tier.memory_gb for tier in env.cluster.tiers])
    smallest_fit = fits(tasks.memory[:, None], 0, 0, sizes, 0, 0).argmax(axis=1)  # by memory alone
    best_from = np.zeros(len(sizes) + 1)  # of the tasks that need sizes[k] or more
    # Dynamic programming over memory: tasks that need sizes[low] to sizes[high] run on one machine that is as fast as
    # all servers large enough for the least of them; the rest begin at sizes[high + 1].
    for low in range(len(sizes) - 1, -1, -1):
        speed = sum(
            tier.count * tier.max_concurrent * tier.compute_gflops
            for tier in env.cluster.tiers
            if tier.memory_gb >= sizes[low]
        )
        for high in range(low, len(sizes)):
            chosen = (low <= smallest_fit) & (smallest_fit <= high)
            finish = _shortest_remaining_first(
                tasks.earliest_start[chosen], (tasks.compute * tasks.places)[chosen], speed
            )
            # The k-th finish is no earlier than the k-th smallest critical path on any machine.
            finish = np.maximum(finish, np.sort(tasks.earliest_finish[chosen]))
            bound = np.minimum(finish, env.episode.horizon_s).sum() + best_from[high + 1]
            best_from[low] = max(best_from[low], bound)
    return float(best_from[0])


@partial(compiled, allocates=True)
def _shortest_remaining_first(release, work, speed):  # type: ignore[no-untyped-def]
    """Completion times (n,) in ascending order of n tasks on one preemptive machine, SRPT."""
    order = np.argsort(release)
    # An empty list whose type numba can infer.
    waiting = [(0.0, 0) for _ in range(0)]
    finish = np.empty(len(order))
    clock, released, finished = 0.0, 0, 0
    while finished < len(order):
        if len(waiting) == 0:
            clock = max(clock, release[order[released]])
        while released < len(order) and release[order[released]] <= clock:
            heapq.heappush(waiting, (work[order[released]], order[released]))
            released += 1
        left, task = heapq.heappop(waiting)
        next_release = release[order[released]] if released < len(order) else np.inf
        if clock + left / speed <= next_release:
            clock += left / speed
            finish[finished] = clock
            finished += 1
        else:
            heapq.heappush(waiting, (left - (next_release - clock) * speed, task))
            clock = next_release
    return finish


# ---------------------------------------------------------------------- prices


def _price_bound(env: EnvConfig, tasks: _Tasks) -> float:
    """Bound on the sum of min(finish, horizon), by the best prices and the best window found."""
    counts = np.array([tier.count * tier.max_concurrent for tier in env.cluster.tiers])
    first, last = float(tasks.arrival.min()), float(tasks.arrival.max())
    response = float((tasks.earliest_finish - tasks.arrival).mean())
    followers = _followers(tasks.parent)
    best = 0.0
    for until in sorted({min(env.episode.horizon_s, last + k * response) for k in WINDOW_ENDS}):
        if until <= first:
            continue
        available = counts * (until - first)
        price = np.zeros(len(counts))
        for step in range(ASCENT_STEPS):
            cost, used = _cheapest(tasks, followers, price, until, env.episode.horizon_s)
            best = max(best, cost - float(price @ available))
            # Subgradient ascent, with steps of 1 / sqrt(step). Any prices give a bound: it need not converge.
            price = np.maximum(
                0.0, price + followers.mean() / math.sqrt(1 + step) * (used - available) / np.maximum(used, available)
            )
    return best


@partial(compiled, allocates=True)
def _followers(parent):  # type: ignore[no-untyped-def]
    """Tasks (T,) of the subtree of each task in the forest of parents, itself included."""
    followers = np.ones(len(parent))
    # Successors come after predecessors: one pass from the back adds up subtrees.
    for task in range(len(parent) - 1, -1, -1):
        if parent[task] >= 0:
            followers[parent[task]] += followers[task]
    return followers


@partial(compiled, allocates=True)
def _cheapest(tasks, followers, price, until, horizon):  # type: ignore[no-untyped-def]
    """Least sum of min(finish, horizon) and of price (K,) x machine seconds spent by `until`, without queues.

    Returns a lower bound on it, and the seconds (K,) of each tier that it represents.

    No schedule spends more than count x (until - first arrival) seconds of a tier by `until`; so the least cost, minus
    the price of that many seconds, bounds the sum of min(finish, horizon) of every schedule.

    Let A be the tasks that a schedule finishes after `until`, which must not be after the horizon; A holds the
    descendants of its tasks. A task outside A finishes no earlier than its line of parents run back to back. So where
    A is empty, a task's execution time counts once for each of its `followers` and once for its price, and each takes
    the tier on which that is least: `cost`. Moving a task into A spares no more than its line on the slowest tiers
    that any number of followers would choose (those of one follower), and its own price; and it counts at least
    `until`. The sum over the tasks for which that spares anything, taken off, covers every A. Apart from
    that, no price makes a workflow cheaper than its critical paths.
    """
    num_tasks, num_tiers = tasks.execution.shape
    num_workflows = tasks.workflow.max() + 1
    priced, unpriced = np.zeros(num_workflows), np.zeros(num_workflows)
    seconds = np.zeros((num_workflows, num_tiers))
    latest = np.empty(num_tasks)
    for task in range(num_tasks):
        # The cheapest tier; and that of one follower, the slowest that any number of them would choose.
        cost, lone_cost, tier, slowest = np.inf, np.inf, 0, 0.0
        for k in range(num_tiers):
            execution = tasks.execution[task, k]
            paid = price[k] * tasks.places[task]
            if (followers[task] + paid) * execution < cost:
                cost, tier = (followers[task] + paid) * execution, k
            if (1.0 + paid) * execution < lone_cost:
                lone_cost, slowest = (1.0 + paid) * execution, execution
        execution, parent, w = tasks.execution[task, tier], tasks.parent[task], tasks.workflow[task]
        latest[task] = slowest + (latest[parent] if parent >= 0 else tasks.arrival[task])
        least = min(tasks.earliest_finish[task], horizon)
        # What it could save by finishing after `until`: see A above.
        spared = latest[task] + price[tier] * tasks.places[task] * execution - max(until, least)
        priced[w] += tasks.arrival[task] + cost - max(0.0, spared)
        unpriced[w] += least
        seconds[w, tier] += execution * tasks.places[task]
    used = np.zeros(num_tiers)
    for w in range(num_workflows):
        if priced[w] >= unpriced[w] * (1 - 1e-12):  # equal but for rounding where all prices are 0
            used += seconds[w]
    return np.maximum(priced, unpriced).sum(), used
