"""Clusters, problems and plays that the tests of schedulers share."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.model import Workload


def cluster(*tiers: tuple[int, float, float], places: int = 1) -> EnvConfig:
    """A problem on tiers of (count, GFLOPS, GB), of 100 s, with the mask `feasible`."""
    content = [
        {"name": f"t{k}", "count": count, "compute_gflops": gflops, "memory_gb": gb, "max_concurrent": places}
        for k, (count, gflops, gb) in enumerate(tiers)
    ]
    return EnvConfig.model_validate(
        {
            "cluster": {"tiers": content},
            "workload": {"memory_gb": {"mean": 12, "std": 8, "low": 1, "high": max(tier[2] for tier in tiers)}},
            "episode": {"horizon_s": 100, "mask": "feasible"},
        }
    )


TWO, THREE = cluster((1, 1, 10), (1, 2, 40)), cluster((2, 1, 10), (1, 2, 40))
"""One or two slow servers of 10 GB, then a fast one of 40 GB."""


def starts(name: str, env: EnvConfig, given: Workload) -> dict[tuple[int, int], tuple[int, float]]:
    """(workflow, task) -> server and time of its start."""
    schedule = play(make_scheduler(name, env.observation, "feasible"), env, 0, [0], given).schedule()
    return {(row["workflow"], row["task"]): (int(row["server"]), float(row["start_s"])) for row in schedule}


def saga_schedule(
    scheduler: Any, capacity: np.ndarray, compute: np.ndarray, sizes: dict[tuple[int, int], float], bandwidth: float
) -> dict[int, tuple[int, float]]:
    """Server and start of each task by a scheduler of anrg-saga; `sizes` is of the data on each edge."""
    from saga import Network, TaskGraph

    names = [f"{j}" for j in range(len(capacity))]
    network = Network.create(
        nodes=list(zip(names, capacity.tolist(), strict=True)),
        edges=[(a, b, bandwidth) for a in names for b in names if a < b],
    )
    graph = TaskGraph.create(
        tasks=[(f"{k}", c) for k, c in enumerate(compute.tolist())],
        dependencies=[(f"{i}", f"{j}", size) for (i, j), size in sizes.items()],
    )
    mapping = scheduler.schedule(network, graph).mapping.items()
    placed = [(task.name, int(node), task.start) for node, tasks in mapping for task in tasks]
    return {int(name): (node, start) for name, node, start in placed if name.isdigit()}  # it adds a start and an end


SEVERAL: dict[str, Any] = {
    "cluster": {
        "tiers": [
            {"name": "slow", "count": 3, "compute_gflops": 1, "memory_gb": 40, "max_concurrent": 3, "slowdown": 0.1},
            {"name": "fast", "count": 2, "compute_gflops": 3, "memory_gb": 60, "max_concurrent": 2},
        ],
        "empty_slots": 2,
    },
    "communication": {"mode": "transfer", "predecessors": "all"},
    "workload": {
        "offered_load": 0.7,
        "memory_gb": {"mean": 12, "std": 8, "low": 1, "high": 60},
        "delay_s": {"mean": 2, "std": 2, "low": 0.01},
    },
    "episode": {"horizon_s": 500, "arrivals_until_s": 40},
}
CHANGES = [
    {"time_s": 9, "event": "fail", "servers": [0, 3]},
    {"time_s": 12, "event": "drain", "servers": [4]},
    {"time_s": 20, "event": "join", "servers": [0, 4]},
]
PROBLEMS: dict[str, dict[str, Any]] = {
    "steady": {
        "cluster": {"servers": 8},
        "workload": {"offered_load": 0.9},
        "episode": {"horizon_s": 500, "arrivals_until_s": 30},
    },
    "places": SEVERAL,
    "changes": SEVERAL | {"cluster": SEVERAL["cluster"] | {"changes": {"schedule": CHANGES}}},
    "estimates": SEVERAL | {"information": {"estimate_error": 0.5}},
    "revealed": SEVERAL | {"information": {"estimate_error": 0.5, "workflows": "revealed"}},
    "kinds": {
        "cluster": {"servers": 64, "changes": {"schedule": CHANGES}},
        "communication": {"mode": "transfer", "predecessors": "all"},
        "information": {"estimate_error": 0.5},
        "workload": {"offered_load": 1.0},
        "episode": {"horizon_s": 300, "arrivals_until_s": 15},
    },
    "reserve": SEVERAL | {"decision": {"on_busy": "reserve"}},
    "open": SEVERAL | {"decision": {"on_busy": "reserve", "order": "open", "candidates": 3}},
}
"""Of every kind: `kinds` has servers enough to be looked at by kind."""
