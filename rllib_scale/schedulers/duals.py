"""Prices of servers' capacity: duals of a linear program that shares kinds of tasks out among classes of servers.

Minimise the weighted execution times of all tasks, with no class asked for more work than it can do:

    min  sum_t sum_k  work_t x_tk weight_t / speed_k    where  sum_k x_tk = 1,  sum_t work_t x_tk <= capacity_k / load

The dual of a class is what another unit of its capacity is worth (L. V. Kantorovich, Management Science 6, 1960). Which
kinds of tasks are at the margin changes in steps as the load rises. A term of entropy smooths the steps (M. Cuturi,
NIPS 2013, for transport problems), and the dual is then a smooth concave function of K prices, which Newton's method
maximises in a few iterations for any number of tasks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import internal

SMOOTHING = 0.15
"""Weight of the entropy, relative to the execution of a mean task on a mean place."""
ITERATIONS, HALVINGS = 30, 20
"""At most, of Newton's method, and of one of its steps."""
LONGEST_STEP = 1.0
"""Largest change of a price in one iteration, in executions of a mean task on a mean place."""
ACCURACY = 1e-6
"""Accuracy of each class's share of the work at which the iterations end."""
CLOSE_TO_FULL = 0.98
"""No load above this share of what is possible is solved."""


class Program(NamedTuple):
    """The linear program and scratch arrays; T kinds of tasks and K classes at most."""

    work: np.ndarray  # (T,) share of all work; they add up to 1
    weight: np.ndarray  # (T,) of a unit of time, 1 in the mean
    fits: np.ndarray  # (T,) int64 whose bit k says whether the kind fits class k
    speed: np.ndarray  # (K,) of a place, 1 in the mean
    capacity: np.ndarray  # (K,) share of all capacity; they add up to 1
    price: np.ndarray  # (K,) written: of a unit of work in each class
    used: np.ndarray  # (K,) share of all work that goes to each class
    share: np.ndarray  # (K,) of one kind
    step: np.ndarray  # (K,)
    trial: np.ndarray  # (K,)
    curvature: np.ndarray  # (K, K)


def room_for(kinds: int, classes: int) -> Program:
    """Arrays for given numbers of kinds and classes."""
    work, weight = np.zeros((2, kinds))
    speed, capacity = np.zeros((2, classes))
    price, used, share, step, trial = np.zeros((5, classes))
    curvature = np.zeros((classes, classes))
    fits = np.zeros(kinds, dtype=np.int64)
    return Program(work, weight, fits, speed, capacity, price, used, share, step, trial, curvature)


@internal
def most_load(kinds, classes, program):  # type: ignore[no-untyped-def]
    """The largest load that all classes can carry, where 1 is as much work as capacity.

    The kinds that fit no other class than those of a set must fit into these: that is enough for all sets (Hall's
    theorem). The classes of one kind, and of two together, are the sets that are looked at. They suffice where the
    classes of any two kinds are disjoint or one's are among the other's, as without labels; else it may be less.
    """
    found = np.inf
    for t in range(kinds):
        if not _is_first(t, program):
            continue
        found = min(found, _load_of(program.fits[t], kinds, classes, program))
        for u in range(t):
            both = program.fits[t] | program.fits[u]
            if both != program.fits[t] and both != program.fits[u] and _is_first(u, program):
                found = min(found, _load_of(both, kinds, classes, program))
    return found


@internal
def _is_first(t, program):  # type: ignore[no-untyped-def]
    """Whether no kind before fits the same classes."""
    for u in range(t):  # noqa: SIM110 (compiled code knows no generators)
        if program.fits[u] == program.fits[t]:
            return False
    return True


@internal
def _load_of(chosen, kinds, classes, program):  # type: ignore[no-untyped-def]
    """Capacity of the classes of a set of bits over the work of the kinds that fit no other class."""
    capacity, work = 0.0, 0.0
    for k in range(classes):
        if chosen >> k & 1:
            capacity += program.capacity[k]
    for t in range(kinds):
        if program.fits[t] & ~chosen == 0:
            work += program.work[t]
    return capacity / work


