"""Small problems and workloads to bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.cases import labelled, pick, random_workload
from rllib_scale.config import EnvConfig
from rllib_scale.workloads.fitting import MEMORY_TOLERANCE_GB
from rllib_scale.workloads.model import Workload
from simulator import literal


def problem(*tiers: tuple[int, float, float], horizon_s: float = 1000.0, **more: Any) -> EnvConfig:
    """Of tiers (count, GFLOPS, GB), a horizon, and other sections."""
    named = [
        {"name": f"tier_{k}", "count": n, "compute_gflops": speed, "memory_gb": memory}
        for k, (n, speed, memory) in enumerate(tiers)
    ]
    memory = {"mean": 2, "std": 0, "low": 1, "high": max(t[2] for t in tiers)}
    episode = {"horizon_s": horizon_s} | more.pop("episode", {})
    return EnvConfig.model_validate(
        {"cluster": {"tiers": named}, "workload": {"memory_gb": memory}, "episode": episode} | more
    )


def workload(*workflows: tuple[float, list[Any], list[list[int]]], delay_s: float | None = None) -> Workload:
    """Of (arrival [s], tasks, edges); a task is its GFLOP, or GFLOP and GB."""
    given = []
    for arrival, tasks, edges in workflows:
        demands = [each if isinstance(each, tuple) else (each,) for each in tasks]
        given.append(literal.workflow(arrival, *(literal.task(*each, delay=delay_s) for each in demands), edges=edges))
    return literal.workload(*given)


def random_instance(case: int, most_tasks: int) -> tuple[EnvConfig, Workload]:
    """A small cluster and a workload that keeps it busy; on half of them events coincide.

    On half of them some tasks fill a server and half the tolerance of `fits`, on a fourth some have no work.
    """
    rng = np.random.default_rng([7, case])
    tiers = [
        (int(rng.integers(1, 3)), pick(rng, 1.0, 2.0, 4.0), pick(rng, 4.0, 16.0, 64.0))
        for _ in range(rng.integers(1, 4))
    ]
    episode = {"mask": pick(rng, "none", "feasible"), "clock_step_s": pick(rng, 0.1, 0.5)}
    env = problem(*tiers, horizon_s=pick(rng, 500.0, float(rng.uniform(2, 25))), episode=episode)
    within = env.model_copy(update={"episode": env.episode.model_copy(update={"horizon_s": float(rng.uniform(1, 30))})})
    while True:
        content = random_workload(rng, within, grid=bool(rng.integers(2)))
        if case % 3 == 0:
            env, content = labelled(env, content, case)
        _vary_tasks(content, sorted(tier.memory_gb for tier in env.cluster.tiers), case)
        work = Workload.from_dict(content, "test")
        if work.num_tasks <= most_tasks:
            return env, work


def _vary_tasks(content: dict[str, Any], sizes: list[float], case: int) -> None:
    """See `random_instance`; a task fits the same servers as before."""
    rng = np.random.default_rng([8, case])
    for task in (task for workflow in content["workflows"] for task in workflow["tasks"]):
        if case % 2 and rng.random() < 0.4:
            task["memory_gb"] = min(size for size in sizes if task["memory_gb"] <= size) + 0.5 * MEMORY_TOLERANCE_GB
        if case % 4 > 1 and case % 8 > 3 and rng.random() < 0.3:
            task["compute_gflop"] = 0.0
            content["version"] = 4
