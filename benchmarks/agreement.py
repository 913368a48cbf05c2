"""Compares three ways to train SCALE: returns of several seeds during a short training.

    python -m benchmarks.agreement [--seeds 5] [--iterations 20] [--steps 512] [--output FILE]

trains on the paper's problem, N = 16: as a sweep does, by a `PPOConfig` as on docs/library.md, and by RLlib's own
environment runner and update loop. The settings are the paper's except for the decisions of an iteration and the length
of the training; the regulariser has its full weight from the middle on. A seed gives the same initial weights and the
same workloads each way. RLlib's environment runner draws other actions than ours.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from rich.console import Console
from rich.table import Table
from rllib_scale_analysis.stats.intervals import MIN_SEEDS, mean_interval

from benchmarks.__main__ import describe, machine, versions
from rllib_scale.clusters.session import ray_session
from rllib_scale.config import PPO, SRRConfig, TrialConfig
from rllib_scale.files import write_json
from rllib_scale.rl.env_runner import ArrayEnvRunner
from rllib_scale.rl.environment import TRAINING_ENV, register_training_env
from rllib_scale.rl.methods import EpisodeMetrics, build_algorithm_config
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner
from rllib_scale.rl.ppo.ppo_module import SchedulingModule
from rllib_scale.rl.settings import ppo_of
from rllib_scale.rl.vector_env import rllib_seed

PARTS = 4
"""Equal parts of the iterations: a return is the mean of all episodes that ended in one."""

MINIBATCH = PPO(name="ppo").minibatch_size


def users_config(trial: TrialConfig) -> AlgorithmConfig:
    """A PPO training of a trial as a user of RLlib writes it: see docs/library.md."""
    plain, ppo = {"trial": trial.model_dump(mode="json")}, ppo_of(trial)
    register_training_env()
    return (
        PPOConfig()
        .environment(TRAINING_ENV, env_config=plain)
        .env_runners(
            env_runner_cls=ArrayEnvRunner,
            num_env_runners=0,
            num_envs_per_env_runner=ppo.num_envs,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=SchedulingModule, model_config=plain))
        .learners(learner_class=SchedulingLearner, learner_config_dict=plain)
        .training(
            train_batch_size_per_learner=ppo.steps_per_epoch,
            minibatch_size=ppo.minibatch_size,
            num_epochs=ppo.passes,
            gamma=ppo.gamma,
            lr=ppo.learning_rate,
            lambda_=ppo.gae_lambda,
            clip_param=ppo.clip,
            entropy_coeff=ppo.entropy_coefficient,
            vf_loss_coeff=ppo.value_coefficient,
            vf_clip_param=math.inf,
            use_kl_loss=False,
            grad_clip=ppo.gradient_clip,
        )
        .callbacks(EpisodeMetrics)
        .debugging(seed=rllib_seed(trial.seed))
    )


def rllibs_update(config: AlgorithmConfig) -> AlgorithmConfig:
    """RLlib's own update for the lean one, by a setting that changes nothing as long as gradients are finite."""
    return config.framework(torch_skip_nan_gradients=True)


def ways(seed: int, iterations: int, steps: int) -> dict[str, AlgorithmConfig]:
    """The configurations that are compared, by name: see `run`."""
    settings: dict[str, Any] = {
        "seed": seed,
        "algorithm": {"epochs": iterations, "steps_per_epoch": steps},
        "srr": SRRConfig(ramp_start_epoch=0, ramp_epochs=iterations / 2),
    }
    trial = TrialConfig.of(**settings)
    return {
        "sweep": build_algorithm_config(trial),
        "PPOConfig": users_config(trial),
        "RLlib's path": rllibs_update(build_algorithm_config(trial)).env_runners(env_runner_cls=SingleAgentEnvRunner),
    }


