"""What there is to tell of a live run: the metrics of an episode, from its ledger."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.live.ledger import Ledger
from rllib_scale.workloads.model import Workload


def live_metrics(workload: Workload, ledger: Ledger, end_s: float) -> dict[str, float | int]:
    """The metrics that `Engine.metrics` gives of a simulated episode, by the same names; there are no rewards.

    A task that was run again, as its output was lost, has ended when it ended last.

    Args:
        workload: what was played.
        ledger: as it is at the end.
        end_s: clock at the end [s].
    """
    schedule = ledger.schedule()
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
    arrived, failed = len(response) + len(left), schedule[schedule["outcome"] == "failed"]
    energy, utilisation = _machine_time(schedule, ledger, end_s)
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
        "decisions": ledger.counts.total(),
        "invalid_no_fit": ledger.counts["no_fit"],
        "invalid_busy_avoidable": 0,
        "invalid_busy_unavoidable": ledger.counts["busy"],
        "duration_s": end_s,
        "energy_j": energy,
        "utilisation": utilisation[0],
        "waits": ledger.counts["waits"],
        "passed": ledger.counts["passed"],
        "failed_attempts": len(failed),
        "preempted_attempts": 0,
        "lost_s": float((failed["finish_s"] - failed["start_s"]).sum()),
    } | {f"utilisation_{t.name}": of for t, of in zip(ledger.env.cluster.tiers, utilisation[1:], strict=True)}


def _machine_time(schedule: np.ndarray, ledger: Ledger, end_s: float) -> tuple[float, list[float]]:
    """Energy [J]; utilisation of all servers together, then of each tier."""
    servers, tier = ledger.servers[: ledger.num_servers], ledger.tier[: ledger.num_servers]
    until = np.where(np.isnan(schedule["finish_s"]), end_s, schedule["finish_s"])
    busy = np.bincount(schedule["server"], weights=until - schedule["start_s"], minlength=len(servers))
    there = end_s - ledger.away_until(end_s)[: len(servers)]
    place_power = (servers["busy_power"] - servers["idle_power"]) / servers["max_concurrent"]
    energy = float((servers["idle_power"] * there + place_power * busy).sum())
    groups = [np.ones(len(tier), dtype=bool), *(tier == each.name for each in ledger.env.cluster.tiers)]
    sums = [(busy[group].sum(), (servers["max_concurrent"] * there)[group].sum()) for group in groups]
    return energy, [float(taken / possible) if possible > 0 else 0.0 for taken, possible in sums]


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan
