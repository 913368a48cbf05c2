"""A small made trace: sessions of a few turns, each a chain of calls with gaps, some with a fork."""

from __future__ import annotations

import numpy as np

from rllib_scale.workloads.model import Workload


def made_trace(sessions: int = 12, seed: int = 0, memory_gb: float = 8.0) -> Workload:
    """Workflows whose compute demands name their session: it is their whole part."""
    rng = np.random.default_rng(seed)
    arrivals, numbers, offsets, edge_offsets, edges = [], [], [0], [0], []
    columns: dict[str, list[float]] = {"compute_gflop": [], "memory_gb": [], "output_gb": [], "delay_s": []}
    for session in range(sessions):
        start = float(rng.uniform(0, 60))
        for _ in range(int(rng.integers(1, 5))):
            calls = int(rng.integers(1, 7))
            forks = calls > 2 and rng.random() < 0.3
            tasks = calls + 2 * forks
            arrivals.append(start)
            numbers.append(session)
            start += float(rng.uniform(1, 30))
            memory = np.minimum(np.cumsum(rng.uniform(0.1, 1.0, tasks)), memory_gb)
            columns["compute_gflop"] += [session + float(x) for x in rng.uniform(0.2, 0.9, tasks)]
            columns["memory_gb"] += memory.tolist()
            columns["output_gb"] += (memory / 2).tolist()
            columns["delay_s"] += [0.0, *rng.exponential(2, tasks - 1).tolist()]
            own = [[k, k + 1] for k in range(calls - 1)]
            if forks:
                own += [[0, calls], [calls, calls + 1], [calls + 1, 1]]
            edges += own
            offsets.append(offsets[-1] + tasks)
            edge_offsets.append(edge_offsets[-1] + len(own))
    return Workload(
        arrival_s=np.array(arrivals),
        session=np.array(numbers),
        task_offsets=np.array(offsets),
        edge_offsets=np.array(edge_offsets),
        edges=np.array(edges).reshape(-1, 2),
        **{name: np.array(values) for name, values in columns.items()},
    )


def sessions_of(drawn: Workload) -> set[int]:
    """The sessions that workflows of a made trace came from, by their compute demands."""
    return {int(demand) for demand in drawn.compute_gflop}
