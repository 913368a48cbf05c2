"""Tiny problems for tests on real Ray: few servers, tasks of milliseconds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, TierConfig, WorkloadConfig
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.workloads.model import Workload

TIERS = (
    TierConfig(name="slow", count=1, compute_gflops=1.0, memory_gb=8.0),
    TierConfig(name="fast", count=1, compute_gflops=4.0, memory_gb=16.0, max_concurrent=2),
)

TWO = (
    TierConfig(name="slow", count=1, compute_gflops=1.0, memory_gb=80.0),
    TierConfig(name="fast", count=2, compute_gflops=8.0, memory_gb=80.0),
)


def task(compute: float, memory: float = 4.0, output: float = 0.0, delay: float = 0.0) -> dict[str, float]:
    return {"compute_gflop": compute, "memory_gb": memory, "output_gb": output, "delay_s": delay}


def problem(tiers: tuple[TierConfig, ...] = TIERS, **sections: Any) -> EnvConfig:
    """Servers of 8 and 16 GB; tasks are offered while a server is open for them."""
    parts = {"episode": EpisodeConfig(mask="feasible", horizon_s=1e6)} | sections
    return EnvConfig(
        cluster=ClusterConfig(tiers=tiers),
        workload=WorkloadConfig(memory_gb={"mean": 4, "std": 1, "low": 1, "high": 8}),
        **parts,
    )


def set_fields(env: EnvConfig, section: str, **values: Any) -> EnvConfig:
    return EnvConfig.model_validate(env.model_dump() | {section: getattr(env, section).model_dump() | values})


def work(*workflows: tuple[float, list[dict[str, float]], list[list[int]]]) -> Workload:
    """Of (arrival, tasks, edges)."""
    content = [{"arrival_s": arrival, "tasks": tasks, "edges": edges} for arrival, tasks, edges in workflows]
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": content}, "test")


class NamesNoTask(Dispatcher):
    """Starts a task that does not exist."""

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        return np.array([[0, 99, 0]])


class OnlySlowest(Dispatcher):
    """One task after another on the slowest server."""

    name, sees = "only-slowest", "tasks"

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        at = int(np.argmin(snapshot.capacity_gflops))
        free = int(snapshot.max_concurrent[at] - snapshot.num_running[at])
        return np.array([(row["workflow"], row["task"], at) for row in snapshot.ready[:free]], dtype=np.int64)


def resident_mb() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


DIAMOND = [[0, 1], [0, 2], [1, 3], [2, 3]]
