"""The duals of the servers' capacity, against SciPy's linear programs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from rllib_scale.compiled import compiled
from rllib_scale.schedulers.duals import SMOOTHING, Program, most_load, room_for, solve


@compiled
def _solved(load, kinds, classes, program):  # type: ignore[no-untyped-def]
    solve(load, kinds, classes, program)


@compiled
def _most(kinds, classes, program):  # type: ignore[no-untyped-def]
    return most_load(kinds, classes, program)


class Instance:
    """A linear program of random kinds of tasks and classes of servers, written twice."""

    def __init__(self, seed: int, labelled: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.classes, self.kinds = int(rng.integers(1, 6)), int(rng.integers(1, 25))
        work, weight = rng.random(self.kinds), rng.lognormal(0, 0.8, self.kinds)
        capacity, speed = rng.random(self.classes) + 0.2, rng.uniform(0.3, 3, self.classes)
        self.work, self.capacity = work / work.sum(), capacity / capacity.sum()
        self.weight, self.speed = weight / (weight @ self.work), speed * (self.capacity / speed).sum()
        memory = rng.integers(1, 4, self.classes)
        needs = rng.integers(1, memory.max() + 1, self.kinds)
        self.fits = needs[:, None] <= memory
        if labelled:  # a third of the kinds may run on some of these classes only
            chosen = self.fits & (rng.random(self.fits.shape) < 0.6)
            limited = chosen.any(axis=1) & (rng.random(self.kinds) < 0.3)
            self.fits[limited] = chosen[limited]
        self.program: Program = room_for(self.kinds, self.classes)
        for name in ("work", "weight", "speed", "capacity"):
            getattr(self.program, name)[:] = getattr(self, name)
        self.program.fits[:] = self.fits @ (1 << np.arange(self.classes))
        kind, at = np.nonzero(self.fits)
        self._uses, self._shares = np.zeros((self.classes, len(kind))), np.zeros((self.kinds, len(kind)))
        self._uses[at, np.arange(len(kind))] = self.work[kind]
        self._shares[kind, np.arange(len(kind))] = 1.0
        self._cost = self._uses.sum(axis=0) * (self.weight[:, None] / self.speed)[kind, at]

    def most_load(self) -> float:
        """The largest load that can be shared out, where all of a kind may be split."""
        uses, shares = (
            np.hstack([a, b])
            for a, b in ((self._uses, 0 * self._uses[:, :1]), (self._shares, -1 * np.ones((self.kinds, 1))))
        )
        best = linprog(
            np.append(0 * self._cost, -1), A_ub=uses, b_ub=self.capacity, A_eq=shares, b_eq=np.zeros(self.kinds)
        )
        return float(best.x[-1])

    def least_cost(self, load: float) -> float:
        """Optimum of the linear program at a load."""
        b_ub, b_eq = self.capacity / load, np.ones(self.kinds)
        return float(linprog(self._cost, A_ub=self._uses, b_ub=b_ub, A_eq=self._shares, b_eq=b_eq).fun)

    def bound(self, price: np.ndarray, load: float) -> float:
        """What any prices prove the optimum to be at least."""
        cheapest = np.where(self.fits, self.weight[:, None] / self.speed + price, np.inf).min(axis=1)
        return float(self.work @ cheapest - price @ self.capacity / load)


@pytest.mark.parametrize("seed", range(40))
def test_prices_prove_the_optimum_but_for_the_smoothing(seed: int) -> None:
    instance = Instance(seed)
    most = _most(instance.kinds, instance.classes, instance.program)
    assert most == pytest.approx(instance.most_load())
    for load in (0.5 * most, 0.9 * most, 0.98 * most):
        instance.program.price[:] = 0.0
        _solved(load, instance.kinds, instance.classes, instance.program)
        price, used = instance.program.price, instance.program.used
        full = instance.capacity / load
        assert (price >= 0).all()
        assert (used <= full + 1e-5).all()
        np.testing.assert_allclose(used[price > 0], full[price > 0], atol=1e-5)  # what has a price is full
        least, proven = instance.least_cost(load), instance.bound(price, load)
        assert proven <= least + 1e-9
        assert proven >= least - SMOOTHING * np.log(1 / instance.capacity.min()) - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_kinds_that_may_run_on_some_classes_only_are_priced_alike(seed: int) -> None:
    instance = Instance(seed, labelled=True)
    most = _most(instance.kinds, instance.classes, instance.program)
    possible = instance.most_load()
    assert most >= possible * (1 - 1e-6)
    load = 0.9 * possible
    _solved(load, instance.kinds, instance.classes, instance.program)
    least, proven = instance.least_cost(load), instance.bound(instance.program.price, load)
    assert least - SMOOTHING * np.log(1 / instance.capacity.min()) - 1e-9 <= proven <= least + 1e-9
