"""Settings of RLlib: our learners and our environment runner follow them as RLlib's own do, or refuse them."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from local_ray import LOCAL_RAY
from marks import slow
from rllib_scale.config import DQNConfig, EnvConfig, EpisodeConfig, SACConfig, TrainingConfig, TrialConfig
from rllib_scale.config.training import ImitationConfig
from rllib_scale.errors import UserError
from rllib_scale.policies.policy import load_policy

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig  # noqa: E402
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner  # noqa: E402
from ray.rllib.callbacks.callbacks import RLlibCallback  # noqa: E402
from ray.rllib.connectors.connector_v2 import ConnectorV2  # noqa: E402
from ray.rllib.core.learner.training_data import TrainingData  # noqa: E402
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner  # noqa: E402
from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: E402
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME  # noqa: E402

from rllib_scale.rl.env_runner import ArrayEnvRunner  # noqa: E402
from rllib_scale.rl.methods import build_algorithm_config  # noqa: E402
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner  # noqa: E402
from rllib_scale.rl.settings import obstacle_to_lean_learner  # noqa: E402

ROWS = 256
TRIAL = TrialConfig(
    method="crossattn",
    # Otherwise than RLlib: the rate does not fall, and RLlib's loss does not standardise.
    training=TrainingConfig(
        epochs=4,
        steps_per_epoch=ROWS,
        minibatch_size=64,
        passes=2,
        num_envs=3,
        learning_rate=1e-3,
        final_learning_rate=1e-3,
        standardise_advantages="epoch",
    ),
    env=EnvConfig(episode=EpisodeConfig(horizon_s=6.0)),
)
ROUNDING = 0.03
"""Of the learning rate, in 16 steps of Adam."""
CONFIG = build_algorithm_config(TRIAL)


class RLlibsOwn(SchedulingLearner):
    """RLlib's update, loss, clipping and coefficients on the rows, and by the optimizer, of our learner."""

    compute_loss_for_module = PPOTorchLearner.compute_loss_for_module
    postprocess_gradients_for_module = PPOTorchLearner.postprocess_gradients_for_module

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        PPOTorchLearner.after_gradient_based_update(self, timesteps=timesteps)
        self.epoch += 1


def config_of(training: dict[str, Any], **learners: Any) -> AlgorithmConfig:
    return CONFIG.copy(copy_frozen=False).training(**training).learners(**learners)


@pytest.fixture(scope="module")
def sampled() -> list[list[SingleAgentEpisode]]:
    runner = ArrayEnvRunner(config=CONFIG, worker_index=0)
    return [runner.sample(num_timesteps=ROWS) for _ in range(2)]


@pytest.fixture(scope="module")
def spaces() -> dict[str, Any]:
    return ArrayEnvRunner(config=CONFIG, worker_index=0).get_spaces()


@pytest.fixture
def learn(sampled: Any, spaces: Any) -> Callable[..., tuple[SchedulingLearner, dict[str, np.ndarray]]]:
    """Two iterations of a learner on the same episodes by the same random numbers."""

    def of(config: AlgorithmConfig, kind: type[SchedulingLearner] = SchedulingLearner) -> Any:
        torch.manual_seed(1)
        learner = config.learners(learner_class=kind).build_learner(spaces=spaces)
        for i, episodes in enumerate(sampled):
            torch.manual_seed(i)
            np.random.seed(i)  # noqa: NPY002
            learner.update(
                training_data=TrainingData(episodes=copy.deepcopy(episodes)),
                timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: (i + 1) * ROWS},
                num_epochs=config.num_epochs,
                minibatch_size=config.minibatch_size,
                shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
            )
        return learner, learner.get_state()["rl_module"]["default_policy"]

    return of


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


@pytest.mark.parametrize(
    "setting",
    [
        {"gamma": 0.8},
        {"lambda_": 0.5},
        {"lr": 3e-3},
        {"clip_param": 0.02},
        {"vf_loss_coeff": 2.0},
        {"vf_clip_param": 1e-3},
        {"entropy_coeff": 0.3},
        {"entropy_coeff": [[0, 0.5], [ROWS, 0.1]]},
        {"use_kl_loss": True, "kl_coeff": 5.0, "kl_target": 1e-6},
        {"grad_clip": 0.05},
        {"grad_clip": None},
        {"grad_clip": 0.01, "grad_clip_by": "value"},
        {"grad_clip": 0.02, "grad_clip_by": "norm"},
        {"train_batch_size_per_learner": 128},
        {"minibatch_size": 32},
        {"num_epochs": 3},
        {"num_epochs": 3, "shuffle_batch_per_epoch": False},
    ],
    ids=str,
)
def test_the_lean_learner_follows_a_setting_as_rllibs_own_does(learn: Any, setting: dict[str, Any]) -> None:
    (learner, lean), (reference, stock) = learn(config_of(setting)), learn(config_of(setting), RLlibsOwn)
    assert learner._lean is not None
    assert reference._lean is None
    assert distance(lean, stock) < ROUNDING * config_of(setting).lr
    other = {"num_epochs": 3} if "shuffle_batch_per_epoch" in setting else {}
    assert distance(lean, learn(config_of(other))[1]) > 2e-4, "the setting has an effect"


