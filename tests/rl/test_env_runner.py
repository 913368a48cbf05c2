"""ArrayEnvRunner keeps RLlib's contract: what it samples, counts, reports, saves and survives."""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, ks_2samp

from local_ray import LOCAL_RAY
from rllib_scale.config import EnvConfig, EpisodeConfig, SACConfig, TrainingConfig, TrialConfig, TrialResources
from rllib_scale.envs.vector import SchedulingVectorEnv

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner  # noqa: E402
from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: E402

from rllib_scale.rl.env_runner import ArrayEnvRunner  # noqa: E402
from rllib_scale.rl.environment import workload_seed  # noqa: E402
from rllib_scale.rl.methods import build_algorithm_config, training_row  # noqa: E402

NUM_ENVS = 3
TRAINING = TrainingConfig(epochs=4, steps_per_epoch=64, minibatch_size=32, passes=1, num_envs=NUM_ENVS)
ENV = EnvConfig(episode=EpisodeConfig(horizon_s=8.0))


def make_runner(sampler: str = "array", **overrides: Any) -> Any:
    trial = TrialConfig(env=ENV, training=TRAINING, resources=TrialResources(sampler=sampler))
    config = build_algorithm_config(trial)
    config = config.callbacks(**overrides) if overrides else config
    kind = ArrayEnvRunner if sampler == "array" else SingleAgentEnvRunner
    return kind(config=config, worker_index=0)


def by_id(episodes: list[SingleAgentEpisode]) -> dict[str, list[SingleAgentEpisode]]:
    pieces: dict[str, list[SingleAgentEpisode]] = defaultdict(list)
    for episode in episodes:
        pieces[episode.id_].append(episode)
    return pieces


