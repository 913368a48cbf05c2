"""CPU time of trainings and evaluations: what `rllib_scale.sweeps.cpu_time` estimates sweeps from."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from typing import Any

from benchmarks.measure import Measure, Work, interleave, rate, sample
from rllib_scale.clusters.session import ray_session
from rllib_scale.config import TrialConfig, scenario
from rllib_scale.evaluation.feature_drift import evaluate_with_features
from rllib_scale.evaluation.play import evaluate
from rllib_scale.networks.build import build_network
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.sweeps.cpu_time import units_per_epoch, workload_tasks
from rllib_scale.sweeps.trainable import make_learner

SCENARIO, RULES = "steady-0.7", ("fastest-idle", "earliest-finish", "reserve", "adaptive-price")
STEPS = {"steps_per_epoch": 256}
TRAININGS: dict[str, dict[str, Any]] = {
    "ppo, 2 passes": {"method": "scale", "algorithm": STEPS | {"passes": 2}},
    "ppo, 8 passes": {"method": "scale", "algorithm": STEPS | {"passes": 8}},
    "dqn": {"method": "dqn", "algorithm": STEPS | {"warmup_steps": 64}},
    "sac": {"method": "sac", "algorithm": STEPS | {"warmup_steps": 64}},
    "imitation": {
        "method": "crossattn",
        "algorithm": STEPS | {"name": "imitation", "expert": "fastest-idle", "episodes": 4, "holdout_episodes": 1},
    },
    "cma-es": {"method": "context-price", "algorithm": {"population": 4, "instances": 2, "validate_every": 1000}},
    "reinforce": {"method": "decima", "algorithm": {"instances": 1, "episodes": 2, "validate_every": 1000}},
}


def run(rounds: int, servers: tuple[int, int] = (16, 48), episodes: int = 2) -> list[Measure]:
    """CPU seconds per 1000 units of each kind of work at two numbers of servers, and of the start of a training.

    A unit is an env step, and of CMA-ES, REINFORCE and evaluations a task of an episode.
    """
    measures = [_start()]
    with ray_session(num_cpus=1):
        for count in servers:
            contestants = {name: _training(data, count) for name, data in TRAININGS.items()}
            contestants |= {
                "evaluation, rules": _rules(count, episodes),
                "evaluation, policy": _policy(count, episodes),
            }
            history = interleave(contestants, rounds)
            measures += [
                Measure(
                    f"{name}, N={count}",
                    "CPU s / 1000",
                    1000 / rate(history, name),
                    1000 / rate(history, name, "wall_s"),
                    at_most=True,
                    rounds=tuple(history),
                )
                for name in contestants
            ]
    return measures


def _start() -> Measure:
    """CPU seconds of a process with the imports of a training."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = "import ray.tune, rllib_scale.rl.methods, rllib_scale.sweeps.learners"
    found = sample(lambda: float(subprocess.run([sys.executable, "-c", code], check=True).returncode + 1))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measure("start of a training", "CPU s", used, found["wall_s"], at_most=True, rounds=(found,))


def _training(data: dict[str, Any], servers: int) -> Work:
    trial = TrialConfig.of(seed=1, env=scenario(SCENARIO).at_scale(servers), **data)
    learner = make_learner(trial, None)
    epochs = iter(range(1, sys.maxsize))

    def work() -> float:
        learner.epoch(next(epochs))
        return units_per_epoch(trial)

    return work


def _rules(servers: int, episodes: int) -> Work:
    env = scenario(SCENARIO).at_scale(servers)

    def work() -> float:
        for name in RULES:
            evaluate(make_scheduler(name, env.observation), env, 1, episodes)
        return len(RULES) * episodes * (workload_tasks(env) or math.nan)

    return work


def _policy(servers: int, episodes: int) -> Work:
    trial = TrialConfig.of("scale", seed=1, env=scenario(SCENARIO).at_scale(servers))
    policy: Any = TrainedPolicy(build_network(trial), trial, epochs=1, mask="feasible")

    def work() -> float:
        evaluate_with_features(policy, trial.env.with_mask("feasible"), 1, episodes)
        return episodes * (workload_tasks(trial.env) or math.nan)

    return work
