"""The view: the state of a batch of environments as policies see it, in flat arrays that compiled code fills and reads.

A `Snapshot` says more, of one environment, and takes a hundred times as long to make.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ENV = np.dtype(
    [
        ("clock_s", "f8"),
        ("num_waiting", "i8"),  # 0: the episode has ended
        ("num_inputs", "i8"),
        ("num_new", "i8"),
        ("tasks_in_system", "i8"),  # that have not ended, as far as they are seen
        ("work_in_system_gflop", "f8"),  # whole demands of these, for each place, as schedulers see them
        ("is_revealed", "i8"),  # tasks are seen when their predecessors have ended
        ("num_ended", "i8"),
    ]
)
WAITING = np.dtype(
    [
        ("workflow", "i8"),
        ("task", "i8"),
        ("compute_gflop", "f8"),  # that is left to do, as schedulers see it
        ("memory_gb", "f8"),
        ("places", "i8"),  # that it takes of a server
        ("labels", "i8"),  # that it needs of a server, bits of ClusterConfig.label_names
        ("arrival_s", "f8"),  # of its workflow
        ("ready_s", "f8"),
        ("hop", "i8"),
        ("descendants", "f8"),  # tasks that follow it, itself included, as far as they were seen at its arrival
        ("seen", "i8"),  # where workflows are revealed: position at which it was revealed in its workflow
        ("delay_s", "f8"),  # from the end of its predecessors until it was ready
        ("first_input", "i8"),  # its inputs are adjacent
        ("num_inputs", "i8"),
    ]
)
"""The first fields are those of `snapshot.READY`."""
INPUT = np.dtype([("server", "i8"), ("transfer_s", "f8")])
"""An input that must be transferred if the task starts on another server."""
NEW = np.dtype([("arrival_s", "f8"), ("work_gflop", "f8"), ("num_tasks", "i8"), ("depth", "i8")])
"""A workflow that has arrived since the view before: its tasks that are seen, and how many the longest path has."""
ENDED = np.dtype([("seen", "i8"), ("descendants", "i8"), ("num_tasks", "i8"), ("depth", "i8")])
"""A task of a revealed workflow that has completed since the view before; `num_tasks` and `depth` of the workflow stand
with its first task, and are 0 with the others."""
MOST_SEEN = 64
"""Workflows with at least this many revealed tasks count as one kind."""


class View(NamedTuple):
    """B environments, N servers, R tasks that wait at most, I inputs, W new workflows and E ended tasks at most."""

    env: np.ndarray  # (B,) ENV: how many entries of a row of the others count
    waiting: np.ndarray  # (B, R) WAITING, in no order
    inputs: np.ndarray  # (B, I) INPUT
    new: np.ndarray  # (B, W) NEW
    ended: np.ndarray  # (B, E) ENDED
    unfinished: np.ndarray  # (B, 1 + MOST_SEEN) revealed workflows that have not completed, by tasks that are seen
    capacity: np.ndarray  # (N,) GFLOPS of each task that runs there; 0 in an empty row
    properties: np.ndarray  # (N,) simulator.cluster.SERVER: what the tier of each declares; 0 in an empty row
    limit: np.ndarray  # (B, N) GB that a task may need; -1: none can start there any more
    wait: np.ndarray  # (B, N) s until a place is free; inf: none can start there any more
    free_places: np.ndarray  # (B, N)
    is_open: np.ndarray  # (B, N) bool: takes tasks, has a free place and is not reserved
    free: np.ndarray  # (B, N) GB
    next_end: np.ndarray  # (B, N) s until the next of its tasks ends; inf: it runs none
