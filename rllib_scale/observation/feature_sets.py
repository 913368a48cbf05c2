"""Feature sets: what an agent sees of the current task and of each server.

A feature is defined here and nowhere else: name, unit, description, formula and the fixed constants by which networks
standardise it. The formula takes what the compiled writer (`simulator/writers.py`) finds in the state. A feature that
follows from a server's properties alone needs no writer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_scale.config import ObservationConfig
from rllib_scale.observation.answers import OPEN, TAKEN

# ---------------------------------------------------------------------- formulas, which are also compiled


def itself(value):  # type: ignore[no-untyped-def]
    """The value unchanged."""
    return value


def ratio(value, unit):  # type: ignore[no-untyped-def]
    """In units."""
    return value / unit


def scaled(value, per_unit):  # type: ignore[no-untyped-def]
    """In units whose inverse is given."""
    return value * per_unit


def fifths(count):  # type: ignore[no-untyped-def]
    """A count / 5."""
    return count / 5.0


def log_count(count):  # type: ignore[no-untyped-def]
    """Of one or more."""
    return math.log(count)


def log_per(count, servers):  # type: ignore[no-untyped-def]
    """Of any number, 0 too, for each server."""
    return math.log1p(count / servers)


def log_time(seconds):  # type: ignore[no-untyped-def]
    """In 10 s."""
    return math.log1p(seconds / 10.0)


def scale_of(servers):  # type: ignore[no-untyped-def]
    """In three doublings of 16 servers."""
    return math.log2(servers / 16.0) / 3.0


# ---------------------------------------------------------------------- features


OfServers = Callable[[np.ndarray, ObservationConfig], np.ndarray]
"""From the properties of servers (N,), simulator.cluster.SERVER, to a feature (N,)."""


@dataclass(frozen=True)
class Feature:
    """One number of the observation, with its mean and standard deviation under the `paper` scenario.

    Attributes:
        formula: from what a writer finds in the state.
        static: of a server, from its properties alone, in place of the formula.
    """

    name: str
    unit: str
    description: str
    mean: float
    std: float
    formula: Callable[..., Any] = itself
    static: OfServers | None = None


@dataclass(frozen=True)
class FeatureSet:
    """Features of the state, of each of the K candidates, of each of the N servers, in this order.

    A feature set holds its own widths, units and standardisation; nothing else knows how many features there are.
    """

    name: str
    context: tuple[Feature, ...]
    task: tuple[Feature, ...]
    server: tuple[Feature, ...]

    @property
    def context_dim(self) -> int:
        """C, features of the state."""
        return len(self.context)

    @property
    def task_dim(self) -> int:
        """F, features of one candidate."""
        return len(self.task)

    @property
    def server_dim(self) -> int:
        """G, features of one server."""
        return len(self.server)

    def head(self, candidates: int = 1) -> int:
        """Columns before the first server's."""
        return self.context_dim + candidates * self.task_dim

    def width(self, num_rows: int, candidates: int = 1) -> int:
        """Length of the flat observation."""
        return self.head(candidates) + num_rows * self.server_dim

    def server_column(self, name: str) -> int:
        """Position of a feature among those of a server."""
        return [feature.name for feature in self.server].index(name)


def static_features(features: FeatureSet, servers: np.ndarray, scales: ObservationConfig) -> tuple[np.ndarray, ...]:
    """Columns (S,) of the static features of a server, and their values (N, S) float64.

    Args:
        features: the set.
        servers: (N,) properties, simulator.cluster.SERVER.
        scales: the normalisers.
    """
    found = [(k, each.static(servers, scales)) for k, each in enumerate(features.server) if each.static is not None]
    columns, values = zip(*found, strict=True)
    return np.array(columns, dtype=np.int64), np.stack(values, axis=1).astype(np.float64)


def of_capacity(servers: np.ndarray, scales: ObservationConfig) -> np.ndarray:
    """Relative to the fastest server that is planned for."""
    return np.asarray(servers["capacity"] / scales.server_compute_max_gflops)


def of_memory(servers: np.ndarray, scales: ObservationConfig) -> np.ndarray:
    """Relative to the largest server that is planned for."""
    return np.asarray(servers["memory"] / scales.memory_max_gb)


PAPER = FeatureSet(
    name="paper",
    context=(),
    task=(
        Feature("compute", "1", "compute demand over task_compute_max_gflop", 0.504, 0.160, ratio),
        Feature("memory", "1", "memory over memory_max_gb", 0.237, 0.123, ratio),
        Feature("successors", "1", "number of direct successors over 5", 0.353, 0.265, fifths),
        Feature("progress", "1", "completed over all tasks of the workflow", 0.164, 0.179, ratio),
        Feature("output", "GB", "output data over output_unit_gb", 0.489, 0.182, scaled),
    ),
    server=(
        Feature(
            "capacity",
            "1",
            "compute capacity over server_compute_max_gflops; 0 marks an empty row",
            0.5,
            0.2165,
            static=of_capacity,
        ),
        Feature("memory", "1", "memory over memory_max_gb", 0.400, 0.2598, static=of_memory),
        Feature("remaining", "s", "time until a place is free over time_unit_s; 0 when one is", 1.476, 2.1035, scaled),
        Feature("power", "W", "power drawn now", 137.0, 108.2, itself),
        Feature(
            "delay", "s", "transfer from the server of the first predecessor over delay_unit_s", 0.0305, 0.0317, scaled
        ),
    ),
)
"""[SCALE, sec. 4.1]; means and deviations as calibrated."""

