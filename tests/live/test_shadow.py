"""Schedulers that are asked beside the one that decides; moments of the ledger in virtual time. No Ray."""

from __future__ import annotations

import math

import numpy as np
import pytest

from live.problems import problem, task, work
from live.virtual import VirtualBackend
from rllib_scale.config import EnvConfig, TierConfig, scenario
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import Player
from rllib_scale.live.execute import LiveRun, dispatcher_of
from rllib_scale.live.metrics import live_metrics
from rllib_scale.live.shadow import Shadows
from rllib_scale.observation.backend import Answer
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

TWO = (
    TierConfig(name="slow", count=1, compute_gflops=1.0, memory_gb=8.0),
    TierConfig(name="fast", count=1, compute_gflops=2.0, memory_gb=16.0),
)


def rule(name: str, env: EnvConfig) -> Player:
    return make_scheduler(name, env.observation, env.episode.mask)


def watched(name: str, env: EnvConfig, workload: Workload, shadows: Shadows) -> LiveRun:
    backend = VirtualBackend(env, workload)
    dispatcher, _ = dispatcher_of(rule(name, env), env)
    dispatcher.reset([(0, 0)])
    while (now := backend.wait()) is not None:
        answers = dispatcher.dispatch(now)
        shadows.watch(now, answers)
        for answer in answers.tolist():
            backend.apply(Answer(*answer))
    ledger = backend.ledger
    found = live_metrics(workload, ledger, backend.now)
    schedule = ledger.schedule()
    return LiveRun(env, workload, schedule, backend.now, found, np.zeros(0), {}, workload.arrival_s)


def test_one_task_by_hand() -> None:
    """Fastest-idle takes the fast server, best-fit-memory the small one: they share nothing; itself shares all."""
    env, workload = problem(TWO), work((0.0, [task(4)], []))
    shadows = Shadows([rule("best-fit-memory", env), rule("fastest-idle", env)], env, workload)
    own, other, itself = shadows.results(watched("fastest-idle", env, workload, shadows), rule("fastest-idle", env))
    assert (own.name, own.agreement, own.response_mean_s, own.gain) == ("fastest-idle", 1.0, 2.0, 0.0)
    assert (other.agreement, other.response_mean_s, other.gain) == (0.0, 4.0, -1.0)
    assert (itself.agreement, itself.response_mean_s) == (1.0, 2.0)


def test_a_scheduler_with_another_order_is_shown_its_own() -> None:
    env = scenario("steady-0.9").at_scale(4)
    workload = generate(env, 5, 0)
    workload = workload.take(np.arange(15), workload.arrival_s[:15])
    shadows = Shadows([rule("fastest-idle", env), rule("price", env)], env, workload)
    _, itself, price = shadows.results(watched("fastest-idle", env, workload, shadows), rule("fastest-idle", env))
    assert itself.agreement == 1.0
    assert itself.gain == 0.0
    assert 0.0 < price.agreement < 1.0


def test_nothing_wanted_is_no_agreement() -> None:
    env, workload = problem(TWO), work((0.0, [task(4)], []))
    shadows = Shadows([rule("price", env)], env, workload)
    run = watched("fastest-idle", env, workload, Shadows([], env, workload))
    assert math.isnan(shadows.results(run, rule("fastest-idle", env))[1].agreement)


def test_a_shadow_that_cannot_play_is_refused() -> None:
    env = problem()
    with pytest.raises(UserError, match=r"cluster.tiers.slots is set"):
        Shadows([rule("heft", env)], env, work((0.0, [task(4)], [])))
