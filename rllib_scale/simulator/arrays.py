"""A config and its servers as the arrays that compiled code reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.feature_sets import FEATURE_SETS, static_features
from rllib_scale.observation.orders import ORDERS
from rllib_scale.simulator.changes import at_random, rates, scheduled, starts_away
from rllib_scale.simulator.load import DAG_TABLES
from rllib_scale.simulator.reward import REWARD_PARAMETERS, REWARDS
from rllib_scale.simulator.state import PARAMETERS, Problem
from rllib_scale.simulator.writers import NAMES
from rllib_scale.workloads import generators as workloads
from rllib_scale.workloads.generators import estimate_parameters


def build_problem(config: EnvConfig, servers: np.ndarray) -> Problem:
    """The problem of a config, with scratch for the workflows that it draws."""
    c = config
    decision, moving, information = c.decision, c.communication, c.information
    tasks, edges = c.workload.max_tasks, max(1, workloads.most_edges(c))
    failure_rate, departure_rate, repair, notice, return_after = rates(c.cluster)
    o, estimate_mean, estimate_std = c.observation, *estimate_parameters(information.estimate_error)
    values = {
        "horizon": c.episode.horizon_s,
        "arrivals_until": c.episode.arrivals_until_s or math.inf,
        "clock_step": c.episode.clock_step_s,
        "idle_by_step": c.episode.idle_advance == "clock-step",
        "labels": bool(c.cluster.label_names),
        "several": any(tier.max_concurrent > 1 for tier in c.cluster.tiers),
        "feasible_only": c.offers_startable,
        "max_decisions": c.episode.max_decisions or 2**62,
        "horizon_is_terminal": c.episode.horizon_is_terminal,
        "reserve": decision.on_busy == "reserve",
        "peek": decision.on_busy == "step" and decision.offered == 1,
        "order": ORDERS.index(decision.level1),
        "ties_by_arrival": decision.ties_by_arrival,
        "transfer": moving.mode == "transfer",
        "from_all": moving.predecessors == "all",
        "largest_first": moving.first == "largest-output",
        "revealed": information.workflows == "revealed",
        "estimates": information.estimate_error > 0 or information.straggles,
        "estimate_mean": estimate_mean,
        "estimate_std": estimate_std,
        "straggler_share": information.straggler_share if information.straggles else 0.0,
        "straggler_factor": information.straggler_factor,
        "changes": not c.cluster.changes.none,
        "failure_rate": failure_rate,
        "departure_rate": departure_rate,
        "repair": repair,
        "notice": notice,
        "return_after": return_after,
        "bandwidth": c.cluster.bandwidth_gb_s,
        "latency": c.cluster.latency_s,
        "reward": REWARDS.index(c.reward.name),
        **{name: getattr(c.reward, name) for name in REWARD_PARAMETERS},
        "feature_set": NAMES.index(o.feature_set),
        "task_compute_max": o.task_compute_max_gflop,
        "memory_max": o.memory_max_gb,
        "per_output_unit": 1.0 / o.output_unit_gb,
        "per_delay_unit": 1.0 / o.delay_unit_s,
        "per_time_unit": 1.0 / o.time_unit_s,
    }
    static_columns, static = static_features(FEATURE_SETS[o.feature_set], servers, o)
    return Problem(
        parameters=_record(PARAMETERS, values),
        workload=workloads.parameters(c),
        servers=servers,
        static_columns=static_columns,
        static=static,
        server_of=np.repeat(np.arange(len(servers)), servers["max_concurrent"]),
        at_random=at_random(c.cluster),
        starts_away=starts_away(c.cluster),
        changes=scheduled(c.cluster),
        rng=np.zeros((3, 4), dtype=np.uint64),
        demand=np.zeros(tasks, dtype=workloads.TASK_DEMAND),
        edges=np.zeros((edges, 2), dtype=np.int64),
        moved=np.zeros(edges),
        **_tables(tasks, edges),
    )


def _record(dtype: np.dtype[Any], values: dict[str, Any]) -> np.ndarray:
    """One record (1,) of a dtype, with a value for each of its fields."""
    record = np.zeros(1, dtype=dtype)
    assert set(values) == set(dtype.names or ()), set(values) ^ set(dtype.names or ())
    for name, value in values.items():
        record[name] = value
    return record


def with_room_for(problem: Problem, tasks: int, edges: int) -> Problem:
    """The problem, with scratch for a workflow of this size."""
    have = len(problem.reached), len(problem.successors)
    if tasks <= have[0] and edges <= have[1]:
        return problem
    return problem._replace(**_tables(max(tasks, have[0]), max(edges, have[1])))


def _tables(tasks: int, edges: int) -> dict[str, np.ndarray]:
    """Scratch for the DAG of a workflow of this size."""
    return {
        "tables": np.zeros((DAG_TABLES, tasks + 1), dtype=np.int64),
        "successors": np.zeros(edges, dtype=np.int64),
        "reached": np.zeros(tasks, dtype=np.uint64),
    }
