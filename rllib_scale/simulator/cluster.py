"""A cluster as a flat array of rows, one a server slot."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import ClusterConfig, RewardConfig

SERVER = np.dtype(
    [
        ("capacity", np.float64),  # GFLOPS; 0 marks an empty slot
        ("memory", np.float64),  # GB, of the whole server
        ("idle_power", np.float64),  # W, its share of the server's
        ("busy_power", np.float64),  # W
        ("reward_power", np.float64),  # W, what the reward counts as the energy of an execution
        ("slowdown", np.float64),  # of an execution by each other busy slot
        ("host", np.int64),  # number of the server; -1: empty
    ]
)


def build_servers(config: ClusterConfig, reward: RewardConfig) -> np.ndarray:
    """Rows (N,) of dtype SERVER: tier by tier in config order, the slots of a server together, then the empty ones."""
    above_idle = reward.energy_power == "above-idle"
    rows: list[tuple[float, ...]] = []
    host = 0
    for tier in config.tiers:
        for _ in range(tier.count):
            idle, busy = tier.idle_power_w / tier.slots, tier.busy_power_w / tier.slots
            row = (tier.compute_gflops, tier.memory_gb, idle, busy, busy - idle * above_idle, tier.slot_slowdown, host)
            rows += [row] * tier.slots
            host += 1
    return np.array(rows + [(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1)] * config.empty_slots, dtype=SERVER)


def first_rows(config: ClusterConfig) -> np.ndarray:
    """(H + 1,) the first row of each server, then the number of rows that belong to one."""
    slots = [tier.slots for tier in config.tiers for _ in range(tier.count)]
    return np.cumsum([0, *slots], dtype=np.int64)


def tier_names(config: ClusterConfig) -> np.ndarray:
    """Tier name of each row (N,); an empty slot has none."""
    names = [tier.name for tier in config.tiers for _ in range(tier.count * tier.slots)]
    return np.array(names + [""] * config.empty_slots)
