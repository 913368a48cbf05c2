"""Algorithms that end with their test, and short trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rl.learned import SHORT
from rllib_scale.config import TrialConfig
from rllib_scale.config.yaml_files import build_model
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
def build(algorithm_of: Callable[[TrialConfig], Algorithm]) -> Callable[..., Algorithm]:
    """Builds trainings by the settings of their trial, with SRR from the second epoch on and a short warm-up."""

    def build_one(method: str = "scale", **settings: Any) -> Algorithm:
        quick = {"warmup_steps": 32, "steps_per_round": 16, "batch_size": 16, "buffer_size": 1024}
        for_all = {"training": SHORT, "srr": {"ramp_start_epoch": 0, "ramp_epochs": 1}, "dqn": {}, "sac": {}}
        data = for_all | {"method": method} | settings
        data |= {name: quick | data[name] for name in ("dqn", "sac")}
        return algorithm_of(build_model(TrialConfig, data, "trial"))

    return build_one
