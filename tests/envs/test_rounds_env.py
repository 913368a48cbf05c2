"""Decisions in rounds as environments: Gymnasium's contract, and what `SchedulingRounds-v0` adds to `Scheduling-v0`."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rllib_scale.config import EnvConfig
from rllib_scale.envs import ENV_ID, ROUNDS_ENV_ID
from rllib_scale.envs.scheduling import RoundsEnv, SchedulingEnv
from rllib_scale.envs.spaces import dict_space
from rllib_scale.envs.vector import RoundsVectorEnv, SchedulingVectorEnv
from rllib_scale.errors import UserError
from rllib_scale.observation.answers import OUTCOMES
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

TIERS = [
    {"name": "slow", "count": 3, "compute_gflops": 1, "memory_gb": 12, "idle_power_w": 20, "busy_power_w": 100},
    {
        "name": "fast",
        "count": 2,
        "compute_gflops": 4,
        "memory_gb": 24,
        "idle_power_w": 50,
        "busy_power_w": 400,
        "slots": 2,
        "slot_slowdown": 0.5,
    },
]
CHANGES = {
    "schedule": [{"time_s": 2, "event": "drain", "servers": [4]}, {"time_s": 5, "event": "join", "servers": [4]}],
    "failures_per_1000_h": 4e5,
    "repair_s": 2,
}
FORMS: dict[str, dict[str, Any]] = {
    "step": {},
    "step, open": {"decision": {"order": "open", "candidates": 3}},
    "reserve": {"decision": {"on_busy": "reserve"}},
    "reserve, open": {"decision": {"on_busy": "reserve", "order": "open", "candidates": 4}},
    "reserve, masked": {"decision": {"on_busy": "reserve", "order": "open"}, "episode": {"mask": "feasible"}},
    "preemption": {"decision": {"on_busy": "reserve", "order": "open", "candidates": 2, "preemption": "resume"}},
    "preemption, step": {"decision": {"order": "shortest-task", "preemption": "restart"}},
    "cut": {"decision": {"on_busy": "reserve"}, "episode": {"max_decisions": 9}},
    "horizon not terminal": {"episode": {"horizon_is_terminal": False}},
    "seen in part": {"information": {"estimate_error": 0.5, "workflows": "revealed"}},
}
NAMED = [name for name, form in FORMS.items() if form.get("decision", {}).get("order") != "open"]


def config_of(name: str, features: str = "rounds", changes: bool = True) -> EnvConfig:
    form = FORMS[name]
    return EnvConfig.model_validate(
        form
        | {
            "cluster": {"tiers": TIERS, "empty_slots": 1, "changes": CHANGES if changes else {}},
            "workload": {"offered_load": 1.2, "memory_gb": {"mean": 8, "std": 4, "low": 1, "high": 24}},
            "episode": {"horizon_s": 12.0} | form.get("episode", {}),
            "observation": {"feature_set": features},
        }
    )


every_form = pytest.mark.parametrize("name", FORMS)
every_set = pytest.mark.parametrize("features", FEATURE_SETS)


def play(env: gymnasium.Env[Any, Any], steps: int, seed: int = 0) -> list[Any]:
    """Everything an environment shows over a run of random actions, from where it is."""
    env.action_space.seed(seed)
    shown: list[Any] = []
    for _ in range(steps):
        shown.append(env.step(env.action_space.sample()))
        if shown[-1][2] or shown[-1][3]:
            shown.append(env.reset())
    return shown


# --------------------------------------------------------------------------- Gymnasium's contract


@every_set
@pytest.mark.parametrize(("env_id", "name"), [(ROUNDS_ENV_ID, name) for name in FORMS] + [(ENV_ID, n) for n in NAMED])
def test_checker_has_no_warning(env_id: str, name: str, features: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, config=config_of(name, features)).unwrapped)


@every_set
@every_form
def test_observations_lie_in_the_space(name: str, features: str) -> None:
    env = RoundsEnv(config_of(name, features))
    env.reset(seed=4)
    for shown in play(env, 400):
        assert env.observation_space.contains(shown[0])
        np.testing.assert_array_equal(shown[0]["action_mask"], shown[-1]["action_mask"])


def test_made_environments() -> None:
    config = config_of("preemption")
    env, envs = gymnasium.make(ROUNDS_ENV_ID, config=config), gymnasium.make_vec(ROUNDS_ENV_ID, 3, config=config)
    assert isinstance(env.unwrapped, RoundsEnv)
    assert isinstance(envs, RoundsVectorEnv)
    assert envs.single_observation_space == env.observation_space == dict_space(config)
    assert envs.single_action_space == env.action_space == gymnasium.spaces.Discrete(2 * 8 + 1 + 8)
    shapes = {key: space.shape for key, space in env.observation_space.spaces.items()}
    assert shapes == {"context": (4,), "tasks": (2, 9), "servers": (8, 8), "action_mask": (25,)}


@pytest.mark.parametrize("make", [SchedulingEnv, lambda config: SchedulingVectorEnv(2, config)])
def test_the_open_order_is_refused_where_one_task_is_offered(make: Any) -> None:
    with pytest.raises(UserError, match=r"decision\.order open: .*Scheduling-v0 .* use .*SchedulingRounds-v0") as error:
        make(config_of("reserve, open"))
    assert "\n" not in str(error.value)


# --------------------------------------------------------------------------- the same again


@every_form
def test_same_seed_same_episodes(name: str) -> None:
    shown = []
    for _ in range(2):
        env = RoundsEnv(config_of(name))
        shown.append([env.reset(seed=3), *play(env, 150)])
    np.testing.assert_equal(*shown)


@every_form
def test_pickled_and_restored_environments_go_on_exactly(name: str) -> None:
    env, other = RoundsEnv(config_of(name)), RoundsEnv(config_of(name))
    env.reset(seed=1)
    play(env, 25)
    state, copied = pickle.loads(pickle.dumps(env.get_state())), pickle.loads(pickle.dumps(env))
    expected = play(env, 120, seed=1)
    other.set_state(state)
    np.testing.assert_equal(play(other, 120, seed=1), expected)
    np.testing.assert_equal(play(copied, 120, seed=1), expected)


@every_form
def test_a_vector_goes_on_exactly(name: str) -> None:
    envs, other = RoundsVectorEnv(3, config_of(name)), RoundsVectorEnv(3, config_of(name))
    actions = np.random.default_rng(0).integers(envs.single_action_space.n, size=(120, 3))
    envs.reset(seed=5)
    for row in actions[:40]:
        envs.step(row)
    state = pickle.loads(pickle.dumps(envs.get_state()))
    expected = [envs.step(row) for row in actions[40:]]
    other.set_state(state)
    np.testing.assert_equal([other.step(row) for row in actions[40:]], expected)


@every_set
@every_form
def test_vector_equals_single_environments(name: str, features: str) -> None:
    settings = {"num_envs": 3, "config": config_of(name, features)}
    vector = gymnasium.make_vec(ROUNDS_ENV_ID, **settings)
    single = gymnasium.make_vec(ROUNDS_ENV_ID, **settings, vectorization_mode="sync")
    rng, ends = np.random.default_rng(0), 0
    for reset in ({"seed": 11}, {}, {"options": {"episode": 5}}):
        np.testing.assert_equal(vector.reset(**reset), single.reset(**reset))
        for actions in rng.integers(vector.single_action_space.n, size=(100, 3)):
            one, other = vector.step(actions), single.step(actions)
            np.testing.assert_equal(one, other)
            assert [x.dtype for x in one[1:4]] == [x.dtype for x in other[1:4]]
            assert {key: x.dtype for key, x in one[0].items()} == {key: x.dtype for key, x in other[0].items()}
            ends += (one[2] | one[3]).sum()
    assert ends >= 3


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


@every_form
def test_the_mask_holds_the_answers_that_do_something(name: str) -> None:
    config = config_of(name)
    waiting_is_something = config.episode.mask == "none"
    env, copied = RoundsEnv(config), Engine(config)
    k, n = config.decision.offered, config.cluster.num_slots
    observation, _ = env.reset(seed=2)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        state, mask = env.get_state()["engine"], observation["action_mask"].astype(bool)
        outcomes = [outcome_of(copied, state, action) for action in range(len(mask))]
        seen |= set(outcomes)
        does = {"started", "preempted", "passed"} | ({"waits"} if waiting_is_something else set())
        expected = np.isin(outcomes, list(does))
        if expected[: k * n].any():
            np.testing.assert_array_equal(mask, expected)
        else:  # every candidate is in vain, whichever row is named: the first one's rows that hold a server
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
    assert ("preempted" in seen) == (config.decision.preemption != "none")


@pytest.mark.parametrize("name", ["reserve, open", "preemption"])
def test_what_stands_for_no_answer_counts_as_a_pass(name: str) -> None:
    config = config_of(name, changes=False)
    k, n = config.decision.offered, config.cluster.num_slots
    env, other = RoundsEnv(config), RoundsEnv(config)
    env.reset(seed=6)
    tried = 0
    for _ in range(60):
        state, engine = env.get_state(), env._engine
        nothing = [a for a in range(env.action_space.n) if not engine.answerable(np.array([a]))[0]]
        offered = len(engine.offers())
        idle = [k * n + 1 + j for j in range(n) if engine.snapshot().running[j, 0] < 0]
        absent = list(range(offered * n, k * n))
        assert nothing == absent + (idle if config.decision.preemption != "none" else [])
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


# --------------------------------------------------------------------------- elapsed time


@pytest.mark.parametrize("make", [RoundsEnv, SchedulingEnv])
@pytest.mark.parametrize("name", NAMED)
def test_elapsed_times_sum_to_the_clock(make: Any, name: str) -> None:
    env = make(config_of(name))
    _, info = env.reset(seed=8)
    env.action_space.seed(0)
    assert info["elapsed_s"] == 0, "nothing was decided before"
    clock, zeros, done = env._engine.clock[0], 0, False
    assert clock > 0
    total = clock
    while not done:
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        assert info["elapsed_s"] == pytest.approx(env._engine.clock[0] - clock, abs=1e-12)
        clock, done = env._engine.clock[0], terminated or truncated
        total += info["elapsed_s"]
        zeros += info["elapsed_s"] == 0
    assert total == pytest.approx(info["metrics"]["duration_s"])
    assert zeros > 0


def test_answers_inside_a_round_take_no_time() -> None:
    # Three tasks of 2 GFLOP at 1 s, on servers of 1 GFLOPS: two start, one waits for row 0, all at 1 s; all end at 5 s.
    tier = {"name": "one", "count": 2, "compute_gflops": 1, "memory_gb": 8, "idle_power_w": 1, "busy_power_w": 2}
    config = {
        "cluster": {"tiers": [tier]},
        "workload": {"memory_gb": {"mean": 1, "std": 0, "low": 1, "high": 1}},
        "decision": {"on_busy": "reserve", "order": "open", "candidates": 3},
    }
    task = {"compute_gflop": 2.0, "memory_gb": 1.0, "output_gb": 0.0}
    given = {"arrival_s": 1.0, "tasks": [task] * 3, "edges": []}
    workload = Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": [given]}, "literal")
    env = RoundsEnv(config)
    _, info = env.reset(seed=0, options={"workload": workload})
    elapsed = [info["elapsed_s"]]
    for action in (0, 0, 1, 0):  # start on row 0; wait for row 0; start on row 1: the round ends; start on row 0
        *_, info = env.step(action)
        elapsed.append(info["elapsed_s"])
    assert elapsed == [0, 0, 0, 2, 2]
    assert info["metrics"]["completed"] == 3
