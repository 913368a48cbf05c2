"""The order of tasks, learned: CMA-ES over what is added to the key and to theta of `adaptive-price`.

python analysis/studies/learning/order.py search 1        # seed; what it found, and how that does on other problems
python analysis/studies/learning/order.py unpriced 771    # seed of the problems: no prices, and a cost of busy servers

Searched are `scarce` and constants that are added to rows of theta. Per cent against the rule, 95 % over problems.
"""

import sys

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.config.family import Family
from rllib_scale.evaluation.candidates import Instance, outcomes_of
from rllib_scale.observation.view import View
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.adaptive_terms import THETA
from rllib_scale.schedulers.asked_visits import ALPHA, KAPPA, PENALTY, WAITING
from rllib_scale.schedulers.visits import NUMBERS
from rllib_scale.sweeps.validated import OBJECTIVES
from rllib_scale.workloads.family import draw_kind

ADDED = {"scarce": 0.5, "a": 0.15, "b": 0.15, "age": 0.05, "alpha": 0.15, "kappa": 0.3}
"""What is searched, and the first steps."""
GENERATIONS, POPULATION, PROBLEMS, SHOWN = 25, 12, 24, 80
PENALTIES = (0.0, 0.15, 0.3, 0.6, 1.0)
"""Costs of a server that has to be waited for, in tau, without prices."""


class Ordered(AdaptivePrice):
    """Every copy of an episode is played with another row of numbers (C, len(ADDED))."""

    def __init__(self, numbers: np.ndarray) -> None:
        super().__init__()
        self.weights, self.scarce = np.repeat(self.weights[None], len(numbers), axis=0), numbers[:, 0]
        for column, name in enumerate(list(ADDED)[1:], start=1):
            self.weights[:, THETA.index(name), 0] += numbers[:, column]

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """See `PricingDispatcher.terms`."""
        numbers, prices = super().terms(view)
        numbers[:, NUMBERS.index("scarce")] = np.maximum(0.0, self.scarce)
        return numbers, prices


class Unpriced(Ordered):
    """As `skip: naive` begins, with a `scarce` and a `penalty` (C, 2) in each copy but the first, which is the rule."""

    def __init__(self, tried: np.ndarray) -> None:
        super().__init__(np.pad(tried[:, :1], ((0, 0), (0, len(ADDED) - 1))))
        self.penalties = tried[1:, 1]

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """See `PricingDispatcher.terms`."""
        numbers, prices = super().terms(view)
        means = self.learned.prices.means[1:]
        numbers[1:, KAPPA], prices[1:] = WAITING, 0.0
        numbers[1:, PENALTY] = self.penalties * means["tau"] * means["descendants"] ** numbers[1:, ALPHA]
        return numbers, prices


def played(numbers: np.ndarray, problems: list[tuple[EnvConfig, int]], player: type[Ordered] = Ordered) -> np.ndarray:
    """(P, 3, C) logs of mean response, mean JCT and its 95th percentile."""
    found = (outcomes_of(player(numbers), len(numbers), Instance(env, seed)) for env, seed in problems)
    return np.array([np.log([of.response_s, of.makespan_s, of.tail_s]) for of in found])


def drawn(seed: int, first: int, count: int, revealed: bool) -> list[tuple[EnvConfig, int]]:
    """Problems `first` and later of a stream, and seeds of their workloads."""
    rngs = [np.random.default_rng([seed, k]) for k in range(first, first + count)]
    return [(draw_kind(Family(), rng, "basic", revealed), int(rng.integers(2**62))) for rng in rngs]


def show(title: str, names: list[str], logs: np.ndarray) -> None:
    """Print against the first one."""
    change = 100 * (logs - logs[:, :, :1])
    mean, half = change.mean(axis=0), 2.0 * change.std(axis=0, ddof=1) / np.sqrt(len(change))
    for v in range(1, len(names)):
        parts = (f"{name} {mean[m, v]:+.2f} ± {half[m, v]:.2f}" for m, name in enumerate(("response", "JCT", "p95")))
        print(f"{title:20} {names[v]:22} {', '.join(parts)}", flush=True)


def search(seed: int) -> None:
    """CMA-ES on the family, whole and revealed in turn, and the mean of its means on other problems."""
    import cma

    options = {"popsize": POPULATION, "CMA_stds": list(ADDED.values()), "seed": seed, "verbose": -9}
    strategy = cma.CMAEvolutionStrategy(np.zeros(len(ADDED)), 1.0, options)
    average = np.zeros(len(ADDED))
    for generation in range(GENERATIONS):
        half, first = PROBLEMS // 2, generation * PROBLEMS
        problems = drawn(seed, first, half, False) + drawn(seed, first + half, half, True)
        candidates = strategy.ask()
        scores = np.tensordot(OBJECTIVES["balanced"], played(np.array(candidates), problems).mean(axis=0), 1)
        strategy.tell(candidates, scores.tolist())
        average += 4.0 / (generation + 4.0) * (strategy.mean - average)  # the average of `sweeps.evolution`
    print(f"seed {seed}:", ", ".join(f"{name} {x:+.2f}" for name, x in zip(ADDED, average, strict=True)))
    for revealed in (False, True):
        logs = played(np.stack([0 * average, average]), drawn(1_000 + seed, 0, SHOWN, revealed))
        show("revealed" if revealed else "whole", ["the rule", "searched"], logs)


def unpriced(seed: int) -> None:
    """Every penalty in both orders, on problems that are drawn."""
    tried = [(scarce, penalty) for scarce in (0.0, 1.0) for penalty in PENALTIES]
    for revealed in (False, True):
        found = played(np.array([(0.0, 0.0), *tried]), drawn(seed, 0, SHOWN, revealed), Unpriced)
        names = ["the rule", *(f"scarce {scarce:g}, penalty {penalty:g}" for scarce, penalty in tried)]
        show("revealed" if revealed else "whole", names, found)


if __name__ == "__main__":
    {"search": search, "unpriced": unpriced}[sys.argv[1]](int(sys.argv[2]))
