"""A workflow of 10 000 tasks among small ones: it costs its own rows and nobody else's, and plays to its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.state import DETAIL, TASK
from rllib_scale.workloads.model import Workload

LARGE = 10_000
ROWS = 8
GIVEN = {"format": "rllib-scale-workload", "version": 2}


def problem(**episode: Any) -> EnvConfig:
    tier = {"name": "one", "count": ROWS, "compute_gflops": 2, "memory_gb": 8, "idle_power_w": 1, "busy_power_w": 2}
    return EnvConfig.model_validate(
        {
            "cluster": {"tiers": [tier]},
            "workload": {"memory_gb": {"mean": 1, "std": 0, "low": 1, "high": 8}},
            "episode": {"horizon_s": 1e6, "mask": "feasible"} | episode,
        }
    )


def workflow(arrival: float, tasks: int, rng: np.random.Generator) -> dict[str, Any]:
    """Each task but the first follows one or two of the 50 before it."""
    edges = {
        (int(p), i) for i in range(1, tasks) for p in rng.integers(max(0, i - 50), i, size=int(rng.integers(1, 3)))
    }
    demands = rng.uniform(0.5, 2, tasks)
    return {
        "arrival_s": arrival,
        "tasks": [{"compute_gflop": float(c), "memory_gb": 1.0, "output_gb": 0.1} for c in demands],
        "edges": [list(edge) for edge in sorted(edges)],
    }


def workload(small: int, large_at: tuple[int, ...] = ()) -> Workload:
    """Small workflows of 1 to 8 tasks, all at once; those at the positions named have 10 000."""
    rng = np.random.default_rng(0)
    sizes = [LARGE if i in large_at else int(rng.integers(1, 9)) for i in range(small + len(large_at))]
    content = [workflow(0.001 * i, size, rng) for i, size in enumerate(sizes)]
    return Workload.from_dict(GIVEN | {"workflows": content}, "artificial")


def to_the_end(given: Workload, **episode: Any) -> Engine:
    config = problem(**episode)
    scheduler = make_scheduler("fastest-idle", config.observation, "feasible")
    return play(scheduler, config, seed=0, episodes=[0], workload=given)


def test_one_large_workflow_costs_the_small_ones_nothing() -> None:
    without, beside = to_the_end(workload(2_000)), to_the_end(workload(2_000, large_at=(1_000,)))
    # All 2 001 are in the system at once. Rows of the large one: a block of 2^14; twice as many, for buffers double.
    row = TASK.itemsize + DETAIL.itemsize + 4 * 8
    assert without.memory()[0] < 2_000 * 8 * 4 * row
    assert beside.memory()[0] < without.memory()[0] + 4 * 2**14 * row


def test_a_large_workflow_is_played_to_its_end() -> None:
    given = workload(300, large_at=(7,))
    engine = to_the_end(given)
    metrics, schedule = engine.metrics(), engine.schedule()
    assert metrics["completed"] == metrics["arrived"] == given.num_tasks == len(schedule)
    assert metrics["workflows_completed"] == 301
    assert (schedule["workflow"] == 7).sum() == LARGE
    busy = (schedule["finish_s"] - schedule["start_s"]).sum()
    assert busy == pytest.approx(given.compute_gflop.sum() / 2)
    assert metrics["utilisation"] == pytest.approx(busy / (ROWS * metrics["duration_s"]))
    assert metrics["duration_s"] == schedule["finish_s"].max() >= given.compute_gflop.sum() / 2 / ROWS
    # Its precedence was kept, too.
    own = schedule[schedule["workflow"] == 7]
    start, finish = (own[np.argsort(own["task"])][name] for name in ("start_s", "finish_s"))
    edges = given.edges[given.edge_offsets[7] : given.edge_offsets[8]]
    assert len(edges) > LARGE
    assert (start[edges[:, 1]] >= finish[edges[:, 0]]).all()


@pytest.mark.slow
def test_blocks_are_used_again() -> None:
    """Large workflows one after the other, each with small ones around it, take no more room than the first of them."""
    rng = np.random.default_rng(1)
    content = []
    for k in range(6):
        start = 1_500.0 * k  # 10 000 tasks of 1.25 GFLOP on 16 GFLOPS take some 800 s, most of it in parallel
        content += [workflow(start + 0.01 * i, int(rng.integers(1, 9)), rng) for i in range(50)]
        content.append(workflow(start + 1, LARGE, rng))
    once = Workload.from_dict(GIVEN | {"workflows": content[:51]}, "one")
    often = Workload.from_dict(GIVEN | {"workflows": content}, "six")
    first, last = to_the_end(once), to_the_end(often)
    assert last.metrics()["completed"] == often.num_tasks > 60_000
    assert last.memory()[0] <= first.memory()[0]


def test_blocks_of_small_workflows_are_used_again_over_a_long_episode() -> None:
    rng = np.random.default_rng(2)
    content = [workflow(0.8 * i, int(rng.integers(1, 14)), rng) for i in range(4_000)]
    given = Workload.from_dict(GIVEN | {"workflows": content}, "many")
    short = Workload.from_dict(GIVEN | {"workflows": content[:400]}, "few")
    long_run, short_run = to_the_end(given), to_the_end(short)
    assert long_run.metrics()["completed"] == given.num_tasks > 20_000
    assert long_run.memory()[0] <= 2 * short_run.memory()[0]
