"""What fits is decided once, in float64: no scheduler names a server that is too small by less than a float32 shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.config.methods import NETWORKS
from rllib_scale.evaluation.play import Player, play
from rllib_scale.networks.build import build_network
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

SMALL, LARGE = 0, 1
MEMORY = 8.0000001
RULES = ("fastest-idle", "earliest-finish", "large-only", "best-fit-memory", "random-feasible", "round-robin")


def problem(mask: str) -> EnvConfig:
    """A fast server of 8 GB, and a slow one of 16 GB: the task of 8.0000001 GB looks as if it fitted the fast one."""
    power = {"idle_power_w": 10, "busy_power_w": 100}
    tiers = [
        {"name": "small", "count": 1, "compute_gflops": 4, "memory_gb": 8, **power},
        {"name": "large", "count": 1, "compute_gflops": 1, "memory_gb": 16, **power},
    ]
    settings: dict[str, Any] = {
        "cluster": {"tiers": tiers},
        "workload": {"memory_gb": {"mean": 8, "std": 0, "low": 1, "high": 16}},
        "episode": {"mask": mask, "horizon_s": 60, "arrivals_until_s": 30, "max_decisions": 500},
    }
    return EnvConfig.model_validate(settings)


def workload() -> Workload:
    task = {"compute_gflop": 4.0, "memory_gb": MEMORY, "output_gb": 0.1}
    workflow = {"tasks": [task] * 2, "edges": [[0, 1]]}
    content = [{"arrival_s": float(t)} | workflow for t in (0, 1)]
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": content}, "literal")


def policy(method: str) -> TrainedPolicy:
    torch.manual_seed(0)
    trial = TrialConfig(method=method, env=problem("feasible"))
    return TrainedPolicy(build_network(trial), trial, epochs=0, mask="feasible")


def played(scheduler: Player, mask: str) -> Engine:
    return play(scheduler, problem(mask), seed=0, episodes=[0], workload=workload())


def check_that_all_ran_on_the_large_server(engine: Engine) -> None:
    assert engine.schedule()["server"].tolist() == [LARGE] * 4
    assert engine.metrics()["completed"] == 4
    assert engine.metrics()["invalid_no_fit"] == 0


def test_the_task_looks_as_if_it_fitted() -> None:
    engine = Engine(problem("none"))
    engine.reset([0], [0], workload=workload())
    assert engine.observation[0, 1] == engine.observation[0, 5 + 1], "in float32 it needs all of the small server"
    assert engine.fit[0, 0].tolist() == [0, 2]
    assert engine.mask[0].tolist() == [False, True, True]


@pytest.mark.parametrize("rule", RULES)
def test_a_masked_rule_never_names_the_server_that_is_too_small(rule: str) -> None:
    scheduler = make_scheduler(rule, problem("feasible").observation, mask="feasible")
    engine = played(scheduler, "feasible")
    check_that_all_ran_on_the_large_server(engine)
    assert engine.metrics()["decisions"] == 4


@pytest.mark.parametrize("method", NETWORKS)
def test_a_masked_policy_never_names_the_server_that_is_too_small(method: str) -> None:
    engine = played(policy(method), "feasible")
    check_that_all_ran_on_the_large_server(engine)
    assert engine.metrics()["decisions"] - engine.metrics()["waits"] == 4


@pytest.mark.parametrize("rule", ["fastest-idle", "earliest-finish", "large-only"])
def test_a_rule_without_a_mask_waits_for_the_server_that_is_large_enough(rule: str) -> None:
    scheduler = make_scheduler(rule, problem("none").observation)
    named: list[int] = []

    class Watched(type(scheduler)):  # type: ignore[misc]
        def __call__(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
            chosen: np.ndarray = super().__call__(observation, fit)
            named.extend(chosen[fit[np.arange(len(fit)), 0].max(axis=1) > 0].tolist())
            return chosen

    engine = played(Watched(problem("none").observation), "none")
    assert engine.metrics()["completed"] == 4
    if rule == "earliest-finish":
        assert set(named) == {LARGE}
        check_that_all_ran_on_the_large_server(engine)
