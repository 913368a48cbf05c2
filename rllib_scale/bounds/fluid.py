"""A lower bound on the mean response of one episode by linear programming: tasks as fluids on servers as pools.

As the bounds of `lower_bounds`, it is on `response_censored_s`, with all known in advance, without transfers, with
every server there all the time. Time is cut into bins. A task's work is spread over tiers and bins, none before its
critical path lets it start; a bin of a tier holds no more seconds than its places have. A completion is no earlier than

- its critical path;
- the mean time of its work plus half of the seconds it takes: equal to the completion, where it runs in one piece
  (mean busy times: Goemans, Queyranne, Schulz, Skutella and Wang, SIAM J. Discrete Mathematics 15, 2002);
- its start on the critical path, or the completion of a predecessor and its release delay, plus the seconds it takes.

What is left undone counts up to the horizon. It is tighter than the others, above all where queues matter, and takes
seconds for hundreds of tasks, minutes for thousands.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, diags_array, vstack

from rllib_scale.bounds.lower_bounds import critical_paths
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.model import Workload

BINS = 40
"""From the first arrival until AFTER_LAST the last one, or the time that all work takes; one more up to the horizon."""
AFTER_LAST = 4.0
"""Critical-path responses, in the mean."""
MOST_TASKS = 5000
TOLERANCE = 1e-6
"""Relative, of the solver: taken off."""


def fluid_bound(env: EnvConfig, workload: Workload, bins: int = BINS) -> float:
    """Bound on `response_censored_s` of any scheduler that plays the workload [s].

    NaN where no task arrives, where `max_decisions` may end the episode, or where a task may go on on another server
    (`preemption: resume`), as its seconds then say nothing of its pace.

    Raises:
        UserError: a task fits no server, or more than MOST_TASKS arrive.
    """
    tiers, horizon = env.cluster.tiers, env.episode.horizon_s
    workload.check_fits(max(tier.memory_gb for tier in tiers), "workload")
    arrived = int(np.searchsorted(workload.arrival_s, horizon, side="right"))
    if arrived == 0 or env.episode.max_decisions is not None or env.decision.preemption == "resume":
        return math.nan
    offsets, edge_offsets = workload.task_offsets[: arrived + 1], workload.edge_offsets[: arrived + 1]
    count = int(offsets[-1])
    if count > MOST_TASKS:
        raise UserError(f"{count} tasks arrive in an episode; the fluid bound is for at most {MOST_TASKS}")
    arrival = np.repeat(workload.arrival_s[:arrived], np.diff(offsets))
    edges = workload.edges[: edge_offsets[-1]] + np.repeat(offsets[:-1], np.diff(edge_offsets))[:, None]
    before, after = edges[:, 0], edges[:, 1]
    delay = workload.delay_s[:count]
    speed, memory = (np.array([getattr(t, name) for t in tiers]) for name in ("compute_gflops", "memory_gb"))
    has_room = fits(workload.memory_gb[:count, None], memory)
    lasts = np.where(has_room, workload.compute_gflop[:count, None] / speed, np.inf)
    _, start, _ = critical_paths(arrival, delay, lasts.min(axis=1), edges)
    earliest = np.minimum(start + lasts.min(axis=1), horizon)

    busy_until = arrival.min() + float(workload.compute_gflop[:count].sum()) / env.cluster.total_gflops
    last = max(arrival.max(), busy_until) + AFTER_LAST * float((earliest - arrival).mean())
    ends = np.unique(np.append(np.linspace(arrival.min(), min(last, horizon), bins + 1), horizon))
    begins, ends = ends[:-1], ends[1:]
    # Variables: seconds of each task on each tier in each bin; what is left undone of each task; its completion.
    task, tier, at = np.nonzero(has_room[:, :, None] & (ends > start[:, None, None]))
    each, tasks, pieces = np.arange(len(task)), np.arange(count), len(task)
    width = pieces + 2 * count

    def matrix(rows: np.ndarray, columns: np.ndarray, values: np.ndarray | float, height: int) -> csr_matrix:
        return csr_matrix((np.broadcast_to(values, len(rows)), (rows, columns)), shape=(height, width))

    work = matrix(task, each, 1 / lasts[task, tier], count)
    mean_time = matrix(task, each, np.maximum(begins[at], start[task]) / lasts[task, tier], count)
    seconds = matrix(task, each, 1.0, count)
    undone = matrix(tasks, pieces + tasks, 1.0, count)
    completion = matrix(tasks, pieces + count + tasks, 1.0, count)
    in_bin = matrix(tier * len(begins) + at, each, 1.0, len(tiers) * len(begins))
    places = np.array([t.count * t.max_concurrent for t in tiers], dtype=np.float64)
    solved = linprog(
        np.concatenate([np.zeros(pieces + count), np.ones(count)]),
        A_ub=vstack(
            [
                in_bin,
                mean_time + 0.5 * seconds + horizon * undone - completion,
                seconds + diags_array(horizon - start) @ undone - completion,
                completion[before] + seconds[after] - diags_array(delay[after]) @ undone[after] - completion[after],
            ]
        ),
        b_ub=np.concatenate([np.outer(places, ends - begins).ravel(), np.zeros(count), -start, -delay[after]]),
        A_eq=work + undone,
        b_eq=np.ones(count),
        bounds=np.column_stack(
            [
                np.concatenate([np.zeros(pieces + count), earliest]),
                np.concatenate([np.full(pieces, np.inf), np.ones(count), np.full(count, horizon)]),
            ]
        ),
    )
    if solved.status != 0:
        return math.nan
    return float(solved.fun * (1 - TOLERANCE) - arrival.sum()) / count
