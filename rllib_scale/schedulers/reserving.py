"""Dispatchers that visit every waiting task at each event: none blocks another, and one may wait for a better row.

They play any problem, for their reservations are their own (see `visiting`). Demands are those that are seen; a slot's
slowdown by its neighbours is not counted.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.optimize import linear_sum_assignment

from rllib_scale.observation.answers import MEMORY_TOLERANCE_GB
from rllib_scale.observation.live_view import LiveView
from rllib_scale.observation.policy import Batch
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.observation.view import View
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.rounds import NUMBERS, Rounds, in_order
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, FASTEST_OPEN

FAR_S = 1e9
"""Cost of a row that does not fit in an assignment."""


class VisitingDispatcher(Dispatcher):
    """Decides from the view of a batch; a live cluster is a batch of one.

    Attributes:
        rounds: what visits, since `reset`.
    """

    can_be_asked = True

    def advance(self, batch: Batch) -> None:
        """See `Policy.advance`."""
        batch.dispatch(self.dispatch_all(batch.view()))

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Dispatcher.reset`."""
        super().reset(seeds)
        self.rounds, self._live = Rounds(), LiveView()

    @abstractmethod
    def answers(self, view: View) -> np.ndarray:
        """(K, 4) environment, workflow, task, and the row on which it starts, or -2 - row of one that waits for it."""

    def dispatch_all(self, view: View) -> np.ndarray:
        """(K, 4) environment, workflow, task and row of what starts, as `Engine.dispatch` takes it."""
        answers = self.answers(view)
        return answers[answers[:, 3] >= 0]

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """See `Dispatcher.dispatch`; of a live cluster, which is a batch of one."""
        return self.dispatch_all(self._live(snapshot))[:, 1:]

    def rows_for(self, view: View, offered: np.ndarray) -> np.ndarray:
        """(B,) row on which a task starts or for which it waits, were it visited first; -1: none.

        Args:
            view: of the batch.
            offered: (B, 2) workflow and task, which waits; -1 where none is asked about.
        """
        waiting = view.waiting[:, : view.env["num_waiting"].max(initial=0)]
        asked = (waiting["workflow"] == offered[:, :1]) & (waiting["task"] == offered[:, 1:])
        memory, rows = waiting["memory_gb"].copy(), np.full(len(offered), -1)
        waiting["memory_gb"][~asked] = np.inf  # the others are there, and fit nowhere
        answers = self.answers(view)
        waiting["memory_gb"] = memory
        rows[answers[:, 0]] = np.where(answers[:, 3] >= 0, answers[:, 3], -2 - answers[:, 3])
        return rows


class NonBlocking(VisitingDispatcher):
    """The fastest idle row that fits, for every waiting task in a named order; one without a row blocks no other."""

    name = "non-blocking"
    description = "the fastest idle row that fits, for all waiting tasks in order; one without a row blocks no other"

    def answers(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.answers`."""
        return self.rounds.by_name(view, self.parameters.order, FASTEST_OPEN)


class Reserve(VisitingDispatcher):
    """The earliest finish over all rows, where `waiting` times that is before the best idle row's; else that one."""

    name = "reserve"
    description = "as non-blocking, but a task waits for a busy row that finishes it so much earlier"

    def answers(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.answers`."""
        return self.rounds.by_name(view, self.parameters.order, EARLIEST_FINISH, self.parameters.waiting)


class Price(VisitingDispatcher):
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

    def prices(self, view: View) -> np.ndarray:
        """(B, N) what a second on each row costs. Those of this rule never change."""
        if self._row_prices.shape != view.limit.shape:
            of_rows = class_prices(self.parameters.prices, view.capacity)
            self._row_prices = np.ascontiguousarray(np.broadcast_to(of_rows, view.limit.shape))
        return self._row_prices

    def answers(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.answers`."""
        if len(self._numbers) != len(view.env):
            self._numbers = np.tile([float(getattr(self.parameters, name)) for name in NUMBERS], (len(view.env), 1))
        return self.rounds.by_price(view, self._numbers, self.prices(view))


class MatchingDispatcher(VisitingDispatcher):
    """Matches tasks and rows of one environment after the other, in numpy."""

    def answers(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.answers`."""
        found = [
            (b, *answer)
            for b, waiting in enumerate(in_order(view, self.order))
            if len(waiting)
            for answer in self.match(Rows(view, b, waiting))
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 4)

    order = "first-arrival"
    """Of the tasks, as `match` sees them."""

    @abstractmethod
    def match(self, rows: Rows) -> list[tuple[int, int, int]]:
        """Workflow, task and row of what starts, or -2 - row of what waits for one, in this order."""


class Rows:
    """The rows of one environment of a view, as a round changes them, and its R waiting tasks in order."""

    def __init__(self, view: View, b: int, waiting: np.ndarray) -> None:
        self.waiting = waiting
        self.capacity, self.host = view.capacity, view.host
        self.limit, self.wait, self.is_open = view.limit[b], view.wait[b], view.is_open[b]
        self.free, self.next_end = view.free[b], view.next_end[b]
        self.fits = self.waiting["memory_gb"][:, None] <= self.limit
        """(R, N) bool: now or later."""
        self.lasts = np.full(self.fits.shape, np.inf)
        """(R, N) s of transfer and execution; inf where it does not fit."""
        np.divide(self.waiting["compute_gflop"][:, None], self.capacity, out=self.lasts, where=self.fits)
        for k, task in enumerate(self.waiting):
            inputs = view.inputs[b, task["first_input"] : task["first_input"] + task["num_inputs"]]
            stays = np.bincount(inputs["host"], inputs["transfer_s"], len(self.free))
            moved = np.maximum(0.0, inputs["transfer_s"].sum() - stays)
            self.lasts[k] += np.where(self.host < 0, 0.0, moved[self.host])

    def take(self, k: int, row: int) -> tuple[int, int, int]:
        """The answer that gives a row to waiting task k, which starts if the row is open and its memory is free."""
        task, host = self.waiting[k], self.host[row]
        starts = bool(self.is_open[row] and task["memory_gb"] <= self.free[host])
        if starts:
            self.is_open[row] = False
            self.free[host] -= task["memory_gb"] + MEMORY_TOLERANCE_GB
        return int(task["workflow"]), int(task["task"]), row if starts else -2 - row


class Hungarian(MatchingDispatcher):
    """All waiting tasks and all rows, busy ones too, matched at least total cost; a task matched to a busy row waits.

    Source: H. W. Kuhn, The Hungarian method for the assignment problem, 1955; solved by SciPy.
    """

    name = "hungarian"
    description = "waiting tasks and rows, busy ones too, matched for the least sum of weighted finish times"
    order = "most-descendants"

    def match(self, rows: Rows) -> list[tuple[int, int, int]]:
        """See `MatchingDispatcher.match`."""
        seconds = self.parameters.kappa * np.where(rows.fits, rows.wait, 0.0) + rows.lasts
        weight = rows.waiting["descendants"].astype(np.float64)[:, None] ** self.parameters.alpha
        pairs = linear_sum_assignment(np.where(rows.fits, weight * seconds, FAR_S))
        return [rows.take(k, j) for k, j in zip(*(at.tolist() for at in pairs), strict=True) if rows.fits[k, j]]


def class_prices(prices: tuple[float, ...], capacity: np.ndarray) -> np.ndarray:
    """(N,) price of a second on each row: 0 on the slowest class, then `prices` by speed, the last for all beyond."""
    classes = np.unique(capacity[capacity > 0])
    every = np.array([0.0, *prices])
    return every[np.minimum(np.searchsorted(classes, capacity), len(every) - 1)]
