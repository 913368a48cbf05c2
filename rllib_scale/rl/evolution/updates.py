"""Updates of a search: CMA-ES, or steps along a gradient from antithetic pairs.

CMA-ES: N. Hansen, The CMA evolution strategy: a tutorial, arXiv 1604.00772, by its author's library `cma`. Only the
diagonal of the covariance is learned, which needs fewer generations: R. Ros and N. Hansen, PPSN X, 2008.

Evolution strategies: T. Salimans et al., Evolution strategies as a scalable alternative to reinforcement learning,
arXiv 1703.03864, whose steps are those of Adam.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DECAYS = (0.9, 0.999)
"""Decay of the first and the second moment of Adam."""


class Update(ABC):
    """Proposes candidates (C, W), and learns from their scores (C,); the least is best.

    `mean` (W,) are its current weights, `step` is the size of its steps in units of the initial ones.
    """

    mean: Floats
    step: float

    @abstractmethod
    def ask(self) -> Floats:
        """The candidates of a generation."""

    @abstractmethod
    def tell(self, candidates: Floats, scores: Floats) -> None:
        """Learn from the scores of these candidates."""


class CMA(Update):
    """CMA-ES.

    Args:
        mean: (W,) initial weights.
        steps: (W,) initial deviations, in units of `step`.
        generator: generator of standard normal numbers.
        population: candidates of a generation.
        step: initial.
    """

    def __init__(self, mean: Floats, steps: Floats, generator: np.random.Generator, population: int, step: float):
        import cma  # imports matplotlib

        self.generator = generator
        # cma then writes no files, reads no options from files, and leaves NumPy's global generator alone.
        options = {"popsize": population, "randn": self._normals, "seed": np.nan}
        options |= {"CMA_diagonal": True, "verbose": -10, "verb_log": 0, "verb_disp": 0}
        if (steps != 1).any():
            options["CMA_stds"] = steps
        self._strategy = cma.CMAEvolutionStrategy(mean, step, options)
        self._asked: list[Any] = []
        self._follow()

    def _normals(self, *shape: int) -> Floats:
        return self.generator.standard_normal(shape)

    def _follow(self) -> None:
        self.mean, self.step = np.array(self._strategy.mean), float(self._strategy.sigma)

    def ask(self) -> Floats:
        """See `Update`."""
        self._asked = self._strategy.ask()
        return np.array(self._asked)

    def tell(self, candidates: Floats, scores: Floats) -> None:
        """See `Update`."""
        self._strategy.tell(self._asked, scores.tolist())
        self._follow()


class ES(Update):
    """A step of Adam along the estimate of the gradient from pairs of candidates on either side of the mean.

    Args:
        mean: (W,) initial weights.
        steps: (W,) deviations of candidates, in units of `step`; the search is in units of them.
        generator: generator of standard normal numbers.
        population: candidates of a generation, an even number.
        step: deviation, constant.
        learning_rate: learning rate of Adam.
        ranks: whether scores are replaced by their ranks, from -1/2 to 1/2.
    """

    def __init__(
        self,
        mean: Floats,
        steps: Floats,
        generator: np.random.Generator,
        population: int,
        step: float,
        learning_rate: float,
        ranks: bool,
    ) -> None:
        self.mean, self.step, self._steps, self.generator = mean.copy(), step, steps, generator
        self.pairs, self.learning_rate, self.ranks = population // 2, learning_rate, ranks
        self._moments, self._generation = np.zeros((2, len(mean))), 0
        self._noise = np.zeros((0, len(mean)))

    def ask(self) -> Floats:
        """See `Update`."""
        self._noise = self.generator.standard_normal((self.pairs, len(self.mean)))
        moved = self.step * self._steps * self._noise
        return np.concatenate([self.mean + moved, self.mean - moved])

    def tell(self, candidates: Floats, scores: Floats) -> None:
        """See `Update`."""
        gradient = antithetic_gradient(ranked(scores) if self.ranks else scores, self._noise, self.step)
        self._generation += 1
        decays = np.array(DECAYS)[:, None]
        self._moments = decays * self._moments + (1 - decays) * np.stack([gradient, gradient**2])
        first, second = self._moments / (1 - decays**self._generation)
        self.mean = self.mean - self.learning_rate * self._steps * first / (np.sqrt(second) + 1e-8)


def antithetic_gradient(scores: Floats, noise: Floats, step: float) -> Floats:
    """(W,) estimate of the gradient of a score at the mean.

    Its expectation over standard normal noise is the gradient of the score that is smoothed by noise of that step; of a
    quadratic one, that of the score itself, as the even terms of a pair cancel.

    Args:
        scores: (2 P,) at the mean plus the noise of each pair, then at the mean minus it.
        noise: (P, W) in units of the step.
        step: its deviation.
    """
    above, below = np.split(scores, 2)
    return np.asarray((above - below) @ noise / (2 * step * len(noise)))


def ranked(scores: Floats) -> Floats:
    """Ranks from -1/2, the least, to 1/2; equal scores have the mean of theirs."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(middle[inverse] / max(1, len(scores) - 1) - 0.5)
