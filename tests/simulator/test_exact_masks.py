"""What fits is decided once, in float64: no scheduler names a server that is too small by less than a float32 shows."""

from __future__ import annotations

import pytest
import torch

from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.config.methods import NETWORKS
from rllib_scale.evaluation.play import play
from rllib_scale.networks.build import build_network
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from simulator.literal import problem, task, tier, workflow, workload

LARGE = 1
MEMORY = 8.0000001
RULES = ("fastest-idle", "earliest-finish", "large-only", "best-fit-memory", "random-feasible", "round-robin")


WORK = workload(*(workflow(t, task(4, MEMORY), task(4, MEMORY), edges=[(0, 1)]) for t in (0, 1)))


def toy(mask: str) -> EnvConfig:
    """A fast server of 8 GB, and a slow one of 16 GB: the task of 8.0000001 GB looks as if it fitted the fast one."""
    tiers = tier("small", compute=4, memory=8), tier("large", memory=16)
    return problem(*tiers, mask=mask, horizon_s=60, max_decisions=500)


def played(scheduler: Policy, mask: str) -> Engine:
    return play(scheduler, toy(mask), seed=0, episodes=[0], workload=WORK)


def check_that_all_ran_on_the_large_server(engine: Engine) -> None:
    assert engine.schedule()["server"].tolist() == [LARGE] * 4
    assert engine.metrics()["completed"] == 4
    assert engine.metrics()["invalid_no_fit"] == 0


def test_the_task_looks_as_if_it_fitted() -> None:
    engine = Engine(toy("none"))
    engine.reset([0], [0], workload=WORK)
    assert engine.observation[0, 1] == engine.observation[0, 5 + 1], "in float32 it needs all of the small server"
    assert engine.fit[0, 0].tolist() == [0, 2]
    assert engine.mask[0].tolist() == [False, True, True]


@pytest.mark.parametrize("rule", RULES)
def test_a_masked_rule_never_names_the_server_that_is_too_small(rule: str) -> None:
    engine = played(make_scheduler(rule, toy("feasible").observation, mask="feasible"), "feasible")
    check_that_all_ran_on_the_large_server(engine)
    assert engine.metrics()["decisions"] == 4


@pytest.mark.parametrize("method", NETWORKS)
def test_a_masked_policy_never_names_the_server_that_is_too_small(method: str) -> None:
    torch.manual_seed(0)
    trial = TrialConfig(method=method, env=toy("feasible"))
    engine = played(TrainedPolicy(build_network(trial), trial, epochs=0, mask="feasible"), "feasible")
    check_that_all_ran_on_the_large_server(engine)
    assert engine.metrics()["decisions"] - engine.metrics()["waits"] == 4


def test_a_rule_without_a_mask_waits_for_the_server_that_is_large_enough() -> None:
    engine = played(make_scheduler("earliest-finish", toy("none").observation), "none")
    check_that_all_ran_on_the_large_server(engine)
