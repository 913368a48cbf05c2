"""A config and its servers as the arrays that compiled code reads."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np

from rllib_scale.config import EnvConfig, NamedOrder
from rllib_scale.simulator.changes import at_random, rates, scheduled, starts_away
from rllib_scale.simulator.load import DAG_TABLES
from rllib_scale.simulator.reward import REWARDS
from rllib_scale.simulator.state import PARAMETERS, Problem
from rllib_scale.simulator.writers import NAMES
from rllib_scale.workloads import generators as workloads
from rllib_scale.workloads.generators import estimate_parameters
from rllib_scale.workloads.model import Workload

ORDERS: tuple[str, ...] = get_args(NamedOrder)
PREEMPTIONS = ("none", "restart", "resume")


def build_problem(config: EnvConfig, servers: np.ndarray) -> Problem:
    """The problem of a config, with scratch for the workflows that it draws."""
    c = config
    decision, moving, information = c.decision, c.communication, c.information
    order, seen = ORDERS.index(decision.level1), estimate_parameters(information.estimate_error)
    tasks, edges = c.workload.max_tasks, max(1, workloads.most_edges(c))
    row = (
        c.episode.horizon_s,
        c.episode.arrivals_until_s or math.inf,
        c.episode.clock_step_s,
        int(c.episode.idle_advance == "clock-step"),
        int(c.offers_startable),
        c.episode.max_decisions or 2**62,
        int(c.episode.horizon_is_terminal),
        int(decision.on_busy == "reserve"),
        int(decision.on_busy == "step" and decision.offered == 1),
        order,
        int(decision.ties_by_arrival),
        PREEMPTIONS.index(decision.preemption),
        int(moving.mode == "transfer"),
        int(moving.predecessors == "all"),
        int(moving.first == "largest-output"),
        int(information.workflows == "revealed"),
        int(information.estimate_error > 0 or information.straggles),
        *seen,
        information.straggler_share if information.straggles else 0.0,
        information.straggler_factor,
        int(not c.cluster.changes.none),
        *rates(c.cluster),
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
        NAMES.index(c.observation.feature_set),
        c.observation.task_compute_max_gflop,
        c.observation.server_compute_max_gflops,
        c.observation.memory_max_gb,
        1.0 / c.observation.output_unit_gb,
        1.0 / c.observation.delay_unit_s,
        1.0 / c.observation.time_unit_s,
        c.observation.task_compute_max_gflop / c.observation.server_compute_max_gflops / c.observation.time_unit_s,
    )
    return Problem(
        parameters=np.array([row], dtype=PARAMETERS),
        workload=workloads.parameters(c),
        servers=servers,
        server_of=np.repeat(np.arange(len(servers)), servers["max_concurrent"]),
        at_random=at_random(c.cluster),
        starts_away=starts_away(c.cluster),
        changes=scheduled(c.cluster),
        rng=np.zeros((3, 4), dtype=np.uint64),
        demand=np.zeros(tasks, dtype=workloads.TASK_DEMAND),
        edges=np.zeros((edges, 2), dtype=np.int64),
        **_tables(tasks, edges),
    )


def with_room_for(problem: Problem, workload: Workload) -> Problem:
    """The problem, with scratch for the largest workflow of a given workload."""
    tasks, edges = (int(np.diff(at).max(initial=0)) for at in (workload.task_offsets, workload.edge_offsets))
    have = len(problem.reached), len(problem.successors)
    if tasks <= have[0] and edges <= have[1]:
        return problem
    return problem._replace(**_tables(max(tasks, have[0]), max(edges, have[1])))


def _tables(tasks: int, edges: int) -> dict[str, np.ndarray]:
    """Scratch for the DAG of a workflow of so many tasks and edges."""
    return {
        "tables": np.zeros((DAG_TABLES, tasks + 1), dtype=np.int64),
        "successors": np.zeros(edges, dtype=np.int64),
        "reached": np.zeros(tasks, dtype=np.uint64),
    }