def torch_outputs(runner: ArrayEnvRunner, observations: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return runner.module.network(torch.from_numpy(observations))[1].numpy()


@pytest.mark.parametrize("asked", [1, 50, 200])
def test_steps_are_counted_without_those_that_begin_an_episode(asked: int) -> None:
    runner = make_runner()
    total = 0
    for _ in range(3):
        episodes = runner.sample(num_timesteps=asked)
        steps = sum(len(episode) for episode in episodes)
        assert asked <= steps < asked + NUM_ENVS
        total += steps
    assert runner.get_metrics()["num_env_steps_sampled"].peek() == total


def test_pieces_are_valid_and_join_to_whole_episodes() -> None:
    runner = make_runner()
    pieces = by_id([episode for _ in range(15) for episode in runner.sample(num_timesteps=60)])
    cut = [parts for parts in pieces.values() if len(parts) > 1]
    assert cut
    assert sum(parts[-1].is_done for parts in pieces.values()) > NUM_ENVS
    for parts in pieces.values():
        assert [part.is_done for part in parts[:-1]] == [False] * (len(parts) - 1)
        steps = 0
        for part in parts:
            part.validate()
            assert part.t_started == steps
            steps += len(part)
            assert part.t == steps
            assert len(part.get_observations()) == len(part) + 1 == len(part.get_infos())
            assert all(part.observation_space.contains(row) for row in part.get_observations())
            assert all(len(part.get_extra_model_outputs(key)) == len(part) for key in part.extra_model_outputs)
        for one, other in itertools.pairwise(parts):
            np.testing.assert_array_equal(one.get_observations(-1), other.get_observations(0))
        assert [*parts[-1].get_infos(-1)] == (["metrics"] if parts[-1].is_done else [])


def test_episodes_are_whole_and_fresh_where_their_number_is_given() -> None:
    runner = make_runner()
    left = {episode.id_ for episode in runner.sample(num_timesteps=20)}
    for asked in (1, 7):
        episodes = runner.sample(num_episodes=asked)
        assert all(episode.is_done and episode.t_started == 0 for episode in episodes)
        assert left.isdisjoint(episode.id_ for episode in episodes)
    after = runner.sample(num_timesteps=20)
    assert all(episode.t_started == 0 for episode in after), "sampling by steps begins anew as well"


def test_force_reset_begins_new_episodes() -> None:
    runner = make_runner()
    first = by_id(runner.sample(num_timesteps=20))
    assert set(by_id(runner.sample(num_timesteps=6))) == set(first)
    fresh = runner.sample(num_timesteps=6, force_reset=True)
    assert set(by_id(fresh)).isdisjoint(first)
    assert all(episode.t_started == 0 for episode in fresh)


def test_outputs_are_those_of_the_torch_module() -> None:
    runner = make_runner()
    for episode in runner.sample(num_timesteps=200):
        expected = torch.log_softmax(torch.from_numpy(torch_outputs(runner, episode.get_observations()[:-1])), -1)
        logits = torch.from_numpy(episode.get_extra_model_outputs("action_dist_inputs"))
        torch.testing.assert_close(torch.log_softmax(logits, -1), expected, atol=1e-5, rtol=0)
        logp = expected.gather(1, torch.from_numpy(episode.get_actions())[:, None])[:, 0].numpy()
        np.testing.assert_allclose(episode.get_extra_model_outputs("action_logp"), logp, atol=1e-5)


def test_without_exploration_actions_are_greedy() -> None:
    runner = make_runner()
    explored = []
    for explore in (False, True):
        episodes = runner.sample(num_timesteps=200, explore=explore, force_reset=True)
        greedy = [
            episode.get_actions() == episode.get_extra_model_outputs("action_dist_inputs").argmax(1)
            for episode in episodes
        ]
        explored.append(np.concatenate(greedy).mean())
    assert explored[0] == 1
    assert explored[1] < 0.6


def test_actions_are_distributed_as_the_policy_or_evenly() -> None:
    runner = make_runner()
    slots = ENV.cluster.num_slots
    for random_actions in (False, True):
        counts, expected = np.zeros(slots), np.zeros(slots)
        for episode in runner.sample(num_timesteps=6000, random_actions=random_actions):
            counts += np.bincount(episode.get_actions(), minlength=slots)
            logits = episode.get_extra_model_outputs("action_dist_inputs").astype(float)
            policy = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            expected += len(episode) / slots if random_actions else policy.sum(0)
        assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 0.01
        if not random_actions:
            assert chisquare(counts).pvalue < 1e-6, "the test can tell the policy from even chances"


def test_replayed_actions_give_the_same_observations_and_rewards() -> None:
    runner = make_runner()
    pieces = list(by_id([episode for _ in range(5) for episode in runner.sample(num_timesteps=70)]).values())
    env = SchedulingVectorEnv(NUM_ENVS, ENV)
    first, _ = env.reset(seed=[workload_seed(42, 0, index) for index in range(NUM_ENVS)])
    begun = [next(p for p in pieces if np.array_equal(p[0].get_observations(0), row)) for row in first]
    actions, rewards, observations = (
        [np.concatenate([getattr(part, f"get_{what}")()[skip:] for part in parts]) for parts in begun]
        for what, skip in (("actions", 0), ("rewards", 0), ("observations", 1))
    )
    length = min(map(len, actions))
    assert length > 20
    for t in range(length):
        obs, reward, *_ = env.step(np.array([a[t] for a in actions]))
        np.testing.assert_array_equal(obs, [o[t] for o in observations])
        np.testing.assert_allclose(reward, [r[t] for r in rewards], rtol=1e-6)


def test_metrics_and_callback_see_each_ended_episode_once() -> None:
    seen: list[dict[str, Any]] = []
    runner = make_runner(on_episode_end=lambda *, episode, **_: seen.append(episode.get_infos(-1)["metrics"]))
    pieces = by_id([episode for _ in range(12) for episode in runner.sample(num_timesteps=80)])
    ended = [parts for parts in pieces.values() if parts[-1].is_done]
    returns = [sum(part.get_return() for part in parts) for parts in ended]
    assert len(seen) == len(ended) > NUM_ENVS
    assert sorted(m["episode_return"] for m in seen) == pytest.approx(sorted(returns), abs=1e-5)
    metrics = runner.get_metrics()
    assert metrics["episode_return_mean"].peek() == pytest.approx(np.mean(returns), abs=1e-5)
    assert metrics["num_episodes"].peek() == len(ended)
    lengths = [sum(map(len, parts)) for parts in ended]
    assert metrics["episode_len_mean"].peek() == pytest.approx(np.mean(lengths))


def test_new_weights_are_the_ones_that_act() -> None:
    runner = make_runner()
    before = runner.sample(num_timesteps=30)
    state = runner.module.get_state()
    runner.set_state({"rl_module": {name: 2 * value for name, value in state.items()}, "weights_seq_no": 5})
    after = runner.sample(num_timesteps=30)
    for episodes, number in ((before, 0), (after, 5)):
        assert {int(n) for e in episodes for n in e.get_extra_model_outputs("weights_seq_no")} == {number}
    for episode in after:
        logits = torch_outputs(runner, episode.get_observations()[:-1])
        stored = episode.get_extra_model_outputs("action_dist_inputs")
        np.testing.assert_allclose(stored, logits - logits.max(1, keepdims=True), atol=1e-4)


def test_restored_runner_takes_the_very_same_steps() -> None:
    runner, other = make_runner(), make_runner()
    runner.sample(num_timesteps=75)
    other.sample(num_timesteps=20)
    other.set_state(runner.get_state())
    for round in range(3):
        samples = [r.sample(num_timesteps=100) for r in (runner, other)]
        if round == 0:  # what was under way keeps its id
            going_on = [{episode.id_ for episode in sample if episode.t_started} for sample in samples]
            assert len(going_on[0]) == NUM_ENVS
            assert going_on[0] == going_on[1]
        for one, restored in zip(*samples, strict=True):
            assert (one.t_started, one.is_done) == (restored.t_started, restored.is_done)
            for name in ("observations", "actions", "rewards"):
                np.testing.assert_array_equal(getattr(one, f"get_{name}")(), getattr(restored, f"get_{name}")())


def test_state_of_another_runner_leaves_the_environments_alone() -> None:
    runner, other = make_runner(), make_runner()
    runner.sample(num_timesteps=75)
    state = runner.get_state()
    state["sampler"]["worker_index"] = 7
    other.set_state(state)
    actual, expected = (r.sample(num_timesteps=10)[0].get_observations(0) for r in (other, make_runner()))
    np.testing.assert_array_equal(actual, expected)


def test_both_samplers_draw_from_the_same_distribution() -> None:
    """Orders of random numbers differ, so returns and entropies can only be equal in distribution."""
    returns, decisions = [], []
    weights = None
    for sampler in ("array", "rllib"):
        runner = make_runner(sampler)
        weights = weights or runner.module.get_state()
        runner.set_state({"rl_module": weights})
        episodes = runner.sample(num_episodes=150)[:150]
        returns.append([episode.get_return() for episode in episodes])
        decisions.append([len(episode) for episode in episodes])
    for one, other in (returns, decisions):
        error = math.sqrt(np.var(one) / len(one) + np.var(other) / len(other))
        assert abs(np.mean(one) - np.mean(other)) < 3 * error
        assert ks_2samp(one, other).pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "noticed"),
    [("scale", True), ("scale", False), ("sac", False)],
)
def test_a_killed_remote_runner_makes_no_difference(method: str, noticed: bool) -> None:
    """Killed when it is called next; or killed and back before anybody calls it."""
    trial = TrialConfig(
        method=method,
        env=ENV,
        training=TRAINING.model_copy(update={"num_envs": 1}),
        sac=SACConfig(warmup_steps=64),
        resources=TrialResources(env_runners=2),
    )
    weights, rows = [], []
    for kill in (False, True):
        algorithm = build_algorithm_config(trial).build_algo()
        try:
            before = [training_row(algorithm.train(), epoch, 64) for epoch in (1, 2)]
            states = algorithm.env_runner_group.foreach_env_runner(
                lambda runner: runner.env.unwrapped.get_state()["seeds"].tolist(), local_env_runner=False
            )
            assert sorted(states) == sorted([workload_seed(42, worker, 0)] for worker in (1, 2))
            if kill:
                end_process(algorithm.env_runner_group._worker_manager.actors()[1], until_back=not noticed)
            rows.append(before + [training_row(algorithm.train(), epoch, 64) for epoch in (3, 4)])
            assert algorithm.runner_restarts == kill
            weights.append(algorithm.learner_group.get_weights()["default_policy"])
        finally:
            algorithm.stop()
    assert repr(rows[0]) == repr(rows[1])
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])


def end_process(actor: Any, until_back: bool) -> None:
    """kill -9; wait until Ray has restarted the actor, if so asked."""
    pid = ray.get(actor.apply.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGKILL)
    while until_back:
        try:
            if ray.get(actor.apply.remote(lambda _: os.getpid())) != pid:
                return
        except ray.exceptions.RayError:
            time.sleep(0.1)
