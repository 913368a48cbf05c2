"""The compiled writers of features agree with the plain definition of each set; the reference checks the snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.answers import random_answer
from reference.cases import random_mode_config, random_mode_workload
from reference.observe import fit_of, observe
from rllib_scale.config import EnvConfig
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload
from seeds import examples

seeds = st.integers(0, 2**31)
MOST = 120  # answers of an episode


def problem(seed: int, features: str) -> tuple[EnvConfig, Workload]:
    """A random problem in a random mode that shows a feature set, and a workload for it."""
    rng = np.random.default_rng(seed)
    grid = seed % 2 == 0
    config = random_mode_config(rng, grid)
    observation = config.observation.model_copy(update={"feature_set": features})
    config = EnvConfig.model_validate(config.model_copy(update={"observation": observation}).model_dump())
    return config, Workload.from_dict(random_mode_workload(rng, config, grid), "random")


def moments(config: EnvConfig, workload: Workload, seed: int) -> Any:
    """The engine at every moment of an episode of random answers, the last one included."""
    engine, rng = Engine(config), np.random.default_rng(seed)
    engine.reset([seed], [0], workload=workload)
    for _ in range(MOST):
        yield engine
        if engine.done[0]:
            return
        engine.step([random_answer(rng, engine)])
    yield engine


@pytest.mark.parametrize("features", FEATURE_SETS)
@examples(30)
@given(seed=seeds)
def test_what_is_written_is_what_the_definitions_say(features: str, seed: int) -> None:
    config, workload = problem(seed, features)
    for engine in moments(config, workload, seed):
        now = engine.snapshot()
        np.testing.assert_array_equal(engine.observation[0], observe(now, config))
        np.testing.assert_array_equal(engine.fit[0], fit_of(now, config))
