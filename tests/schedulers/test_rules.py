"""Heuristics: each rule on a literal observation, and their figures against the calibration."""

import math

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import evaluate
from rllib_scale.observation.answers import CLOSED, OPEN, TAKEN
from rllib_scale.schedulers.rules import make_scheduler

OBSERVATION = EnvConfig().observation


def observe(compute: float, memory: float, servers: list[tuple[float, float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Observation and fit from physical units: GFLOP, GB, and (GFLOPS, GB, remaining s) of each server."""
    row = [compute / 20, memory / 80, 0.0, 0.0, 0.5]
    for capacity, size, remaining in servers:
        row += [capacity / 4, size / 80, remaining, 0.0, 0.0]
    fit = [[CLOSED if size < memory else TAKEN if remaining else OPEN for _, size, remaining in servers]]
    return np.array([row], dtype=np.float32), np.array([fit], dtype=np.uint8)


#           0 small idle, 1 medium busy 9 s, 2 medium idle, 3 large busy 1 s, 4 large busy 2 s, 5 empty
CLUSTER = [(1.0, 8.0, 0.0), (2.0, 32.0, 9.0), (2.0, 32.0, 0.0), (4.0, 80.0, 1.0), (4.0, 80.0, 2.0), (0.0, 0.0, 0.0)]


@pytest.mark.parametrize(
    ("name", "compute", "memory", "chosen"),
    [
        ("fastest-idle", 10.0, 4.0, 2),  # the large ones are busy, medium beats small
        ("best-fit-memory", 10.0, 4.0, 0),  # small has the least memory that is enough
        ("best-fit-memory", 10.0, 8.5, 2),
        ("earliest-finish", 10.0, 4.0, 3),  # 1 + 10/4 = 3.5 s beats 10/2 = 5 s
        ("earliest-finish", 1.0, 4.0, 2),  # 1/2 = 0.5 s beats 1 + 1/4 s
        ("earliest-finish", 10.0, 40.0, 3),
        ("large-only", 1.0, 4.0, 3),  # waits for the large one that is free first
    ],
)
def test_rule_on_a_literal_cluster(name: str, compute: float, memory: float, chosen: int) -> None:
    scheduler = make_scheduler(name, OBSERVATION)
    scheduler.reset([(0, 0)])
    assert scheduler(*observe(compute, memory, CLUSTER)).tolist() == [chosen]


def test_round_robin_goes_on_after_its_last_choice_and_skips_what_cannot_be() -> None:
    scheduler = make_scheduler("round-robin", OBSERVATION)
    scheduler.reset([(0, 0)])
    assert [int(scheduler(*observe(10.0, 4.0, CLUSTER))[0]) for _ in range(3)] == [0, 2, 0]


def test_random_feasible_takes_every_feasible_server_and_no_other() -> None:
    scheduler = make_scheduler("random-feasible", OBSERVATION)
    scheduler.reset([(0, 0)])
    chosen = {int(scheduler(*observe(10.0, 4.0, CLUSTER))[0]) for _ in range(100)}
    assert chosen == {0, 2}


def test_feasible_mask_keeps_a_waiting_rule_from_waiting() -> None:
    scheduler = make_scheduler("large-only", OBSERVATION, mask="feasible")
    scheduler.reset([(0, 0)])
    assert scheduler(*observe(1.0, 4.0, CLUSTER)).tolist() == [2]


# (completed tasks, response in s) of 30 episodes of an independent implementation, preset `paper`, N = 16.
CALIBRATED = {
    "random-feasible": (11.7, 5.69),
    "fastest-idle": (14.1, 5.63),
    "earliest-finish": (7.6, 4.28),
    "large-only": (7.4, 4.22),
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_figures_agree_with_the_calibration_within_sampling_error(name: str) -> None:
    episodes = 300
    env = EnvConfig()
    rows = evaluate(make_scheduler(name, env.observation), env, seed=1000, episodes=episodes)
    for metric, expected in zip(("completed", "response_mean_s"), CALIBRATED[name], strict=True):
        values = np.array([row[metric] for row in rows], dtype=float)
        values = values[~np.isnan(values)]
        error = values.std(ddof=1) * math.sqrt(1 / len(values) + 1 / 30)
        assert abs(values.mean() - expected) < 3 * error