class Halved(ConnectorV2):
    """Learns from half of every reward."""

    calls = 0

    def __call__(self, *, episodes: list[SingleAgentEpisode], batch: Any, **kwargs: Any) -> Any:
        type(self).calls += 1
        for rewards in (episode.rewards.data for episode in episodes):
            for t, reward in enumerate(rewards):
                rewards[t] = reward / 2
        return batch


class AnotherLoss(SchedulingLearner):
    """A loss of the user's."""

    def compute_loss_for_module(self, *, fwd_out: dict[str, torch.Tensor], **kwargs: Any) -> torch.Tensor:
        usual = super().compute_loss_for_module(fwd_out=fwd_out, **kwargs)
        return usual + fwd_out["action_dist_inputs"].square().mean()


def test_what_the_lean_learner_cannot_follow_rllibs_update_does(learn: Any, caplog: pytest.LogCaptureFixture) -> None:
    plain = learn(config_of({}))[1]
    cases = [
        (config_of({}, learner_connector=lambda *_: Halved()), SchedulingLearner, "learner_connector"),
        (config_of({}).framework(torch_skip_nan_gradients=True), SchedulingLearner, "torch_skip_nan_gradients"),
        (config_of({"minibatch_size": 100}), SchedulingLearner, "minibatch_size 100"),
        (config_of({}), AnotherLoss, "AnotherLoss.compute_loss_for_module"),
    ]
    for config, kind, reason in cases:
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="rllib_scale"):
            _, ours = learn(config.copy(copy_frozen=False), kind)
        (record,) = (each for each in caplog.records if each.name.startswith("rllib_scale"))
        assert reason in record.getMessage()
        if kind is SchedulingLearner:
            assert distance(ours, learn(config.copy(copy_frozen=False), RLlibsOwn)[1]) < ROUNDING * config.lr
        if reason != "torch_skip_nan_gradients":
            assert distance(ours, plain) > 2e-4
    assert Halved.calls == 4
    assert obstacle_to_lean_learner(config_of({}, num_gpus_per_learner=1)) == "num_gpus_per_learner 1"


@pytest.mark.parametrize("method", ["scale", slow("sac")])
def test_two_learners_train_one_network(algorithm_of: Any, method: str) -> None:
    short = TrainingConfig(epochs=2, steps_per_epoch=64, minibatch_size=32, passes=2, num_envs=2)
    trial = TrialConfig(method=method, training=short, sac=SACConfig(warmup_steps=32))
    algorithm = build_algorithm_config(trial).learners(num_learners=2).build_algo()
    try:
        start = algorithm.learner_group.get_weights()["default_policy"]
        for _ in range(2):
            algorithm.train()
        learners = algorithm.learner_group.foreach_learner(
            lambda learner: (learner._lean in (None, False), learner.get_state()["rl_module"]["default_policy"])
        )
        (fell_back, one), (also, other) = (result.get() for result in learners)
    finally:
        algorithm.stop()
    assert fell_back
    assert also
    assert distance(one, other) == 0
    assert distance(one, start) > 1e-4


