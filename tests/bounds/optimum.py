"""The clairvoyant optimum of a small workload, by OR-tools CP-SAT (of the `test` extra)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from rllib_scale.config import EnvConfig
from rllib_scale.workloads.model import Workload

TICKS_PER_S = 1000


def optimal_response(env: EnvConfig, workload: Workload) -> tuple[float, float]:
    """Least `response_censored_s` of a dozen tasks on a few servers in the paper's mode: between these two [s].

    No task is interrupted, a server runs one at a time, and servers may wait. A task without work needs none. Times
    are rounded down to ticks. That only makes the problem easier: a schedule stays one when its tasks, each server's
    order kept, start as early as the rounded times let them. The second value is of the schedule that was found,
    played with unrounded times.
    """
    tiers, horizon = env.cluster.tiers, env.episode.horizon_s
    arrived = int(np.searchsorted(workload.arrival_s, horizon, side="right"))
    task_offsets, edge_offsets = workload.task_offsets[: arrived + 1], workload.edge_offsets[: arrived + 1]
    arrival = np.repeat(workload.arrival_s[:arrived], np.diff(task_offsets))
    compute, memory = workload.compute_gflop[: len(arrival)], workload.memory_gb[: len(arrival)]
    bits = workload.labels[: len(arrival)].tolist()
    labels = [[name for k, name in enumerate(workload.label_names) if needs & 2**k] for needs in bits]
    first_task = np.repeat(task_offsets[:-1], np.diff(edge_offsets))
    edges = (workload.edges[: edge_offsets[-1]] + first_task[:, None]).tolist()
    execution = compute[:, None] / np.array([tier.compute_gflops for tier in tiers])
    longest = _ticks(arrival.max() + execution.max(axis=1).sum())
    cut = min(longest, _ticks(horizon))

    model = cp_model.CpModel()
    start = [model.new_int_var(_ticks(x), longest, "") for x in arrival]
    end = [model.new_int_var(_ticks(x), longest, "") for x in arrival]
    on_tier: list[list[tuple[int, Any]]] = [[] for _ in start]
    for k, tier in enumerate(tiers):
        intervals = []
        has_labels = [set(needs) <= set(tier.labels) for needs in labels]
        for i in np.flatnonzero((memory <= tier.memory_gb + 1e-9) & has_labels & (compute > 0)):
            chosen = model.new_bool_var("")
            on_tier[i].append((k, chosen))
            intervals.append(model.new_optional_interval_var(start[i], _ticks(execution[i, k]), end[i], chosen, ""))
        model.add_cumulative(intervals, [1] * len(intervals), tier.count)
    for i, options in enumerate(on_tier):
        if compute[i] > 0:
            model.add_exactly_one(chosen for _, chosen in options)
        else:
            model.add(end[i] == start[i])
    for predecessor, successor in edges:
        model.add(start[successor] >= end[predecessor])
    counted = [model.new_int_var(0, cut, "") for _ in end]
    for until, finish_tick in zip(counted, end, strict=True):
        model.add_min_equality(until, [finish_tick, cut])
    model.minimize(sum(counted))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL

    free = [[0.0] * tier.count for tier in tiers]
    finish = np.zeros(len(start))
    before = {i: [predecessor for predecessor, successor in edges if successor == i] for i in range(len(start))}
    level = [0] * len(start)
    for _ in start:
        level = [max((level[p] + 1 for p in before[i]), default=0) for i in range(len(start))]
    # Each as soon as it can, in the order of their starts; those of one tick in that of the workflow.
    for i in sorted(range(len(start)), key=lambda i: (solver.value(start[i]), level[i])):
        ready = max([arrival[i], *(finish[predecessor] for predecessor in before[i])])
        if compute[i] == 0:
            finish[i] = ready
            continue
        k = next(k for k, chosen in on_tier[i] if solver.value(chosen))
        server = free[k].index(min(free[k]))
        finish[i] = free[k][server] = max(ready, free[k][server]) + execution[i, k]
    least = np.ceil(solver.best_objective_bound - 1e-6) / TICKS_PER_S
    return float(least - arrival.sum()) / len(start), float((np.minimum(finish, horizon) - arrival).mean())


def _ticks(seconds: float) -> int:
    """Rounded down, but for what floating-point noise took from a whole number."""
    return math.floor(seconds * TICKS_PER_S + 1e-6)
