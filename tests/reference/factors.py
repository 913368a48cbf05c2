"""Errors of estimates and stragglers of a whole workload, drawn task by task."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.workloads.generators import estimate_parameters
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.random_numbers import ESTIMATES, STRAGGLERS, lognormal, new_generator, uniform


def estimate_factors(config: EnvConfig, seed: int, episode: int, workload: Workload) -> np.ndarray:
    """(T,) estimated compute demand over the true one, of each task of a workload."""
    if config.information.estimate_error == 0:
        return np.ones(workload.num_tasks)
    rng = new_generator(seed, episode, ESTIMATES)
    mean, std = estimate_parameters(config.information.estimate_error)
    return np.array([lognormal(rng, mean, std) for _ in range(workload.num_tasks)], dtype=np.float64)


def straggler_factors(config: EnvConfig, seed: int, episode: int, workload: Workload) -> np.ndarray:
    """(T,) true compute demand over that of the workload, of each of its tasks."""
    information = config.information
    if not information.straggles:
        return np.ones(workload.num_tasks)
    rng = new_generator(seed, episode, STRAGGLERS)
    drawn = np.array([uniform(rng) for _ in range(workload.num_tasks)], dtype=np.float64)
    return np.where(drawn < information.straggler_share, information.straggler_factor, 1.0)
