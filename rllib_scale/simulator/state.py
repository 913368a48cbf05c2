"""The arrays that a batch of environments lives in.

Memory is sized by what is live. A workflow holds a slot from the moment it is the next to arrive until its last task
completes; one log row is kept per started task. A task is addressed by its code, slot << TASK_BITS | index.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

PARAMETERS = np.dtype(
    [
        ("horizon", "f8"),  # s
        ("arrivals_until", "f8"),  # s; inf: workflows arrive as long as the episode lasts
        ("clock_step", "f8"),  # s
        ("idle_by_step", "i8"),
        ("feasible_only", "i8"),
        ("max_decisions", "i8"),
        ("bandwidth", "f8"),  # GB/s
        ("latency", "f8"),  # s
        ("reward", "i8"),
        ("time_weight", "f8"),
        ("time_scale", "f8"),
        ("communication_weight", "f8"),
        ("communication_scale", "f8"),
        ("energy_weight", "f8"),
        ("energy_scale", "f8"),
        ("invalid_reward", "f8"),
        ("task_compute_max", "f8"),
        ("server_compute_max", "f8"),
        ("memory_max", "f8"),
    ]
)
ENV = np.dtype(
    [
        ("rng", "u8", (4,)),
        ("clock", "f8"),
        ("target", "f8"),  # where the clock step under way ends
        ("next_arrival", "f8"),  # inf: no workflow arrives any more
        ("next_finish", "f8"),  # inf: no task is running
        ("is_given", "i8"),  # plays the given workload instead of drawing one
        ("pending", "i8"),  # slot of the workflow that arrives next; -1: not drawn yet
        ("num_drawn", "i8"),  # workflows drawn or read so far
        ("num_free", "i8"),
        ("num_ready", "i8"),
        ("num_busy", "i8"),
        ("in_system", "i8"),  # arrived, uncompleted tasks
        ("area", "f8"),  # integral of in_system over time since the last decision
        ("end", "i8"),  # RUNNING, or why the episode ended
        ("episode_return", "f8"),
        ("decisions", "i8"),
        ("invalid_no_fit", "i8"),
        ("invalid_busy_avoidable", "i8"),
        ("invalid_busy_unavoidable", "i8"),
        ("arrived", "i8"),
        ("completed", "i8"),
        ("workflows_arrived", "i8"),
        ("workflows_completed", "i8"),
        ("response_sum", "f8"),
        ("makespan_sum", "f8"),
        ("num_started", "i8"),  # rows of the log
    ]
)
SLOT = np.dtype(
    [
        ("workflow", "i8"),  # -1: free
        ("arrival", "f8"),
        ("num_tasks", "i8"),
        ("num_completed", "i8"),
    ]
)
TASK = np.dtype(
    [
        ("compute", "f8"),  # GFLOP
        ("memory", "f8"),  # GB
        ("output", "f8"),  # GB
        ("ready", "f8"),  # s
        ("hop", "i4"),  # edges on the longest path to a sink
        ("num_successors", "i4"),
        ("first_successor", "i4"),  # position in the slot's row of successors
        ("num_missing", "i4"),  # predecessors not yet completed
        ("first_predecessor", "i4"),  # lowest index; -1: none
        ("host", "i4"),  # server it was assigned to; -1: none
    ]
)
LOG = np.dtype(
    [
        ("workflow", "i8"),
        ("task", "i8"),
        ("server", "i8"),
        ("arrival", "f8"),
        ("ready", "f8"),
        ("start", "f8"),
        ("finish", "f8"),
    ]
)

RUNNING, AT_HORIZON, ALL_DONE, AT_MAX_DECISIONS = range(4)
GO_ON, NEEDS_SLOTS, NEEDS_LOG, REFUSED = range(4)
FREE = -1
TASK_BITS = 16


class State(NamedTuple):
    """All arrays of a batch. B environments, N server slots, S workflow slots, K tasks and E edges a workflow."""

    env: np.ndarray  # (B,) ENV
    slots: np.ndarray  # (B, S) SLOT
    tasks: np.ndarray  # (B, S, K) TASK
    successors: np.ndarray  # (B, S, E) int32 task indices
    free: np.ndarray  # (B, S) int64 stack of free slots
    ready: np.ndarray  # (B, S * K) int64 heap of task codes
    finish: np.ndarray  # (B, N) float64 s; inf: idle
    running: np.ndarray  # (B, N) int64 task code; -1: idle
    queue: np.ndarray  # (B, N) int64 heap of the busy servers, by finish
    busy: np.ndarray  # (B, N) float64 s of all tasks started
    log: np.ndarray  # (B, L) LOG
    observation: np.ndarray  # (B, 5 + 5N) float32
    reward: np.ndarray  # (B,) float64
    done: np.ndarray  # (B,) bool


class Problem(NamedTuple):
    """What does not change during a run: parameters, servers and, where one is given, the workload to play."""

    parameters: np.ndarray  # (1,) PARAMETERS
    workload: np.ndarray  # (1,) workload.PARAMETERS
    servers: np.ndarray  # (N,) cluster.SERVER
    given_arrival: np.ndarray  # (W,) s
    given_tasks: np.ndarray  # (T,) workload.TASK_DEMAND
    given_task_offsets: np.ndarray  # (W + 1,)
    given_edges: np.ndarray  # (E, 2)
    given_edge_offsets: np.ndarray  # (W + 1,)
    edge_scratch: np.ndarray  # (E, 2) int64
    order_scratch: np.ndarray  # (K,) int64
