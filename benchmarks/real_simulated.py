"""The sessions of real engines in the simulator, and the metrics of calls of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.real_sessions import ACTIVE_FOR_S, Episode
from rllib_scale.config.replicas import Replica
from rllib_scale.live.holding import rule_of
from rllib_scale.simulator.replicas.rules import run
from rllib_scale.simulator.replicas.spans import open_calls, open_s
from rllib_scale.simulator.replicas.state import new_fleet
from rllib_scale.workloads.random_numbers import new_generator

COLUMNS = ("session", "call", "prompt", "output", "asked_s", "placed_s", "first_s", "end_s", "replica", "hit")


def play(replicas: Sequence[Replica], policy: str, of: Episode, lasts_s: float) -> pd.DataFrame:
    """Play an episode on replicas; returns its calls; times after the end are infinite.

    The policy knows what a router remembers of the caches.
    """
    _, values = rule_of(policy)
    fleet = new_fleet(list(replicas), of.scripts.arrays, of.starts, of.live, True, ACTIVE_FOR_S)
    parts: list[Any] = []
    fleet = run(fleet, lasts_s, values, new_generator(of.seed, 0), parts, "own")
    calls = pd.DataFrame(np.concatenate([*parts, open_calls(fleet)]))[[*COLUMNS]]
    times = ["placed_s", "first_s", "end_s"]
    calls[times] = calls[times].where((calls[times] >= 0) & (calls[times] <= lasts_s), np.inf)
    return calls


def summary(calls: pd.DataFrame, lasts_s: float) -> dict[str, float]:
    """Figures of the calls of a run: means and a percentile of those that were answered, and what all took."""
    answered = calls[np.isfinite(calls["end_s"])]
    took = answered["end_s"] - answered["asked_s"]
    asked, end = calls["asked_s"].to_numpy(), calls["end_s"].to_numpy()
    return {
        "calls": len(answered),
        "call_s": float(took.mean()),
        "call_p99_s": float(took.quantile(0.99)),
        "open_s": open_s(asked, end, 0.0, lasts_s) / max(1, len(answered)),
        "first_s": float((answered["first_s"] - answered["asked_s"]).mean()),
        "output_per_s": float(answered["output"].sum() / lasts_s),
        "hit": float(answered["hit"].sum() / answered["prompt"].sum()),
    }
