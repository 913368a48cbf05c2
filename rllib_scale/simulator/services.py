"""From a problem to the engine that plays it."""

from __future__ import annotations

from typing import Any

from rllib_scale.config import EnvConfig
from rllib_scale.simulator.engine import Engine


def make_engine(config: EnvConfig, num_envs: int = 1) -> Any:
    """An `Engine`, or where servers are replicas of a language model a `ReplicaEngine`, which is compiled then."""
    if not config.on_replicas:
        return Engine(config, num_envs)
    from rllib_scale.simulator.replicas.engine import ReplicaEngine

    return ReplicaEngine(config, num_envs)
