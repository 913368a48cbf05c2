"""`Replicas-v0`: the contract of Gymnasium, and a rule through it is the rule played in compiled code."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from rllib_scale.envs.replicas import ReplicasEnv
from rllib_scale.errors import UserError
from rllib_scale.simulator.replicas.arrivals import starts
from rllib_scale.simulator.replicas.features import CALL_FEATURES, REPLICA_FEATURES
from rllib_scale.simulator.replicas.rules import Rule, run
from rllib_scale.simulator.replicas.scripts import drawn_scripts
from rllib_scale.simulator.replicas.state import new_fleet
from rllib_scale.workloads.random_numbers import new_generator

SMALL = {"count": 3, "load": {"sessions": 6, "duration_s": 300, "warm_up_s": 0, "spread_s": 60}}
F, G = len(CALL_FEATURES), len(REPLICA_FEATURES)


def sticky(row: np.ndarray, replicas: int) -> int:
    """By the features: the session's replica, or the one with the fewest running and waiting calls."""
    of = row[F:].reshape(replicas, G)
    home = np.flatnonzero(of[:, REPLICA_FEATURES.index("home")])
    return int(home[0]) if len(home) else int(np.argmin(np.expm1(of[:, 0]) + np.expm1(of[:, 1])))


def test_it_keeps_to_the_contract_of_gymnasium() -> None:
    env = gymnasium.make("rllib_scale.envs:rllib_scale/Replicas-v0", config=SMALL).unwrapped
    assert isinstance(env, ReplicasEnv)
    check_env(env, skip_render_check=True)
    assert env.observation_space.shape == (F + 3 * G,)
    with pytest.raises(ResetNeeded):
        ReplicasEnv(SMALL).step(np.int64(0))
    with pytest.raises(UserError, match="counts"):
        ReplicasEnv({"counts": 3})


def test_a_rule_by_its_features_is_the_rule_in_compiled_code() -> None:
    env = ReplicasEnv(SMALL)
    row, _ = env.reset(seed=4)
    ended, total = False, 0.0
    while not ended:
        row, reward, _, ended, info = env.step(np.int64(sticky(row, 3)))
        total += reward
    load, scripts, parts = env.config.load, drawn_scripts(), list[np.ndarray]()
    fleet = new_fleet(env._replicas, scripts.arrays, starts(scripts, load, 3, 4, 0), 18, True, load.active_for_s)
    fleet = run(fleet, 300.0, Rule(name="sticky"), new_generator(0, 0), parts)
    calls = np.concatenate(parts)
    assert info["metrics"]["calls"] > 50
    assert info["metrics"]["calls"] == pytest.approx(len(calls), rel=0.1), "ties go to other replicas"
    assert info["metrics"]["hit_rate"] == pytest.approx(calls["hit"].sum() / calls["prompt"].sum(), abs=0.05)
    little = info["metrics"]["call_little_s"]
    assert -total * 3 * env.config.reward_s == pytest.approx(little * info["metrics"]["calls"], rel=0.05)


def test_holding_keeps_calls_open_and_is_masked_beside_an_idle_replica() -> None:
    env = ReplicasEnv(SMALL)
    row, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [1, 1, 1, 0], "all replicas are idle"
    held, ended = 0, False
    while not ended:
        may_hold = info["action_mask"][3] and row[CALL_FEATURES.index("queue")] < np.log1p(2)
        held += bool(may_hold)
        row, reward, _, ended, info = env.step(np.int64(3 if may_hold else sticky(row, 3)))
        assert reward <= 0
    assert held > 10
    assert info["metrics"]["calls"] > 20


def test_seed_and_episode_decide_the_sessions() -> None:
    first, second = ReplicasEnv(SMALL), ReplicasEnv(SMALL)
    row, _ = first.reset(seed=7)
    assert np.array_equal(row, second.reset(seed=7)[0])
    for _ in range(40):
        action = np.int64(first.np_random.integers(3))
        one, two = first.step(action), second.step(action)
        assert np.array_equal(one[0], two[0])
        assert one[1:3] == two[1:3]
    assert not np.array_equal(first.reset()[0], first.reset(seed=7)[0])
