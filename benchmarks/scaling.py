"""Gain of more processes: environment runners of one training, concurrent trainings, and their memory."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

import ray

from benchmarks.measure import Measure, Round, Work, interleave, rate, ratio
from benchmarks.train import training
from rllib_scale.clusters.session import ray_session
from rllib_scale.config import TrialConfig
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.rl.settings import ppo_of

COUNTS = (1, 2, 4)


def run(
    rounds: int,
    epochs: int = 8,
    trial: TrialConfig | None = None,
    servers: tuple[int, ...] = (16, 128),
    counts: tuple[int, ...] = COUNTS,
) -> list[Measure]:
    """All measures of scaling. The work is done in several processes: only wall time is meaningful.

    Args:
        rounds: rounds of each comparison.
        epochs: epochs of one run.
        trial: the training; default: SCALE with the paper's settings.
        servers: numbers of servers, one comparison of environment runners each.
        counts: numbers of environment runners, and of concurrent trainings; the first is 1.
    """
    trial = trial or TrialConfig.of()
    with ray_session(num_cpus=sum(counts)):  # all environment runners; those of one training work at a time
        measures = [measure for n in servers for measure in _env_runners(rounds, epochs, trial, n, counts)]
        return [*measures, *_side_by_side(rounds, epochs, trial, counts)]


def _env_runners(rounds: int, epochs: int, trial: TrialConfig, servers: int, counts: tuple[int, ...]) -> list[Measure]:
    """One training with remote environment runners, against the same one that samples in its own process."""
    works: dict[str, Work] = {}
    with contextlib.ExitStack() as stack:
        for count in (0, *counts):
            resources = trial.resources.model_copy(update={"env_runners": count})
            config = trial.model_copy(update={"resources": resources, "env": trial.env.at_scale(servers)})
            works[str(count)] = stack.enter_context(training(build_algorithm_config(config), epochs))
        history = interleave(works, rounds)
    title = f"training, N={servers}, environment runners"
    return [
        *(_speed(history, str(count), f"{title}: {count or 'none'}") for count in (0, *counts)),
        *(_gain(history, str(count), "0", f"{title}: {count} / none") for count in counts),
    ]


class _Process:
    """A training in a worker process of Ray, as sweeps start them."""

    def __init__(self, trial: TrialConfig) -> None:
        self.algorithm = build_algorithm_config(trial).build_algo()

    def train(self, epochs: int) -> float:
        """Train; returns the peak memory of the process so far [MB]."""
        for _ in range(epochs):
            self.algorithm.train()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _side_by_side(rounds: int, epochs: int, trial: TrialConfig, counts: tuple[int, ...]) -> list[Measure]:
    remote: Any = ray.remote(num_cpus=1)(_Process)
    processes = [remote.remote(trial) for _ in range(max(counts))]
    peaks: list[float] = []

    def together(count: int) -> Work:
        def work() -> float:
            peaks.extend(ray.get([process.train.remote(epochs) for process in processes[:count]]))
            return float(epochs * ppo_of(trial).steps_per_epoch * count)

        return work

    history = interleave({str(count): together(count) for count in counts}, rounds)
    for process in processes:
        ray.kill(process)
    cores = os.cpu_count() or 1
    bars = {4: (3.2, 3.8)} if cores >= 4 else {}
    return [
        *(_speed(history, str(count), f"trainings side by side: {count}") for count in counts),
        *(
            _gain(history, str(count), "1", f"trainings side by side: {count} / 1, {cores} cores", *bars.get(count, ()))
            for count in counts[1:]
        ),
        Measure("peak memory of one training process", "MB", max(peaks), None, 700.0, 500.0, True),
    ]


def _speed(history: list[Round], name: str, title: str) -> Measure:
    return Measure(title, "steps/s", rate(history, name, "wall_s"), rounds=tuple(history))


def _gain(
    history: list[Round], name: str, other: str, title: str, bar: float | None = None, aim: float | None = None
) -> Measure:
    return Measure(title, "times", ratio(history, name, other, "wall_s"), None, bar, aim, rounds=tuple(history))
