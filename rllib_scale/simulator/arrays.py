"""A config and its servers as the arrays that compiled code reads."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np

from rllib_scale.config import EnvConfig, NamedOrder
from rllib_scale.simulator.blocks import size_class
from rllib_scale.simulator.changes import at_random, rates, scheduled, starts_away
from rllib_scale.simulator.cluster import first_rows
from rllib_scale.simulator.given import no_workloads
from rllib_scale.simulator.reward import REWARDS
from rllib_scale.simulator.state import PARAMETERS, Problem
from rllib_scale.simulator.writers import NAMES
from rllib_scale.workloads import generators as workloads
from rllib_scale.workloads.generators import estimate_parameters

ORDERS: tuple[str, ...] = get_args(NamedOrder)
PREEMPTIONS = ("none", "restart", "resume")


def build_problem(config: EnvConfig, servers: np.ndarray, delays: bool) -> Problem:
    """The problem of a config, where tasks have release delays or not, with no given workload yet."""
    c = config
    decision, moving, told = c.decision, c.communication, c.information
    order, seen = ORDERS.index(decision.level1), estimate_parameters(told.estimate_error)
    paper_features = c.observation.feature_set == "paper"
    fixed = c.cluster.simple and decision.preemption == "none"
    known = told.label == "clairvoyant" and moving.predecessors == "first"
    edges = workloads.most_edges(c)
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
        int(fixed and paper_features),
        int(fixed and known and not delays and decision.level1 == "longest-hop" and paper_features),
        size_class(c.workload.max_tasks),
        size_class(max(1, edges) * (1 + (moving.predecessors == "all"))),
        order,
        int(decision.ties_by_arrival),
        int("descendants" in decision.level1 or not paper_features),
        PREEMPTIONS.index(decision.preemption),
        int(moving.mode == "transfer"),
        int(moving.predecessors == "all"),
        int(moving.first == "largest-output"),
        int(told.workflows == "revealed"),
        int(delays),
        int(not c.workload.drawn_on_arrival),
        int(told.estimate_error > 0 or told.straggles),
        *seen,
        told.straggler_share if told.straggles else 0.0,
        told.straggler_factor,
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
        power=np.stack([servers["idle_power"], servers["busy_power"]]).astype(np.float32),
        first_row=first_rows(c.cluster),
        at_random=at_random(c.cluster),
        starts_away=starts_away(c.cluster),
        changes=scheduled(c.cluster),
        **no_workloads(),
        demand_scratch=np.zeros(c.workload.max_tasks, dtype=workloads.TASK_DEMAND),
        edge_scratch=np.zeros((max(1, edges), 2), dtype=np.int64),
        order_scratch=np.zeros((2, c.workload.max_tasks), dtype=np.int64),
    )
