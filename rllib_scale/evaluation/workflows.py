"""Metrics of whole workflows: completion times, alone and over the critical path, and data moved."""

from __future__ import annotations

import math
from graphlib import TopologicalSorter

import numpy as np

from rllib_scale.bounds.lower_bounds import critical_path_s
from rllib_scale.config import EnvConfig
from rllib_scale.workloads.model import Workload

SLO_FACTOR = 2.0
"""Where no workflow has a deadline, one meets its objective if it takes at most this multiple of its critical path."""


def workflow_metrics(env: EnvConfig, workload: Workload, schedule: np.ndarray, end_s: float) -> dict[str, float]:
    """The metrics of `rllib_scale.results.columns.WORKFLOW_COLUMNS` of one episode.

    Args:
        env: the problem.
        workload: what was played.
        schedule: every attempt, dtype `rllib_scale.simulator.record.SCHEDULE`.
        end_s: clock at the end [s].
    """
    done_s = completions_s(workload, schedule)
    makespan = np.where(done_s <= end_s, done_s, np.inf) - workload.arrival_s
    complete = np.isfinite(makespan)
    allowed = workload.deadline_s if workload.has_deadlines else SLO_FACTOR * critical_path_s(env, workload)
    judged = workload.arrival_s[: len(allowed)] + allowed <= end_s
    if workload.has_deadlines:  # those that are done are decided before their time is up
        judged = np.isfinite(allowed) & (judged | complete)
    sojourn = _sojourn_s(workload, schedule)[complete]
    some = bool(complete.any())
    median, p95, p99 = (float(np.quantile(makespan[complete], q)) if some else math.nan for q in (0.5, 0.95, 0.99))
    return {
        "jct_median_s": median,
        "jct_p95_s": p95,
        "jct_p99_s": p99,
        "sojourn_mean_s": float(sojourn.mean()) if some else math.nan,
        "sojourn_p95_s": float(np.quantile(sojourn, 0.95)) if some else math.nan,
        "slo_share": _share(makespan[: len(allowed)][judged] <= allowed[judged]),
        "moved_share": _share(_moved(env, workload, schedule)),
    }


def completions_s(workload: Workload, schedule: np.ndarray) -> np.ndarray:
    """(W,) when the last task of each workflow ended [s]; inf where one has not."""
    finished = schedule[schedule["outcome"] == "finished"]
    ends = np.full(workload.num_tasks, np.inf)
    ends[workload.task_offsets[finished["workflow"]] + finished["task"]] = finished["finish_s"]
    _end_without_work(workload, ends)
    last: np.ndarray = np.maximum.reduceat(ends, workload.task_offsets[:-1]) if len(ends) else np.zeros(0)
    return last


def _end_without_work(workload: Workload, ends_s: np.ndarray) -> None:
    """Write when the tasks without work ended, which no schedule has: their delay after their predecessors, (T,)."""
    open_rows = set(np.flatnonzero(workload.compute_gflop == 0).tolist())
    if not open_rows:
        return
    offset = np.repeat(workload.task_offsets[:-1], np.diff(workload.edge_offsets))
    before: dict[int, list[int]] = {row: [] for row in open_rows}
    for predecessor, successor in (workload.edges + offset[:, None]).tolist():
        if successor in before:
            before[successor].append(predecessor)
    arrival_s = np.repeat(workload.arrival_s, np.diff(workload.task_offsets))
    for row in TopologicalSorter(before).static_order():
        if row in before:
            ready_s = max((float(ends_s[each]) for each in before[row]), default=float(arrival_s[row]))
            ends_s[row] = ready_s + workload.delay_s[row]


def _sojourn_s(workload: Workload, schedule: np.ndarray) -> np.ndarray:
    """(W,) sum over the finished tasks of each workflow of the time from ready to finished [s]."""
    row = workload.task_offsets[schedule["workflow"]] + schedule["task"]
    ready, finish = np.full(workload.num_tasks, np.inf), np.full(workload.num_tasks, -np.inf)
    np.minimum.at(ready, row, schedule["ready_s"])
    finished = schedule["outcome"] == "finished"
    finish[row[finished]] = schedule["finish_s"][finished]
    done = np.isfinite(finish)
    workflow = np.repeat(np.arange(workload.num_workflows), np.diff(workload.task_offsets))
    return np.bincount(workflow[done], weights=(finish - ready)[done], minlength=workload.num_workflows)


def _moved(env: EnvConfig, workload: Workload, schedule: np.ndarray) -> np.ndarray:
    """Whether each attempt at a task that has predecessors was made on another server than that of the first one."""
    first = _first_predecessor(env, workload)
    row = workload.task_offsets[schedule["workflow"]] + schedule["task"]
    finished = schedule["outcome"] == "finished"
    ran_on = np.full(workload.num_tasks, -1)
    ran_on[row[finished]] = schedule["server"][finished]
    follows = first[row] >= 0
    source = ran_on[first[row[follows]]]  # -1: a task without work, which ran nowhere
    moved: np.ndarray = (schedule["server"][follows] != source)[source >= 0]
    return moved


def _first_predecessor(env: EnvConfig, workload: Workload) -> np.ndarray:
    """(T,) task row of the first predecessor, by `communication.first`; -1 of a root."""
    offset = np.repeat(workload.task_offsets[:-1], np.diff(workload.edge_offsets))
    before, after = (workload.edges + offset[:, None]).T
    # The last one written stays: the first in the order must come last.
    order = np.lexsort((before,))[::-1]
    if env.communication.first == "largest-output":
        order = np.lexsort((-before, workload.moved_gb))
    first = np.full(workload.num_tasks, -1)
    first[after[order]] = before[order]
    return first


def _share(of: np.ndarray) -> float:
    return float(of.mean()) if len(of) else math.nan
