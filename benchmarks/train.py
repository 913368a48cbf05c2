"""Training throughput: ours, stock RLlib and the plain loop side by side; memory; several trainings at once."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import ray
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from benchmarks.measure import Measure, Work, interleave, rate_measure, ratio_measure
from benchmarks.plain_ppo import PlainPPO
from rllib_scale.config import TrialConfig
from rllib_scale.experiments.session import ray_session
from rllib_scale.rl.methods import build_algorithm_config

SIDE_BY_SIDE = 4


def run(rounds: int, epochs: int = 3, trial: TrialConfig | None = None) -> list[Measure]:
    """All measures of training.

    Args:
        rounds: of each comparison.
        epochs: of one run.
        trial: what is trained; default: SCALE as the paper trains it, N = 16, 4 environments.
    """
    trial = trial or TrialConfig()
    cores = min(SIDE_BY_SIDE, os.cpu_count() or 1)
    with ray_session(num_cpus=cores):
        return [*_throughput(rounds, epochs, trial), *_side_by_side(rounds, 3 * epochs, trial, cores)]


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
        return epochs * trial.training.steps_per_epoch

    with_compile = trial.model_copy(update={"resources": trial.resources.model_copy(update={"compile": True})})
    with (
        _training(build_algorithm_config(trial), epochs) as ours,
        _training(build_algorithm_config(with_compile), epochs) as compiled,
        _training(stock_config(trial), epochs) as stock,
    ):
        history = interleave({"ours": ours, "compiled": compiled, "stock": stock, "plain": plain_epochs}, rounds)
    return [
        ratio_measure(history, "ours", "stock", "training, ours / stock RLlib", bar=2.5, aim=5.0),
        ratio_measure(history, "ours", "plain", "training, ours / plain loop", bar=1.1, aim=1.5),
        ratio_measure(history, "compiled", "plain", "training, ours with compile / plain loop", bar=1.5, aim=3.0),
        ratio_measure(history, "stock", "plain", "training, stock RLlib / plain loop"),
        *(rate_measure(history, name, f"training, {name}", "steps/s") for name in history[0]),
    ]


@contextlib.contextmanager
def _training(config: PPOConfig, epochs: int) -> Iterator[Work]:
    """A work that trains so many epochs in this process."""
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


# ---------------------------------------------------------------------- processes of their own


class _Process:
    """A training in a worker process of Ray, as sweeps start them."""

    def __init__(self, trial: TrialConfig) -> None:
        self.algorithm = build_algorithm_config(trial).build_algo()

    def train(self, epochs: int) -> dict[str, float]:
        """Train; returns CPU seconds taken and the peak memory of the process so far, in MB."""
        cpu = time.process_time()
        for _ in range(epochs):
            self.algorithm.train()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"cpu_s": time.process_time() - cpu, "peak_mb": peak}


def _side_by_side(rounds: int, epochs: int, trial: TrialConfig, count: int) -> list[Measure]:
    remote: Any = ray.remote(num_cpus=1)(_Process)
    processes = [remote.remote(trial) for _ in range(count)]
    steps = epochs * trial.training.steps_per_epoch
    ends: list[dict[str, float]] = []

    def training(those: list[Any]) -> Work:
        def work() -> float:
            ends.extend(ray.get([process.train.remote(epochs) for process in those]))
            return float(steps * len(those))

        return work

    history = interleave({"one": training(processes[:1]), "all": training(processes)}, rounds)
    for process in processes:
        ray.kill(process)
    # The work is done in other processes: only wall time says anything here.
    speedups = [r["all"]["units"] / r["all"]["wall_s"] / (r["one"]["units"] / r["one"]["wall_s"]) for r in history]
    bar, aim = (3.2, 3.8) if count == SIDE_BY_SIDE else (None, None)
    title = f"{count} trainings side by side / one training, {os.cpu_count()} cores"
    peak = max(end["peak_mb"] for end in ends)
    return [
        Measure(title, "times", statistics.median(speedups), None, bar, aim, rounds=tuple(history)),
        Measure("peak memory of one training process", "MB", peak, None, 700.0, 500.0, True),
    ]
