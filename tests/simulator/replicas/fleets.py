"""Small fleets under drawn sessions."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy

SMALL = {"kv_tokens": 500_000, "step_s": 0.04, "prefill_s": 1e-4}
"""Holds about six of the sessions."""

TRAINED = {
    "cluster": {"tiers": [{"name": "small", "count": 2, "replica": SMALL}]},
    "service": {"name": "replica", "sessions": 14, "warm_up_s": 100.0},
    "episode": {"horizon_s": 900.0},
    "reward": {"name": "tasks-in-system"},
}
"""The tiny fleet of short trainings, which holds more sessions than fit."""

BASE = "lmetric:gate=0.95"
"""The rule that they are compared with."""


def fleet(sessions: Any = 4, replicas: int = 3, end_s: float = 1000.0, **service: Any) -> EnvConfig:
    return EnvConfig.model_validate(
        {
            "cluster": {"tiers": [{"name": "small", "count": replicas, "replica": SMALL}]},
            "service": {"name": "replica", "sessions": sessions, "warm_up_s": 100.0} | service,
            "episode": {"horizon_s": end_s, "horizon_is_terminal": False},
            "reward": {"name": "tasks-in-system"},
        }
    )


class Played(NamedTuple):
    calls: pd.DataFrame
    metrics: dict[str, Any]


def played(rule: str, env: EnvConfig, seed: int = 5) -> Played:
    engine: Any = play(make_policy(rule, env), env, seed, [0])
    return Played(pd.DataFrame(engine.calls()), engine.metrics())
