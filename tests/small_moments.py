"""Moments of a small cluster, for tests of what decides from snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, ObservationConfig, TierConfig, WorkloadConfig
from rllib_scale.observation.answers import Answer
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.workloads.model import Workload
from simulator import literal
from simulator.literal import task, workflow

OBSERVATION = ObservationConfig(task_compute_max_gflop=16.0, server_compute_max_gflops=4.0, memory_max_gb=16.0)
"""The unit of time is 4 s."""
TIERS = (
    TierConfig(name="slow", count=2, compute_gflops=1.0, memory_gb=8.0),
    TierConfig(name="fast", count=1, compute_gflops=4.0, memory_gb=16.0),
)
SMALL = EnvConfig(
    cluster=ClusterConfig(tiers=TIERS),
    workload=WorkloadConfig(memory_gb={"mean": 4, "std": 1, "low": 1, "high": 16}),
    episode=EpisodeConfig(horizon_s=100, mask="feasible"),
    observation=OBSERVATION,
)
"""Servers 0 and 1 are slow and small, server 2 is fast."""
Flow = tuple[float, Sequence[tuple[float, float]], list[list[int]]]


def workload(*flows: Flow) -> Workload:
    """Workflows (arrival [s], tasks (GFLOP, GB), edges)."""
    given = (workflow(arrival, *(task(c, m, 1.0) for c, m in tasks), edges=edges) for arrival, tasks, edges in flows)
    return literal.workload(*given)


DIAMOND: Flow = (0.0, [(8.0, 4.0), (4.0, 12.0), (16.0, 4.0), (2.0, 4.0)], [[0, 1], [0, 2], [1, 3], [2, 3]])
PAIR: Flow = (0.0, [(4.0, 12.0), (12.0, 2.0)], [])
TWO_FLOWS = workload(DIAMOND, PAIR)
"""A diamond, whose second task fits the fast server alone, and two tasks of which the first does, too."""


def moments(given: Workload, env: EnvConfig = SMALL, answers: Sequence[Sequence[Answer]] = ()) -> list[Snapshot]:
    """The moments at which something is to be decided, as long as there are answers for them, and the one after."""
    backend, found = SimulatedBackend(env, workload=given), []
    for of_one in (*answers, ()):
        moment = backend.wait()
        assert moment is not None
        found.append(replace(moment, workflows={number: moment.workflows[number] for number in moment.workflows}))
        for answer in of_one:
            assert backend.apply(answer) == "started"
    return found


def permuted(snapshot: Snapshot, order: Sequence[int]) -> Snapshot:
    """The same moment with its servers in another order, of which none runs anything and nothing is to be moved."""
    at = np.asarray(order)
    names = ("capacity_gflops", "memory_gb", "free_memory_gb", "status", "expected_end_s", "available_at_s")
    assert len(snapshot.inputs) == len(snapshot.running) == 0
    return replace(snapshot, **{name: getattr(snapshot, name)[at] for name in names})


def renumbered(snapshot: Snapshot) -> Snapshot:
    """The same moment, its two workflows numbered the other way round; tasks that wait keep their places."""
    ready, running = snapshot.ready.copy(), snapshot.running.copy()
    ready["workflow"] = 1 - ready["workflow"]
    running["workflow"] = 1 - running["workflow"]
    workflows = {1 - number: replace(live, index=1 - number) for number, live in snapshot.workflows.items()}
    return replace(snapshot, ready=ready, running=running, workflows=workflows)
