"""What `context-price` looks at and what it makes of it, in plain code: context, theta, prices of a cluster's rows.

docs/context-price.md has every formula; `context_rounds` is the same for a batch, compiled.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.schedulers import PriceParameters
from rllib_scale.observation.snapshot import BUSY, Snapshot

Floats = NDArray[np.float64]
PLAIN = ("a", "b", "age", "alpha")
"""Rows of theta that are as they are; the others, never negative, are a softplus."""
LOAD_S = (30.0, 150.0)
"""Times with which the two averages of the offered load decay."""
LOAD_UNIT = 0.3
"""Of the entries of the load, about PRIOR_LOAD."""
PRIOR_LOAD, PRIOR_S = 0.7, 15.0
"""What the averages of the load begin with, and for how long it counts."""
AVERAGE_S = 20.0
"""Time with which the averages of queue and work decay."""
LIMIT = 3.0
"""Of every context entry, either side of 0."""
ANY_SIZE = (1.0, math.inf)
"""Rows between which `size` tells all numbers apart."""


def theta_names(classes: int) -> tuple[str, ...]:
    """The 5 + K entries of theta for K classes of speed.

    >>> theta_names(3)
    ('a', 'b', 'age', 'alpha', 'kappa', 'price_2', 'price_3', 'penalty')
    """
    return (*PLAIN, "kappa", *(f"price_{k}" for k in range(2, classes + 1)), "penalty")


def context_names(classes: int) -> tuple[str, ...]:
    """The 9 + K entries of the context for K classes of speed."""
    idle = tuple(f"idle_{k}" for k in range(1, classes + 1))
    return ("size", "load_30", "load_150", "queue", "ready_work", "work", *idle, "queue_20", "work_20", "tasks")


def link(linear: Floats) -> Floats:
    """Theta (..., 5 + K) from W [1, context]."""
    theta = np.logaddexp(0.0, linear)
    theta[..., : len(PLAIN)] = linear[..., : len(PLAIN)]
    return theta


def initial_weights(parameters: PriceParameters, classes: int) -> Floats:
    """W (5 + K, 10 + K) that plays `price` with these numbers, whatever the context is."""
    p = parameters
    prices = [p.prices[min(k, len(p.prices) - 1)] for k in range(classes - 1)]
    theta = np.array([p.a, p.b, p.age, p.alpha, p.kappa, *prices, p.penalty])
    weights = np.zeros((len(theta), 1 + len(context_names(classes))))
    weights[:, 0] = theta
    at_least = np.maximum(theta[len(PLAIN) :], 1e-3)  # softplus has no 0
    weights[len(PLAIN) :, 0] = at_least + np.log(-np.expm1(-at_least))
    return weights


def speeds_of(capacity: Floats) -> Floats:
    """(K,) the speeds of a cluster [GFLOPS], slowest first."""
    return np.unique(capacity[capacity > 0])


class Observed:
    """What a `ContextPrice` remembers of one environment: averages of load, queue and work.

    Args:
        sizes: as for `ContextPrice`.
    """

    def __init__(self, sizes: tuple[float, float] = ANY_SIZE) -> None:
        self._sizes = sizes
        self._arrived = 0
        self._work_s = np.zeros(2)  # arrived work over capacity, decayed
        self._mean = np.zeros(2)  # tasks that wait over rows; work in the system over capacity [s]
        self._held = np.zeros(2)
        self._clock_s = 0.0
        self._entries: Floats | None = None

    def context(self, snapshot: Snapshot, speeds: Floats) -> Floats:
        """(9 + K,) the context for the classes `speeds` (K,); of an event, what it was when first asked for in it."""
        if self._entries is not None and snapshot.clock_s == self._clock_s:
            return self._entries
        there = snapshot.status <= BUSY
        rows, capacity = max(1, int(there.sum())), float(snapshot.capacity_gflops[there].sum()) or np.inf
        live = [snapshot.workflow(number) for number in snapshot.workflows]
        work_s = sum(float(w.compute_gflop[~w.completed].sum()) for w in live) / capacity
        tasks = sum(int((~w.completed).sum()) for w in live) / rows
        queue = len(snapshot.ready) / rows

        now, decay = snapshot.clock_s, np.array(LOAD_S)
        self._work_s *= np.exp(-(now - self._clock_s) / decay)
        for workflow in live:
            if workflow.index >= self._arrived:
                self._work_s += workflow.compute_gflop.sum() / capacity * np.exp(-(now - workflow.arrival_s) / decay)
        self._arrived = snapshot.num_arrived
        load = (self._work_s + PRIOR_LOAD * PRIOR_S) / (decay * -np.expm1(-now / decay) + PRIOR_S)

        keeps = np.exp(-(now - self._clock_s) / AVERAGE_S)
        self._mean = keeps * self._mean + (1.0 - keeps) * self._held
        self._held, self._clock_s = np.array([queue, work_s]), now
        entries = (
            np.log2(np.clip(rows, *self._sizes) / 16) / 3,
            *(load - PRIOR_LOAD) / LOAD_UNIT,
            2.0 * np.log1p(queue) - 0.6,
            np.log1p(float(snapshot.ready["compute_gflop"].sum()) / capacity) - 0.7,
            np.log1p(work_s) - 2.0,
            *(2.0 * idle_shares(snapshot, speeds) - 0.6),
            2.0 * np.log1p(self._mean[0]) - 0.6,
            np.log1p(self._mean[1]) - 2.0,
            1.5 * np.log1p(tasks) - 1.5,
        )
        self._entries = np.clip(np.array(entries), -LIMIT, LIMIT)
        return self._entries


def idle_shares(snapshot: Snapshot, speeds: Floats) -> Floats:
    """(K,) share of the rows of each class that are idle; between the classes of the cluster, where it has others."""
    there, own = snapshot.status <= BUSY, speeds_of(snapshot.capacity_gflops)
    of = np.searchsorted(own, snapshot.capacity_gflops[there])
    idle = np.bincount(of, weights=snapshot.idle[there], minlength=len(own))
    shares = idle / np.maximum(1, np.bincount(of, minlength=len(own)))
    return np.asarray(interpolation(speeds, own) @ shares)


def row_prices(prices: Floats, speeds: Floats, capacity: Floats) -> Floats:
    """(N,) price of a second on each row, from those (K - 1,) of the classes `speeds` (K,).

    On a cluster of other classes a price stands where the speed, relative to the slowest row, puts it: linear in the
    logarithm between two classes, the last price beyond the fastest.
    """
    own = speeds_of(capacity)
    each = interpolation(own, speeds) @ np.concatenate([[0.0], prices])
    return np.where(capacity > 0, each[np.minimum(np.searchsorted(own, capacity), len(own) - 1)], 0.0)


def interpolation(at: Floats, of: Floats) -> Floats:
    """(A, O) what each of the speeds `of` (O,) contributes to each of `at` (A,), both relative to their slowest."""
    each = [np.interp(np.log(at / at[0]), np.log(of / of[0]), unit) for unit in np.eye(len(of))]
    return np.ascontiguousarray(np.stack(each, axis=1))
