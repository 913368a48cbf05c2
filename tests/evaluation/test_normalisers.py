"""A policy is shown what it was trained on, in its own units, whatever those of the problem are."""

from __future__ import annotations

import numpy as np

from networks.observations import random_network
from rllib_scale.config import EnvConfig, ObservationConfig, TrialConfig
from rllib_scale.evaluation.play import play
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.simulator.engine import Engine

OWN = ObservationConfig(task_compute_max_gflop=5.0, server_compute_max_gflops=2.0, memory_max_gb=40.0)


def shown_to(policy: TrainedPolicy, env: EnvConfig) -> tuple[Engine, list[np.ndarray]]:
    """The engine after some episodes, and every batch of observations on the way."""
    shown: list[np.ndarray] = []
    return play(policy, env, 3, [0, 1], watch=lambda engine: shown.append(engine.observation.copy())), shown


def test_a_policy_is_evaluated_with_its_own_normalisers() -> None:
    network, env = random_network(), EnvConfig()
    usual = TrainedPolicy(network, TrialConfig.of(env=env), epochs=1)
    other = TrainedPolicy(network, TrialConfig.of(env=env.model_copy(update={"observation": OWN})), epochs=1)
    (one, seen), (two, seen_by_other) = shown_to(usual, env), shown_to(other, env)
    ours, theirs = seen[0].copy(), seen_by_other[0]  # the first decision of each: the same moment
    scales = env.observation
    ours[:, 0] *= scales.task_compute_max_gflop / OWN.task_compute_max_gflop
    ours[:, [1, *range(6, ours.shape[1], 5)]] *= scales.memory_max_gb / OWN.memory_max_gb
    ours[:, 5::5] *= scales.server_compute_max_gflops / OWN.server_compute_max_gflops
    np.testing.assert_allclose(theirs, ours, rtol=1e-6)
    assert not np.allclose(theirs, seen[0])
    assert one.schedule(0).tobytes() != two.schedule(0).tobytes(), "the same weights see other numbers"
    # And it does as in a problem with its normalisers.
    at_home, _ = shown_to(other, env.model_copy(update={"observation": OWN}))
    for b in (0, 1):
        assert at_home.schedule(b).tobytes() == two.schedule(b).tobytes()
        np.testing.assert_equal(at_home.metrics(b), two.metrics(b))
