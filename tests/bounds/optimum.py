"""The clairvoyant optimum of a small workload, by OR-tools CP-SAT (of the `test` extra)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_scale.config import ClusterConfig, EnvConfig
from rllib_scale.workloads.model import Workload


@dataclass(frozen=True)
class Optimum:
    """Where the least possible `response_censored_s` lies [s].

    Attributes:
        lower_s: no scheduler reaches less.
        upper_s: the schedule that was found, played with unrounded times.
        proven: the solver finished; the two then differ by the rounding to ticks alone, and are equal where
            every arrival and execution time is a whole number of ticks.
    """

    lower_s: float
    upper_s: float
    proven: bool


def optimal_response(
    env: EnvConfig, workload: Workload, ticks_per_s: int = 1000, time_limit_s: float = 60.0
) -> Optimum:
    """Least `response_censored_s` of a workload with all arrivals known: for a dozen tasks on a few servers.

    No task is interrupted, a server runs one at a time, and servers may wait. Times are rounded down to ticks. That
    only makes the problem easier: a schedule stays one when its tasks, each server's order kept, start as early as the
    rounded times let them.

    Raises:
        UserError: a task fits no server.
        ValueError: an execution time is shorter than a tick, no task arrives, or `max_decisions` may end the episode;
            or the problem has slots, changing servers, transfers or release delays.
        RuntimeError: no schedule was found within the time limit.
    """
    from ortools.sat.python import cp_model

    tiers, horizon = env.cluster.tiers, env.episode.horizon_s
    if not env.cluster.simple or env.communication.mode == "transfer" or workload.delay_s.any():
        raise ValueError(
            "only servers of one slot that stay, without transfers and release delays, have an optimum here"
        )
    workload.check_fits(max(tier.memory_gb for tier in tiers), "workload")
    arrived = int(np.searchsorted(workload.arrival_s, horizon, side="right"))
    if env.episode.max_decisions is not None or arrived == 0:
        raise ValueError("only episodes without max_decisions in which a task arrives have an optimum")
    task_offsets, edge_offsets = workload.task_offsets[: arrived + 1], workload.edge_offsets[: arrived + 1]
    arrival = np.repeat(workload.arrival_s[:arrived], np.diff(task_offsets))
    compute, memory = workload.compute_gflop[: len(arrival)], workload.memory_gb[: len(arrival)]
    first_task = np.repeat(task_offsets[:-1], np.diff(edge_offsets))
    edges = (workload.edges[: edge_offsets[-1]] + first_task[:, None]).tolist()
    execution = compute[:, None] / np.array([tier.compute_gflops for tier in tiers])
    if execution.min() * ticks_per_s < 1:
        raise ValueError(f"ticks_per_s {ticks_per_s}: the shortest execution time is {execution.min()} s")
    release = [_ticks(x, ticks_per_s) for x in arrival]
    longest = max(release) + sum(_ticks(x, ticks_per_s) for x in execution.max(axis=1))
    cut = min(longest, _ticks(horizon, ticks_per_s))

    model = cp_model.CpModel()
    start = [model.new_int_var(r, longest, "") for r in release]
    end = [model.new_int_var(r, longest, "") for r in release]
    on_tier: list[list[tuple[int, Any]]] = [[] for _ in start]
    for k, tier in enumerate(tiers):
        intervals = []
        for i in np.flatnonzero(memory <= tier.memory_gb):
            chosen = model.new_bool_var("")
            on_tier[i].append((k, chosen))
            duration = _ticks(execution[i, k], ticks_per_s)
            intervals.append(model.new_optional_interval_var(start[i], duration, end[i], chosen, ""))
        model.add_cumulative(intervals, [1] * len(intervals), tier.count)
    for options in on_tier:
        model.add_exactly_one(chosen for _, chosen in options)
    for predecessor, successor in edges:
        model.add(start[successor] >= end[predecessor])
    counted = [model.new_int_var(0, cut, "") for _ in end]
    for until, finish_tick in zip(counted, end, strict=True):
        model.add_min_equality(until, [finish_tick, cut])
    model.minimize(sum(counted))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise RuntimeError(f"no schedule of {len(start)} tasks found within {time_limit_s} s")
    order = np.argsort([solver.value(x) for x in start], kind="stable")
    tier_of = [next(k for k, chosen in options if solver.value(chosen)) for options in on_tier]
    finish = _play(env.cluster, order, arrival, execution[np.arange(len(tier_of)), tier_of], tier_of, edges)
    least = np.ceil(solver.best_objective_bound - 1e-6) / ticks_per_s
    return Optimum(
        lower_s=float(least - arrival.sum()) / len(start),
        upper_s=float((np.minimum(finish, horizon) - arrival).mean()),
        proven=status == cp_model.OPTIMAL,
    )


def _play(
    cluster: ClusterConfig,
    order: np.ndarray,
    arrival: np.ndarray,
    execution: np.ndarray,
    tier_of: list[int],
    edges: list[list[int]],
) -> np.ndarray:
    """Finish (T,) where tasks start in this order, each as soon as it can on the server of its tier free first [s]."""
    free = [[0.0] * tier.count for tier in cluster.tiers]
    finish = np.zeros(len(order))
    for i in order:
        ready = max([arrival[i], *(finish[predecessor] for predecessor, successor in edges if successor == i)])
        servers = free[tier_of[i]]
        server = servers.index(min(servers))
        finish[i] = servers[server] = max(ready, servers[server]) + execution[i]
    return finish


def _ticks(seconds: float, per_second: int) -> int:
    """Rounded down, but for what floating-point noise took from a whole number."""
    return math.floor(seconds * per_second + 1e-6)
