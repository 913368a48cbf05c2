"""Which of two tasks of equal rank is offered first, worked out by hand, in the engine and in the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference.simulator import ReferenceSimulator
from rllib_scale.config import EnvConfig
from rllib_scale.simulator.changes import change_events
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import estimate_factors
from rllib_scale.workloads.model import Workload

# On one row of 1 GFLOPS. P, of the first workflow, runs from 0 to 2, and B follows it. X, of the second, arrives at 0.5
# and runs after P, to 3; C arrives at 1, of the third. At 3 both B, ready at 2, and C, ready at 1, wait.
WORKFLOWS = [(0.0, [2.0, 4.0], [[0, 1]]), (0.5, [1.0, 1.0, 1.0], [[0, 1], [1, 2]]), (1.0, [4.0], [])]
FIRST_ARRIVAL, FIRST_READY = [(0, 1), (2, 0)], [(2, 0), (0, 1)]


def problem(decision: dict[str, Any]) -> EnvConfig:
    tier = {"name": "one", "count": 1, "compute_gflops": 1, "memory_gb": 10, "idle_power_w": 1, "busy_power_w": 2}
    return EnvConfig.model_validate(
        {
            "cluster": {"tiers": [tier]},
            "workload": {"memory_gb": {"mean": 1, "std": 0, "low": 1, "high": 1}},
            "episode": {"horizon_s": 50, "mask": "feasible"},
            "decision": decision,
        }
    )


def given() -> Workload:
    content = [
        {
            "arrival_s": arrival,
            "tasks": [{"compute_gflop": c, "memory_gb": 1.0, "output_gb": 0.0} for c in tasks],
            "edges": edges,
        }
        for arrival, tasks, edges in WORKFLOWS
    ]
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": content}, "literal")


def started_by_engine(config: EnvConfig) -> list[tuple[int, int]]:
    engine = Engine(config)
    engine.reset([0], [0], workload=given())
    while not engine.done[0]:
        engine.step([0])
    return [(int(row["workflow"]), int(row["task"])) for row in engine.schedule()]


def started_by_reference(config: EnvConfig) -> list[tuple[int, int]]:
    changes = change_events(config.cluster, 0, 0, config.episode.horizon_s)
    factors = estimate_factors(config, 0, 0, given())
    simulator = ReferenceSimulator(config, given(), open_ended=False, changes=changes, factors=factors)
    while not simulator.done:
        simulator.step(0)
    return [(int(row[0]), int(row[1])) for row in simulator.schedule()]


@pytest.mark.parametrize("play", [started_by_engine, started_by_reference], ids=["engine", "reference"])
@pytest.mark.parametrize("on_busy", ["step", "reserve"])
@pytest.mark.parametrize(
    ("order", "ties", "expected"),
    [
        ("longest-hop", "first-ready", FIRST_READY),  # B and C are both sinks
        ("longest-hop", "first-arrival", FIRST_ARRIVAL),
        ("shortest-task", "first-ready", FIRST_READY),  # both have 4 GFLOP
        ("shortest-task", "first-arrival", FIRST_ARRIVAL),
        ("first-ready", "first-arrival", FIRST_READY),  # the order says so itself
        ("first-arrival", "first-ready", FIRST_ARRIVAL),
    ],
)
def test_ties(play: Any, on_busy: str, order: str, ties: str, expected: list[tuple[int, int]]) -> None:
    started = play(problem({"on_busy": on_busy, "order": order, "ties": ties}))
    assert started[0] == (0, 0)
    assert [task for task in started if task in expected] == expected
    assert len(started) == 6


def test_ties_of_the_offered_candidates() -> None:
    for ties, expected in (("first-ready", FIRST_READY), ("first-arrival", FIRST_ARRIVAL)):
        engine = Engine(problem({"order": "open", "open_by": "longest-hop", "ties": ties, "candidates": 8}))
        engine.reset([0], [0], workload=given())
        engine.step([0])  # P, to 2
        offers = engine.offers()
        assert engine.clock[0] == 2
        engine.step([offers.index((1, 0))])  # X, to 3
        assert engine.clock[0] == 3
        assert [offer for offer in engine.offers() if offer in expected] == expected
        snapshot = engine.snapshot()
        names = np.stack([snapshot.ready["workflow"], snapshot.ready["task"]], axis=1).tolist()
        assert [tuple(name) for name in names if tuple(name) in expected] == expected
