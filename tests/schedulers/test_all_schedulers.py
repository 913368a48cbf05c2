"""What holds for every scheduler: it refuses what it cannot plan for, plays all else to its end, and repeats itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference.rounds import PlainRounds
from rllib_scale.config import SCENARIOS, EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.schedulers.planning import PlanningDispatcher
from rllib_scale.schedulers.rules import SCHEDULERS, make_scheduler
from schedulers.instances import PROBLEMS

UNPLANNED = {
    "places": "cluster.tiers.max_concurrent",
    "changes": "cluster.changes",
    "estimates": "cluster.tiers.max_concurrent",
    "revealed": "information.workflows",
    "kinds": "cluster.changes",
    "reserve": "cluster.tiers.max_concurrent",
    "open": "cluster.tiers.max_concurrent",
}
"""What a planner names of the problems that it refuses."""


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_is_played_to_its_end_or_refused(problem: str) -> None:
    env = EnvConfig.model_validate(PROBLEMS[problem]).with_mask("feasible")
    for name, found in SCHEDULERS.items():
        scheduler = make_scheduler(name, env.observation, "feasible")
        if problem in UNPLANNED and issubclass(found, PlanningDispatcher):
            with pytest.raises(UserError, match=UNPLANNED[problem]):
                play(scheduler, env, 3, [0])
            continue
        rows = evaluate(scheduler, env, seed=3, episodes=3)
        assert sum(row["invalid_no_fit"] + row["invalid_busy_avoidable"] for row in rows) == 0, name
        if problem != "kinds":  # there a server that all the memory of a task is on may fail for good
            assert [row["unfinished"] for row in rows] == [0, 0, 0], name
        again = evaluate(make_scheduler(name, env.observation, "feasible"), env, seed=3, episodes=2)
        np.testing.assert_equal(again, rows[:2], name)


def test_without_a_mask_too_an_episode_depends_on_its_seed_alone() -> None:
    env = EnvConfig()
    for name in SCHEDULERS:
        rows = evaluate(make_scheduler(name, env.observation), env, seed=3, episodes=5)
        np.testing.assert_equal(evaluate(make_scheduler(name, env.observation), env, seed=3, episodes=2), rows[:2])
        with pytest.raises(UserError, match="only trained policies can sample"):
            make_scheduler(name, env.observation, decision="sample")


IN_BATCHES = (
    "non-blocking",
    "non-blocking:order=first-arrival",
    "non-blocking:order=shortest-task",
    "reserve",
    "reserve:order=descendants-per-work",
    "price",
    "price:prices=0.3/2,penalty=0.5,age=1,alpha=1,a=1.5",
    "dual-price",
)
"""Rules that visit in compiled code."""


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_batch_is_decided_as_in_plain_code(problem: str) -> None:
    env = EnvConfig.model_validate(PROBLEMS[problem])
    for name in IN_BATCHES:
        rule: Any = make_scheduler(name, env.observation)
        batch, single = play(rule, env, 11, [0, 1, 2]), play(PlainRounds(rule), env, 11, [0, 1, 2])
        for b in range(3):
            assert batch.schedule(b).tobytes() == single.schedule(b).tobytes(), name
            assert len(batch.schedule(b)) > 20


@pytest.mark.parametrize(
    ("scenario", "servers", "shares"),
    [
        ("steady-0.7", 16, {"reserve": 0.98, "hungarian": 0.98, "price": 0.95, "dual-price": 0.97}),
        ("steady-0.9", 16, {"dual-price": 0.97}),
        ("wide", 16, {"dual-price": 0.97}),
    ],
)
def test_the_better_rules_beat_the_fastest_idle_server(scenario: str, servers: int, shares: dict[str, float]) -> None:
    """Means of the same episodes; over hundreds they are 1 to 9 % apart."""
    env = SCENARIOS[scenario][0].at_scale(servers)

    def mean(name: str) -> float:
        rows = evaluate(make_scheduler(name, env.observation, "feasible"), env, 1000, 8)
        return float(np.mean([row["response_censored_s"] for row in rows]))

    base = mean("fastest-idle")
    for name, share in shares.items():
        assert mean(name) < share * base, name
