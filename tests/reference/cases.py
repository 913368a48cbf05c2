"""Random problems in the paper's mode, workloads and actions for them: everything follows from one generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.simulator import ReferenceSimulator
from rllib_scale.config import (
    ClusterConfig,
    EnvConfig,
    EpisodeConfig,
    NormalConfig,
    ObservationConfig,
    RewardConfig,
    TierConfig,
    WorkloadConfig,
)

TOPOLOGIES = ("random-predecessors", "chain", "fork-join", "layered", "erdos-renyi", "tree")


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    """One of the choices, as it was given (numpy's own `choice` would change its type)."""
    return choices[rng.integers(len(choices))]


def random_cluster(rng: np.random.Generator) -> ClusterConfig:
    """4 to 64 servers: the paper's tiers at some scale, or own tiers; half of them with empty slots."""
    network = {
        "empty_slots": int(pick(rng, 0, 0, 1, 3)),
        "bandwidth_gb_s": float(pick(rng, 10.0, 2.0, 0.5)),
        "latency_s": float(pick(rng, 0.01, 0.0, 0.3)),
    }
    servers = int(rng.integers(4, 13) if rng.random() < 0.6 else rng.integers(13, 65))
    if rng.random() < 0.4:
        return ClusterConfig(servers=servers, **network)
    tiers = []
    for k in range(rng.integers(1, 5)):
        idle = float(rng.uniform(0, 100))
        tiers.append(
            TierConfig(
                name=f"tier_{k}",
                count=int(rng.integers(1, 6)),
                compute_gflops=float(rng.uniform(0.5, 6)),
                memory_gb=float(rng.uniform(4, 60)),
                idle_power_w=idle,
                busy_power_w=idle + float(rng.uniform(0, 300)),
            )
        )
    return ClusterConfig(tiers=tuple(tiers), servers=servers, **network)


def random_config(rng: np.random.Generator) -> EnvConfig:
    """A problem with every setting drawn, small enough for the reference."""
    cluster = random_cluster(rng)
    largest = max(tier.memory_gb for tier in cluster.tiers)
    horizon = float(rng.uniform(3, 40))
    min_tasks = int(rng.integers(1, 6))
    workload = WorkloadConfig(
        arrival_rate_per_server=float(rng.uniform(0.3, 2.0)) / cluster.num_servers,
        offered_load=pick(rng, None, None, float(rng.uniform(0.2, 1.2)) * min(1.0, 8 / cluster.num_servers)),
        min_tasks=min_tasks,
        max_tasks=min_tasks + int(rng.integers(0, 8)),
        compute_gflop=NormalConfig(mean=float(rng.uniform(2, 12)), std=3.0, low=1.0, bound="truncate"),
        memory_gb=NormalConfig(mean=0.5 * largest, std=0.4 * largest, low=0.5, high=largest),
        topology=pick(rng, *TOPOLOGIES),
        max_predecessors=int(rng.integers(1, 5)),
        layer_width=int(rng.integers(1, 5)),
        edge_probability=float(rng.uniform(0, 1)),
        branching=int(rng.integers(1, 4)),
    )
    episode = EpisodeConfig(
        horizon_s=horizon,
        arrivals_until_s=pick(rng, None, float(rng.uniform(0.2, 0.6)) * horizon, 1.5 * horizon),
        clock_step_s=float(pick(rng, 0.1, float(rng.uniform(0.02, 1.5)), 0.5)),
        idle_advance=pick(rng, "event", "clock-step"),
        first_arrival=pick(rng, "exponential", "at-zero"),
        mask=pick(rng, "none", "feasible"),
        max_decisions=pick(rng, None, None, int(rng.integers(1, 60))),
    )
    reward = RewardConfig(
        name=pick(rng, "paper", "tasks-in-system"),
        time_weight=float(rng.uniform(0, 2)),
        time_scale_s=float(rng.uniform(0.5, 5)),
        communication_weight=float(rng.uniform(0, 1)),
        communication_scale_s=float(rng.uniform(0.1, 1)),
        energy_weight=pick(rng, 0.0, float(rng.uniform(0, 1))),
        energy_scale_j=float(rng.uniform(100, 3000)),
        energy_power=pick(rng, "busy", "above-idle"),
        invalid_reward=float(rng.uniform(-0.1, 0)),
    )
    observation = ObservationConfig(
        task_compute_max_gflop=float(rng.uniform(5, 30)),
        server_compute_max_gflops=float(rng.uniform(1, 8)),
        memory_max_gb=float(rng.uniform(20, 100)),
    )
    return EnvConfig(cluster=cluster, workload=workload, episode=episode, reward=reward, observation=observation)


def on_a_grid(config: EnvConfig) -> EnvConfig:
    """The same problem with capacities, clock step and horizon that are multiples of 1/4, so that events coincide."""
    tiers = []
    for tier in config.cluster.tiers:
        compute = 2.0 ** round(np.log2(max(tier.compute_gflops, 0.5)))
        tiers.append(tier.model_copy(update={"compute_gflops": compute, "memory_gb": float(np.ceil(tier.memory_gb))}))
    episode = {"clock_step_s": 0.5, "horizon_s": float(np.ceil(config.episode.horizon_s))}
    return config.model_copy(
        update={
            "cluster": config.cluster.model_copy(update={"tiers": tuple(tiers)}),
            "episode": config.episode.model_copy(update=episode),
        }
    )


def random_workload(rng: np.random.Generator, config: EnvConfig, grid: bool) -> dict[str, Any]:
    """A given workload in the JSON format: DAGs over shuffled task indices, in any order, some beyond the end.

    On a grid, arrivals and demands are small integers or halves: many events share a moment, many tasks a priority.
    """
    largest = max(tier.memory_gb for tier in config.cluster.tiers)
    workflows = []
    for _ in range(rng.integers(1, 13)):
        n = int(rng.integers(1, 9))
        names = rng.permutation(n)
        density = rng.random()
        edges = [
            [int(names[i]), int(names[j])] for i in range(n) for j in range(i + 1, n) if rng.random() < density * 0.8
        ]
        rng.shuffle(edges)
        arrival = rng.uniform(0, 1.1 if rng.random() < 0.5 else 0.5) * config.episode.horizon_s
        demands = zip(rng.uniform(1, 12, n), rng.uniform(0.1, largest, n), rng.uniform(0, 2, n), strict=True)
        tasks = [{"compute_gflop": c, "memory_gb": m, "output_gb": d} for c, m, d in demands]
        if grid:
            arrival = np.floor(arrival)
            for task in tasks:
                task["compute_gflop"] = np.ceil(task["compute_gflop"] / 2)
                task["memory_gb"] = min(np.ceil(task["memory_gb"]), largest)
        tasks = [{key: float(value) for key, value in task.items()} for task in tasks]
        workflows.append({"arrival_s": float(arrival), "tasks": tasks, "edges": edges})
    return {"format": "rllib-scale-workload", "version": 1, "workflows": workflows}


class RandomActions:
    """Mixes any slot, a feasible server, and a slot that is known to be refused, in shares drawn once an episode."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.shares = rng.dirichlet([1.0, 2.0, 0.7])

    def __call__(self, simulator: ReferenceSimulator) -> int:
        slots = range(len(simulator.slots))
        kind = self.rng.choice(3, p=self.shares)
        feasible = [server.index for server in simulator.feasible_servers(simulator.current)]
        if kind == 1 and feasible:
            return int(self.rng.choice(feasible))
        refused = [j for j in slots if j not in feasible]
        if kind == 2 and refused:
            return int(self.rng.choice(refused))
        return int(self.rng.integers(len(slots)))
