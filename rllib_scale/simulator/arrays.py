"""A config, its servers and a given workload as the arrays that compiled code reads."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.simulator.reward import REWARDS
from rllib_scale.simulator.state import PARAMETERS, Problem
from rllib_scale.workloads import generators as workloads
from rllib_scale.workloads.model import Workload


def build_problem(config: EnvConfig, servers: np.ndarray, workload: Workload | None = None) -> Problem:
    """The problem of a config; with a workload, that is played in place of drawn ones."""
    c = config
    row = (
        c.episode.horizon_s,
        c.episode.arrivals_until_s or math.inf,
        c.episode.clock_step_s,
        int(c.episode.idle_advance == "clock-step"),
        int(c.episode.mask == "feasible"),
        c.episode.max_decisions or 2**62,
        c.cluster.bandwidth_gb_s,
        c.cluster.latency_s,
        REWARDS.index(c.reward.name),
        c.reward.time_weight,
        c.reward.time_scale_s,
        c.reward.communication_weight,
        c.reward.communication_scale_s,
        c.reward.energy_weight,
        c.reward.energy_scale_j,
        c.reward.invalid_reward,
        c.observation.task_compute_max_gflop,
        c.observation.server_compute_max_gflops,
        c.observation.memory_max_gb,
    )
    demand = np.zeros(0 if workload is None else workload.num_tasks, dtype=workloads.TASK_DEMAND)
    if workload is not None:
        demand["compute"], demand["memory"] = workload.compute_gflop, workload.memory_gb
        demand["output"] = workload.output_gb
    return Problem(
        parameters=np.array([row], dtype=PARAMETERS),
        workload=workloads.parameters(c),
        servers=servers,
        given_arrival=np.zeros(0) if workload is None else workload.arrival_s,
        given_tasks=demand,
        given_task_offsets=np.zeros(1, dtype=np.int64) if workload is None else workload.task_offsets,
        given_edges=np.zeros((0, 2), dtype=np.int64) if workload is None else workload.edges,
        given_edge_offsets=np.zeros(1, dtype=np.int64) if workload is None else workload.edge_offsets,
        edge_scratch=np.zeros((max(1, workloads.most_edges(c)), 2), dtype=np.int64),
        order_scratch=np.zeros(c.workload.max_tasks, dtype=np.int64),
    )
