"""The baseline over copies on problems small enough to enumerate: unbiased, and less variance than a critic."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.rl.copies_env import CopiesVectorEnv
from rllib_scale.rl.ppo.group import group_advantages
from rllib_scale.rl.ppo.lean_update import advantage_estimates
from rllib_scale.schedulers.asked_visits import ADAPTIVE
from rllib_scale.workloads.model import Workload
from schedulers.instances import TWO
from small_moments import workload

ENV = EnvConfig.model_validate(TWO.model_dump() | {"reward": {"name": "tasks-in-system"}})
COLUMNS = [RELATIVE.server_column("cost"), RELATIVE.server_column("lasts")]
THETA = np.array([-0.4, -0.3])
SMALL, LARGE = 2.0, 12.0
"""Memory of tasks that fit both servers, and the large one alone."""


def problem(later: int) -> Workload:
    """Three tasks that both servers can take; `later` large ones arrive when the first have been decided on."""
    free = [(0.0, [(4.0, SMALL)], []), (0.0, [(6.0, SMALL)], []), (0.5, [(3.0, SMALL)], [])]
    return workload(*free, *[(1.0, [(4.0, LARGE)], [])] * later)


class Trajectory(NamedTuple):
    """One way in which an episode can go: T decisions."""

    rows: list[bytes]  # what was seen
    features: list[np.ndarray]  # (servers, 2) of the servers to choose from
    choices: list[int]
    rewards: np.ndarray
    elapsed: np.ndarray

    def logp(self, theta: np.ndarray) -> np.ndarray:
        """(T,)"""
        logits = [x @ theta for x in self.features]
        return np.array([z[a] - np.log(np.exp(z).sum()) for z, a in zip(logits, self.choices, strict=True)])

    @property
    def scores(self) -> np.ndarray:
        """(T, 2) gradients of the log-probabilities, by hand."""
        found = []
        for x, a in zip(self.features, self.choices, strict=True):
            p = np.exp(x @ THETA)
            found.append(x[a] - p @ x / p.sum())
        return np.array(found)

    @property
    def returns(self) -> np.ndarray:
        """(T,) of all that follows."""
        return np.cumsum(self.rewards[::-1])[::-1]


def all_ways(given: Workload) -> list[Trajectory]:
    """Every sequence of choices, by depth-first search."""
    env, found, prefixes = CopiesVectorEnv(1, ENV, 0, None, ADAPTIVE), [], [()]
    while prefixes:
        prefix: tuple[int, ...] = prefixes.pop()
        env.begin(given)
        rows, features, choices, rewards, elapsed = [], [], [], [], []
        while len(env.deciding):
            row, at = env.visits.rows[0].copy(), len(choices)
            shown = row[RELATIVE.head() :].reshape(-1, RELATIVE.server_dim)
            servers = np.flatnonzero(shown[:, RELATIVE.server_column("capacity")])
            if at >= len(prefix):
                prefixes += [(*choices, other) for other in range(1, len(servers))]
            choices.append(prefix[at] if at < len(prefix) else 0)
            rows.append(row.tobytes())
            features.append(shown[servers][:, COLUMNS].astype(float))
            env.step(servers[choices[-1:]])
            rewards.append(env.earned[0])
            elapsed.append(env.passed[0])
        found.append(Trajectory(rows, features, choices, np.array(rewards), np.array(elapsed)))
    return found


@pytest.fixture(scope="module")
def ways() -> list[list[Trajectory]]:
    """Of two problems, equally likely, that look the same until the large tasks arrive."""
    return [all_ways(problem(later)) for later in (0, 6)]


def chances(trajectories: list[Trajectory], theta: np.ndarray = THETA) -> np.ndarray:
    """Of each of all ways of one problem; they add up to 1."""
    p = np.exp([each.logp(theta).sum() for each in trajectories])
    assert p.sum() == pytest.approx(1)
    return p


def moments(estimates: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
    """Mean (2,) and total variance of estimates (M, 2)."""
    mean = p @ estimates
    return mean, float(p @ ((estimates - mean) ** 2).sum(1))


def over_copies(trajectories: list[Trajectory], horizon_s: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Estimates (M, 2) of every pair of copies, and how likely it is."""
    p, scores = chances(trajectories), [each.scores for each in trajectories]
    found, likely = [], []
    for i, k in itertools.product(range(len(trajectories)), repeat=2):
        pair: Any = trajectories[i], trajectories[k]
        a, b = group_advantages([t.rewards for t in pair], [t.elapsed for t in pair], horizon_s)
        found.append((a @ scores[i] + b @ scores[k]) / 2)
        likely.append(p[i] * p[k])
    return np.array(found), np.array(likely)


def test_the_expected_estimate_is_the_gradient_of_the_mean_return(ways: list[list[Trajectory]]) -> None:
    for trajectories in ways:
        assert len(trajectories) > 8

        def mean_return(theta: np.ndarray, of: list[Trajectory] = trajectories) -> float:
            return float(chances(of, theta) @ [each.rewards.sum() for each in of])

        step = 1e-5 * np.eye(2)
        true = [(mean_return(THETA + e) - mean_return(THETA - e)) / 2e-5 for e in step]
        mean, _ = moments(*over_copies(trajectories, None))
        np.testing.assert_allclose(mean, true, rtol=1e-6)
        assert np.abs(true).min() > 0.01


def test_with_a_horizon_it_is_the_gradient_that_counts_what_follows_within_it(ways: list[list[Trajectory]]) -> None:
    horizon_s = 3.0
    for trajectories in ways:
        expected = np.zeros(2)
        for p, each in zip(chances(trajectories), trajectories, strict=True):
            starts = np.append(0.0, np.cumsum(each.elapsed))
            for t, score in enumerate(each.scores):
                later = starts[t:] - starts[t]
                weights = horizon_s * (np.exp(-later[:-1] / horizon_s) - np.exp(-later[1:] / horizon_s))
                lasts = np.maximum(1e-12, each.elapsed[t:])
                expected += p * float((each.rewards[t:] / lasts) @ weights) * score
        mean, _ = moments(*over_copies(trajectories, horizon_s))
        np.testing.assert_allclose(mean, expected, rtol=1e-6)


def test_its_variance_is_below_that_of_the_best_critic(ways: list[list[Trajectory]]) -> None:
    both = [(p / 2, each) for of in ways for p, each in zip(chances(of), of, strict=True)]
    sums: dict[bytes, np.ndarray] = {}
    for p, each in both:
        for row, value in zip(each.rows, each.returns, strict=True):
            sums[row] = sums.get(row, np.zeros(2)) + p * np.array([value, 1.0])
    value_of = {row: total / weight for row, (total, weight) in sums.items()}  # of all functions of what is seen
    estimates = []
    for _, each in both:
        values = np.array([*(value_of[row] for row in each.rows), 0.0])
        lengths, ended = np.array([len(each.rewards)]), np.array([True])
        advantages, _ = advantage_estimates(each.rewards, values, lengths, ended, 1.0, 1.0)
        estimates.append(advantages @ each.scores)
    by_critic, variance = moments(np.array(estimates), np.array([p for p, _ in both]))
    groups = [over_copies(of, None) for of in ways]
    of_groups = np.concatenate([found for found, _ in groups]), np.concatenate([p / 2 for _, p in groups])
    by_group, of_group = moments(*of_groups)
    np.testing.assert_allclose(by_group, by_critic, rtol=1e-6)  # both are unbiased
    assert of_group < 0.5 * variance / 2  # of two episodes each
