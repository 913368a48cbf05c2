"""Dispatchers that visit every waiting task at each event: none blocks another, and one may wait for a better server.

They play any problem, for their reservations are their own (see `visiting`). Demands are those that are seen; the
slowdown by other tasks of a server is not counted.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.optimize import linear_sum_assignment

from rllib_scale.config import EnvConfig
from rllib_scale.observation.policy import Batch
from rllib_scale.observation.starting import give_one
from rllib_scale.observation.view import View
from rllib_scale.schedulers.base import BasePolicy
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, FASTEST_OPEN, servers_in
from rllib_scale.schedulers.visits import NUMBERS, UNITS, Visits, in_order
from rllib_scale.workloads.fitting import fits

EVERY = slice(None)
FAR_S = 1e9
"""Cost of a server that does not fit in an assignment."""


class VisitingDispatcher(BasePolicy):
    """Decides at each event from the view of a batch, as a `Dispatcher` does from snapshots.

    Attributes:
        visits: what visits, since `reset`.
        moves_take_time: whether what is moved to a server takes time there, in the problem that it plays.
    """

    can_be_asked = True
    moves_take_time = True

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`."""
        self.moves_take_time = env.communication.mode == "transfer"
        return super().problem(env)

    def advance(self, batch: Batch) -> None:
        """See `Policy.advance`."""
        answers = self.decide(batch.view())
        batch.dispatch(answers[answers[:, 3] >= 0])

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self.visits = Visits()

    @abstractmethod
    def decide(self, view: View) -> np.ndarray:
        """(K, 4) environment, workflow, task, and the server on which it starts, or -2 - server of one that waits."""

    def servers_for(self, view: View, offered: np.ndarray) -> np.ndarray:
        """(B,) server on which a task starts or for which it waits, were it visited first; -1: none.

        Args:
            view: of the batch.
            offered: (B, 2) workflow and task, which waits; -1 where none is asked about.
        """
        waiting = view.waiting[:, : view.env["num_waiting"].max(initial=0)]
        asked = (waiting["workflow"] == offered[:, :1]) & (waiting["task"] == offered[:, 1:])
        memory, rows = waiting["memory_gb"].copy(), np.full(len(offered), -1)
        waiting["memory_gb"][~asked] = np.inf  # the others are there, and fit nowhere
        answers = self.decide(view)
        waiting["memory_gb"] = memory
        rows[answers[:, 0]] = np.where(answers[:, 3] >= 0, answers[:, 3], -2 - answers[:, 3])
        return rows


