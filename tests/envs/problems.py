"""Problems for the environments: the paper's, and every form of a decision on servers that change."""

from __future__ import annotations

import itertools
from typing import Any

from rllib_scale.config import EnvConfig, EpisodeConfig, scenario
from rllib_scale.envs import CANDIDATES_ENV_ID, ENV_ID
from rllib_scale.observation.feature_sets import FEATURE_SETS

TIERS = [
    {"name": "slow", "count": 3, "compute_gflops": 1, "memory_gb": 12, "idle_power_w": 20, "busy_power_w": 100},
    {
        "name": "fast",
        "count": 2,
        "compute_gflops": 4,
        "memory_gb": 24,
        "idle_power_w": 50,
        "busy_power_w": 400,
        "max_concurrent": 2,
        "slowdown": 0.5,
    },
]
CHANGES = {
    "schedule": [{"time_s": 2, "event": "drain", "servers": [4]}, {"time_s": 5, "event": "join", "servers": [4]}],
    "failures_per_1000_h": 4e5,
    "repair_s": 2,
}
FORMS: dict[str, dict[str, Any]] = {
    "step": {},
    "step, open": {"decision": {"order": "open", "candidates": 3}},
    "reserve": {"decision": {"on_busy": "reserve"}},
    "reserve, open": {"decision": {"on_busy": "reserve", "order": "open", "candidates": 4}},
    "reserve, masked": {"decision": {"on_busy": "reserve", "order": "open"}, "episode": {"mask": "feasible"}},
    "step, shortest": {"decision": {"order": "shortest-task"}},
    "cut": {"decision": {"on_busy": "reserve"}, "episode": {"max_decisions": 9}},
    "horizon not terminal": {"episode": {"horizon_is_terminal": False}},
    "seen in part": {"information": {"estimate_error": 0.5, "workflows": "revealed"}},
}
SHORT = {"horizon_s": 3.0}
PAPER: dict[str, dict[str, Any]] = {
    "paper": {},
    "steady": {
        "workload": {"offered_load": 0.9},
        "episode": {"horizon_s": 90, "arrivals_until_s": 6, "mask": "feasible"},
    },
    "empty rows": {"cluster": {"servers": 10, "empty_slots": 2}, "episode": {"horizon_s": 8.0}},
    "cut by decisions": {"episode": {"max_decisions": 7}},
    "horizon not terminal": {"episode": SHORT | {"horizon_is_terminal": False}},
    "tasks in system": {"reward": {"name": "tasks-in-system"}, "episode": SHORT},
    "nothing arrives": {"episode": {"horizon_s": 1e-6}},
}


def reserving(env: EnvConfig) -> EnvConfig:
    """The same servers and work, where tasks may wait for any server that fits, in rounds of those that some can start.

    The reward is the evaluated metric, and the horizon is not a terminal state.
    """
    decision = {"on_busy": "reserve", "order": "descendants-per-work", "offer": "startable"}
    asked = {
        "decision": decision,
        "episode": env.episode.model_dump() | {"mask": "none", "horizon_is_terminal": False},
        "observation": {"feature_set": "rounds"},
        "reward": {"name": "tasks-in-system"},
    }
    return EnvConfig.model_validate(env.model_dump(mode="json") | asked)


def config_of(name: str, features: str = "rounds", changes: bool = True) -> EnvConfig:
    form = FORMS[name]
    return EnvConfig.model_validate(
        form
        | {
            "cluster": {"tiers": TIERS, "empty_slots": 1, "changes": CHANGES if changes else {}},
            "workload": {"offered_load": 1.2, "memory_gb": {"mean": 8, "std": 4, "low": 1, "high": 24}},
            "episode": {"horizon_s": 12.0} | form.get("episode", {}),
            "observation": {"feature_set": features},
        }
    )


CUT = EpisodeConfig(horizon_s=600, arrivals_until_s=120, max_decisions=40)
ENVIRONMENTS: dict[str, tuple[str, EnvConfig]] = {
    **{name: (ENV_ID, EnvConfig.model_validate(config)) for name, config in PAPER.items()},
    **{
        f"rounds: {name}": (CANDIDATES_ENV_ID, config_of(name, features))
        for name, features in zip(FORMS, itertools.cycle(FEATURE_SETS), strict=False)
    },
    "drawn as a whole": (ENV_ID, scenario("coding-agents-0.9").at_scale(4).model_copy(update={"episode": CUT})),
    "in steps": (ENV_ID, config_of("step, shortest", "rounds")),
}
