"""Metrics and schedule of an episode."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from rllib_scale.compiled import compiled
from rllib_scale.config import ClusterConfig
from rllib_scale.simulator.attempts import places_of
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.state import AWAY, TO_END

ATTEMPTS = np.array(["finished", "failed", "running"])
"""Outcomes of an attempt."""
SCHEDULE = np.dtype(
    [
        ("workflow", "i8"),
        ("task", "i8"),
        ("server", "i8"),
        ("tier", "U32"),
        ("arrival_s", "f8"),
        ("ready_s", "f8"),
        ("start_s", "f8"),
        ("finish_s", "f8"),
        ("outcome", "U8"),
        ("transfer_s", "f8"),
        ("work_gflop", "f8"),
    ]
)
"""One attempt to run a task. `finish_s` is when the attempt ended, finished or not."""


@partial(compiled, allocates=True)
def summarise(b, table, tier, num_tiers):  # type: ignore[no-untyped-def]
    """Sums over environment b, in the order in which `metrics` reads them. `tier` (N,), -1: no server."""
    state, problem = state_of(table), problem_of(table)
    env, servers = state.env[b], problem.servers
    # A task that has not ended counts its stay so far: the mean over all tasks that arrived.
    censored = env.response_sum + (env.given_up * env.clock - env.given_up_arrivals)
    for w in range(env.first_live, env.workflows_arrived):
        workflow = state.workflows[b, w]
        censored += (workflow.num_tasks - workflow.num_completed) * (env.clock - workflow.arrival)
    tier_busy, tier_count, tier_away = np.zeros(num_tiers), np.zeros(num_tiers), np.zeros(num_tiers)
    energy = 0.0
    for j in range(len(servers)):
        if tier[j] < 0:
            continue
        server, presence, busy = servers[j], state.presence[b, j], state.busy[b, j]
        for place in range(server.first_place, server.first_place + server.max_concurrent):
            if state.finish[b, place] < np.inf:
                # `busy` counts a whole attempt at its start, where its end is known: what is to come is taken off.
                since = state.log[b, state.attempt[b, place]].start
                ahead = env.clock - since if env.outside else env.clock - state.finish[b, place]
                busy += ahead * places_of(b, state.running[b, place], state, problem.parameters[0])
        away = presence.away + (env.clock - presence.left if presence.status == AWAY else 0.0)
        busy = max(0.0, busy)  # what is taken off may exceed what was counted in the last digit
        tier_busy[tier[j]] += busy
        tier_count[tier[j]] += server.max_concurrent
        tier_away[tier[j]] += server.max_concurrent * away
        of_busy = (server.busy_power - server.idle_power) / server.max_concurrent
        # Idle power while it is there, and for each place in use its share of what full use adds.
        energy += server.idle_power * (env.clock - away) + of_busy * busy
    floats = np.empty(5 + num_tiers)
    floats[0] = env.response_sum / env.completed if env.completed > 0 else math.nan
    floats[1] = censored / env.arrived if env.arrived > 0 else math.nan
    floats[2] = env.makespan_sum / env.workflows_completed if env.workflows_completed > 0 else math.nan
    floats[3] = energy
    # Seconds of places that were there, over which the utilisation is taken.
    there = tier_count.sum() * env.clock - tier_away.sum()
    floats[4] = tier_busy.sum() / there if there > 0 else 0.0
    for t in range(num_tiers):
        there = tier_count[t] * env.clock - tier_away[t]
        floats[5 + t] = tier_busy[t] / there if there > 0 else 0.0
    return floats


def metrics(
    env: np.void, log: np.ndarray, without_work: np.ndarray, floats: np.ndarray, cluster: ClusterConfig
) -> dict[str, float | int]:
    """Metrics by name, with units in `rllib_scale/results/columns.py`, of one ENV, its log (L,) and its summary.

    `without_work` are responses [s] of tasks that ended without an attempt.
    """
    response, censored, makespan, energy, utilisation = (float(x) for x in floats[:5])
    # A log row is written at the start, with the finish to come: one that has not passed has not happened.
    finished = log[(log["finish"] <= env["clock"]) & (log["outcome"] == TO_END)]
    if env["outside"]:  # a task whose output was lost has ended when it ended last
        finished = finished[::-1][np.unique(finished[::-1][["workflow", "task"]], return_index=True)[1]]
    responses = np.sort(np.concatenate([finished["finish"] - finished["arrival"], without_work]))
    return {
        "arrived": int(env["arrived"]),
        "completed": int(env["completed"]),
        "unfinished": int(env["in_system"] + env["given_up"]),
        "response_mean_s": response,
        "response_median_s": _percentile(responses, 0.5),
        "response_p95_s": _percentile(responses, 0.95),
        "response_censored_s": censored,
        "jct_mean_s": makespan,
        "workflows_arrived": int(env["workflows_arrived"]),
        "workflows_completed": int(env["workflows_completed"]),
        "episode_return": float(env["episode_return"]),
        "decisions": int(env["decisions"]),
        "invalid_no_fit": int(env["invalid_no_fit"]),
        "invalid_busy_avoidable": int(env["invalid_busy_avoidable"]),
        "invalid_busy_unavoidable": int(env["invalid_busy_unavoidable"]),
        "duration_s": float(env["clock"]),
        "energy_j": energy,
        "utilisation": utilisation,
        "waits": int(env["waits"]),
        "passed": int(env["passed"]),
        "failed_attempts": int(env["failed_attempts"]),
        "preempted_attempts": 0,
        "lost_s": float(env["lost"]),
    } | {f"utilisation_{tier.name}": float(x) for tier, x in zip(cluster.tiers, floats[5:], strict=True)}


def _percentile(values: np.ndarray, q: float) -> float:
    """Linear interpolation between order statistics of a sorted array; NaN of none."""
    if len(values) == 0:
        return math.nan
    # NumPy's `linear`: at position q (n - 1) between the order statistics around it.
    position = q * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return float(values[low] + (position - low) * (values[high] - values[low]))


def schedule(log: np.ndarray, clock: float, tier_names: np.ndarray) -> np.ndarray:
    """(L,) SCHEDULE of a log (L,) at that time, in order of start; NaN where the attempt has not ended."""
    table = np.empty(len(log), dtype=SCHEDULE)
    for name in ("workflow", "task", "server"):
        table[name] = log[name]
    for name in ("arrival", "ready", "start"):
        table[f"{name}_s"] = log[name]
    table["tier"] = tier_names[log["server"]]
    runs = log["finish"] > clock
    table["finish_s"], table["work_gflop"] = (np.where(runs, np.nan, log[name]) for name in ("finish", "work"))
    table["transfer_s"] = log["transfer"]
    table["outcome"] = ATTEMPTS[np.where(runs, len(ATTEMPTS) - 1, log["outcome"])]
    return table
