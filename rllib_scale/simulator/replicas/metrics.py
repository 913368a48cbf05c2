"""What a fleet did in the measured part of an episode: the metrics of the field and of every other problem."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.state import NONE, Fleet

Floats = NDArray[np.float64]


class Begun(NamedTuple):
    """A fleet at the end of the warm-up."""

    now: NDArray[Any]  # (1,) FLEET
    replicas: NDArray[Any]  # (R,) REPLICA


def measure(calls: NDArray[Any], fleet: Fleet, before: Begun, scripts: Scripts, env: EnvConfig) -> dict[str, Any]:
    """Metrics of the calls, turns and sessions that ended after the warm-up; names and units in results/columns.py.

    Args:
        calls: completed calls of the whole time, RECORD.
        fleet: at the end.
        before: the same at the end of the warm-up.
        scripts: of the sessions.
        env: what was played.
    """
    service, now, start, tiers = env.service, fleet.now[0], before.now[0], env.cluster.tiers
    of = calls[calls["end_s"] >= service.warm_up_s]
    time_s, open_s = now["time"] - start["time"], now["open_call_s"] - start["open_call_s"]
    gpus = sum(tier.count * tier.replica.gpus for tier in tiers if tier.replica is not None)
    memory = int(now["memory"])
    ttft, response = of["first_s"] - of["asked_s"], of["end_s"] - of["asked_s"]
    later = of["output"] > 1
    tpot = ((of["end_s"] - of["first_s"]) / np.maximum(1, of["output"] - 1))[later]
    met = ttft <= service.slo_ttft_s
    met[later] &= tpot <= service.slo_tpot_s
    held = _still_held(fleet)
    waits, slowest = np.append(of["placed_s"] - of["asked_s"], held), np.sort(np.append(response, held))
    prompts = max(1, int(of["prompt"].sum()))
    again = np.maximum(0, of["reusable"] - of["hit"]) + np.maximum(0, of["prefilled"] - (of["prompt"] - of["hit"]))
    busy_s, whole = (fleet.replicas["busy_s"] - before.replicas["busy_s"]) / time_s, _turn_sizes(scripts)
    turns = _spans(calls, of_turn=True, sizes=whole, from_s=service.warm_up_s)
    tier = np.repeat(np.arange(len(tiers)), [each.count for each in tiers])
    idle_w, full_w = (
        np.array([getattr(each, name) for each in tiers])[tier] for name in ("idle_power_w", "busy_power_w")
    )
    power_w = float((idle_w + (full_w - idle_w) * busy_s).sum())
    return {
        "arrived": len(of) + int(now["open_calls"]),
        "completed": len(of),
        "unfinished": int(now["open_calls"]),
        "response_censored_s": float(open_s) / max(1, len(of)),
        **_quantiles("response", response),
        "response_tail_s": float(slowest[-max(1, len(slowest) // 100) :].mean()) if len(slowest) else math.nan,
        **_quantiles("jct", turns),
        "workflows_arrived": len(turns),
        "workflows_completed": len(turns),
        "slo_share": float(met.mean()) if len(of) else math.nan,
        "decisions": int(now["decisions"]),
        "passed": int(now["passed"]),
        "waits": 0,
        "invalid_no_fit": int(now["no_fit"]),
        "invalid_busy_avoidable": 0,
        "invalid_busy_unavoidable": 0,
        "failed_attempts": 0,
        "preempted_attempts": int((fleet.replicas["preempted"] - before.replicas["preempted"]).sum()),
        "lost_s": 0.0,
        "duration_s": float(now["time"]),
        "energy_j": power_w * float(time_s),
        "utilisation": float(busy_s.mean()),
        **{f"utilisation_{each.name}": float(busy_s[tier == k].mean()) for k, each in enumerate(tiers)},
        **_quantiles("ttft", ttft),
        **_quantiles("tpot", tpot),
        **_quantiles("session", _spans(calls, of_turn=False, sizes=whole, from_s=service.warm_up_s)),
        "goodput_per_s": float(met.sum() / time_s),
        "output_per_gpu_hour": float(of["output"].sum() / time_s) * 3600 / gpus,
        "hit_rate": float(of["hit"].sum()) / prompts,
        "recomputed_tokens": int(again.sum()),
        "recomputed_share": float(again.sum()) / prompts,
        "evicted_tokens": int((fleet.replicas["evicted"] - before.replicas["evicted"]).sum()),
        "working_set": float((now["active_token_s"] - start["active_token_s"]) / time_s / memory),
        "held_calls": int((waits > 0).sum()),
        "longest_hold_s": float(waits.max(initial=0.0)),
    }


def _quantiles(name: str, values: Floats) -> dict[str, float]:
    """Mean, median, 95th and 99th percentile [s]; NaN of none."""
    some = len(values) > 0
    found = {f"{name}_mean_s": float(values.mean()) if some else math.nan}
    for word, q in (("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
        found[f"{name}_{word}_s"] = float(np.quantile(values, q)) if some else math.nan
    return found


def _still_held(fleet: Fleet) -> Floats:
    """For how long the calls have been held that are held at the end [s]."""
    row, waits = int(fleet.now[0]["first_held"]), []
    while row != NONE:
        waits.append(float(fleet.now[0]["time"] - fleet.calls[row]["asked_s"]))
        row = int(fleet.calls[row]["next"])
    return np.array(waits)


def _turn_sizes(scripts: Scripts) -> NDArray[np.int64]:
    """(scripts, turns) calls of each turn."""
    script, turn = np.repeat(np.arange(len(scripts)), scripts.lengths), scripts.tasks["turn"]
    sizes = np.zeros((len(scripts), int(turn.max(initial=0)) + 1), np.int64)
    np.add.at(sizes, (script, turn), 1)
    return sizes


def _spans(calls: NDArray[Any], of_turn: bool, sizes: NDArray[np.int64], from_s: float) -> Floats:
    """Job completion times of whole turns or sessions: from the first call asked to the last answer [s]."""
    if not len(calls):
        return np.zeros(0)
    key = calls["session"] * sizes.shape[1] + (calls["turn"] if of_turn else 0)
    _, first, unit, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    asked_s, end_s = np.full(len(first), np.inf), np.full(len(first), -np.inf)
    np.minimum.at(asked_s, unit, calls["asked_s"])
    np.maximum.at(end_s, unit, calls["end_s"])
    script, turn = calls["script"][first], calls["turn"][first]
    whole = sizes[script, turn] if of_turn else sizes.sum(axis=1)[script]
    return (end_s - asked_s)[(count == whole) & (end_s >= from_s)]