def train(config: AlgorithmConfig, iterations: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Train in this process.

    Returns:
        (iterations, 2) of the episodes that ended in each: the sum of their returns and their number; and the weights
        at the end, by name.
    """
    with warnings.catch_warnings():
        # Gymnasium's, about a name that RLlib registers for every algorithm.
        warnings.filterwarnings("ignore", message=".*already in registry")
        algorithm = config.build_algo()
    try:
        results = [algorithm.train() for _ in range(iterations)]
        weights: dict[str, np.ndarray] = algorithm.learner_group.get_weights()["default_policy"]
    finally:
        algorithm.stop()
    ended = [result["env_runners"].get("episodes", {}).get("episode_return", {}) for result in results]
    return np.array([(each.get("sum", 0.0), each.get("count", 0)) for each in ended], dtype=float), weights


def run(seeds: int, iterations: int, steps: int) -> dict[str, Any]:
    """Train every way with every seed, in turn.

    Args:
        seeds: how many, from 0 on; with fewer than 5 there is no interval.
        iterations: of each training; a multiple of `PARTS`.
        steps: decisions of an iteration; a multiple of `MINIBATCH`.

    Returns:
        {"returns": way -> seed -> mean episode return of each part of the iterations, "same weights": pairs of ways
        whose weights are equal to the last bit at the end, for every seed}.
    """
    returns: dict[str, list[list[float]]] = {}
    weights: dict[str, list[dict[str, np.ndarray]]] = {}
    for seed in range(seeds):
        for way, config in ways(seed, iterations, steps).items():
            ended, learned = train(config, iterations)
            total, count = ended.reshape(PARTS, -1, 2).sum(axis=1).T
            returns.setdefault(way, []).append((total / count).tolist())
            weights.setdefault(way, []).append(learned)
    same = [
        (one, other)
        for one, other in itertools.combinations(weights, 2)
        if all(
            np.array_equal(a[name], b[name]) for a, b in zip(weights[one], weights[other], strict=True) for name in a
        )
    ]
    return {"returns": returns, "same weights": same}


def table(returns: Mapping[str, list[list[float]]], iterations: int) -> Table:
    """One row a way: in each part of the iterations the mean return over seeds and its 95 % interval."""
    result = Table("way")
    length = iterations // PARTS
    for k in range(PARTS):
        result.add_column(f"{k * length + 1} to {(k + 1) * length}", justify="right")
    for way, of_seeds in returns.items():
        parts = np.array(of_seeds).T
        cells = [(part.mean(), mean_interval(part[:, None])) for part in parts]
        result.add_row(way, *(f"{mean:.3f} [{i.low:.3f}, {i.high:.3f}]" for mean, i in cells))
    return result


def outside(returns: Mapping[str, list[list[float]]]) -> list[tuple[str, str, int]]:
    """Cases where a way's mean return is outside another's 95 % interval: the way, the other, and the part from 0."""
    return [
        (one, other, k)
        for one, other in itertools.permutations(returns, 2)
        for k in range(PARTS)
        if not (interval := mean_interval(np.array(returns[other])[:, k, None])).low
        <= np.array(returns[one])[:, k].mean()
        <= interval.high
    ]


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="0, 1, ...; 5 for an interval.")
@click.option("--iterations", type=click.IntRange(min=1), default=20, show_default=True, help="A multiple of 4.")
@click.option("--steps", type=click.IntRange(min=1), default=512, show_default=True, help="A multiple of 256.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the returns of every seed (JSON).")
def main(seeds: int, iterations: int, steps: int, output: Path | None) -> None:
    """Train SCALE three ways and compare the returns of episodes."""
    for option, value, unit in (("--iterations", iterations, PARTS), ("--steps", steps, MINIBATCH)):
        if value % unit:
            raise click.BadParameter(f"{value}: is not a multiple of {unit}", param_hint=option)
    torch.set_num_threads(1)
    console, facts = Console(width=120), machine()
    console.print(describe(facts), markup=False)
    with ray_session(num_cpus=1):
        result = run(seeds, iterations, steps)
    console.print(f"Episode return by iterations: mean of {seeds} seeds [95 % interval, Student's, over seeds]")
    console.print(table(result["returns"], iterations))
    for one, other in result["same weights"]:
        console.print(f"{one} and {other}: the same weights to the last bit, with every seed")
    if seeds >= MIN_SEEDS:
        found = outside(result["returns"])
        for one, other, k in found:
            console.print(f"{one}: outside the interval of {other} in part {k + 1} of {PARTS}")
        if not found:
            console.print("Every mean lies within the intervals of the other ways.")
    if output is not None:
        write_json(
            output, {"machine": facts, "versions": versions(), "steps": steps, "iterations": iterations} | result
        )


if __name__ == "__main__":
    main()
