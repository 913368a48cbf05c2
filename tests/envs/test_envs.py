"""Every registered environment, single and vector: Gymnasium's contract and this project's own."""

import json
import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rllib_scale.envs
from rllib_scale.config import SCENARIOS, EnvConfig
from rllib_scale.envs.scheduling import RoundsEnv, SchedulingEnv
from rllib_scale.envs.spaces import NO_LIMIT
from rllib_scale.envs.vector import RoundsVectorEnv, SchedulingVectorEnv
from rllib_scale.errors import UserError
from rllib_scale.observation.feature_sets import PAPER
from rllib_scale.results.tables import METRIC_COLUMNS
from rllib_scale.workloads.generators import generate

ENV_IDS = [spec.id for spec in gymnasium.registry.values() if spec.namespace == "rllib_scale"]
SHORT = {"horizon_s": 3.0}
CONFIGS = {
    "paper": "paper",
    "steady": {
        "workload": {"offered_load": 0.9},
        "episode": {"horizon_s": 90, "arrivals_until_s": 6, "mask": "feasible"},
    },
    "empty slots": {"cluster": {"servers": 10, "empty_slots": 2}, "episode": {"horizon_s": 8.0}},
    "cut by decisions": {"episode": {"max_decisions": 7}},
    "horizon not terminal": {"episode": SHORT | {"horizon_is_terminal": False}},
    "tasks in system": {"reward": {"name": "tasks-in-system"}, "episode": SHORT},
    "nothing arrives": {"episode": {"horizon_s": 1e-6}},
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def play(env, actions, **reset):
    """Everything an environment shows over a run of actions, episodes following one another."""
    shown = [env.reset(**reset)]
    for action in actions:
        shown.append(env.step(action))
        if shown[-1][2] or shown[-1][3]:
            shown.append(env.reset())
    return shown


def random_actions(env, steps, seed=0):
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(steps)]


def last_step(env, seed=0, **reset):
    """The last step of one episode of random actions."""
    env.reset(seed=seed, **reset)
    env.action_space.seed(seed)
    while True:
        step = env.step(env.action_space.sample())
        if step[2] or step[3]:
            return step


# --------------------------------------------------------------------------- Gymnasium's contract


def test_the_environment_is_registered():
    assert ENV_IDS == [rllib_scale.envs.ENV_ID, rllib_scale.envs.ROUNDS_ENV_ID]
    assert ENV_IDS == ["rllib_scale/Scheduling-v0", "rllib_scale/SchedulingRounds-v0"]


@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.parametrize("name", sorted((CONFIGS.keys() | SCENARIOS.keys()) - {"nothing arrives"}))
def test_checker_has_no_warning(env_id, name):
    # Where nothing arrives the first step ends the episode, and the checker takes the NaNs of its metrics for changes.
    config = CONFIGS.get(name, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, config=config).unwrapped)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_made_environments(env_id):
    env = gymnasium.make(env_id, config="paper", render_mode="rgb_array")
    envs = gymnasium.make_vec(env_id, num_envs=3, config="paper")
    rounds = env_id == rllib_scale.envs.ROUNDS_ENV_ID
    assert type(env.unwrapped) is (RoundsEnv if rounds else SchedulingEnv)
    assert type(envs) is (RoundsVectorEnv if rounds else SchedulingVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.single_observation_space == env.observation_space
    assert envs.single_action_space == env.action_space == gymnasium.spaces.Discrete(17 if rounds else 16)
    if rounds:
        shapes = {name: space.shape for name, space in envs.observation_space.items()}
        assert shapes == {"context": (3, 0), "tasks": (3, 1, 5), "servers": (3, 16, 5), "action_mask": (3, 17)}
    else:
        assert envs.observation_space.shape == (3, 5 + 5 * 16)
    assert isinstance(gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="sync"), SyncVectorEnv)


