"""A planner says what it cannot play."""

from __future__ import annotations

from typing import Any

import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import make_scheduler


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("information.workflows", {"information": {"workflows": "revealed"}}),
        ("cluster.changes", {"cluster": {"changes": {"schedule": [{"time_s": 3, "event": "fail", "servers": [0]}]}}}),
        (
            "cluster.tiers.slots",
            {"cluster": {"tiers": [{"name": "one", "count": 4, "compute_gflops": 1, "memory_gb": 80, "slots": 2}]}},
        ),
    ],
)
@pytest.mark.parametrize("name", ["heft", "cpop"])
def test_a_planner_refuses_what_it_cannot_plan_for(name: str, setting: str, changed: dict[str, Any]) -> None:
    env = EnvConfig.model_validate(changed)
    with pytest.raises(UserError, match=setting):
        play(make_scheduler(name, env.observation), env, 0, [0])
