"""Random problems, workloads and answers in every mode of the simulator: everything follows from one generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from reference.cases import TOPOLOGIES, pick, random_workload
from reference.simulator import ReferenceSimulator
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

ORDERS = get_args(NamedOrder)
EVENTS = ("join", "drain", "fail")


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
    """1 to 12 rows mostly, of servers with 1 to 4 slots."""
    tiers = []
    for k in range(rng.integers(1, 4)):
        idle = float(rng.uniform(0, 100))
        slots = int(pick(rng, 1, 1, 2, 3, 4))
        tiers.append(
            TierConfig(
                name=f"tier_{k}",
                count=int(rng.integers(1, 3 if slots > 1 else 5)),
                compute_gflops=float(pick(rng, 0.5, 1, 2, 4)) if grid else float(rng.uniform(0.5, 5)),
                memory_gb=float(rng.integers(4, 25)) if grid else float(rng.uniform(4, 25)),
                idle_power_w=idle,
                busy_power_w=idle + float(rng.uniform(0, 300)),
                slots=slots,
                slot_slowdown=pick(rng, 0.0, 0.5, 1.0) if grid else pick(rng, 0.0, float(rng.uniform(0, 1))),
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
        preemption=pick(rng, "none", "none", "restart", "resume"),
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


def random_mode_workload(rng: np.random.Generator, config: EnvConfig, grid: bool) -> dict[str, Any]:
    """A given workload, half of the time with release delays of some of its tasks."""
    workload = random_workload(rng, config, grid) | {"version": 2}
    delayed = pick(rng, 0.0, 0.0, float(rng.uniform(0.2, 1)), float(rng.uniform(0.2, 1)))
    for workflow in workload["workflows"]:
        for task in workflow["tasks"]:
            if grid:
                task["output_gb"] = float(np.round(2 * task["output_gb"]) / 2)
            if rng.random() < delayed:
                task["delay_s"] = uniform(rng, 0, 3, grid)
    return workload


class ModeActions:
    """Flat answers of every kind, in shares drawn once an episode; a kind that is impossible gives way to another."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.shares = rng.dirichlet([3.0, 1.0, 0.3, 0.4, 0.4])

    def kinds(self, simulator: ReferenceSimulator) -> list[np.ndarray]:
        """Flat actions that start a task, name a row that is busy or reserved, or one that is closed; pass; stop."""
        fit = simulator.fit()[: len(simulator.offered)].ravel()
        passes = simulator.config.decision.offered * len(simulator.slots)
        stops = [passes + 1 + row.index for row in simulator.slots if row.attempt is not None]
        if simulator.config.decision.preemption == "none":
            stops = []
        return [*(np.flatnonzero(fit == value) for value in (2, 1, 0)), np.array([passes]), np.array(stops, dtype=int)]

    def __call__(self, simulator: ReferenceSimulator) -> int:
        kinds = self.kinds(simulator)
        kind = self.rng.choice(len(kinds), p=self.shares)
        while not len(kinds[kind]):
            kind = self.rng.integers(len(kinds))
        return int(self.rng.choice(kinds[kind]))

    def impossible(self, simulator: ReferenceSimulator) -> int | None:
        """An action that must be refused, where there is one."""
        n = len(simulator.slots)
        last = (simulator.config.decision.offered + 1) * n
        possible = np.concatenate(self.kinds(simulator))
        refused = np.setdiff1d(np.arange(last + 1), possible)
        return int(self.rng.choice(refused)) if len(refused) else None


class ModeDispatch:
    """Answers of a dispatcher, each drawn when those before it have been played; `given` holds the last ones."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.eagerness = rng.uniform(0.2, 1)
        self.given: list[tuple[int, int, int]] = []

    def __call__(self, simulator: ReferenceSimulator) -> Iterator[tuple[int, int, int]]:
        self.given = []
        answered = set()
        for _ in range(int(self.rng.integers(0, 2 + 2 * len(simulator.ready)))):
            answer = self._stop(simulator) if self.rng.random() < 0.15 else self._place(simulator, answered)
            if answer is not None:
                answered.add(answer[:2])
                self.given.append(answer)
                yield answer

    def _stop(self, simulator: ReferenceSimulator) -> tuple[int, int, int] | None:
        if simulator.config.decision.preemption == "none" or not simulator.running:
            return None
        attempt = simulator.running[self.rng.integers(len(simulator.running))]
        return -1, -1, attempt.row.index

    def _place(self, simulator: ReferenceSimulator, answered: set[tuple[int, int]]) -> tuple[int, int, int] | None:
        """A task that has not been answered for, on an open row or one to wait for."""
        tasks = [t for t in simulator.waiting() if (t.workflow.index, t.index) not in answered]
        if not tasks or self.rng.random() > self.eagerness:
            return None
        task = tasks[self.rng.integers(len(tasks))]
        rows = simulator.feasible_servers(task)
        if simulator.config.decision.on_busy == "reserve" and (not rows or self.rng.random() < 0.3):
            rows = [row for row in simulator.slots if row.fits(task)]
        if not rows:
            return None
        return task.workflow.index, task.index, rows[self.rng.integers(len(rows))].index
