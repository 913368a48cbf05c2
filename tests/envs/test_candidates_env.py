"""Decisions in rounds: what `SchedulingCandidates-v0` adds to `Scheduling-v0`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.problems import FORMS, config_of
from rllib_scale.envs.scheduling import CandidatesEnv, SchedulingEnv
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.errors import UserError
from rllib_scale.observation.answers import OUTCOMES
from rllib_scale.simulator.engine import Engine
from simulator.literal import problem, task, tier, workflow, workload


@pytest.mark.parametrize("make", [SchedulingEnv, lambda config: SchedulingVectorEnv(2, config)])
def test_the_open_order_is_refused_where_one_task_is_offered(make: Any) -> None:
    with pytest.raises(
        UserError, match=r"decision\.order open: .*Scheduling-v0 .* use .*SchedulingCandidates-v0"
    ) as error:
        make(config_of("reserve, open"))
    assert "\n" not in str(error.value)


# --------------------------------------------------------------------------- answers


def outcome_of(engine: Engine, state: dict[str, Any], action: int) -> str:
    """What comes of an answer in that state; `none` where the engine takes it for no answer."""
    engine.set_state(state)
    if not engine.answerable(np.array([action]))[0]:
        with pytest.raises(ValueError, match="is no answer"):
            engine.step([action])
        return "none"
    engine.step([action])
    return OUTCOMES[engine.outcome[0]]


@pytest.mark.parametrize("name", FORMS)
def test_the_mask_holds_the_answers_that_do_something(name: str) -> None:
    config = config_of(name)
    waiting_is_something = config.episode.mask == "none"
    env, copied = CandidatesEnv(config), Engine(config)
    k, n = config.decision.offered, config.cluster.num_rows
    observation, _ = env.reset(seed=2)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        state, mask = env.get_state()["engine"], observation["action_mask"].astype(bool)
        outcomes = [outcome_of(copied, state, action) for action in range(len(mask))]
        seen |= set(outcomes)
        does = {"started", "passed"} | ({"waits"} if waiting_is_something else set())
        expected = np.isin(outcomes, list(does))
        if expected[: k * n].any():
            np.testing.assert_array_equal(mask, expected)
        else:  # every candidate is in vain, whichever server is named: the first one's rows that hold a server
            rows = mask[: k * n].reshape(k, n)
            assert rows[0, : n - 1].all()
            assert not rows[0, n - 1]
            assert not rows[1:].any()
            np.testing.assert_array_equal(mask[k * n :], expected[k * n :])
        observation, _, terminated, truncated, _ = env.step(rng.choice(np.flatnonzero(mask)))
        if terminated or truncated:
            observation, _ = env.reset()
    assert seen >= {"started", "passed", "no_fit"}
    assert ("waits" in seen) == (config.decision.on_busy == "reserve")


def test_what_stands_for_no_answer_counts_as_a_pass() -> None:
    config = config_of("reserve, open", changes=False)
    k, n = config.decision.offered, config.cluster.num_rows
    env, other = CandidatesEnv(config), CandidatesEnv(config)
    env.reset(seed=6)
    tried = 0
    for _ in range(60):
        state, engine = env.get_state(), env._engine
        nothing = [a for a in range(env.action_space.n) if not engine.answerable(np.array([a]))[0]]
        offered = len(engine.offers())
        assert nothing == list(range(offered * n, k * n))
        passed = env.step(k * n)
        for action in nothing[:: max(1, len(nothing) // 4)]:
            other.set_state(state)
            np.testing.assert_equal(other.step(action), passed)
            tried += 1
        env.set_state(state)
        started = np.flatnonzero(engine.mask[0])[0]
        _, _, terminated, truncated, _ = env.step(started)
        if terminated or truncated:
            env.reset()
    assert tried > 30


def test_answers_inside_a_round_take_no_time() -> None:
    # Three tasks of 2 GFLOP at 1 s on servers of 1 GFLOPS: two start, one waits for server 0, at 1 s; all end at 5 s.
    decision = {"on_busy": "reserve", "order": "open", "candidates": 3}
    env = CandidatesEnv(problem(tier(count=2), decision=decision))
    given = workload(workflow(1, task(2), task(2), task(2)))
    _, info = env.reset(seed=0, options={"workload": given})
    elapsed = [info["elapsed_s"]]
    for action in (0, 0, 1, 0):  # start on server 0; wait for it; start on server 1: the round ends; start on server 0
        *_, info = env.step(action)
        elapsed.append(info["elapsed_s"])
    assert elapsed == [0, 0, 0, 2, 2]
    assert info["metrics"]["completed"] == 3