ROUNDS = FeatureSet(
    name="rounds",
    context=(
        Feature("scale", "1", "log2(servers that are there / 16) / 3", 0.0, 1.0, scale_of),
        Feature("waiting", "1", "ln(1 + tasks that wait / servers that are there)", 0.4, 0.5, log_per),
        Feature("system", "1", "ln(1 + unfinished tasks that are seen / servers that are there)", 1.0, 0.6, log_per),
        Feature("open", "1", "servers on which some task could start / servers that are there", 0.4, 0.3, ratio),
    ),
    task=(
        *PAPER.task,
        Feature("hop", "1", "edges on the longest path to a sink, over 5", 0.4, 0.4, fifths),
        Feature("descendants", "1", "ln of the tasks that follow, itself included", 0.9, 0.7, log_count),
        Feature("age", "1", "ln(1 + time since the workflow arrived / 10 s)", 0.6, 0.5, log_time),
        Feature("waited", "1", "ln(1 + time since it became ready / 10 s)", 0.1, 0.3, log_time),
    ),
    server=(
        *PAPER.server,
        Feature("free", "1", "memory that is free over memory_max_gb", 0.2, 0.25, ratio),
        Feature(
            "wait",
            "s",
            "until a place is free, waiting tasks of this round included, over time_unit_s",
            2.0,
            3.0,
            scaled,
        ),
        Feature("load", "1", "running tasks over max_concurrent", 0.5, 0.4, ratio),
    ),
)
"""Features for decision rounds, beyond the paper's: how many tasks wait, and for how long."""

FEATURE_SETS = {PAPER.name: PAPER, ROUNDS.name: ROUNDS}

TASK_COMPUTE, TASK_MEMORY, TASK_SUCCESSORS, TASK_PROGRESS, TASK_OUTPUT = range(5)
CAPACITY, MEMORY, REMAINING, POWER, DELAY = range(5)
"""Columns that every feature set begins with."""


@dataclass(frozen=True)
class ObservationView:
    """A batch of flat observations in physical terms, of the first candidate. Shapes: B observations, N servers."""

    task_compute: np.ndarray  # (B, 1) GFLOP
    task_memory: np.ndarray  # (B, 1) in units of memory_max_gb
    capacity: np.ndarray  # (B, N) GFLOPS
    memory: np.ndarray  # (B, N) in units of memory_max_gb
    remaining: np.ndarray  # (B, N) s
    transfer: np.ndarray  # (B, N) s, to move its input there from where it is
    fits: np.ndarray  # (B, N) bool: the task could start there, now or later
    feasible: np.ndarray  # (B, N) bool: it could start there now
    free: Any = None  # (B, N) memory that is free; this and what follows: `rounds` only
    wait: Any = None  # (B, N) s until a place is free, waiting tasks of this round included
    load: Any = None  # (B, N) running tasks over max_concurrent

    @property
    def execution_s(self) -> np.ndarray:
        """(B, N) execution time of the task [s], inf on an empty row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.capacity > 0, self.task_compute / self.capacity, np.inf)


def view(observation: np.ndarray, fit: np.ndarray, config: ObservationConfig) -> ObservationView:
    """Read a batch of flat observations (B, width), with how each server is for each candidate: `fit` (B, K, N)."""
    candidates = fit.shape[1]
    features = FEATURE_SETS[config.feature_set]
    task = observation[:, features.context_dim : features.head()]
    server = observation[:, features.head(candidates) :].reshape(len(observation), -1, features.server_dim)
    names = [feature.name for feature in features.server]
    more = {name: server[:, :, names.index(name)] for name in ("free", "wait", "load") if name in names}
    if "wait" in more:
        more["wait"] = more["wait"] * np.float32(config.time_unit_s)
    return ObservationView(
        task_compute=task[:, TASK_COMPUTE, None].astype(np.float64) * config.task_compute_max_gflop,
        task_memory=task[:, TASK_MEMORY, None],
        capacity=server[:, :, CAPACITY].astype(np.float64) * config.server_compute_max_gflops,
        memory=server[:, :, MEMORY],
        remaining=server[:, :, REMAINING] * np.float32(config.time_unit_s),
        transfer=server[:, :, DELAY] * np.float32(config.delay_unit_s),
        fits=fit[:, 0] >= TAKEN,
        feasible=fit[:, 0] == OPEN,
        **more,
    )


def first_candidate(
    observation: np.ndarray, fit: np.ndarray, config: ObservationConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Flat observations (B, width) and `fit` (B, K, N) as if only the first of K candidates were offered."""
    candidates = fit.shape[1]
    if candidates == 1:
        return observation, fit
    features = FEATURE_SETS[config.feature_set]
    parts = observation[:, : features.head()], observation[:, features.head(candidates) :]
    return np.concatenate(parts, axis=1), fit[:, :1]
