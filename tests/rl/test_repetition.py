"""Trainings are repeated to the last bit: by their seed, from a checkpoint, and where a remote runner is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.rllib.algorithms.algorithm import Algorithm

from local_ray import LOCAL_RAY
from marks import slow
from networks.observations import random_network
from rl.learned import SHORT, same, train, weights_of
from rllib_scale.config import TrialConfig
from rllib_scale.policies.policy import save_policy

pytestmark = LOCAL_RAY
EPISODES_END = {"episode": {"horizon_s": 3.0}}
DRAWN = {"problems": {"servers": [4, 12], "offered_load": [0.4, 1.2]}}
HELD = {"initial_policy": "policy", "reference_kl_coefficient": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["scale", "dqn", "sac"])
def test_same_seed_same_weights(build: Any, method: str) -> None:
    weights, rows = [], []
    for seed in (5, 5, 6):
        algorithm = build(method, seed=seed)
        rows.append(repr(train(algorithm, 2)))  # repr: a NaN equals itself
        weights.append(weights_of(algorithm))
    assert same(weights[0], weights[1])
    assert rows[0] == rows[1]
    assert not same(weights[0], weights[2])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        slow({"rllibs": ["update"]}),
        slow({"resources": {"env_runners": 2}}),
        slow({"method": "dqn", "algorithm": {"target_update_steps": 50}}),
        slow({"method": "sac"}),
        slow({"method": "sac", "rllibs": ["update"]}),
        slow({"method": "crossattn", "algorithm": SHORT | DRAWN}),
        slow({"method": "crossattn", "algorithm": SHORT | HELD}),
        slow(
            {
                "method": "crossattn",
                "algorithm": {"name": "imitation", "expert": "fastest-idle", "episodes": 8, "holdout_episodes": 6},
            }
        ),
    ],
    ids=str,
)
def test_restored_training_is_the_uninterrupted_one(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_policy(tmp_path / "policy", random_network(seed=5), TrialConfig.of("crossattn"), epochs=3)
    algorithm = build(env=EPISODES_END, **settings)
    train(algorithm, 2)
    algorithm.save_to_path(str(tmp_path / "checkpoint"))
    expected, weights = train(algorithm, 2), weights_of(algorithm)
    algorithm.stop()  # its runners' CPUs are needed
    restored = build(env=EPISODES_END, **settings)
    train(restored, 1)  # whatever it did before must not matter
    restored.restore_from_path(str(tmp_path / "checkpoint"))
    assert repr(train(restored, 2)) == repr(expected)
    assert same(weights_of(restored), weights)


def test_from_checkpoint_makes_an_algorithm_that_resumes(build: Any, tmp_path: Path) -> None:
    algorithm = build(env=EPISODES_END)
    train(algorithm, 2)
    algorithm.save_to_path(str(tmp_path / "checkpoint"))
    expected, weights = train(algorithm, 2), weights_of(algorithm)
    restored = Algorithm.from_checkpoint(str(tmp_path / "checkpoint"))
    try:
        assert repr(train(restored, 2)) == repr(expected)
        assert same(weights_of(restored), weights)
    finally:
        restored.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "noticed"), [("scale", True), ("scale", False), ("sac", False)])
def test_a_killed_remote_runner_makes_no_difference(build: Any, method: str, noticed: bool) -> None:
    """Killed when it is called next; or killed and back before anybody calls it."""
    one, rows, weights = {"num_envs": 1}, [], []
    for kill in (False, True):
        algorithm = build(method, algorithm=SHORT | one, sac=one, resources={"env_runners": 2}, env=EPISODES_END)
        before = train(algorithm, 2)
        if kill:
            end_process(algorithm.env_runner_group._worker_manager.actors()[1], until_back=not noticed)
        rows.append(repr(before + train(algorithm, 2)))
        weights.append(weights_of(algorithm))
        assert algorithm.runner_restarts == kill
        algorithm.stop()
    assert rows[0] == rows[1]
    assert same(*weights)


def end_process(actor: Any, until_back: bool) -> None:
    """Kill -9; wait until Ray has restarted the actor, if so asked."""
    pid = ray.get(actor.apply.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGKILL)
    while until_back:
        try:
            if ray.get(actor.apply.remote(lambda _: os.getpid())) != pid:
                return
        except ray.exceptions.RayError:
            time.sleep(0.1)
