"""Dispatchers that visit every waiting task at each event: nobody is blocked, and a task may wait for a better row.

They play any problem, for their reservations are their own (see `visiting`). Demands are those that are seen; a slot's
slowdown by its neighbours is not counted.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from rllib_scale.config.schedulers import PriceParameters
from rllib_scale.observation.moments import Moments
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.rounds import NUMBERS, Rounds
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, FASTEST_OPEN, LEAST_COST, Descendants, Rows, starts

FAR_S = 1e9
"""Cost of a row that does not fit in an assignment."""


class VisitingDispatcher(Dispatcher):
    """Sees the descendants of each waiting task and keeps an account of them for each environment."""

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Dispatcher.reset`."""
        super().reset(seeds)
        self._descendants = [Descendants() for _ in seeds]

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """See `Dispatcher.dispatch`."""
        return starts(self.decide(snapshot, self._descendants[snapshot.index](snapshot)))

    def row_for(self, snapshot: Snapshot, at: int) -> int:
        """Row on which the waiting task `ready[at]` starts or for which it waits, were it visited first; -1: none."""
        ready = snapshot.ready.copy()
        ready["memory_gb"][np.arange(len(ready)) != at] = np.inf  # the others are there, and fit nowhere
        answers = self.decide(replace(snapshot, ready=ready), self._descendants[snapshot.index](snapshot))
        row = int(answers[0, 2]) if len(answers) else -1
        return row if row >= -1 else -2 - row

    @abstractmethod
    def decide(self, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
        """As `dispatch`, and -2 - row of tasks that wait; `descendants` (R,) of those visited, itself included."""


class CompiledRounds(VisitingDispatcher):
    """Decides from `Moments`, for a whole batch at once, as it does from snapshots one by one.

    Attributes:
        rounds: what visits, since `reset`.
    """

    sees_moments = True

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Dispatcher.reset`."""
        super().reset(seeds)
        self.rounds = Rounds()


class NonBlocking(CompiledRounds):
    """The fastest idle row that fits, for every waiting task in a named order; who finds none blocks nobody."""

    name = "non-blocking"
    description = "the fastest idle row that fits, for all waiting tasks in order; who finds none blocks nobody"

    def decide(self, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        order = named_order(self.parameters.order, snapshot, descendants)
        return Rows(snapshot).visit(snapshot, order, FASTEST_OPEN)

    def dispatch_all(self, moments: Moments) -> np.ndarray:
        """See `Dispatcher.dispatch_all`."""
        return self.rounds.by_name(moments, self.parameters.order, FASTEST_OPEN)


class Reserve(CompiledRounds):
    """The earliest finish over all rows, where `waiting` times that is before the best idle row's; else that one."""

    name = "reserve"
    description = "as non-blocking, but a task waits for a busy row that finishes it so much earlier"

    def decide(self, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        order = named_order(self.parameters.order, snapshot, descendants)
        return Rows(snapshot).visit(snapshot, order, EARLIEST_FINISH, self.parameters.waiting)

    def dispatch_all(self, moments: Moments) -> np.ndarray:
        """See `Dispatcher.dispatch_all`."""
        return self.rounds.by_name(moments, self.parameters.order, EARLIEST_FINISH, self.parameters.waiting)


class Price(CompiledRounds):
    """Time on a fast row has a price, and tasks that many wait for pay more for being early (see PriceParameters).

    The default numbers are one compromise for the paper's cluster at loads of 0.5 to 1.1, by a short random search on
    the mean response of 16 servers. Prices that are good at one load are bad at another.
    """

    name = "price"
    description = "the row of least weighted finish time and price of its class, for tasks by descendants, work and age"

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Dispatcher.reset`."""
        super().reset(seeds)
        self._numbers = self._row_prices = np.zeros((0, 0))

    def decide(self, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        p = self.parameters
        return Rows(snapshot).visit(
            snapshot,
            by_key(price_key(p, snapshot, descendants), snapshot),
            LEAST_COST,
            p.kappa,
            descendants**p.alpha,
            self.row_prices(snapshot.capacity_gflops, snapshot.memory_gb),
            p.penalty,
        )

    def row_prices(self, capacity: np.ndarray, memory: np.ndarray) -> np.ndarray:
        """(..., N) what a second costs on rows of so many GFLOPS (N,) and GB (..., N) of their server."""
        return np.broadcast_to(class_prices(self.parameters.prices, capacity), memory.shape)

    def batch_prices(self, moments: Moments) -> np.ndarray:
        """(B, N) `row_prices` of a batch. Those of this rule never change."""
        if self._row_prices.shape != moments.limit.shape:
            self._row_prices = np.ascontiguousarray(self.row_prices(moments.capacity, moments.limit))
        return self._row_prices

    def dispatch_all(self, moments: Moments) -> np.ndarray:
        """See `Dispatcher.dispatch_all`."""
        if len(self._numbers) != len(moments.env):
            self._numbers = np.tile([float(getattr(self.parameters, name)) for name in NUMBERS], (len(moments.env), 1))
        return self.rounds.by_price(moments, self._numbers, self.batch_prices(moments))


class Hungarian(VisitingDispatcher):
    """All waiting tasks and all rows, busy ones too, matched at least total cost; who is matched to a busy row waits.

    Source: H. W. Kuhn, The Hungarian method for the assignment problem, 1955; solved by SciPy.
    """

    name = "hungarian"
    description = "waiting tasks and rows, busy ones too, matched for the least sum of weighted finish times"

    def decide(self, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        rows, ready = Rows(snapshot), snapshot.ready
        order = named_order("most-descendants", snapshot, descendants)
        fits = ready["memory_gb"][order][:, None] <= rows.limit
        lasts = np.zeros(fits.shape)
        np.divide(ready["compute_gflop"][order][:, None], rows.capacity, out=lasts, where=fits)
        lasts += snapshot.transfer_s[order]
        waits = self.parameters.kappa * np.where(fits, rows.wait, 0.0)
        weight = descendants[order][:, None] ** self.parameters.alpha
        at, row = linear_sum_assignment(np.where(fits, weight * (waits + lasts), FAR_S))
        answers = []
        for k, j in zip(at.tolist(), row.tolist(), strict=True):
            task = ready[order[k]]
            if fits[k, j]:
                is_start = rows.take(j, float(task["memory_gb"]))
                answers.append((task["workflow"], task["task"], j if is_start else -2 - j))
        return np.array(answers, dtype=np.int64).reshape(-1, 3)


def named_order(name: str, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
    """(R,) rows of `Snapshot.ready` in an order of config.NamedOrder."""
    ready = snapshot.ready
    if name == "first-arrival":
        return np.lexsort((ready["task"], ready["workflow"]))
    keys = {
        "longest-hop": ready["hop"],
        "first-ready": np.zeros(len(ready)),
        "most-descendants": descendants,
        "shortest-task": -ready["compute_gflop"],
        "descendants-per-work": descendants / ready["compute_gflop"],
    }
    return by_key(keys[name], snapshot)


def by_key(key: np.ndarray, snapshot: Snapshot) -> np.ndarray:
    """(R,) rows of `Snapshot.ready`, the largest key (R,) first; ties by the time they became ready, workflow, task."""
    ready = snapshot.ready
    return np.lexsort((ready["task"], ready["workflow"], ready["ready_s"], -key))


def price_key(p: PriceParameters, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
    """(R,) by what tasks are visited, largest first."""
    ready = snapshot.ready
    urgent = descendants**p.a * (ready["compute_gflop"] / 10) ** p.b
    return urgent + p.age * (snapshot.clock_s - ready["arrival_s"]) / 10


def class_prices(prices: tuple[float, ...], capacity: np.ndarray) -> np.ndarray:
    """(N,) price of a second on each row: 0 on the slowest class, then `prices` by speed, the last for all beyond."""
    classes = np.unique(capacity[capacity > 0])
    every = np.array([0.0, *prices])
    return every[np.minimum(np.searchsorted(classes, capacity), len(every) - 1)]
