"""What a fleet did in the measured part of an episode: the metrics of the field and of every other problem."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.config.replicas import ServiceConfig
from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.spans import open_s, spans
from rllib_scale.simulator.replicas.state import Fleet

Floats = NDArray[np.float64]


class Begun(NamedTuple):
    """A fleet at the end of the warm-up."""

    now: NDArray[Any]  # (1,) FLEET
    replicas: NDArray[Any]  # (R,) REPLICA


def measure(
    calls: NDArray[Any], opened: NDArray[Any], fleet: Fleet, before: Begun, scripts: Scripts, env: EnvConfig
) -> dict[str, Any]:
    """Metrics of the time after the warm-up; names and units in results/columns.py.

    Args:
        calls: completed calls of the whole time, RECORD.
        opened: see `open_calls`.
        fleet: at the end.
        before: the same at the end of the warm-up.
        scripts: of the sessions.
        env: what was played.
    """
    service, now, start, tiers = env.service, fleet.now[0], before.now[0], env.cluster.tiers
    of, end_s = calls[calls["end_s"] >= service.warm_up_s], float(now["time"])
    begin_s, time_s = float(start["time"]), now["time"] - start["time"]
    gpus = sum(tier.count * tier.replica.gpus for tier in tiers if tier.replica is not None)
    ttft, response, age = of["first_s"] - of["asked_s"], of["end_s"] - of["asked_s"], end_s - opened["asked_s"]
    later = of["output"] > 1
    tpot = ((of["end_s"] - of["first_s"]) / np.maximum(1, of["output"] - 1))[later]
    met = ttft <= service.slo_ttft_s
    met[later] &= tpot <= service.slo_tpot_s
    decided = len(of) + int(_are_late(opened, end_s, service).sum())
    is_held = opened["placed_s"] < 0
    waits = np.append(of["placed_s"], np.where(is_held, end_s, opened["placed_s"])) - np.append(
        of["asked_s"], opened["asked_s"]
    )
    slowest = np.sort(np.append(response, age[is_held]))
    prompts = max(1, int(of["prompt"].sum()))
    again = np.maximum(0, of["reusable"] - of["hit"]) + np.maximum(0, of["prefilled"] - (of["prompt"] - of["hit"]))
    busy_s, asked = (fleet.replicas["busy_s"] - before.replicas["busy_s"]) / time_s, np.concatenate([calls, opened])
    turns, sessions = (spans(asked, scripts, fleet.starts, of_turn) for of_turn in (True, False))
    whole = turns.of_whole(service.warm_up_s)
    tier = np.repeat(np.arange(len(tiers)), [each.count for each in tiers])
    idle_w, full_w = (
        np.array([getattr(each, name) for each in tiers])[tier] for name in ("idle_power_w", "busy_power_w")
    )
    power_w = float((idle_w + (full_w - idle_w) * busy_s).sum())
    return {
        "arrived": len(of) + int(now["open_calls"]),
        "completed": len(of),
        "unfinished": int(now["open_calls"]),
        "response_censored_s": open_s(asked["asked_s"], asked["end_s"], begin_s, end_s) / max(1, len(of)),
        "response_censored_p99_s": _quantile(np.append(response, age), 0.99),
        **_quantiles("response", response),
        "response_tail_s": float(slowest[-max(1, len(slowest) // 100) :].mean()) if len(slowest) else math.nan,
        **_quantiles("jct", whole),
        "jct_censored_s": turns.open_s(begin_s, end_s) / max(1, int((turns.asked_s >= begin_s).sum())),
        "jct_censored_p99_s": _quantile(turns.ages(begin_s, end_s), 0.99),
        "workflows_arrived": len(whole),
        "workflows_completed": len(whole),
        "slo_share": float(met.sum()) / decided if decided else math.nan,
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
        **_quantiles("session", sessions.of_whole(service.warm_up_s)),
        "goodput_per_s": float(met.sum() / time_s),
        "output_per_gpu_hour": float(of["output"].sum() / time_s) * 3600 / gpus,
        "hit_rate": float(of["hit"].sum()) / prompts,
        "recomputed_tokens": int(again.sum()),
        "recomputed_share": float(again.sum()) / prompts,
        "evicted_tokens": int((fleet.replicas["evicted"] - before.replicas["evicted"]).sum()),
        "working_set": float((now["active_token_s"] - start["active_token_s"]) / (time_s * now["memory"])),
        "held_calls": int((waits > 0).sum()),
        "longest_hold_s": float(waits.max(initial=0.0)),
    }


def _quantile(values: Floats, q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else math.nan


def _quantiles(name: str, values: Floats) -> dict[str, float]:
    """Mean, median, 95th and 99th percentile [s]; NaN of none."""
    found = {f"{name}_mean_s": float(values.mean()) if len(values) else math.nan}
    return found | {
        f"{name}_{word}_s": _quantile(values, q) for word, q in (("median", 0.5), ("p95", 0.95), ("p99", 0.99))
    }


def _are_late(opened: NDArray[Any], now_s: float, service: ServiceConfig) -> NDArray[np.bool_]:
    """Which open calls miss an objective, whatever comes."""
    has_begun = opened["first_s"] >= 0
    ttft = np.where(has_begun, opened["first_s"], now_s) - opened["asked_s"]
    tpot = (now_s - opened["first_s"]) / np.maximum(1, opened["output"] - 1)
    return (ttft > service.slo_ttft_s) | (has_begun & (opened["output"] > 1) & (tpot > service.slo_tpot_s))
