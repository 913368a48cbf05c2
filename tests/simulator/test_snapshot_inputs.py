"""Where the input of a waiting task is, and what moving it takes: a snapshot says what observations say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.observation.feature_sets import DELAY
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine

SLOTS = [
    {"name": "slow", "count": 3, "compute_gflops": 1, "memory_gb": 80, "slots": 2},
    {"name": "fast", "count": 2, "compute_gflops": 3, "memory_gb": 80},
]


@pytest.mark.parametrize("cluster", [{}, {"tiers": SLOTS, "empty_slots": 1}])
@pytest.mark.parametrize("communication", [{}, {"predecessors": "all"}, {"first": "largest-output"}])
def test_transfers_are_those_of_the_first_candidate_and_of_every_other(
    cluster: dict[str, Any], communication: dict[str, str]
) -> None:
    told = {"cluster": cluster, "communication": communication, "workload": {"max_predecessors": 3, "offered_load": 1}}
    env = EnvConfig.model_validate(told | {"episode": {"horizon_s": 60}})
    engine, rule, looks = Engine(env), make_scheduler("random-feasible", env.observation), 0
    engine.reset([3], [0])
    rule.reset([(3, 0)])
    while not engine.done[0]:
        snapshot = engine.snapshot()
        transfer = snapshot.transfer_s
        assert transfer.shape == (len(snapshot.ready), engine.num_slots)
        seen = engine.observation[0, 5:].reshape(-1, 5)[:, DELAY]
        np.testing.assert_allclose(transfer[snapshot.candidates[0]], np.where(snapshot.host < 0, 0, seen), rtol=1e-5)
        looks += len(np.unique(snapshot.inputs["task"])) > 1
        for row, task in enumerate(snapshot.ready):
            workflow = snapshot.workflow(int(task["workflow"]))
            before = workflow.edges[workflow.edges[:, 1] == task["task"], 0]
            for j in np.flatnonzero(snapshot.host >= 0):
                elsewhere = [p for p in before if snapshot.host[workflow.host[p]] != snapshot.host[j]]
                if communication.get("predecessors") == "all":
                    each = workflow.output_gb[elsewhere] / snapshot.bandwidth_gb_s + snapshot.latency_s
                    assert transfer[row, j] == pytest.approx(each.sum())
                elif not elsewhere:
                    assert transfer[row, j] == 0
        engine.step(rule(engine.observation, engine.fit))  # type: ignore[operator]
    assert looks > 5
