"""Training throughput: ours, stock RLlib and the plain loop side by side."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from benchmarks.measure import Measure, Work, interleave, rate_measure, ratio_measure
from benchmarks.plain_ppo import PlainPPO
from rllib_scale.clusters.session import ray_session
from rllib_scale.config import TrialConfig
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.rl.settings import ppo_of


def run(rounds: int, epochs: int = 3, trial: TrialConfig | None = None) -> list[Measure]:
    """All measures of training.

    Args:
        rounds: rounds of each comparison.
        epochs: epochs of one run.
        trial: the training; default: SCALE with the paper's settings, N = 16, 4 environments.
    """
    trial = trial or TrialConfig.of()
    with ray_session(num_cpus=1):
        return _throughput(rounds, epochs, trial)


def stock_config(trial: TrialConfig) -> Any:
    """RLlib as it comes: its runner over single environments in turn, its learner, PPO without the regulariser."""
    config: Any = build_algorithm_config(trial)
    config.algo_class = PPO
    config.env_runners(env_runner_cls=SingleAgentEnvRunner, gym_env_vectorize_mode="sync")
    config.learners(learner_class=PPOTorchLearner)
    config.callbacks(RLlibCallback)
    return config


def _throughput(rounds: int, epochs: int, trial: TrialConfig) -> list[Measure]:
    plain = PlainPPO(trial)

    def plain_epochs() -> float:
        for _ in range(epochs):
            plain.epoch()
        return epochs * ppo_of(trial).steps_per_epoch

    with (
        training(build_algorithm_config(trial), epochs) as ours,
        training(stock_config(trial), epochs) as stock,
    ):
        history = interleave({"ours": ours, "stock": stock, "plain": plain_epochs}, rounds)
    return [
        ratio_measure(history, "ours", "stock", "training, ours / stock RLlib", bar=2.5, aim=5.0),
        ratio_measure(history, "ours", "plain", "training, ours / plain loop", bar=1.1, aim=1.5),
        ratio_measure(history, "stock", "plain", "training, stock RLlib / plain loop"),
        *(rate_measure(history, name, f"training, {name}", "steps/s") for name in history[0]),
    ]


@contextlib.contextmanager
def training(config: PPOConfig, epochs: int) -> Iterator[Work]:
    """A contestant that trains a number of epochs in this process."""
    with warnings.catch_warnings():
        # Gymnasium's, about a name that RLlib registers for every algorithm.
        warnings.filterwarnings("ignore", message=".*already in registry")
        algorithm = config.build_algo()

    def work() -> float:
        for _ in range(epochs):
            algorithm.train()
        return float(epochs * config.train_batch_size_per_learner)

    try:
        yield work
    finally:
        algorithm.stop()
