"""What fits is decided once, in float64 and to a byte: by rules, masks, engine, reference and live clusters alike.

No scheduler names a server that is too small by less than a float32 shows, or leaves one that a task fits exactly.
"""

from __future__ import annotations

import pytest
import torch

from live.virtual import VirtualBackend
from networks.observations import NETWORKS
from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.config.schedulers import HEURISTICS
from rllib_scale.evaluation.play import play
from rllib_scale.networks.build import build_network
from rllib_scale.observation.answers import OPEN
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.schedulers.rules import SCHEDULERS, make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload
from simulator.literal import ReferenceUnderTest, problem, task, tier, workflow, workload

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
    trial = TrialConfig.of(method, env=toy("feasible"))
    engine = played(TrainedPolicy(build_network(trial), trial, epochs=0, mask="feasible"), "feasible")
    check_that_all_ran_on_the_large_server(engine)
    assert engine.metrics()["decisions"] - engine.metrics()["waits"] == 4


def test_a_rule_without_a_mask_waits_for_the_server_that_is_large_enough() -> None:
    engine = played(make_scheduler("earliest-finish", toy("none").observation), "none")
    check_that_all_ran_on_the_large_server(engine)


FILLED = [(8.0, 16.0, 2), (1.1, 3.3, 3)]
"""GB of a task, GB and places of a server; 3.3 - 2 * 1.1 is less than 1.1 in float64."""


def exact(needs: float, memory: float, places: int) -> tuple[EnvConfig, Workload]:
    """As many equal tasks as fill two servers exactly, for 10 s."""
    env = problem(tier(count=2, memory=memory, max_concurrent=places), mask="feasible", horizon_s=1e6)
    return env, workload(*(workflow(0, task(10, needs)) for _ in range(2 * places)))


@pytest.mark.parametrize(("needs", "memory", "places"), FILLED)
@pytest.mark.parametrize("name", [name for name in SCHEDULERS if not HEURISTICS[name].plans])
def test_tasks_that_exactly_fill_the_servers_run_at_once(name: str, needs: float, memory: float, places: int) -> None:
    env, work = exact(needs, memory, places)
    rule = make_scheduler(name, env.observation, mask="feasible")
    assert play(rule, env, seed=0, episodes=[0], workload=work).metrics()["duration_s"] == 10.0
    played = rule.problem(env)
    live = VirtualBackend(played, work)
    rule.reset([(0, 0)])
    live.engine.play(rule, live.more)
    assert live.now == 10.0, "on a live cluster"


@pytest.mark.parametrize(("needs", "memory", "places"), FILLED)
def test_the_reference_starts_tasks_that_exactly_fill_the_servers(needs: float, memory: float, places: int) -> None:
    env, work = exact(needs, memory, places)
    sim = ReferenceUnderTest(env, work)
    for _ in range(2 * places):
        sim.step(sim.fit()[0].tolist().index(OPEN))
    assert sim.done
    assert sim.clock == 10.0
