"""Tasks that may run on some servers only: no scheduler starts one elsewhere, and all of them end."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play, played_to_its_end
from rllib_scale.policies.make import make_policy
from rllib_scale.schedulers.rules import SCHEDULERS
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

TIERS = [
    {"name": "slow", "count": 3, "compute_gflops": 1, "memory_gb": 80, "labels": ["eu"]},
    {"name": "middle", "count": 2, "compute_gflops": 2, "memory_gb": 80, "labels": ["a100", "eu"]},
    {"name": "fast", "count": 2, "compute_gflops": 4, "memory_gb": 80, "labels": ["a100"]},
]
NEEDS = ([], ["eu"], ["a100"], ["eu", "a100"])


def problem(copies: int = 1) -> tuple[EnvConfig, Workload]:
    """Seven servers, or so many times as many, and a busy workload that needs some of their labels."""
    tiers = [tier | {"count": tier["count"] * copies} for tier in TIERS]
    env = EnvConfig.model_validate(
        {
            "cluster": {"tiers": tiers},
            "episode": {"horizon_s": 40 / copies, "mask": "feasible"},
            "workload": {"offered_load": 0.8},
        }
    )
    content = generate(env, 5, 0).to_dict()
    rng = np.random.default_rng(5)
    for workflow in content["workflows"]:
        for task in workflow["tasks"]:
            task["labels"] = NEEDS[rng.integers(len(NEEDS))]
    return env, Workload.from_dict(content | {"version": 4}, "labelled")


@pytest.mark.parametrize("copies", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_every_scheduler_keeps_to_the_labels_and_plays_to_the_end(copies: int) -> None:
    env, workload = problem(copies)  # at eight times the size servers are looked at by kind
    allowed = [
        {j for j, tier in enumerate(TIERS) if {*needs} <= {*tier["labels"]}}
        for needs in (task.get("labels", []) for w in workload.to_dict()["workflows"] for task in w["tasks"])
    ]
    names = [tier["name"] for tier in TIERS]
    for name in (*SCHEDULERS, "zoo:scale"):
        policy = make_policy(name, env)
        engine = play(policy, played_to_its_end(policy.problem(env), workload), 0, [0], workload)
        schedule = engine.schedule()
        assert engine.metrics()["completed"] == workload.num_tasks == len(schedule), name
        rows = workload.task_offsets[schedule["workflow"]] + schedule["task"]
        for row, tier in zip(rows.tolist(), schedule["tier"].tolist(), strict=True):
            assert names.index(tier) in allowed[row], name
