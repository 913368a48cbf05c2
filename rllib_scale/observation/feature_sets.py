"""Feature sets: what an agent sees of the current task and of each server.

A feature set is defined here and nowhere else. The engine writes it, the spaces take their widths from it, and
the networks take from it the fixed constants by which they standardise their input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rllib_scale.compiled import compiled
from rllib_scale.config import ObservationConfig


@dataclass(frozen=True)
class Feature:
    """One number of the observation, with its mean and standard deviation under the `paper` scenario."""

    name: str
    unit: str
    description: str
    mean: float
    std: float


@dataclass(frozen=True)
class FeatureSet:
    """Features of the current task, then of each server slot: an observation of width task + N x server."""

    name: str
    task: tuple[Feature, ...]
    server: tuple[Feature, ...]

    @property
    def task_dim(self) -> int:
        """Number of task features."""
        return len(self.task)

    @property
    def server_dim(self) -> int:
        """Number of features of one server slot."""
        return len(self.server)

    def width(self, num_slots: int) -> int:
        """Length of the flat observation."""
        return self.task_dim + num_slots * self.server_dim

    def num_slots(self, width: int) -> int:
        """Server slots in a flat observation of that length."""
        return (width - self.task_dim) // self.server_dim


PAPER = FeatureSet(
    name="paper",
    task=(
        Feature("compute", "1", "compute demand over task_compute_max_gflop", 0.504, 0.160),
        Feature("memory", "1", "memory over memory_max_gb", 0.237, 0.123),
        Feature("successors", "1", "number of direct successors over 5", 0.353, 0.265),
        Feature("progress", "1", "completed over all tasks of the workflow", 0.164, 0.179),
        Feature("output", "GB", "output data", 0.489, 0.182),
    ),
    server=(
        Feature("capacity", "1", "compute capacity over server_compute_max_gflops; 0 marks an empty slot", 0.5, 0.2165),
        Feature("memory", "1", "memory over memory_max_gb", 0.400, 0.2598),
        Feature("remaining", "s", "remaining execution time of the running task; 0 when idle", 1.476, 2.1035),
        Feature("power", "W", "power drawn now", 137.0, 108.2),
        Feature("delay", "s", "communication delay from the host of the first predecessor", 0.0305, 0.0317),
    ),
)
"""[SCALE, sec. 4.1]; means and deviations as calibrated."""

FEATURE_SETS = {PAPER.name: PAPER}

TASK_COMPUTE, TASK_MEMORY, TASK_SUCCESSORS, TASK_PROGRESS, TASK_OUTPUT = range(5)
CAPACITY, MEMORY, REMAINING, POWER, DELAY = range(5)
MAX_SUCCESSORS = 5.0


@dataclass(frozen=True)
class ObservationView:
    """A batch of flat observations in physical terms. Shapes: B observations, N server slots."""

    task_compute: np.ndarray  # (B, 1) GFLOP
    task_memory: np.ndarray  # (B, 1) in units of memory_max_gb
    capacity: np.ndarray  # (B, N) GFLOPS
    memory: np.ndarray  # (B, N) in units of memory_max_gb
    remaining: np.ndarray  # (B, N) s

    @property
    def fits(self) -> np.ndarray:
        """(B, N) bool: a server stands in the slot and its memory is enough."""
        return (self.capacity > 0) & (self.task_memory <= self.memory)

    @property
    def feasible(self) -> np.ndarray:
        """(B, N) bool: fits and idle."""
        return self.fits & (self.remaining <= 0)

    @property
    def execution_s(self) -> np.ndarray:
        """(B, N) execution time of the task on each server in s; inf in an empty slot."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.capacity > 0, self.task_compute / self.capacity, np.inf)


def view(observation: np.ndarray, config: ObservationConfig) -> ObservationView:
    """Read a batch of flat observations (B, 5 + 5N)."""
    features = FEATURE_SETS[config.feature_set]
    task = observation[:, : features.task_dim]
    server = observation[:, features.task_dim :].reshape(len(observation), -1, features.server_dim)
    return ObservationView(
        task_compute=task[:, TASK_COMPUTE, None].astype(np.float64) * config.task_compute_max_gflop,
        task_memory=task[:, TASK_MEMORY, None],
        capacity=server[:, :, CAPACITY].astype(np.float64) * config.server_compute_max_gflops,
        memory=server[:, :, MEMORY],
        remaining=server[:, :, REMAINING],
    )


@compiled
def write_static(row, servers, p):  # type: ignore[no-untyped-def]
    """Write the features that never change during an episode."""
    for j in range(len(servers)):
        at = 5 + 5 * j
        row[at + CAPACITY] = servers[j].capacity / p.server_compute_max
        row[at + MEMORY] = servers[j].memory / p.memory_max


@compiled
def write_task(row, task, completed, total, p):  # type: ignore[no-untyped-def]
    """Write the features of the current task; `completed` and `total` count the tasks of its workflow."""
    row[TASK_COMPUTE] = task.compute / p.task_compute_max
    row[TASK_MEMORY] = task.memory / p.memory_max
    row[TASK_SUCCESSORS] = task.num_successors / MAX_SUCCESSORS
    row[TASK_PROGRESS] = completed / total
    row[TASK_OUTPUT] = task.output


@compiled
def write_servers(row, servers, finish, clock, host, delay):  # type: ignore[no-untyped-def]
    """Write remaining time, power and delay of each server.

    `finish` is inf where idle; `delay` [s] holds for every server but `host`.
    """
    # Whether a server is busy cannot be predicted: both values are read, so that the choice needs no branch.
    for j in range(len(servers)):
        if servers[j].capacity == 0.0:
            continue
        at = 5 + 5 * j
        busy = finish[j] < np.inf
        remaining, busy_power, idle_power = finish[j] - clock, servers[j].busy_power, servers[j].idle_power
        row[at + REMAINING] = remaining if busy else 0.0
        row[at + POWER] = busy_power if busy else idle_power
        row[at + DELAY] = 0.0 if j == host else delay
