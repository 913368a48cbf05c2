"""What memory depends on: the tasks of an episode and the servers; and a workflow of 10 000 tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload
from simulator.literal import problem, task, tier, workload

LARGE, SERVERS = 10_000, 8


def workflow(arrival: float, tasks: int, rng: np.random.Generator) -> dict[str, Any]:
    """Each task but the first follows one or two of the 50 before it."""
    edges = {
        (int(p), i) for i in range(1, tasks) for p in rng.integers(max(0, i - 50), i, size=int(rng.integers(1, 3)))
    }
    demands = rng.uniform(0.5, 2, tasks).tolist()
    return {"arrival_s": arrival, "tasks": [task(c) for c in demands], "edges": [list(edge) for edge in sorted(edges)]}


def to_the_end(given: Workload) -> Engine:
    config = problem(tier(count=SERVERS, compute=2), horizon_s=1e6, mask="feasible")
    return play(make_scheduler("fastest-idle", config.observation, "feasible"), config, 0, [0], given)


def test_a_large_workflow_is_played_to_its_end_and_costs_the_small_ones_nothing() -> None:
    rng = np.random.default_rng(0)
    small = [workflow(0.001 * i, int(rng.integers(1, 9)), rng) for i in range(1_000)]  # all in the system at once
    given = workload(*small, workflow(1.0, LARGE, rng))
    alone, engine = to_the_end(workload(*small)), to_the_end(given)
    for played, tasks in ((alone, given.num_tasks - LARGE), (engine, given.num_tasks)):
        assert played.memory()[0] < 250 * tasks + 10_000
        assert 80 * tasks <= played.memory()[1] < 2 * 80 * tasks, "the log of attempts doubles"
    metrics, schedule = engine.metrics(), engine.schedule()
    assert metrics["completed"] == metrics["arrived"] == given.num_tasks == len(schedule)
    busy = (schedule["finish_s"] - schedule["start_s"]).sum()
    assert busy == pytest.approx(given.compute_gflop.sum() / 2)
    assert metrics["utilisation"] == pytest.approx(busy / (SERVERS * metrics["duration_s"]))
    own = schedule[schedule["workflow"] == 1_000]
    start, finish = (own[np.argsort(own["task"])][name] for name in ("start_s", "finish_s"))
    edges = given.edges[given.edge_offsets[1_000] : given.edge_offsets[1_001]]
    assert len(edges) > LARGE
    assert (start[edges[:, 1]] >= finish[edges[:, 0]]).all()


def test_memory_is_linear_in_the_servers() -> None:
    """At the paper's load, where the workflows in the system are in proportion to the servers."""
    for servers in (16, 1024):
        engine, rng = Engine(EnvConfig().at_scale(servers)), np.random.default_rng(0)
        engine.reset([0], [0])
        while not engine.done[0]:
            engine.step(rng.integers(servers, size=1))
        assert sum(array.nbytes for array in engine.get_state().values()) < 20_000 * servers
