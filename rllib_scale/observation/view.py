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
        ("work_in_system_gflop", "f8"),  # whole demands of these, as schedulers see them
    ]
)
WAITING = np.dtype(
    [
        ("workflow", "i8"),
        ("task", "i8"),
        ("compute_gflop", "f8"),  # that is left to do, as schedulers see it
        ("memory_gb", "f8"),
        ("arrival_s", "f8"),  # of its workflow
        ("ready_s", "f8"),
        ("hop", "i8"),
        ("descendants", "i8"),  # tasks that follow it, itself included, as far as they were seen at its arrival
        ("first_input", "i8"),  # its inputs stand side by side
        ("num_inputs", "i8"),
    ]
)
"""The first fields are those of `snapshot.READY`."""
INPUT = np.dtype([("server", "i8"), ("transfer_s", "f8")])
"""What has to be moved for a task that starts on another server."""
NEW = np.dtype([("arrival_s", "f8"), ("work_gflop", "f8")])
"""A workflow that has arrived since the view before: when, and the demand of its tasks that are seen."""


class View(NamedTuple):
    """B environments, N servers, R tasks that wait at most, I inputs, W new workflows at most."""

    env: np.ndarray  # (B,) ENV: how many entries of a row of the others count
    waiting: np.ndarray  # (B, R) WAITING, in no order
    inputs: np.ndarray  # (B, I) INPUT
    new: np.ndarray  # (B, W) NEW
    capacity: np.ndarray  # (N,) GFLOPS of each task that runs there; 0 in an empty row
    max_concurrent: np.ndarray  # (N,) tasks that it runs at once; 0 in an empty row
    limit: np.ndarray  # (B, N) GB that a task may need; -1: none can start there any more
    wait: np.ndarray  # (B, N) s until a place is free; inf: none can start there any more
    free_places: np.ndarray  # (B, N) tasks that it could run beside those that it runs
    is_open: np.ndarray  # (B, N) bool: takes tasks, has a free place and is not reserved
    free: np.ndarray  # (B, N) GB
    next_end: np.ndarray  # (B, N) s until the next of its tasks ends; inf: it runs none
