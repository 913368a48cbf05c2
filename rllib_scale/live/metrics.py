"""What there is to tell of a live run: the metrics of an episode, from its ledger."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.live.ledger import Ledger
from rllib_scale.simulator.cluster import build_servers
from rllib_scale.workloads.model import Workload


def live_metrics(workload: Workload, ledger: Ledger, end_s: float) -> dict[str, float | int]:
    """The metrics that `Engine.metrics` gives of a simulated episode, by the same names; there are no rewards.

    A task that was run again, as its output was lost, has ended when it ended last.

    Args:
        workload: what was played.
        ledger: as it is at the end.
        end_s: clock at the end [s].
    """
    env, schedule = ledger.env, ledger.schedule()
    row = workload.task_offsets[schedule["workflow"]] + schedule["task"]
    finished = schedule["outcome"] == "finished"
    finish = np.full(workload.num_tasks, np.nan)
    finish[row[finished]] = schedule["finish_s"][finished]  # of several the last
    owner = np.repeat(np.arange(workload.num_workflows), np.diff(workload.task_offsets))
    arrival, done = workload.arrival_s[owner], ~np.isnan(finish)
    has_arrived = workload.arrival_s <= end_s
    response = (finish - arrival)[done]
    left = (end_s - arrival)[~done & has_arrived[owner]]
    whole = np.bincount(owner[done], minlength=len(has_arrived)) == np.diff(workload.task_offsets)
    last = np.full(len(has_arrived), -np.inf)
    np.maximum.at(last, owner[done], finish[done])
    arrived = len(response) + len(left)
    return {
        "arrived": arrived,
        "completed": len(response),
        "unfinished": len(left),
        "response_mean_s": _mean(response),
        "response_median_s": float(np.quantile(response, 0.5)) if len(response) else math.nan,
        "response_p95_s": float(np.quantile(response, 0.95)) if len(response) else math.nan,
        "response_censored_s": float(response.sum() + left.sum()) / arrived if arrived else math.nan,
        "jct_mean_s": _mean((last - workload.arrival_s)[whole]),
        "workflows_arrived": int(has_arrived.sum()),
        "workflows_completed": int(whole.sum()),
        "episode_return": math.nan,
        "decisions": ledger.counts["decisions"],
        "invalid_no_fit": ledger.counts["invalid_no_fit"],
        "invalid_busy_avoidable": 0,
        "invalid_busy_unavoidable": ledger.counts["invalid_busy"],
        "duration_s": end_s,
        **_machine_time(schedule, ledger, end_s),
        "waits": ledger.counts["waits"],
        "passed": ledger.counts["passed"],
        "failed_attempts": int((schedule["outcome"] == "failed").sum()),
        "preempted_attempts": 0,
        "lost_s": float((schedule["finish_s"] - schedule["start_s"])[schedule["outcome"] == "failed"].sum()),
    } | _by_tier(schedule, ledger, end_s, [tier.name for tier in env.cluster.tiers])


def _busy_s(schedule: np.ndarray, num_rows: int, end_s: float) -> np.ndarray:
    """(N,) for how long each row was taken [s]."""
    until = np.where(np.isnan(schedule["finish_s"]), end_s, schedule["finish_s"])
    return np.bincount(schedule["server"], weights=until - schedule["start_s"], minlength=num_rows)


def _machine_time(schedule: np.ndarray, ledger: Ledger, end_s: float) -> dict[str, float]:
    rows = build_servers(ledger.env.cluster, ledger.env.reward)
    real = rows["host"] >= 0
    busy = _busy_s(schedule, len(rows), end_s)[real]
    there = end_s - ledger.away_until(end_s)[rows["host"][real]]
    idle_w, busy_w = rows["idle_power"][real], rows["busy_power"][real]
    return {
        "energy_j": float((idle_w * there + (busy_w - idle_w) * busy).sum()),
        "utilisation": float(busy.sum() / there.sum()) if there.sum() > 0 else 0.0,
    }


def _by_tier(schedule: np.ndarray, ledger: Ledger, end_s: float, names: list[str]) -> dict[str, float]:
    busy, away, found = _busy_s(schedule, len(ledger.host), end_s), ledger.away_until(end_s), {}
    for name in names:
        of_tier = ledger.tier == name
        there = (end_s - away[ledger.host[of_tier]]).sum()
        found[f"utilisation_{name}"] = float(busy[of_tier].sum() / there) if there > 0 else 0.0
    return found


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan
