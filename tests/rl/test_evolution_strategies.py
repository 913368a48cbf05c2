"""Evolution strategies: their estimate of a gradient, and that neither runners nor a stop change what they find."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from scipy import stats

from local_ray import LOCAL_RAY
from marks import slow
from rllib_scale.rl.evolution.algorithm import EvolutionConfig, EvolutionStrategies
from rllib_scale.rl.evolution.updates import antithetic_gradient, ranked

pytestmark = LOCAL_RAY
BEST = np.array([1.0, -2.0, 0.5])


def bowl() -> Any:
    """A search for BEST, where a job adds noise that is common to the candidates; the class travels by value."""

    class Bowl:
        initial, steps, memory = np.zeros(3), np.array([1.0, 2.0, 1.0]), 0

        def jobs(self, generation: int) -> list[int]:
            return [7 * generation + number for number in range(5)]

        def play(self, weights: Any, job: int) -> Any:
            tilt = np.random.default_rng(job).normal(size=3)
            return ((weights - BEST) ** 2).sum(axis=1) + 0.1 * weights @ tilt

        def judge(self, played: list[Any], jobs: list[int]) -> tuple[Any, dict[str, float]]:
            self.memory += 1
            return np.mean(played, axis=0), {"judged": float(self.memory)}

    return Bowl()


UPDATES: dict[str, dict[str, Any]] = {
    "cma": {},
    "es": {"learning_rate": 0.3, "ranks": True},
    "scores": {"learning_rate": 0.3, "ranks": False},
}


def algorithm(update: str = "es", runners: int = 0) -> EvolutionStrategies:
    settings: dict[str, Any] = {"update": "es" if update == "scores" else update, "population": 8, "step": 0.2}
    config = EvolutionConfig().training(search=bowl(), update_settings=UPDATES[update], entropy=3, **settings)
    return EvolutionStrategies(config=config.env_runners(num_env_runners=runners))


def trained(of: EvolutionStrategies, generations: int) -> list[str]:
    """What is logged of each, to the last digit."""
    return [repr((of.train()["evolution"], of.update.mean.tolist(), of.average.tolist())) for _ in range(generations)]


def test_the_estimate_before_ranking_is_the_gradient_of_a_quadratic() -> None:
    rng, size, step = np.random.default_rng(), 4, 0.7
    seed = rng.bit_generator.seed_seq  # type: ignore[attr-defined]
    half, slope, at = rng.normal(size=(size, size)), rng.normal(size=size), rng.normal(size=size)
    # Over all vectors of signs, whose products of two coordinates have the expectations of normal ones.
    noise = np.array(list(itertools.product([-1.0, 1.0], repeat=size)))

    def score(w: Any) -> Any:
        return np.einsum("ij,jk,ik->i", w, half, w) + w @ slope + 3.0

    estimate = antithetic_gradient(np.concatenate([score(at + step * noise), score(at - step * noise)]), noise, step)
    np.testing.assert_allclose(estimate, (half + half.T) @ at + slope, rtol=1e-9, err_msg=f"seed {seed}")


def test_ranks_are_those_of_scipy() -> None:
    scores = np.random.default_rng().integers(0, 6, 20).astype(float)
    np.testing.assert_allclose(ranked(scores), (stats.rankdata(scores) - 1) / 19 - 0.5)
    assert ranked(np.array([3.0, -1e9])).tolist() == [0.5, -0.5]


@pytest.mark.parametrize("update", ["es", slow("cma"), slow("scores")])
def test_runners_and_a_stop_change_no_digit_and_the_best_is_found(update: str, tmp_path: Path) -> None:
    whole = algorithm(update)
    expected = trained(whole, 40)
    np.testing.assert_allclose(whole.average, BEST, atol=0.3)
    spread = algorithm(update, runners=2)
    assert trained(spread, 2) == expected[:2]
    ray.kill(spread.env_runner_group._worker_manager.actors()[1], no_restart=False)
    assert trained(spread, 2) == expected[2:4], "the jobs of a lost runner are repeated"
    assert spread.runner_restarts == 1
    spread.save_to_path(str(tmp_path / "checkpoint"))
    spread.stop()
    resumed = algorithm(update)
    trained(resumed, 1)  # whatever it did before must not matter
    resumed.restore_from_path(str(tmp_path / "checkpoint"))
    assert trained(resumed, 3) == expected[4:7]
    for each in (whole, resumed):
        each.stop()
