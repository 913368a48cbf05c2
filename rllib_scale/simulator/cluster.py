"""A cluster as a flat array of server slots."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import ClusterConfig, RewardConfig

SERVER = np.dtype(
    [
        ("capacity", np.float64),  # GFLOPS; 0 marks an empty slot
        ("memory", np.float64),  # GB
        ("idle_power", np.float64),  # W
        ("busy_power", np.float64),  # W
        ("reward_power", np.float64),  # W, what the reward counts as the energy of an execution
    ]
)


def build_servers(config: ClusterConfig, reward: RewardConfig) -> np.ndarray:
    """Server slots (N,) of dtype SERVER: tier by tier in config order, then the empty slots."""
    above_idle = reward.energy_power == "above-idle"
    rows = [
        (
            tier.compute_gflops,
            tier.memory_gb,
            tier.idle_power_w,
            tier.busy_power_w,
            tier.busy_power_w - tier.idle_power_w * above_idle,
        )
        for tier in config.tiers
        for _ in range(tier.count)
    ]
    return np.array(rows + [(0.0, 0.0, 0.0, 0.0, 0.0)] * config.empty_slots, dtype=SERVER)


def tier_names(config: ClusterConfig) -> np.ndarray:
    """Tier name of each slot (N,); an empty slot has none."""
    names = [tier.name for tier in config.tiers for _ in range(tier.count)]
    return np.array(names + [""] * config.empty_slots)
