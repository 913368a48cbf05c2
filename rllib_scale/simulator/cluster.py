"""A cluster as a flat array of servers."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import ClusterConfig, RewardConfig
from rllib_scale.config.cluster import PROPERTIES

SHORT = {
    "compute_gflops": "capacity",
    "memory_gb": "memory",
    "idle_power_w": "idle_power",
    "busy_power_w": "busy_power",
}
"""Names of properties in compiled code, where they are others than those of a tier."""
SERVER = np.dtype(
    [
        *((SHORT.get(name, name), np.int64 if kind is int else np.float64) for name, kind in PROPERTIES.items()),
        ("reward_power", np.float64),  # W, what the reward counts as the energy of an execution
        ("first_place", np.int64),
        ("labels", np.int64),  # that it offers, see workloads.fitting
    ]
)
"""The properties that a tier declares, in their units, and what follows from them; all 0 in an empty row."""


def build_servers(config: ClusterConfig, reward: RewardConfig) -> np.ndarray:
    """Servers (N,) of dtype SERVER: tier by tier in config order, then the empty rows."""
    servers, at = np.zeros(config.num_rows, dtype=SERVER), 0
    for tier, labels in zip(config.tiers, config.labels_of_tiers, strict=True):
        rows = servers[at : at + tier.count]
        for name in PROPERTIES:
            rows[SHORT.get(name, name)] = getattr(tier, name)
        above = tier.idle_power_w * (reward.energy_power == "above-idle")
        rows["reward_power"] = (tier.busy_power_w - above) / tier.max_concurrent
        rows["labels"] = labels
        at += tier.count
    servers["first_place"] = np.cumsum(servers["max_concurrent"]) - servers["max_concurrent"]
    return servers


def tier_names(config: ClusterConfig) -> np.ndarray:
    """Tier name of each server (N,); an empty row has none."""
    names = [tier.name for tier in config.tiers for _ in range(tier.count)]
    return np.array(names + [""] * config.empty_slots)