def test_registration_is_light_and_needs_no_second_import():
    code = """
import sys, rllib_scale.envs
heavy = {"numba", "torch", "ray", "matplotlib", "pandas"} & set(sys.modules)
assert not heavy, heavy
import gymnasium
gymnasium.make("rllib_scale.envs:rllib_scale/Scheduling-v0").reset(seed=0)
heavy = {"torch", "ray", "matplotlib", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_observations_of_every_scenario_lie_in_the_space(scenario):
    env = SchedulingEnv(scenario)
    for step in play(env, random_actions(env, 2000), seed=1):
        assert env.observation_space.contains(step[0])


@every_config
def test_same_seed_same_episodes(config):
    one, two = SchedulingEnv(config), SchedulingEnv(config)
    actions = random_actions(one, 300)
    np.testing.assert_equal(play(one, actions, seed=3), play(two, actions, seed=3))
    np.testing.assert_equal(play(one, actions, seed=3), play(one, actions, seed=3))


def test_docstring_table_is_the_space():
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in SchedulingEnv.__doc__.splitlines() if "|" in line
    ]
    header, _, *rows = rows
    assert header == ["Num", "Observation", "Min", "Max", "Unit"]
    features = PAPER.task + PAPER.server
    assert [row[4] for row in rows] == [feature.unit for feature in features]
    assert [int(row[0].split(" ")[0]) for row in rows] == list(range(10))
    space = SchedulingEnv().observation_space
    assert [row[3] == "no limit" for row in rows] == (space.high[:10] == np.float32(NO_LIMIT)).tolist()
    assert not space.low.any()
    np.testing.assert_allclose(space.high[[1, 3, 5, 6, 8]], [1, 1, 1, 1, 400])
    titles = [line.strip() for line in SchedulingEnv.__doc__.splitlines() if line.strip().startswith("## ")]
    order = (
        "Description, Action Space, Observation Space, Rewards, Starting State, Episode End, Arguments, Version History"
    )
    assert titles == [f"## {title}" for title in order.split(", ")]


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
    ("config", "terminated"),
    [
        ({"episode": {"horizon_s": 2.0}}, True),
        ({"episode": {"horizon_s": 2.0, "horizon_is_terminal": False}}, False),
        ({"episode": {"max_decisions": 4}}, False),
        ({"episode": {"horizon_s": 1e5, "arrivals_until_s": 20, "horizon_is_terminal": False}}, True),
    ],
    ids=["horizon", "horizon not terminal", "decisions", "all done"],
)
def test_terminated_or_truncated(config, terminated):
    *_, is_terminated, is_truncated, info = last_step(SchedulingEnv(config))
    assert (is_terminated, is_truncated) == (terminated, not terminated)
    if "max_decisions" in config["episode"]:
        assert info["metrics"]["decisions"] == 4
    elif "arrivals_until_s" in config["episode"]:
        assert info["metrics"]["unfinished"] == 0 < info["metrics"]["completed"]
    else:
        assert info["metrics"]["duration_s"] == 2.0


def test_info_holds_mask_and_elapsed_time_until_the_end_and_then_the_metrics_too():
    env = SchedulingEnv()
    _, info = env.reset(seed=2)
    rewards, done = [], False
    while not done:
        assert info.keys() == {"action_mask", "elapsed_s"}
        assert info["action_mask"].shape == (16,)
        assert info["action_mask"].dtype == np.int8
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


def test_after_the_end_nothing_happens():
    env = SchedulingEnv({"episode": SHORT})
    observation, _, terminated, truncated, info = last_step(env)
    again = env.step(0)
    np.testing.assert_equal(again, (observation, 0.0, terminated, truncated, info))


def test_an_episode_without_arrivals_ends_with_its_first_step():
    env = SchedulingEnv(CONFIGS["nothing arrives"])
    observation, _ = env.reset(seed=0)
    assert not observation[:5].any()
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert (info["metrics"]["arrived"], info["metrics"]["decisions"]) == (0, 0)


# --------------------------------------------------------------------------- vector = singles


@pytest.mark.parametrize("num_envs", [1, 3])
@every_config
def test_vector_equals_single_environments(config, num_envs):
    vector = gymnasium.make_vec(ENV_IDS[0], num_envs=num_envs, config=config)
    single = gymnasium.make_vec(ENV_IDS[0], num_envs=num_envs, config=config, vectorization_mode="sync")
    workload = {"workload": generate(EnvConfig(), 4, 0).to_dict()} if config == "paper" else {}
    resets = [
        {"seed": 11},
        {},
        {"seed": list(range(7, 7 + num_envs))},
        {"seed": [None] * (num_envs - 1) + [2]},
        {"options": {"episode": 5}},
        {"seed": 1, "options": {"episode": 2} | workload},
    ]
    rng = np.random.default_rng(0)
    ends = 0
    for reset in resets:
        np.testing.assert_equal(vector.reset(**reset), single.reset(**reset))
        for actions in rng.integers(vector.single_action_space.n, size=(150, num_envs)):
            one, other = vector.step(actions), single.step(actions)
            np.testing.assert_equal(one, other)
            assert [x.dtype for x in one[:4]] == [x.dtype for x in other[:4]]
            ends += (one[2] | one[3]).sum()
    assert ends > 3 * num_envs


def test_vector_infos_follow_the_mask_convention():
    envs = SchedulingVectorEnv(3, {"episode": SHORT})
    _, infos = envs.reset(seed=[4, 4, 9])
    always = {"action_mask", "elapsed_s", "_action_mask", "_elapsed_s"}
    assert infos.keys() == always
    while True:
        _, _, terminated, _, infos = envs.step(np.zeros(3, dtype=int))
        assert infos.keys() == (always | {"metrics", "_metrics"} if terminated.any() else always)
        assert infos["action_mask"].shape == (3, 16)
        assert infos["elapsed_s"].shape == (3,)
        assert infos["_action_mask"].all()
        assert infos["_elapsed_s"].all()
        if terminated.any():
            break
    np.testing.assert_array_equal(infos["_metrics"], terminated)
    np.testing.assert_array_equal(infos["metrics"]["_arrived"], terminated)
    assert infos["metrics"]["arrived"][0] == infos["metrics"]["arrived"][1]


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


# --------------------------------------------------------------------------- state


def play_on(env, actions):
    """As `play`, without the first reset; ends an episode and begins the next."""
    shown = []
    for action in actions:
        shown.append(env.step(action))
        if shown[-1][2] or shown[-1][3]:
            shown.append(env.reset())
    assert any(len(step) == 2 for step in shown)
    return shown


@pytest.mark.parametrize("workload", [None, generate(EnvConfig(), 6, 0)], ids=["drawn", "given"])
def test_pickled_and_restored_environments_go_on_exactly(workload):
    env = SchedulingEnv()
    actions = random_actions(env, 400)
    env.reset(seed=1, options={"workload": workload})
    for action in actions[:10]:
        assert not env.step(action)[2]
    state, pickled = env.get_state(), pickle.dumps(env)
    expected = play_on(env, actions)
    fresh = SchedulingEnv()
    fresh.set_state(pickle.loads(pickle.dumps(state)))
    np.testing.assert_equal(play_on(fresh, actions), expected)
    np.testing.assert_equal(play_on(pickle.loads(pickled), actions), expected)
    fresh.set_state(state)  # has not changed by being gone on from
    np.testing.assert_equal(play_on(fresh, actions), expected)


@pytest.mark.parametrize("workload", [None, generate(EnvConfig(), 6, 0)], ids=["drawn", "given"])
def test_vector_goes_on_exactly(workload):
    config = {"episode": SHORT}
    envs = SchedulingVectorEnv(3, config)
    rng = np.random.default_rng(2)
    envs.reset(seed=9, options={"workload": workload})
    while not envs.step(rng.integers(16, size=3))[2].any():  # an autoreset is due when the state is taken
        pass
    state, pickled = envs.get_state(), pickle.dumps(envs)
    actions = rng.integers(16, size=(150, 3))
    expected = [envs.step(a) for a in actions]
    fresh = SchedulingVectorEnv(3, config)
    fresh.set_state(pickle.loads(pickle.dumps(state)))
    np.testing.assert_equal([fresh.step(a) for a in actions], expected)
    copied = pickle.loads(pickled)
    np.testing.assert_equal([copied.step(a) for a in actions], expected)
    fresh.set_state(state)
    np.testing.assert_equal([fresh.step(a) for a in actions], expected)


# --------------------------------------------------------------------------- given workloads


def test_a_given_workload_is_played_once(tmp_path):
    workload = generate(EnvConfig(), 77, 0)
    path = tmp_path / "w.json"
    workload.save(path)
    env = SchedulingEnv()
    actions = [15, 14, 13, 12] * 30
    shown = []
    for given in (workload, workload.to_dict(), json.loads(path.read_text()), path, str(path)):
        episode = [env.reset(seed=1, options={"workload": given})]
        for action in actions:
            episode.append(env.step(action))
            if episode[-1][2]:
                break
        assert episode[-1][2]
        shown.append(episode)
        schedule = env.schedule()
        np.testing.assert_array_equal(schedule["arrival_s"], workload.arrival_s[schedule["workflow"]])
    for other in shown[1:]:
        np.testing.assert_equal(other, shown[0])
    drawn = SchedulingEnv()
    drawn.reset(seed=1)
    np.testing.assert_array_equal(env.reset()[0], drawn.reset()[0])


def test_a_given_workload_ends_when_all_is_done():
    workload = {
        "format": "rllib-scale-workload",
        "version": 1,
        "workflows": [
            {"arrival_s": 1.5, "tasks": [{"compute_gflop": 8, "memory_gb": 70, "output_gb": 0}], "edges": []}
        ],
    }
    env = SchedulingEnv()
    env.reset(seed=0, options={"workload": workload})
    _, _, terminated, truncated, info = env.step(14)
    assert (terminated, truncated) == (True, False)
    assert info["metrics"]["duration_s"] == 1.5 + 8 / 4
    assert env.schedule()[
        ["workflow", "task", "server", "tier", "arrival_s", "ready_s", "start_s", "finish_s"]
    ].tolist() == [(0, 0, 14, "large", 1.5, 1.5, 1.5, 3.5)]


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
    silent = SchedulingEnv()
    silent.reset(seed=0)
    assert silent.render() is None


# --------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("papr", "unknown scenario 'papr'; did you mean 'paper'"),
        ({"epsiode": {}}, "config: unknown key 'epsiode'; did you mean 'episode'"),
        ({"episode": {"horizon_s": -1}}, "config: episode.horizon_s: .*greater than 0"),
        ({"cluster": {"servers": 3}}, "config: cluster.servers: .*greater than or equal to 4"),
        (16, "config must be a scenario name, a mapping or an EnvConfig, not int"),
    ],
)
@pytest.mark.parametrize(
    "make", [SchedulingEnv, lambda config: SchedulingVectorEnv(2, config)], ids=["single", "vector"]
)
def test_bad_config(make, config, message):
    with pytest.raises(UserError, match=message):
        make(config)


@pytest.mark.parametrize("make", [SchedulingEnv, SchedulingVectorEnv], ids=["single", "vector"])
def test_bad_render_mode(make):
    with pytest.raises(UserError, match="unknown render_mode 'human'; valid: rgb_array"):
        make(render_mode="human")


def test_bad_num_envs():
    with pytest.raises(UserError, match="num_envs must be at least 1"):
        SchedulingVectorEnv(0)


BIG = generate(EnvConfig(), 0, 0).to_dict()
BIG["workflows"][1]["tasks"][2]["memory_gb"] = 81.0
BAD_RESETS = [
    ({"seed": -1}, "seed must be an integer from 0 to"),
    ({"options": {"episode": 1.5}}, "episode must be an integer from 0 to .*got 1.5"),
    ({"options": {"episode": -1}}, "episode must be an integer from 0 to"),
    ({"options": {"workloads": 1}}, "unknown reset option 'workloads'; valid: workload, episode"),
    ({"options": {"workload": 3}}, r"options\['workload'\] must be a Workload, its JSON content or a path, not int"),
    ({"options": {"workload": {}}}, r"options\['workload'\]: .*format: field required"),
    ({"options": {"workload": "nowhere.json"}}, "nowhere.json: cannot be read"),
    ({"options": {"workload": BIG}}, r"options\['workload'\]: workflow 1, task 2 .*fits no server: memory_gb is 81.0"),
    ({"options": {"workload": generate(EnvConfig.model_validate(CONFIGS["nothing arrives"]), 0, 0)}}, "no workflows"),
]


@pytest.mark.parametrize(("reset", "message"), BAD_RESETS, ids=[message[:24] for _, message in BAD_RESETS])
@pytest.mark.parametrize("make", [SchedulingEnv, SchedulingVectorEnv], ids=["single", "vector"])
def test_bad_reset_leaves_the_environment_as_it_was(make, reset, message):
    env, untouched = make(), make()
    env.reset(seed=4)
    untouched.reset(seed=4)
    with pytest.raises(UserError, match=message):
        env.reset(**reset)
    np.testing.assert_equal(env.reset(), untouched.reset())


def test_one_seed_for_each_environment():
    with pytest.raises(UserError, match="seed: 2 values for 3 environments; one each is needed"):
        SchedulingVectorEnv(3).reset(seed=[1, 2])
    with pytest.raises(UserError, match="episode: 4 values for 3 environments"):
        SchedulingVectorEnv(3).reset(seed=0, options={"episode": [1, 2, 3, 4]})


@pytest.mark.parametrize("action", [-1, 16, 1.0, "0", None, np.array([1, 2])])
def test_an_action_outside_the_space(action):
    env = SchedulingEnv()
    env.reset(seed=0)
    with pytest.raises(UserError, match="is no server slot; valid: 0 to 15"):
        env.step(action)


@pytest.mark.parametrize("actions", [[0, 16], [-1, 0], [0.0, 1.0], [0], 3, [True, False]])
def test_actions_outside_the_space(actions):
    envs = SchedulingVectorEnv(2)
    envs.reset(seed=0)
    with pytest.raises(UserError, match="actions must be 2 integers from 0 to 15"):
        envs.step(actions)


def test_step_before_reset():
    with pytest.raises(ResetNeeded):
        SchedulingEnv().step(0)
    with pytest.raises(ResetNeeded):
        SchedulingVectorEnv(2).step(np.array([0, 0]))
