"""A cluster as a flat array of servers."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import ClusterConfig, RewardConfig

SERVER = np.dtype(
    [
        ("capacity", np.float64),  # GFLOPS of each task that runs there; 0 marks an empty row
        ("memory", np.float64),  # GB
        ("idle_power", np.float64),  # W
        ("busy_power", np.float64),  # W, where it runs as many tasks as it can
        ("reward_power", np.float64),  # W, what the reward counts as the energy of an execution
        ("slowdown", np.float64),  # of an execution by each other task that runs there
        ("max_concurrent", np.int64),
        ("first_place", np.int64),
    ]
)


def build_servers(config: ClusterConfig, reward: RewardConfig) -> np.ndarray:
    """Servers (N,) of dtype SERVER: tier by tier in config order, then the empty rows."""
    servers = np.zeros(config.num_rows, dtype=SERVER)
    at = 0
    for tier in config.tiers:
        idle, busy, places = tier.idle_power_w, tier.busy_power_w, tier.max_concurrent
        counted = (busy - idle * (reward.energy_power == "above-idle")) / places
        row = (tier.compute_gflops, tier.memory_gb, idle, busy, counted, tier.slowdown, places, 0)
        servers[at : at + tier.count] = row
        at += tier.count
    servers["first_place"] = np.cumsum(servers["max_concurrent"]) - servers["max_concurrent"]
    return servers


def tier_names(config: ClusterConfig) -> np.ndarray:
    """Tier name of each server (N,); an empty row has none."""
    names = [tier.name for tier in config.tiers for _ in range(tier.count)]
    return np.array(names + [""] * config.empty_slots)
