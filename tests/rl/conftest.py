"""Algorithms that end with their test, and short trainings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from benchmarks.agreement import rllibs_update
from rl.learned import SHORT, SHORT_OFF_POLICY
from rllib_scale.config import TrialConfig
from rllib_scale.rl.methods import build_algorithm_config

torch.set_num_threads(1)  # tests run side by side


@pytest.fixture
def algorithm_of() -> Iterator[Callable[[TrialConfig | AlgorithmConfig], Algorithm]]:
    """Builds the algorithm of a trial, or of a configuration of RLlib."""
    built: list[Algorithm] = []

    def build(of: TrialConfig | AlgorithmConfig) -> Algorithm:
        config = build_algorithm_config(of) if isinstance(of, TrialConfig) else of
        built.append(config.build_algo())
        return built[-1]

    yield build
    for algorithm in built:
        algorithm.stop()


@pytest.fixture
def build(algorithm_of: Callable[[AlgorithmConfig], Algorithm]) -> Callable[..., Algorithm]:
    """Builds trainings by the settings of their trial, with SRR from the second epoch on and a short warm-up.

    `rllibs`: what RLlib's own code does, "update" and "runner". `as_in_the_paper`: with epochs of the paper's length.
    """

    def build_one(
        method: str = "scale", rllibs: Collection[str] = (), as_in_the_paper: bool = False, **settings: Any
    ) -> Algorithm:
        quick = SHORT_OFF_POLICY | {"steps_per_round": 16, "batch_size": 16, "buffer_size": 1024}
        own = settings.pop("algorithm", {})
        short = quick if method in ("dqn", "sac") else SHORT
        if own.get("name") == "imitation":
            short = {name: value for name, value in SHORT.items() if name not in ("passes", "num_envs")}
        if as_in_the_paper:
            short = {}
        data = {"algorithm": short | own, "srr": {"ramp_start_epoch": 0, "ramp_epochs": 1}, "method": method} | settings
        config = build_algorithm_config(TrialConfig.of(**data))
        if "update" in rllibs:
            config = rllibs_update(config)
        if "runner" in rllibs:
            config.env_runners(env_runner_cls=SingleAgentEnvRunner)
        return algorithm_of(config)

    return build_one
