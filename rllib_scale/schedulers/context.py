"""Context features of `context-price`, and the weights that play `price`.

analysis/studies/beyond/README.md has every formula.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.schedulers import PriceParameters

Floats = NDArray[np.float64]
PLAIN = ("a", "b", "age", "alpha")
"""Rows of theta that are as they are; the others, never negative, are a softplus."""
LOAD_S = (30.0, 150.0)
"""Times with which the two averages of the offered load decay."""
LOAD_UNIT = 0.3
"""Unit of the entries of the load, about PRIOR_LOAD."""
PRIOR_LOAD, PRIOR_S = 0.7, 15.0
"""Initial value of the averages of the load, and the time for which it counts [s]."""
AVERAGE_S = 20.0
"""Time with which the averages of queue and work decay."""
LIMIT = 3.0
"""Limit of the absolute value of a context entry."""
ANY_SIZE = (1.0, math.inf)
"""Places between which `size` distinguishes all numbers."""


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


def initial_weights(parameters: PriceParameters, classes: int) -> Floats:
    """W (5 + K, 10 + K) that plays `price` with these numbers in every context."""
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


def interpolation(at: Floats, of: Floats) -> Floats:
    """(A, O) what each of the speeds `of` (O,) contributes to each of `at` (A,), both relative to their slowest."""
    each = [np.interp(np.log(at / at[0]), np.log(of / of[0]), unit) for unit in np.eye(len(of))]
    return np.ascontiguousarray(np.stack(each, axis=1))
