"""ArrayEnvRunner keeps RLlib's contract: what it samples, counts, reports, saves and calls."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.tune.registry import register_env
from scipy.stats import chisquare

from local_ray import LOCAL_RAY
from rllib_scale.config import EnvConfig, EpisodeConfig, TrialConfig
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.rl.env_runner import ArrayEnvRunner
from rllib_scale.rl.environment import make_env
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.rl.ppo.ppo_module import SchedulingModule
from rllib_scale.rl.vector_env import workload_seed

pytestmark = LOCAL_RAY
NUM_ENVS = 3
PPO = {"epochs": 4, "steps_per_epoch": 64, "minibatch_size": 32, "passes": 1, "num_envs": NUM_ENVS}
ENV = EnvConfig(episode=EpisodeConfig(horizon_s=8.0))
kinds = pytest.mark.parametrize("kind", [ArrayEnvRunner, SingleAgentEnvRunner])


def make_runner(kind: type[SingleAgentEnvRunner] = ArrayEnvRunner, **settings: Any) -> Any:
    """With settings of RLlib by their section."""
    config = build_algorithm_config(TrialConfig.of(env=ENV, algorithm=PPO))
    for section, values in settings.items():
        getattr(config, section)(**values)
    return kind(config=config, worker_index=0)


def by_id(episodes: list[SingleAgentEpisode]) -> dict[str, list[SingleAgentEpisode]]:
    pieces: dict[str, list[SingleAgentEpisode]] = defaultdict(list)
    for episode in episodes:
        pieces[episode.id_].append(episode)
    return pieces


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


@kinds
def test_numbers_of_episodes_and_steps_are_those_asked_for(kind: type[SingleAgentEnvRunner]) -> None:
    runner = make_runner(kind)
    steps = [sum(map(len, runner.sample(num_timesteps=asked))) for asked in (1, 50, 200)]
    assert all(0 <= more < NUM_ENVS for more in np.subtract(steps, (1, 50, 200)))
    assert runner.get_metrics()["num_env_steps_sampled"].peek() == sum(steps), "but those that begin an episode"
    first, more = (by_id(runner.sample(num_timesteps=steps)) for steps in (20, 6))
    fresh = runner.sample(num_timesteps=6, force_reset=True)
    assert any(episode in first for episode in more)
    assert all(episode.t_started == 0 and episode.id_ not in first for episode in fresh)
    left = by_id(fresh)
    for asked in (1, 4):
        episodes = runner.sample(num_episodes=asked)
        assert [(episode.is_done, episode.t_started) for episode in episodes] == [(True, 0)] * asked
        assert not any(episode.id_ in left for episode in episodes)
    assert all(episode.t_started == 0 for episode in runner.sample(num_timesteps=20)), "begun anew as well"
    fragments = make_runner(kind, env_runners={"rollout_fragment_length": 7}).sample()
    assert 7 * NUM_ENVS <= sum(map(len, fragments)) < 8 * NUM_ENVS
    whole = make_runner(kind, env_runners={"batch_mode": "complete_episodes", "num_envs_per_env_runner": 2}).sample()
    assert [episode.is_done for episode in whole] == [True, True]


def test_the_newest_weights_act_and_outputs_are_those_of_the_torch_module() -> None:
    runner = make_runner()
    state = runner.module.get_state()
    for number, factor in ((0, 1), (5, 2)):
        if number:
            weights = {name: factor * value for name, value in state.items()}
            runner.set_state({"rl_module": weights, "weights_seq_no": number})
        for episode in runner.sample(num_timesteps=100):
            assert set(episode.get_extra_model_outputs("weights_seq_no")) == {number}
            with torch.no_grad():
                logits = runner.module.network(torch.from_numpy(episode.get_observations()[:-1]))[1]
            expected = torch.log_softmax(logits, -1)
            actual = torch.from_numpy(episode.get_extra_model_outputs("action_dist_inputs"))
            torch.testing.assert_close(torch.log_softmax(actual, -1), expected, atol=1e-5, rtol=1e-5)
            logp = expected.gather(1, torch.from_numpy(episode.get_actions())[:, None])[:, 0].numpy()
            np.testing.assert_allclose(episode.get_extra_model_outputs("action_logp"), logp, atol=1e-5, rtol=1e-5)


def test_actions_are_greedy_or_distributed_as_the_policy_or_evenly() -> None:
    runner, servers = make_runner(), ENV.cluster.num_rows
    for episode in runner.sample(num_timesteps=200, explore=False):
        best = episode.get_extra_model_outputs("action_dist_inputs").argmax(1)
        np.testing.assert_array_equal(episode.get_actions(), best)
    for random_actions in (False, True):
        counts, expected = np.zeros(servers), np.zeros(servers)
        for episode in runner.sample(num_timesteps=6000, random_actions=random_actions):
            counts += np.bincount(episode.get_actions(), minlength=servers)
            logits = episode.get_extra_model_outputs("action_dist_inputs").astype(float)
            policy = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            expected += len(episode) / servers if random_actions else policy.sum(0)
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


def test_restored_runner_takes_the_very_same_steps() -> None:
    runner, other, third = make_runner(), make_runner(), make_runner()
    runner.sample(num_timesteps=75)
    other.sample(num_timesteps=20)
    state = runner.get_state()
    other.set_state(state)
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
    state["sampler"]["worker_index"] = 7  # another's: the environments stay what they are
    third.set_state(state)
    actual, expected = (r.sample(num_timesteps=10)[0].get_observations(0) for r in (third, make_runner()))
    np.testing.assert_array_equal(actual, expected)


# ---------------------------------------------------------------------- callbacks and connectors of a user


class Ends(RLlibCallback):
    """Length and metrics of each episode, with what was sampled of it before."""

    seen: list[tuple[int, dict[str, Any]]]
    sampled: int

    def on_sample_end(self, *, samples: list[SingleAgentEpisode], **kwargs: Any) -> None:
        Ends.sampled += sum(map(len, samples))

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: list[Any], **kwargs: Any) -> None:
        length = len(episode) + sum(map(len, prev_episode_chunks))
        Ends.seen.append((length, episode.get_infos(-1)["metrics"]))


def test_metrics_and_callback_see_each_ended_episode_once_and_whole() -> None:
    Ends.seen, Ends.sampled = [], 0
    runner = make_runner(callbacks={"callbacks_class": Ends})
    pieces = by_id([episode for _ in range(12) for episode in runner.sample(num_timesteps=80)])
    ended = [parts for parts in pieces.values() if parts[-1].is_done]
    returns = [sum(part.get_return() for part in parts) for parts in ended]
    lengths = [sum(map(len, parts)) for parts in ended]
    assert any(len(parts) > 1 for parts in ended)
    assert sorted(length for length, _ in Ends.seen) == sorted(lengths)
    assert sorted(m["episode_return"] for _, m in Ends.seen) == pytest.approx(sorted(returns), abs=1e-5)
    metrics = runner.get_metrics()
    assert metrics["episode_return_mean"].peek() == pytest.approx(np.mean(returns), abs=1e-5)
    assert metrics["num_episodes"].peek() == len(ended) > NUM_ENVS
    assert metrics["episode_len_mean"].peek() == pytest.approx(np.mean(lengths))
    assert metrics["num_env_steps_sampled"].peek() == Ends.sampled


class Steps(RLlibCallback):
    """Counts steps, and those of the samples."""

    calls = sampled = 0

    def on_episode_step(self, **kwargs: Any) -> None:
        Steps.calls += 1

    def on_sample_end(self, *, samples: list[SingleAgentEpisode], **kwargs: Any) -> None:
        Steps.sampled += sum(map(len, samples))


class Sevens(VectorWrapper):
    """Every reward is 7."""

    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, np.full_like(rewards, 7.0), *rest


class Third(TorchCategorical):
    """A distribution of the third server alone."""

    def sample(self, **kwargs: Any) -> torch.Tensor:
        return torch.full(self.logits.shape[:1], 3)


class Thirds(SchedulingModule):
    """Explores by a distribution of its own."""

    def get_exploration_action_dist_cls(self) -> type[TorchCategorical]:
        return Third


def test_wrappers_of_the_environment_and_the_modules_distribution_are_used() -> None:
    def wrapped(context: Any) -> Any:
        env = make_env(context)
        return Sevens(env) if isinstance(env, VectorEnv) else env

    register_env("rllib_scale/Sevens", wrapped)
    for episode in make_runner(environment={"env": "rllib_scale/Sevens"}).sample(num_timesteps=20):
        assert (episode.get_rewards() == 7).all()
    spec = RLModuleSpec(module_class=Thirds, model_config={"trial": TrialConfig.of(env=ENV).model_dump(mode="json")})
    for episode in make_runner(rl_module={"rl_module_spec": spec}).sample(num_timesteps=20):
        assert (episode.get_actions() == 3).all()


class Recorded(ConnectorV2):
    """Counts its calls."""

    calls = 0

    def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
        Recorded.calls += 1
        return batch


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"env_runners": {"env_to_module_connector": lambda *_: Recorded()}}, "env_to_module_connector"),
        ({"env_runners": {"module_to_env_connector": lambda *_: Recorded()}}, "module_to_env_connector"),
        ({"callbacks": {"callbacks_class": Steps}}, "on_episode_step"),
    ],
)
def test_what_is_to_be_called_at_each_step_is_called_by_rllibs_runner(
    settings: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    Recorded.calls = Steps.calls = Steps.sampled = 0
    with caplog.at_level(logging.WARNING, logger="rllib_scale"):
        runner = make_runner(**settings)
        steps = sum(map(len, runner.sample(num_timesteps=20)))
    if "callbacks" in settings:
        assert Steps.calls == Steps.sampled == steps
    else:
        assert Recorded.calls >= steps // NUM_ENVS
    (record,) = (each for each in caplog.records if each.name.startswith("rllib_scale"))
    assert reason in record.getMessage()
    assert runner.get_metrics()["num_env_steps_sampled"].peek() == steps