class NonBlocking(VisitingDispatcher):
    """The fastest idle server that fits, for every waiting task in a named order; one without any blocks no other."""

    name = "non-blocking"
    description = "the fastest idle server that fits, for all waiting tasks in order; one without any blocks no other"

    def decide(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        return self.visits.by_name(view, self.parameters.order, FASTEST_OPEN)


class Reserve(VisitingDispatcher):
    """The earliest finish over all servers, where `waiting` times that is before the best idle one's; else that one."""

    name = "reserve"
    description = "as non-blocking, but a task waits for a busy server that finishes it enough earlier"

    def decide(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        return self.visits.by_name(view, self.parameters.order, EARLIEST_FINISH, self.parameters.waiting)


class PricingDispatcher(VisitingDispatcher):
    """A dispatcher that visits by the price rule, with numbers and prices of its own."""

    @abstractmethod
    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """NUMBERS (B, 9) and the price of a second on each server (B, N); asked again in a round, the same."""

    def decide(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        return self.visits.by_price(view, *self.terms(view))


class Price(PricingDispatcher):
    """Time on a fast server has a price, and tasks that many wait for pay more for being early (see PriceParameters).

    The default numbers are one compromise for the paper's cluster at loads of 0.5 to 1.1, by a short random search on
    the mean response of 16 servers. Prices that are good at one load are bad at another.
    """

    name = "price"
    description = "the server of least weighted finish time and price of its class; tasks by descendants, work and age"

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self._numbers = self._prices_of_batch = np.zeros((0, 0))  # the same at each event

    def server_prices(self, capacity: np.ndarray) -> np.ndarray:
        """(N,) what a second on each server costs; `capacity` (N,) in GFLOPS."""
        return class_prices(self.parameters.prices, capacity)

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """See `PricingDispatcher.terms`."""
        if self._prices_of_batch.shape != view.limit.shape:
            own = self.parameters.model_dump(exclude={"prices"})
            self._numbers = np.zeros((len(view.env), len(NUMBERS)))
            self._numbers[:, [NUMBERS.index(name) for name in own]] = list(own.values())
            self._numbers[:, -len(UNITS) :] = UNITS
            self._prices_of_batch = np.tile(self.server_prices(view.capacity), (len(view.env), 1))
        return self._numbers, self._prices_of_batch


class MatchingDispatcher(VisitingDispatcher):
    """Matches tasks and servers of one environment after the other, in numpy."""

    def decide(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        found = [
            (b, *answer)
            for b, waiting in enumerate(in_order(view, self.order))
            if len(waiting)
            for answer in self.match(Matching(view, b, waiting))
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 4)

    order = "first-arrival"
    """Arrays of the tasks that `match` reads."""

    @abstractmethod
    def match(self, matching: Matching) -> list[tuple[int, int, int]]:
        """Workflow, task and server of what starts, or -2 - server of what waits for one, in this order."""


class Matching:
    """The servers of one environment of a view, as a round changes them, and its R waiting tasks in order."""

    def __init__(self, view: View, b: int, waiting: np.ndarray) -> None:
        self.waiting, self.servers = waiting, servers_in(view, b)
        self.has_room = self._fits(self.servers.limit, self.servers.properties["max_concurrent"], EVERY)
        """(R, N) bool: now or later."""
        self.lasts = np.full(self.has_room.shape, np.inf)
        """(R, N) s of transfer and execution; inf where it does not fit."""
        np.divide(waiting["compute_gflop"][:, None], self.servers.capacity, out=self.lasts, where=self.has_room)
        for k, task in enumerate(waiting):
            inputs = view.inputs[b, task["first_input"] : task["first_input"] + task["num_inputs"]]
            # What is on a server already need not be moved there.
            stays = np.bincount(inputs["server"], inputs["transfer_s"], len(self.servers.capacity))
            self.lasts[k] += np.maximum(0.0, inputs["transfer_s"].sum() - stays)

    def _fits(self, space_gb: np.ndarray, places: np.ndarray, at: slice) -> np.ndarray:
        needs = (self.waiting[name][:, None] for name in ("memory_gb", "places", "labels"))
        found: np.ndarray = fits(*needs, space_gb[at], places[at], self.servers.properties["labels"][at])
        return found

    def ahead(self, at: slice = EVERY) -> np.ndarray:
        """(R, ...) s until servers could start each task: where memory or places lack, until the next task ends."""
        s = self.servers
        lacks_room = s.is_open[at] & ~self._fits(s.free, s.free_places, at)
        return np.where(lacks_room & (s.next_end[at] < np.inf), s.next_end[at], s.wait[at])

    def give(self, k: int, j: int) -> tuple[int, int, int]:
        """The answer that gives server j to waiting task k, which starts there or waits for it."""
        task = self.waiting[k]
        whole = int(task["places"]), int(task["labels"])
        starts = give_one(self.servers, j, float(task["memory_gb"]), *whole, float(self.lasts[k, j]))
        return int(task["workflow"]), int(task["task"]), j if starts else -2 - j


class Hungarian(MatchingDispatcher):
    """All waiting tasks and all servers, busy ones too, matched at least total cost.

    An open server takes as many tasks as it has free places; any other takes one, which waits.

    Source: H. W. Kuhn, The Hungarian method for the assignment problem, 1955; solved by SciPy.
    """

    name = "hungarian"
    description = "waiting tasks and servers, busy ones too, matched for the least sum of weighted finish times"
    order = "most-descendants"

    def match(self, matching: Matching) -> list[tuple[int, int, int]]:
        """See `MatchingDispatcher.match`."""
        has_room, servers = matching.has_room, matching.servers
        seconds = self.parameters.kappa * np.where(has_room, matching.ahead(), 0.0) + matching.lasts
        weight = matching.waiting["descendants"][:, None] ** self.parameters.alpha
        columns = np.where(servers.is_open, np.minimum(servers.free_places, len(has_room)), 1)
        places = np.repeat(np.arange(has_room.shape[1]), columns)
        tasks, at = linear_sum_assignment(np.where(has_room, weight * seconds, FAR_S)[:, places])
        pairs = zip(tasks.tolist(), places[at].tolist(), strict=True)
        return [matching.give(k, j) for k, j in pairs if has_room[k, j]]


class MinMin(MatchingDispatcher):
    """The task that can finish first is matched to where it does, and so on; ties go to the first arrival.

    Sources: O. H. Ibarra, C. E. Kim, Heuristic algorithms for scheduling independent tasks on nonidentical processors,
    Journal of the ACM 24(2), 1977; M. Maheswaran, S. Ali, H. J. Siegel, D. Hensgen, R. F. Freund, Dynamic mapping of a
    class of independent tasks onto heterogeneous computing systems, JPDC 59(2), 1999: their batch mode, where a task
    that waits for a server is matched again. Tasks of workflows are independent once they are ready.
    """

    name = "min-min"
    description = "of all waiting tasks that which can finish first to where it does, busy servers awaited, and so on"
    last_first = False

    def match(self, matching: Matching) -> list[tuple[int, int, int]]:
        """See `MatchingDispatcher.match`."""
        ends, left = matching.ahead() + matching.lasts, np.asarray(matching.has_room.any(axis=1))
        answers = []
        while matching.servers.is_open.any() and left.any():
            best = ends.argmin(axis=1)
            earliest = ends[np.arange(len(ends)), best]
            if self.last_first:
                k = int(np.where(left, earliest, -np.inf).argmax())
            else:
                k = int(np.where(left, earliest, np.inf).argmin())
            j = int(best[k])
            answers.append(matching.give(k, j))
            left[k], at = False, slice(j, j + 1)
            # Only the server that was given away has changed.
            ends[:, at] = matching.ahead(at) + matching.lasts[:, at]
        return answers


class MaxMin(MinMin):
    """Like min-min, but the latest of the earliest finishes is matched first: long tasks are not left to the end."""

    name = "max-min"
    description = "as min-min, but the task whose earliest finish is latest is matched first"
    last_first = True


def class_prices(prices: tuple[float, ...], capacity: np.ndarray) -> np.ndarray:
    """(N,) price of a second on each server: 0 on the slowest class, then `prices` by speed, the last one beyond."""
    classes = np.unique(capacity[capacity > 0])
    every = np.array([0.0, *prices])
    return every[np.minimum(np.searchsorted(classes, capacity), len(every) - 1)]
