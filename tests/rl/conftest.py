"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from rllib_scale.config import TrialConfig

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm


@pytest.fixture
def algorithm_of() -> Iterator[Callable[[TrialConfig], Algorithm]]:
    """Builds the algorithm of a trial; all of them are stopped at the end of the test."""
    from rllib_scale.rl.methods import build_algorithm_config

    built: list[Algorithm] = []

    def build(trial: TrialConfig) -> Algorithm:
        built.append(build_algorithm_config(trial).build_algo())
        return built[-1]

    yield build
    for algorithm in built:
        algorithm.stop()