@internal
def solve(load, kinds, classes, program):  # type: ignore[no-untyped-def]
    """Write to `price` (K,) what a unit of work costs in each class, starting from the prices that are there."""
    price, used, step, trial = program.price, program.used, program.step, program.trial
    value = _evaluate(price, load, kinds, classes, program)
    for _ in range(ITERATIONS):
        # KKT: a class with a price is full, one without is not more than full.
        worst = 0.0
        for k in range(classes):
            step[k] = used[k] - program.capacity[k] / load
            if price[k] > 0.0 or step[k] > 0.0:
                worst = max(worst, abs(step[k]))
        if worst < ACCURACY:
            break
        _newton_step(classes, program)
        # Backtracking: halve the step until the dual, which is maximised, grows.
        length, found = 1.0, -np.inf
        for k in range(classes):  # where hardly any kind is at a margin, the curvature says nothing of far away
            length = min(length, LONGEST_STEP / max(LONGEST_STEP, abs(step[k])))
        for _ in range(HALVINGS):
            for k in range(classes):
                trial[k] = max(0.0, price[k] + length * step[k])
            # With its curvature: the first step is nearly always taken, and the next iteration starts from it.
            found = _evaluate(trial, load, kinds, classes, program)
            if found > value:
                break
            length *= 0.5
        if not found > value:
            break
        value = found
        for k in range(classes):
            price[k] = trial[k]


@internal
def _evaluate(price, load, kinds, classes, program):  # type: ignore[no-untyped-def]
    """The smoothed dual at these prices; writes `used` and `curvature`."""
    used, share, curvature, value = program.used, program.share, program.curvature, 0.0
    for k in range(classes):
        used[k] = 0.0
        value -= price[k] * program.capacity[k] / load
        for j in range(classes):
            curvature[k, j] = 0.0
    for t in range(kinds):
        # Of a kind: -s log sum_k c_k exp(-cost_k / s) over the classes that it fits, taken from the least cost, so that
        # no exponential underflows. Weighed by capacity c_k, splitting a class into two changes nothing.
        least, total = np.inf, 0.0
        for k in range(classes):
            share[k] = program.weight[t] / program.speed[k] + price[k]
            if program.fits[t] >> k & 1:
                least = min(least, share[k])
        for k in range(classes):
            is_choice = program.fits[t] >> k & 1
            share[k] = program.capacity[k] * math.exp((least - share[k]) / SMOOTHING) if is_choice else 0.0
            total += share[k]
        value += program.work[t] * (least - SMOOTHING * math.log(total))
        for k in range(classes):
            # The gradient of the dual in price k is the share of work that goes there, less what it can take.
            share[k] /= total
            used[k] += program.work[t] * share[k]
        for k in range(classes):
            # Minus the Hessian: a softmax's covariance, diag(share) - share share^T, over s.
            of_kind = program.work[t] * share[k] / SMOOTHING
            curvature[k, k] += of_kind
            for j in range(classes):
                curvature[k, j] -= of_kind * share[j]
    return value


@internal
def _newton_step(classes, program):  # type: ignore[no-untyped-def]
    """Turn the gradient in `step` into Newton's step; classes that stay without a price do not move.

    Gaussian elimination of a positive definite matrix, which needs no pivots.
    """
    step, price, matrix = program.step, program.price, program.curvature
    for k in range(classes):
        # At the bound and pushed against it: this price stays 0, and its row leaves the system.
        if price[k] == 0.0 and step[k] <= 0.0:
            step[k] = 0.0
            for j in range(classes):
                matrix[k, j] = matrix[j, k] = 0.0
        # Positive definite even where no kind is at the margin of this class.
        matrix[k, k] += 1e-9 if matrix[k, k] > 0.0 else 1.0
    for k in range(classes):
        for i in range(k + 1, classes):
            factor = matrix[i, k] / matrix[k, k]
            if factor != 0.0:
                for j in range(k, classes):
                    matrix[i, j] -= factor * matrix[k, j]
                step[i] -= factor * step[k]
    # Back substitution.
    for k in range(classes - 1, -1, -1):
        for j in range(k + 1, classes):
            step[k] -= matrix[k, j] * step[j]
        step[k] /= matrix[k, k]