@pytest.mark.parametrize(
    ("trial", "change", "message"),
    [
        (TRIAL, {"training": {"lr": [[0, 1e-3], [1000, 1e-4]]}}, r"lr \[\[0"),
        (TRIAL, {"training": {"use_critic": False}}, "use_critic False"),
        (TRIAL, {"env_runners": {"observation_filter": "MeanStdFilter"}}, "observation_filter 'MeanStdFilter'"),
        (TRIAL, {"environment": {"clip_rewards": True}}, "clip_rewards True"),
        (
            TRIAL.model_copy(update={"training": TRIAL.training.model_copy(update={"time_unit_s": 1.0})}),
            {"learners": {"learner_connector": lambda *_: Halved()}},
            r"training\.time_unit_s 1: not with learner_connector",
        ),
        (TrialConfig(method="dqn"), {"training": {"n_step": 3}}, "n_step 3"),
        (TrialConfig(method="dqn"), {"training": {"dueling": False}}, "dueling False"),
        (TrialConfig(method="dqn"), {"training": {"epsilon": 0.5}}, r"epsilon 0\.5.*dqn\.epsilon_initial"),
        (TrialConfig(method="sac"), {"training": {"target_entropy": -3.0}}, "target_entropy -3"),
        (TrialConfig(method="sac"), {"training": {"target_network_update_freq": 10}}, "target_network_update_freq 10"),
        (TrialConfig(method="sac"), {"env_runners": {"batch_mode": "complete_episodes"}}, "batch_mode 'complete_"),
        (TrialConfig(method="sac"), {"env_runners": {"rollout_fragment_length": 7}}, "rollout_fragment_length 7"),
        (
            TrialConfig(imitation=ImitationConfig(expert="fastest-idle")),
            {"learners": {"learner_connector": lambda *_: Halved()}},
            "learner_connector",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_nothing_follows_is_refused(trial: TrialConfig, change: dict[str, dict[str, Any]], message: str) -> None:
    config = build_algorithm_config(trial)
    for section, settings in change.items():
        getattr(config, section)(**settings)
    with pytest.raises(UserError, match=message):
        config.build_algo()


@pytest.mark.parametrize("method", ["dqn", "sac"])
def test_rates_clipping_and_batches_of_dqn_and_sac_are_the_configurations(method: str) -> None:
    sections = {"dqn": DQNConfig(warmup_steps=32, batch_size=16), "sac": SACConfig(warmup_steps=32, batch_size=16)}
    training = TrainingConfig(epochs=2, steps_per_epoch=64, minibatch_size=32, num_envs=2)
    config = build_algorithm_config(TrialConfig(method=method, training=training, **{method: sections[method]}))
    rates = {"lr": 1e-5} if method == "dqn" else {"actor_lr": 1e-5, "critic_lr": 2e-5, "alpha_lr": 3e-5}
    algorithm = config.training(train_batch_size_per_learner=8, grad_clip=1e-3, **rates).build_algo()
    try:
        learner, sizes = algorithm.learner_group._learner, set()
        update = learner._update
        learner._update = lambda batch, **kwargs: sizes.add(len(batch["default_policy"]["obs"])) or update(batch)
        algorithm.train()
        assert sizes == {8}
        found = {group["lr"] for o in learner._named_optimizers.values() for group in o.param_groups}
        assert found == set(rates.values())
        for parameters in learner._optimizer_parameters.values():
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            assert norm <= 1.001e-3
    finally:
        algorithm.stop()


def test_the_example_of_the_library_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
    (code,) = (text for text in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "PPOConfig" in text)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"__name__": "example"}
    exec(code, found)
    assert found["held_out_completed"] > 0
    assert load_policy(tmp_path / "my-ppo").epochs == 2


# ---------------------------------------------------------------------- environment runner


class Recorded(ConnectorV2):
    """Counts its calls."""

    calls = 0

    def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
        type(self).calls += 1
        return batch


class Steps(RLlibCallback):
    """Counts steps and samples."""

    steps = samples = 0

    def on_episode_step(self, **kwargs: Any) -> None:
        type(self).steps += 1

    def on_sample_end(self, *, samples: list[SingleAgentEpisode], **kwargs: Any) -> None:
        type(self).samples += sum(map(len, samples))


class Wholes(RLlibCallback):
    """Length of each episode, with what was sampled of it before."""

    lengths: list[int]

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: list[Any], **kwargs: Any) -> None:
        Wholes.lengths.append(len(episode) + sum(map(len, prev_episode_chunks)))


def runner_of(kind: type[SingleAgentEnvRunner] = ArrayEnvRunner, **settings: Any) -> Any:
    config = CONFIG.copy(copy_frozen=False)
    for section, values in settings.items():
        getattr(config, section)(**values)
    return kind(config=config, worker_index=0)


@pytest.mark.parametrize("connector", ["env_to_module_connector", "module_to_env_connector"])
def test_connectors_of_the_user_are_called_by_rllibs_runner(connector: str, caplog: pytest.LogCaptureFixture) -> None:
    Recorded.calls = 0
    with caplog.at_level(logging.WARNING, logger="rllib_scale"):
        runner = runner_of(env_runners={connector: lambda *_: Recorded()})
        steps = sum(map(len, runner.sample(num_timesteps=20)))
    assert Recorded.calls >= steps // 3
    (record,) = (each for each in caplog.records if each.name.startswith("rllib_scale"))
    assert connector in record.getMessage()
    assert runner.get_metrics()["num_env_steps_sampled"].peek() == steps


def test_callbacks_of_steps_and_samples_are_made() -> None:
    runner = runner_of(callbacks={"callbacks_class": Steps})
    steps = sum(map(len, runner.sample(num_timesteps=30)))
    assert Steps.steps == Steps.samples == steps


def test_the_end_of_an_episode_comes_with_its_earlier_pieces() -> None:
    Wholes.lengths = []
    runner = runner_of(callbacks={"callbacks_class": Wholes})
    episodes = [episode for _ in range(6) for episode in runner.sample(num_timesteps=40)]
    whole = [episode.t for episode in episodes if episode.is_done]
    assert Wholes.lengths == whole
    assert any(episode.t_started for episode in episodes if episode.is_done)


@pytest.mark.parametrize("kind", [ArrayEnvRunner, SingleAgentEnvRunner])
def test_numbers_of_episodes_and_steps_are_those_asked_for(kind: type[SingleAgentEnvRunner]) -> None:
    runner = runner_of(kind)
    for asked in (1, 4):
        episodes = runner.sample(num_episodes=asked)
        assert [episode.is_done for episode in episodes] == [True] * asked
    assert runner.get_metrics()["num_episodes"].peek() == 5
    fragments = runner_of(kind, env_runners={"rollout_fragment_length": 7}).sample()
    assert 7 * 3 <= sum(map(len, fragments)) < 7 * 3 + 3
    whole = runner_of(kind, env_runners={"batch_mode": "complete_episodes", "num_envs_per_env_runner": 2}).sample()
    assert [episode.is_done for episode in whole] == [True, True]
