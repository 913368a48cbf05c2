"""Episodes, given workloads, rendering and bad input of `Scheduling-v0`, single and vector."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.problems import PAPER, SHORT
from rllib_scale.config import EnvConfig
from rllib_scale.envs import CANDIDATES_ENV_ID, ENV_ID
from rllib_scale.envs.scheduling import CandidatesEnv, SchedulingEnv
from rllib_scale.envs.vector import CandidatesVectorEnv, SchedulingVectorEnv
from rllib_scale.errors import UserError
from rllib_scale.results.columns import METRIC_COLUMNS
from rllib_scale.workloads.generators import generate
from simulator.literal import task, workflow, workload

make_either = pytest.mark.parametrize("make", [SchedulingEnv, SchedulingVectorEnv], ids=["single", "vector"])


def last_step(env, seed=0, **reset):
    """The last step of one episode of random actions."""
    env.reset(seed=seed, **reset)
    env.action_space.seed(seed)
    while True:
        step = env.step(env.action_space.sample())
        if step[2] or step[3]:
            return step


@pytest.mark.parametrize(
    ("env_id", "single", "vector", "actions", "shapes"),
    [
        ("rllib_scale/Scheduling-v0", SchedulingEnv, SchedulingVectorEnv, 16, (85,)),
        (
            "rllib_scale/SchedulingCandidates-v0",
            CandidatesEnv,
            CandidatesVectorEnv,
            17,
            {"context": (0,), "tasks": (1, 5), "servers": (16, 5), "action_mask": (17,)},
        ),
    ],
)
def test_made_environments(env_id, single, vector, actions, shapes):
    assert {spec.id for spec in gymnasium.registry.values() if spec.namespace == "rllib_scale"} == {
        ENV_ID,
        CANDIDATES_ENV_ID,
    }
    env = gymnasium.make(f"rllib_scale.envs:{env_id}", config="paper", render_mode="rgb_array")
    envs = gymnasium.make_vec(env_id, num_envs=3, config="paper")
    assert (type(env.unwrapped), type(envs)) == (single, vector)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    space = env.observation_space
    assert envs.single_observation_space == space
    assert envs.single_action_space == env.action_space == gymnasium.spaces.Discrete(actions)
    assert (space.shape or {name: part.shape for name, part in space.items()}) == shapes
    assert isinstance(gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="sync"), SyncVectorEnv)


# --------------------------------------------------------------------------- episodes


def test_reset_goes_through_the_episodes_of_a_seed():
    env = SchedulingEnv()
    first = [env.reset(seed=5)[0], *(env.reset()[0] for _ in range(3))]
    assert len({observation.tobytes() for observation in first}) == 4
    for episode in (3, 1, 2):
        np.testing.assert_array_equal(env.reset(seed=5, options={"episode": episode})[0], first[episode])
    np.testing.assert_array_equal(env.reset()[0], first[3])
    np.testing.assert_array_equal(env.reset(options={"episode": 0})[0], first[0])
    np.testing.assert_array_equal(env.reset(seed=5)[0], first[0])


def test_without_a_seed_environments_differ():
    assert not np.array_equal(SchedulingEnv().reset()[0], SchedulingEnv().reset()[0])
    envs = SchedulingVectorEnv(8)
    assert len({row.tobytes() for row in envs.reset()[0]}) == 8


@pytest.mark.parametrize(
    ("episode", "terminated", "metric", "value"),
    [
        ({"horizon_s": 2.0}, True, "duration_s", 2.0),
        ({"horizon_s": 2.0, "horizon_is_terminal": False}, False, "duration_s", 2.0),
        ({"max_decisions": 4}, False, "decisions", 4),
        ({"horizon_s": 1e5, "arrivals_until_s": 20, "horizon_is_terminal": False}, True, "unfinished", 0),
    ],
    ids=["horizon", "horizon not terminal", "decisions", "all done"],
)
def test_terminated_or_truncated_and_nothing_happens_after(episode, terminated, metric, value):
    env = SchedulingEnv({"episode": episode})
    observation, _, *ended, info = last_step(env)
    assert ended == [terminated, not terminated]
    assert info["metrics"][metric] == value
    np.testing.assert_equal(env.step(0), (observation, 0.0, *ended, info))


def test_info_holds_mask_and_elapsed_time_until_the_end_and_then_the_metrics_too():
    env = SchedulingEnv()
    _, info = env.reset(seed=2)
    rewards, done = [], False
    while not done:
        assert info.keys() == {"action_mask", "elapsed_s"}
        assert info["action_mask"].shape == (16,)
        assert info["action_mask"].dtype == np.int8
        np.testing.assert_array_equal(env.unwrapped.action_masks(), info["action_mask"] == 1)
        _, reward, terminated, truncated, info = env.step(15)
        rewards.append(reward)
        done = terminated or truncated
    assert info.keys() == {"action_mask", "elapsed_s", "metrics"}
    metrics = info["metrics"]
    tiers = {f"utilisation_{tier.name}" for tier in env.config.cluster.tiers}
    assert set(metrics) == set(METRIC_COLUMNS) | tiers
    assert metrics["decisions"] == len(rewards)
    assert metrics["episode_return"] == pytest.approx(sum(rewards))
    assert metrics["completed"] == np.isfinite(env.schedule()["finish_s"]).sum() > 0


# --------------------------------------------------------------------------- several at once


def test_episodes_can_be_chosen_for_each_environment():
    envs, env = SchedulingVectorEnv(3), SchedulingEnv()
    observations, _ = envs.reset(seed=[8, 8, 8], options={"episode": [2, 0, 1]})
    for row, episode in zip(observations, (2, 0, 1), strict=True):
        np.testing.assert_array_equal(row, env.reset(seed=8, options={"episode": episode})[0])


def test_what_was_returned_stays_as_it_was():
    envs = SchedulingVectorEnv(2, {"episode": SHORT})
    kept = [envs.reset(seed=0)[0]]
    copies = [kept[0].copy()]
    for actions in np.random.default_rng(0).integers(16, size=(60, 2)):
        step = envs.step(actions)
        kept += step[:4]
        copies += [array.copy() for array in step[:4]]
    np.testing.assert_equal(kept, copies)


# --------------------------------------------------------------------------- given workloads


def test_a_given_workload_is_played_once(tmp_path):
    given = generate(EnvConfig(), 77, 0)
    path = tmp_path / "w.json"
    given.save(path)
    env, shown = SchedulingEnv(), []
    for form in (given, given.to_dict(), json.loads(path.read_text()), path, str(path)):
        episode = [
            env.reset(seed=1, options={"workload": form}),
            *(env.step(action) for action in [15, 14, 13, 12] * 30),
        ]
        assert episode[-1][2]
        np.testing.assert_equal(episode, shown or episode)
        shown = episode
        schedule = env.schedule()
        np.testing.assert_array_equal(schedule["arrival_s"], given.arrival_s[schedule["workflow"]])
    np.testing.assert_array_equal(env.reset()[0], env.reset(seed=1, options={"episode": 1})[0])


def test_a_given_workload_ends_when_all_is_done():
    given = workload(workflow(1.5, task(8, 70)))
    env = SchedulingEnv()
    env.reset(seed=0, options={"workload": given})
    _, _, terminated, truncated, info = env.step(14)
    assert (terminated, truncated) == (True, False)
    assert info["metrics"]["duration_s"] == 1.5 + 8 / 4
    assert env.schedule()[["server", "start_s", "finish_s"]].tolist() == [(14, 1.5, 3.5)]


# --------------------------------------------------------------------------- rendering


def test_rendering():
    env = SchedulingEnv(render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    env.step(15)
    assert not np.array_equal(env.render(), before)
    envs = SchedulingVectorEnv(2, render_mode="rgb_array")
    envs.reset(seed=[0, 5])
    envs.step(np.array([15, 15]))
    first, second = envs.render()
    np.testing.assert_array_equal(first, env.render())
    assert not np.array_equal(first, second)


# --------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": "papr"}, "unknown scenario 'papr'; did you mean 'paper'"),
        ({"config": {"epsiode": {}}}, "config: unknown key 'epsiode'; did you mean 'episode'"),
        ({"config": {"episode": {"horizon_s": -1}}}, "config: episode.horizon_s: .*greater than or equal to 1e-15"),
        ({"config": 16}, "config must be a scenario name, a mapping or an EnvConfig, not int"),
        ({"render_mode": "human"}, "unknown render_mode 'human'; valid: rgb_array"),
    ],
)
@pytest.mark.parametrize("many", [{}, {"num_envs": 2}], ids=["single", "vector"])
def test_bad_settings(many, given, message):
    with pytest.raises(UserError, match=message):
        (SchedulingVectorEnv if many else SchedulingEnv)(**many, **given)


BIG = generate(EnvConfig(), 0, 0).to_dict()
BIG["workflows"][1]["tasks"][2]["memory_gb"] = 81.0
BAD_RESETS = [
    ({"seed": -1}, "seed must be an integer from 0 to"),
    ({"options": {"episode": 1.5}}, "episode must be an integer from 0 to .*got 1.5"),
    ({"options": {"workloads": 1}}, "unknown reset option 'workloads'; valid: workload, episode"),
    ({"options": {"workload": 3}}, r"options\['workload'\] must be a Workload, its JSON content or a path, not int"),
    ({"options": {"workload": "nowhere.json"}}, "nowhere.json: cannot be read"),
    ({"options": {"workload": BIG}}, r"options\['workload'\]: workflow 1, task 2 .*fits no server: memory_gb is 81.0"),
    ({"options": {"workload": generate(EnvConfig.model_validate(PAPER["nothing arrives"]), 0, 0)}}, "no workflows"),
]


@pytest.mark.parametrize(("reset", "message"), BAD_RESETS, ids=[message[:24] for _, message in BAD_RESETS])
@make_either
def test_bad_reset_leaves_the_environment_as_it_was(make, reset, message):
    env, untouched = make(), make()
    env.reset(seed=4)
    untouched.reset(seed=4)
    with pytest.raises(UserError, match=message):
        env.reset(**reset)
    np.testing.assert_equal(env.reset(), untouched.reset())


def test_as_many_seeds_and_episodes_as_environments():
    with pytest.raises(UserError, match="num_envs must be at least 1"):
        SchedulingVectorEnv(0)
    with pytest.raises(UserError, match="seed: 2 values for 3 environments; one each is needed"):
        SchedulingVectorEnv(3).reset(seed=[1, 2])
    with pytest.raises(UserError, match="episode: 4 values for 3 environments"):
        SchedulingVectorEnv(3).reset(seed=0, options={"episode": [1, 2, 3, 4]})


def test_actions_outside_the_space():
    env, envs = SchedulingEnv(), SchedulingVectorEnv(2)
    env.reset(seed=0)
    envs.reset(seed=0)
    for action in (-1, 16, 1.0, "0", None, np.array([1, 2])):
        with pytest.raises(UserError, match="is no server; valid: 0 to 15"):
            env.step(action)
    for actions in ([0, 16], [-1, 0], [0.0, 1.0], [0], 3, [True, False]):
        with pytest.raises(UserError, match="actions must be 2 integers from 0 to 15"):
            envs.step(actions)


@make_either
def test_step_before_reset(make):
    with pytest.raises(ResetNeeded):
        make().step(0)
