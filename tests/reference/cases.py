"""Random problems and workloads, in the paper's mode and in every mode: everything follows from one generator."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, NormalConfig, TierConfig, WorkloadConfig
from rllib_scale.config.cluster import ChangeConfig, ChangesConfig
from rllib_scale.config.problem import (
    CommunicationConfig,
    DecisionConfig,
    InformationConfig,
    NamedOrder,
    ObservationConfig,
    RewardConfig,
)

TOPOLOGIES = ("random-predecessors", "chain", "fork-join", "layered", "erdos-renyi", "tree")
ORDERS = get_args(NamedOrder)
EVENTS = ("join", "drain", "fail")


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    """One of the choices, as it was given (numpy's own `choice` would change its type)."""
    return choices[rng.integers(len(choices))]


def uniform(rng: np.random.Generator, low: float, high: float, grid: bool) -> float:
    """A number in low..high; on a grid a multiple of 1/2."""
    value = float(rng.uniform(low, high))
    return max(low, round(2 * value) / 2) if grid else value


def random_changes(
    rng: np.random.Generator, tiers: tuple[TierConfig, ...], horizon: float, grid: bool
) -> ChangesConfig:
    """None, scheduled ones, random ones that every server sees more than once in an episode, or both."""
    servers = sum(tier.count for tier in tiers)
    names = [tier.name for tier in tiers]
    schedule = []
    if rng.random() < 0.5:
        for _ in range(rng.integers(1, 8)):
            named = {"servers": tuple(int(s) for s in rng.permutation(servers)[: rng.integers(1, 3)])}
            if rng.random() < 0.4:
                named = {"share": float(pick(rng, 0.5, 0.3, 1.0, 0.25)), "tiers": pick(rng, (), (pick(rng, *names),))}
            moment = uniform(rng, 0, 0.9 * horizon, grid)
            schedule.append(ChangeConfig(time_s=moment, event=pick(rng, *EVENTS), **named))
    if rng.random() < 0.6:
        return ChangesConfig(schedule=tuple(schedule))
    return ChangesConfig(
        schedule=tuple(schedule),
        failures_per_1000_h=pick(rng, 0.0, 3.6e6 / float(rng.uniform(2, 20))),
        repair_s=pick(rng, None, float(rng.uniform(0.5, 5))),
        departures_per_h=pick(rng, 0.0, 3600 / float(rng.uniform(2, 20))),
        notice_s=float(pick(rng, 0.0, 1.0, 3.0)),
        return_s=pick(rng, None, float(rng.uniform(0.5, 5))),
        tiers=pick(rng, (), (), (pick(rng, *names),)),
    )


def random_mode_cluster(rng: np.random.Generator, horizon: float, grid: bool) -> ClusterConfig:
    """1 to 6 servers mostly, with 1 to 4 places each."""
    tiers = []
    for k in range(rng.integers(1, 4)):
        idle = float(rng.uniform(0, 100))
        places = int(pick(rng, 1, 1, 2, 3, 4))
        tiers.append(
            TierConfig(
                name=f"tier_{k}",
                count=int(rng.integers(1, 3 if places > 1 else 5)),
                compute_gflops=float(pick(rng, 0.5, 1, 2, 4)) if grid else float(rng.uniform(0.5, 5)),
                memory_gb=float(rng.integers(4, 25)) if grid else float(rng.uniform(4, 25)),
                idle_power_w=idle,
                busy_power_w=idle + float(rng.uniform(0, 300)),
                max_concurrent=places,
                slowdown=pick(rng, 0.0, 0.5, 1.0) if grid else pick(rng, 0.0, float(rng.uniform(0, 1))),
            )
        )
    return ClusterConfig(
        tiers=tuple(tiers),
        empty_slots=int(pick(rng, 0, 0, 1, 2)),
        bandwidth_gb_s=float(pick(rng, 10.0, 2.0, 0.5)),
        latency_s=float(pick(rng, 0.0, 0.5)) if grid else float(pick(rng, 0.01, 0.0, 0.3)),
        changes=random_changes(rng, tuple(tiers), horizon, grid),
    )


def random_mode_config(rng: np.random.Generator, grid: bool = False) -> EnvConfig:
    """A small problem with every setting drawn; on a grid its times are multiples of simple fractions."""
    horizon = float(rng.integers(4, 25)) if grid else float(rng.uniform(4, 25))
    cluster = random_mode_cluster(rng, horizon, grid)
    largest = max(tier.memory_gb for tier in cluster.tiers)
    least = int(rng.integers(1, 5))
    delay = NormalConfig(mean=float(rng.uniform(0, 1)), std=0.7, low=0.05)
    workload = WorkloadConfig(
        offered_load=float(rng.uniform(0.3, 1.6)),
        min_tasks=least,
        max_tasks=least + int(rng.integers(0, 6)),
        compute_gflop=NormalConfig(mean=float(rng.uniform(1, 6)), std=2.0, low=0.3),
        memory_gb=NormalConfig(mean=0.4 * largest, std=0.4 * largest, low=0.5, high=largest),
        output_gb=NormalConfig(mean=0.5, std=0.5, low=0.01),
        delay_s=pick(rng, None, None, delay),
        topology=pick(rng, *TOPOLOGIES),
        max_predecessors=int(rng.integers(1, 5)),
        layer_width=int(rng.integers(1, 5)),
        edge_probability=float(rng.uniform(0, 1)),
    )
    episode = EpisodeConfig(
        horizon_s=horizon,
        arrivals_until_s=pick(rng, None, float(rng.uniform(0.2, 0.6)) * horizon, 1.5 * horizon),
        clock_step_s=0.5 if grid else float(pick(rng, 0.1, float(rng.uniform(0.05, 1.5)))),
        idle_advance=pick(rng, "event", "clock-step"),
        first_arrival=pick(rng, "exponential", "at-zero"),
        mask=pick(rng, "none", "none", "feasible"),
        horizon_is_terminal=pick(rng, True, False),
        max_decisions=pick(rng, None, None, None, int(rng.integers(1, 80))),
    )
    on_busy = pick(rng, "step", "reserve", "reserve")
    decision = DecisionConfig(
        on_busy=on_busy,
        offer=pick(rng, "all", "all", "startable") if on_busy == "reserve" else "all",
        order=pick(rng, *ORDERS, "open", "open", "open"),
        ties=pick(rng, "first-ready", "first-arrival"),
        candidates=int(rng.integers(1, 6)),
        open_by=pick(rng, *ORDERS),
    )
    communication = CommunicationConfig(
        mode=pick(rng, "reward", "transfer"),
        predecessors=pick(rng, "first", "all"),
        first=pick(rng, "lowest-index", "largest-output"),
    )
    information = InformationConfig(
        estimate_error=pick(rng, 0.0, float(rng.uniform(0.1, 1.5))), workflows=pick(rng, "whole", "revealed")
    )
    reward = RewardConfig(
        name=pick(rng, "paper", "tasks-in-system"),
        time_scale_s=float(rng.uniform(0.5, 5)),
        communication_weight=float(rng.uniform(0, 1)),
        energy_weight=pick(rng, 0.0, float(rng.uniform(0, 1))),
        energy_power=pick(rng, "busy", "above-idle"),
        invalid_reward=float(rng.uniform(-0.1, 0)),
    )
    observation = ObservationConfig(
        task_compute_max_gflop=float(rng.uniform(5, 30)),
        memory_max_gb=float(rng.uniform(20, 100)),
        output_unit_gb=pick(rng, 1.0, float(rng.uniform(0.1, 20))),
        delay_unit_s=pick(rng, 1.0, float(rng.uniform(0.1, 20))),
        time_unit_s=pick(rng, 1.0, float(rng.uniform(0.1, 20))),
    )
    if rng.random() < 0.25:
        stragglers = {"straggler_share": float(rng.uniform(0.05, 0.5)), "straggler_factor": float(rng.uniform(1, 6))}
        information = information.model_copy(update=stragglers)
    return EnvConfig(
        cluster=cluster,
        workload=workload,
        episode=episode,
        decision=decision,
        communication=communication,
        information=information,
        reward=reward,
        observation=observation,
    )


def random_config(rng: np.random.Generator, grid: bool = False) -> EnvConfig:
    """A problem in the paper's mode: two of five on the paper's tiers at some scale, the others on own ones."""
    config = random_mode_config(rng, grid)
    cluster = config.cluster
    tiers = {"tiers": tuple(tier.model_copy(update={"max_concurrent": 1}) for tier in cluster.tiers)}
    if rng.random() < 0.4:
        tiers = {"servers": int(pick(rng, rng.integers(4, 13), rng.integers(13, 65)))}
    network = {name: getattr(cluster, name) for name in ("empty_slots", "bandwidth_gb_s", "latency_s")}
    weights = {
        "time_weight": float(rng.uniform(0, 2)),
        "communication_scale_s": float(rng.uniform(0.1, 1)),
        "energy_scale_j": float(rng.uniform(100, 3000)),
    }
    return EnvConfig(
        cluster=ClusterConfig(**tiers, **network),
        workload=config.workload.model_copy(update={"delay_s": None, "branching": int(rng.integers(1, 4))}),
        episode=config.episode,
        reward=config.reward.model_copy(update=weights),
        observation=config.observation.model_copy(update={"server_compute_max_gflops": float(rng.uniform(1, 8))}),
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


def labelled(config: EnvConfig, content: dict[str, Any], seed: int) -> tuple[EnvConfig, dict[str, Any]]:
    """The same with labels on servers, and tasks that need some of them and several places: what some tier has."""
    rng = np.random.default_rng([seed, 50])
    tiers = [
        tier.model_copy(update={"labels": tuple(name for name in ("a100", "eu", "llama") if rng.random() < 0.5)})
        for tier in config.cluster.tiers
    ]
    for task in (task for workflow in content["workflows"] for task in workflow["tasks"]):
        tier = pick(rng, *(tier for tier in tiers if tier.memory_gb >= task["memory_gb"]))
        task["labels"] = [name for name in tier.labels if rng.random() < 0.5]
        task["places"] = int(pick(rng, 1, 1, rng.integers(1, tier.max_concurrent + 1)))
    cluster = config.cluster.model_copy(update={"tiers": tuple(tiers)})
    return config.model_copy(update={"cluster": cluster}), content | {"version": 4}


def random_mode_workload(rng: np.random.Generator, config: EnvConfig, grid: bool) -> dict[str, Any]:
    """A given workload, half of the time with release delays, tasks without work, and edges that move any bytes."""
    workload = random_workload(rng, config, grid) | {"version": 4}
    delayed = pick(rng, 0.0, 0.0, float(rng.uniform(0.2, 1)), float(rng.uniform(0.2, 1)))
    without_work, parts = pick(rng, 0.0, 0.0, 0.3, 0.8), rng.random() < 0.5
    for workflow in workload["workflows"]:
        if parts:
            moved = [uniform(rng, 0, 3, grid) for _ in workflow["edges"]]
            workflow["edges"] = [[*edge, gb] for edge, gb in zip(workflow["edges"], moved, strict=True)]
        for task in workflow["tasks"]:
            if rng.random() < without_work:
                task["compute_gflop"] = 0.0
            if grid:
                task["output_gb"] = float(np.round(2 * task["output_gb"]) / 2)
            if rng.random() < delayed:
                task["delay_s"] = uniform(rng, 0, 3, grid)
    return workload
