"""What every registered environment keeps, single and vector: Gymnasium's contract and this project's own."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.problems import ENVIRONMENTS
from rllib_scale.config import SCENARIOS, EnvConfig
from rllib_scale.envs import ENV_ID
from rllib_scale.workloads.generators import generate

every_environment = pytest.mark.parametrize(("env_id", "config"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
with_work = pytest.mark.parametrize("name", sorted(ENVIRONMENTS.keys() - {"nothing arrives"}))


def make(env_id: str, config: EnvConfig, num_envs: int | None = None) -> Any:
    if num_envs is None:
        return gymnasium.make(env_id, config=config).unwrapped
    return gymnasium.make_vec(env_id, num_envs=num_envs, config=config)


def play(env: Any, actions: Any) -> list[Any]:
    """Everything shown over a run of actions; a single environment begins its next episode where one ends."""
    shown = []
    for action in actions:
        shown.append(env.step(action))
        if isinstance(env, gymnasium.Env) and (shown[-1][2] or shown[-1][3]):
            shown.append(env.reset())
    return shown


def random_actions(env: Any, steps: int) -> list[Any]:
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(steps)]


@with_work
def test_checker_has_no_warning(name: str) -> None:
    # Where nothing arrives the first step ends the episode, and the checker takes the NaNs of its metrics for changes.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(*ENVIRONMENTS[name]))


@pytest.mark.parametrize("name", [*ENVIRONMENTS, *SCENARIOS])
def test_observations_lie_in_the_space(name: str) -> None:
    env_id, config = ENVIRONMENTS.get(name, (ENV_ID, name))
    env = make(env_id, config)
    env.reset(seed=4)
    for shown in play(env, random_actions(env, 1000)):
        assert env.observation_space.contains(shown[0])
        if isinstance(shown[0], dict):
            np.testing.assert_array_equal(shown[0]["action_mask"], shown[-1]["action_mask"])


@every_environment
def test_same_seed_same_episodes(env_id: str, config: EnvConfig) -> None:
    one, other = make(env_id, config), make(env_id, config)
    actions = random_actions(one, 200)
    first, second, again = ([env.reset(seed=3), *play(env, actions)] for env in (one, other, one))
    np.testing.assert_equal(first, second)
    np.testing.assert_equal(first, again)


@pytest.mark.parametrize("num_envs", [None, 3], ids=["single", "vector"])
@with_work
def test_pickled_and_restored_environments_go_on_exactly(name: str, num_envs: int | None) -> None:
    env_id, config = ENVIRONMENTS[name]
    env, fresh = make(env_id, config, num_envs), make(env_id, config, num_envs)
    actions = random_actions(env, 150)
    for workload in (None, generate(config, 6, 0)):
        env.reset(seed=1, options={"workload": workload})
        play(env, actions[:25])
        state, pickled = env.get_state(), pickle.dumps(env)
        stored = pickle.dumps(state)
        expected = play(env, actions)
        np.testing.assert_equal(play(pickle.loads(pickled), actions), expected)
        for each in (pickle.loads(stored), state, state):  # it has not changed by being gone on from
            fresh.set_state(each)
            np.testing.assert_equal(play(fresh, actions), expected)


@pytest.mark.parametrize("num_envs", [1, 3])
@every_environment
def test_vector_equals_single_environments(env_id: str, config: EnvConfig, num_envs: int) -> None:
    settings = {"num_envs": num_envs, "config": config}
    vector = gymnasium.make_vec(env_id, **settings)
    single = gymnasium.make_vec(env_id, **settings, vectorization_mode="sync")
    workload = generate(config, 4, 0)
    given = {"workload": workload.to_dict()} if workload.num_workflows else {}
    resets: list[dict[str, Any]] = [
        {"seed": 11},
        {},
        {"seed": list(range(7, 7 + num_envs))},
        {"seed": [None] * (num_envs - 1) + [2]},
        {"options": {"episode": 5}},
        {"seed": 1, "options": {"episode": 2} | given},
    ]
    rng, ends = np.random.default_rng(0), 0
    for reset in resets:
        np.testing.assert_equal(vector.reset(**reset), single.reset(**reset))
        for actions in rng.integers(vector.single_action_space.n, size=(100, num_envs)):
            one, other = vector.step(actions), single.step(actions)
            np.testing.assert_equal(one, other)
            assert [dtypes(x) for x in one[:4]] == [dtypes(x) for x in other[:4]]
            ends += (one[2] | one[3]).sum()
    assert ends >= num_envs


def dtypes(shown: Any) -> Any:
    return {key: x.dtype for key, x in shown.items()} if isinstance(shown, dict) else shown.dtype
