"""Min-min and max-min: literal instances, and of independent tasks the schedules of anrg-saga."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.model import Workload
from seeds import each_of


def problem(*capacities: float) -> EnvConfig:
    """A server of each capacity, the i-th of 10 i GB."""
    tiers = [
        {"name": f"t{i}", "count": 1, "compute_gflops": c, "memory_gb": 10.0 * i} for i, c in enumerate(capacities, 1)
    ]
    drawn = {"memory_gb": {"mean": 5, "std": 1, "low": 1, "high": 10}}
    return EnvConfig.model_validate({"cluster": {"tiers": tiers}, "workload": drawn, "episode": {"horizon_s": 1e4}})


def workload(*workflows: tuple[float, list[tuple[float, float]], list[list[int]]]) -> Workload:
    """Of arrival, (GFLOP, GB) of each task, edges."""
    content = [
        {
            "arrival_s": arrival,
            "tasks": [{"compute_gflop": c, "memory_gb": m, "output_gb": 0} for c, m in tasks],
            "edges": edges,
        }
        for arrival, tasks, edges in workflows
    ]
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 1, "workflows": content}, "literal")


def starts(name: str, env: EnvConfig, given: Workload) -> dict[tuple[int, int], tuple[int, float]]:
    """(workflow, task) -> row and time of its start."""
    schedule = play(make_scheduler(name, env.observation), env, 0, [0], given).schedule()
    return {(row["workflow"], row["task"]): (int(row["server"]), float(row["start_s"])) for row in schedule}


def test_the_short_task_or_the_long_one_is_matched_first() -> None:
    given = workload((0, [(1, 5), (8, 5)], []))
    # 0.5 s and 4 s on the fast server, 1 s and 8 s on the slow one; after the short one the long one ends there at 4.5.
    assert starts("min-min", problem(1, 2), given) == {(0, 0): (1, 0.0), (0, 1): (1, 0.5)}
    assert starts("max-min", problem(1, 2), given) == {(0, 0): (0, 0.0), (0, 1): (1, 0.0)}


def test_who_waits_is_matched_again_when_something_has_happened() -> None:
    given = workload((0, [(8, 5)], []), (0, [(9, 5)], []), (0, [(3, 5)], []), (1, [(2, 15)], []))
    begun = starts("min-min", problem(1, 2), given)
    # 3 GFLOP first, on fast until 1.5; 8 GFLOP would end at 5.5 there, at 8 on slow, and waits; 9 GFLOP at 10 or 9.
    assert begun[2, 0] == (1, 0.0)
    assert begun[1, 0] == (0, 0.0)
    assert begun[3, 0] == (1, 1.5)  # fits fast alone, and is shorter than the one that waited for it
    assert begun[0, 0] == (1, 2.5)


def test_who_fits_nowhere_now_and_who_follows_are_left_alone() -> None:
    given = workload((0, [(4, 15), (2, 15), (1, 5)], [[0, 2]]))
    assert starts("min-min", problem(1, 2), given) == {(0, 1): (1, 0.0), (0, 0): (1, 1.0), (0, 2): (1, 3.0)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["min-min", "max-min"])
@each_of(range(25))
def test_independent_tasks_run_as_by_anrg_saga(seed: int, name: str) -> None:
    from saga import Network, TaskGraph
    from saga.schedulers.maxmin import MaxMinScheduler
    from saga.schedulers.minmin import MinMinScheduler

    rng = np.random.default_rng(seed)
    capacity, compute = rng.uniform(0.5, 5, rng.integers(2, 6)).tolist(), rng.uniform(1, 20, 12).tolist()
    names = [f"{j}" for j in range(len(capacity))]
    network = Network.create(
        nodes=list(zip(names, capacity, strict=True)), edges=[(a, b, 1.0) for a in names for b in names if a < b]
    )
    graph = TaskGraph.create(tasks=[(f"{k}", c) for k, c in enumerate(compute)], dependencies=[])
    expected = (MinMinScheduler if name == "min-min" else MaxMinScheduler)().schedule(network, graph)
    begun = starts(name, problem(*capacity), workload((0, [(c, 5.0) for c in compute], [])))
    seen = {k: (int(node), task.start) for node, tasks in expected.mapping.items() for k, task in named(tasks)}
    assert begun.keys() == {(0, k) for k in seen}
    for k, (server, start) in seen.items():
        assert begun[0, k][0] == server
        assert begun[0, k][1] == pytest.approx(start)


def named(tasks: list) -> list:  # type: ignore[type-arg]
    """Of its tasks those that are ours, by number: it adds a beginning and an end."""
    return [(int(task.name), task) for task in tasks if task.name.isdigit()]
