"""Plays a fleet under sessions, and measures it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rllib_scale.errors import UserError
from rllib_scale.simulator.replicas.arrivals import Load, starts
from rllib_scale.simulator.replicas.presets import Replica
from rllib_scale.simulator.replicas.rules import Rule, run
from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.state import NONE, Fleet, new_fleet
from rllib_scale.workloads.random_numbers import new_generator

QUANTILES = (0.5, 0.95, 0.99)
_STREAM = 1
"""Of (seed, episode): choices of rules. The first one decides the sessions."""


@dataclass
class Played:
    """What a fleet did.

    Attributes:
        calls: completed calls of the whole time, with the fields of RECORD.
        metrics: of the measured time.
        fleet: at the end.
    """

    calls: pd.DataFrame
    metrics: dict[str, float]
    fleet: Fleet


def play_fleet(
    replicas: Sequence[Replica], scripts: Scripts, load: Load, rule: Rule, seed: int, episode: int = 0
) -> Played:
    """Play one episode of a fleet; (seed, episode) decides the sessions, whatever the rule.

    Raises:
        UserError: a call fits no replica.
    """
    largest = int((scripts.tasks["prompt"] + scripts.tasks["output"]).max())
    most = max(replica.kv_tokens for replica in replicas)
    if largest > most:
        raise UserError(f"kv_tokens {most:,}: a call has {largest:,} tokens of context and fits no replica")
    coming = starts(scripts, load, len(replicas), seed, episode)
    live = load.sessions * len(replicas)
    fleet = new_fleet(replicas, scripts.arrays, coming, live, load.arrivals_per_s is None, load.active_for_s)
    rng, parts = new_generator(seed, episode, _STREAM), list[NDArray[Any]]()
    fleet = run(fleet, load.warm_up_s, rule, rng, parts)
    before, fleet.now["open_call_s"], fleet.now["active_token_s"] = fleet.replicas.copy(), 0.0, 0.0
    fleet = run(fleet, load.warm_up_s + load.duration_s, rule, rng, parts)
    if load.arrivals_per_s is None and fleet.now[0]["next_start"] == len(coming):
        raise UserError("the sessions are too short: more than one a minute and live session ended")
    calls = pd.DataFrame(np.concatenate(parts))
    return Played(calls, measure(calls, fleet, before, replicas, scripts, load), fleet)


def measure(
    calls: pd.DataFrame, fleet: Fleet, before: NDArray[Any], replicas: Sequence[Replica], scripts: Scripts, load: Load
) -> dict[str, float]:
    """Metrics of the measured time, of the calls, turns and sessions that ended in it; times in seconds.

    Args:
        calls: completed calls of the whole time.
        fleet: at the end.
        before: its replicas at the end of the warm-up.
        replicas: of the fleet.
        scripts: of the sessions.
        load: what was played.
    """
    of = calls[calls["end_s"] >= load.warm_up_s]
    hours, gpus = load.duration_s / 3600, sum(replica.gpus for replica in replicas)
    ttft, later = of["first_s"] - of["asked_s"], of["output"] > 1
    tpot = ((of["end_s"] - of["first_s"]) / (of["output"] - 1).where(later))[later]
    met = (ttft <= load.slo_ttft_s) & (tpot.reindex(of.index).fillna(0.0) <= load.slo_tpot_s)
    waits = np.append((of["placed_s"] - of["asked_s"]).to_numpy(), _still_held(fleet))
    prompts = max(1, int(of["prompt"].sum()))
    lost = np.maximum(0, of["reusable"] - of["hit"]).sum()
    again = (of["prefilled"] - (of["prompt"] - of["hit"])).clip(lower=0).sum()
    metrics = {
        "calls": float(len(of)),
        "calls_per_s": len(of) / load.duration_s,
        "call_little_s": float(fleet.now[0]["open_call_s"]) / max(1, len(of)),
        "slo_share": float(met.mean()) if len(of) else math.nan,
        "goodput_per_s": float(met.sum()) / load.duration_s,
        "output_per_gpu_hour": float(of["output"].sum()) / hours / gpus,
        "hit_rate": float(of["hit"].sum()) / prompts,
        "recomputed_share": float(lost + again) / prompts,
        "evicted_tokens": float((fleet.replicas["evicted"] - before["evicted"]).sum()),
        "preempted_calls": float((fleet.replicas["preempted"] - before["preempted"]).sum()),
        "working_set": float(fleet.now[0]["active_token_s"]) / load.duration_s / sum(r.kv_tokens for r in replicas),
        "busy_share": float((fleet.replicas["busy_s"] - before["busy_s"]).sum()) / load.duration_s / len(replicas),
        "held_calls": float((waits > 0).sum()),
        "longest_hold_s": float(waits.max(initial=0.0)),
    }
    for name, values in (
        ("ttft", ttft),
        ("tpot", tpot),
        ("call", of["end_s"] - of["asked_s"]),
        ("turn", _spans(calls, ["session", "turn"], _turn_sizes(scripts), load.warm_up_s)),
        ("session", _spans(calls, ["session"], _turn_sizes(scripts).groupby("script").sum(), load.warm_up_s)),
    ):
        numbers = np.asarray(values, float)
        metrics[f"{name}_mean_s"] = float(numbers.mean()) if len(numbers) else math.nan
        for q in QUANTILES:
            metrics[f"{name}_p{100 * q:.0f}_s"] = float(np.quantile(numbers, q)) if len(numbers) else math.nan
    return metrics


def _still_held(fleet: Fleet) -> NDArray[np.float64]:
    """For how long the calls have been held that are held at the end [s]."""
    row, waits = int(fleet.now[0]["first_held"]), []
    while row != NONE:
        waits.append(float(fleet.now[0]["time"] - fleet.calls[row]["asked_s"]))
        row = int(fleet.calls[row]["next"])
    return np.array(waits)


def _turn_sizes(scripts: Scripts) -> pd.Series:
    """Calls of each turn of each script."""
    script = np.repeat(np.arange(len(scripts)), scripts.lengths)
    return pd.DataFrame({"script": script, "turn": scripts.tasks["turn"]}).groupby(["script", "turn"]).size()


def _spans(calls: pd.DataFrame, unit: list[str], sizes: pd.Series, from_s: float) -> NDArray[np.float64]:
    """Job completion times of whole turns or sessions: from the first call asked to the last answer [s]."""
    grouped = calls.groupby(unit, sort=False)
    spans = pd.DataFrame(
        {
            "asked_s": grouped["asked_s"].min(),
            "end_s": grouped["end_s"].max(),
            "count": grouped.size(),
            "script": grouped["script"].first(),
        }
    ).reset_index()
    keys = pd.MultiIndex.from_frame(spans[["script", "turn"]]) if "turn" in unit else spans["script"]
    whole = (spans["count"].to_numpy() == sizes.reindex(keys).to_numpy()) & (spans["end_s"] >= from_s)
    return (spans["end_s"] - spans["asked_s"])[whole].to_numpy()
