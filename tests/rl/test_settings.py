"""Settings of RLlib: our learners and our environment runner follow them as RLlib's own do, or refuse them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from local_ray import LOCAL_RAY
from rl.learned import SHORT_OFF_POLICY, Weights, distance, learner_of, update
from rllib_scale.config import EnvConfig, EpisodeConfig, TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.policies.policy import load_policy
from rllib_scale.rl.env_runner import ArrayEnvRunner
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner

pytestmark = LOCAL_RAY
ROWS = 256
TRIAL = TrialConfig.of(
    method="crossattn",
    # Otherwise than RLlib: the rate does not fall, and RLlib's loss does not standardise.
    algorithm=dict(
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
IMITATING = TrialConfig.of("scale", algorithm={"name": "imitation", "expert": "fastest-idle"})
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
def learn() -> Callable[..., tuple[SchedulingLearner, Weights]]:
    """Two iterations of a learner on the same episodes by the same random numbers."""
    runner = ArrayEnvRunner(config=CONFIG, worker_index=0)
    sampled, spaces = [runner.sample(num_timesteps=ROWS) for _ in range(2)], runner.get_spaces()

    def of(config: AlgorithmConfig, kind: type[SchedulingLearner] = SchedulingLearner) -> Any:
        torch.manual_seed(1)
        learner = config.learners(learner_class=kind).build_learner(spaces=spaces)
        for i, episodes in enumerate(sampled):
            update(learner, episodes, seed=i)
        return learner, learner.get_state()["rl_module"]["default_policy"]

    return of


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
    assert learner._obstacle is None
    assert reference._obstacle
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


class AnotherClipping(SchedulingLearner):
    """Gradients of the user's."""

    def postprocess_gradients_for_module(self, *, module_gradients_dict: dict[Any, Any], **kwargs: Any) -> Any:
        usual = super().postprocess_gradients_for_module(module_gradients_dict=module_gradients_dict, **kwargs)
        return {parameter: gradient.sign() for parameter, gradient in usual.items()}


def test_the_lean_learner_takes_a_loss_of_the_users(learn: Any) -> None:
    learner, ours = learn(config_of({}), AnotherLoss)
    _, stock = learn(config_of({}).framework(torch_skip_nan_gradients=True), AnotherLoss)
    assert learner._obstacle is None
    assert distance(ours, stock) < ROUNDING * config_of({}).lr
    assert distance(ours, learn(config_of({}))[1]) > 2e-4


def test_what_the_lean_learner_cannot_follow_rllibs_update_does(learn: Any, caplog: pytest.LogCaptureFixture) -> None:
    plain = learn(config_of({}))[1]
    cases = [
        (config_of({}, learner_connector=lambda *_: Halved()), SchedulingLearner, "learner_connector"),
        (config_of({}).framework(torch_skip_nan_gradients=True), SchedulingLearner, "torch_skip_nan_gradients"),
        (config_of({"minibatch_size": 100}), SchedulingLearner, "minibatch_size 100"),
        (config_of({"train_batch_size_per_learner": 1024}), SchedulingLearner, "fewer than 1024 steps"),
        (config_of({}), AnotherClipping, "AnotherClipping.postprocess_gradients_for_module"),
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


@pytest.mark.parametrize(
    ("trial", "change", "message"),
    [
        (TRIAL, {"training": {"lr": [[0, 1e-3], [1000, 1e-4]]}}, r"lr \[\[0"),
        (TRIAL, {"training": {"use_critic": False}}, "use_critic False"),
        (TRIAL, {"env_runners": {"observation_filter": "MeanStdFilter"}}, "observation_filter 'MeanStdFilter'"),
        (TRIAL, {"environment": {"clip_rewards": True}}, "clip_rewards True"),
        (
            TRIAL,
            {"offline_data": {"output": "/nowhere"}, "env_runners": {"batch_mode": "complete_episodes"}},
            "output '/nowhere'.*OfflineSingleAgentEnvRunner",
        ),
        (TrialConfig.of("dqn"), {"training": {"n_step": 3}}, "n_step 3"),
        (TrialConfig.of("dqn"), {"training": {"dueling": False}}, "dueling False"),
        (TrialConfig.of("dqn"), {"training": {"epsilon": 0.5}}, r"epsilon 0\.5.*algorithm\.epsilon_initial"),
        (TrialConfig.of("sac"), {"training": {"target_entropy": -3.0}}, "target_entropy -3"),
        (TrialConfig.of("sac"), {"training": {"target_network_update_freq": 10}}, "target_network_update_freq 10"),
        (TrialConfig.of("sac"), {"env_runners": {"batch_mode": "complete_episodes"}}, "batch_mode 'complete_"),
        (TrialConfig.of("sac"), {"env_runners": {"rollout_fragment_length": 7}}, "rollout_fragment_length 7"),
        (IMITATING, {"learners": {"learner_connector": lambda *_: Halved()}}, "learner_connector"),
        (IMITATING, {"training": {"clip_param": 0.1}}, r"clip_param 0\.1.*valid: 0\.3"),
        (IMITATING, {"training": {"entropy_coeff": 0.5}}, r"entropy_coeff 0\.5"),
        (IMITATING, {"training": {"num_epochs": 3}}, "num_epochs 3.*algorithm.epochs"),
        (IMITATING, {"training": {"use_critic": False}}, "use_critic False: .*valid: True$"),
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
def test_rates_clipping_and_batches_of_dqn_and_sac_are_the_configurations(algorithm_of: Any, method: str) -> None:
    trial = TrialConfig.of(method, algorithm=SHORT_OFF_POLICY)
    rates = {"lr": 1e-5} if method == "dqn" else {"actor_lr": 1e-5, "critic_lr": 2e-5, "alpha_lr": 3e-5}
    config = build_algorithm_config(trial)
    algorithm = algorithm_of(config.training(train_batch_size_per_learner=8, grad_clip=1e-3, **rates))
    learner, sizes = learner_of(algorithm), set()
    update = learner._update
    learner._update = lambda batch, **kwargs: sizes.add(len(batch["default_policy"]["obs"])) or update(batch)
    algorithm.train()
    assert sizes == {8}
    found = {group["lr"] for o in learner._named_optimizers.values() for group in o.param_groups}
    assert found == set(rates.values())
    for parameters in learner._optimizer_parameters.values():
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        assert norm <= 1.001e-3


def test_the_example_of_the_library_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (Path(__file__).parents[2] / "examples" / "ppo_config.py").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"__name__": "example"}
    exec(code, found)
    assert found["result"]["learners"]["default_policy"]["srr_kl"] > 0
    assert load_policy(tmp_path / "results" / "my-ppo").epochs == 2
