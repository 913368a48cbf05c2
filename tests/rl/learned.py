"""What an algorithm has learned so far."""

from __future__ import annotations

from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


def learner_of(algorithm: Any) -> Any:
    """Its learner, in this process."""
    return algorithm.learner_group._learner


def weights_of(algorithm: Any) -> Weights:
    """Of network and critic, by name."""
    return learner_of(algorithm).get_state()["rl_module"]["default_policy"]


def same(one: Weights, other: Weights) -> bool:
    """To the last bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
