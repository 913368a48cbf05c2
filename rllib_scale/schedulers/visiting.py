"""Rounds with reservations: the tasks that wait are visited in an order, each starts on a row or waits for one.

A reservation is a rule's own: it moves the row's virtual availability by the time that the task would take there, and
is forgotten with the round. So a round decides which tasks start, in any problem, whatever its `on_busy` is.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from rllib_scale.compiled import compiled, internal
from rllib_scale.observation.snapshot import BUSY, Snapshot
from rllib_scale.workloads.dag import descendants

MEMORY_TOLERANCE_GB = 1e-9
"""What a task takes of a shared memory beyond its own, so that sums in another order never find it too small."""
FASTEST_OPEN, EARLIEST_FINISH, LEAST_COST = range(3)
"""How a row is chosen: the fastest of the open ones; the earliest finish, or the one on the best open row where that is
not `waiting` times as late; the least of weight (waiting w + p) + price p, and the penalty where it has to be waited
for, of w seconds until the row is available and p of transfer and execution."""


class Rows:
    """The rows of a snapshot as a round changes them. Shapes: N rows, H servers, R tasks that wait."""

    def __init__(self, snapshot: Snapshot) -> None:
        there = snapshot.status <= BUSY
        num_hosts = int(snapshot.host.max(initial=0)) + 1
        self.capacity = snapshot.capacity_gflops
        self.host = snapshot.host
        self.limit = np.where(there, snapshot.memory_gb, -1.0)
        """(N,) GB that a task may need; -1: none can start there any more."""
        self.wait = np.where(there, snapshot.available_at_s - snapshot.clock_s, np.inf)
        """(N,) s until it is available, tasks that wait for it in this round included."""
        self.is_open = snapshot.idle & (self.wait == 0.0)
        """(N,) bool: runs nothing and is not reserved."""
        self.free = np.zeros(num_hosts)
        """(H,) GB."""
        self.free[snapshot.host[there]] = snapshot.free_memory_gb[there]
        self.next_end = np.full(num_hosts, np.inf)
        """(H,) s until the next of its tasks ends, when a row that lacks memory alone may be had; inf: it runs none."""
        np.minimum.at(self.next_end, snapshot.host[there], snapshot.expected_end_s[there] - snapshot.clock_s)
        self.next_end = np.maximum(self.next_end, 0.0)

    def take(self, row: int, memory_gb: float) -> bool:
        """Let a task start on a row, if it is open and the memory is free; says whether it does."""
        host = self.host[row]
        starts = bool(self.is_open[row] and memory_gb <= self.free[host])
        if starts:
            self.is_open[row] = False
            self.free[host] -= memory_gb + MEMORY_TOLERANCE_GB
        return starts

    def visit(
        self,
        snapshot: Snapshot,
        order: np.ndarray,
        rule: int,
        waiting: float = 1.0,
        weight: np.ndarray | None = None,
        price: np.ndarray | None = None,
        penalty: float = 0.0,
    ) -> np.ndarray:
        """Visit the tasks that wait, until no row is open any more.

        Args:
            snapshot: the moment.
            order: (R,) rows of `Snapshot.ready`.
            rule: FASTEST_OPEN, EARLIEST_FINISH or LEAST_COST.
            waiting: see there.
            weight: (R,), 1 by default.
            price: (N,), 0 by default.
            penalty: see there.

        Returns:
            (K, 3) workflow, task, row: what starts, as `Dispatcher.dispatch` gives it; and -2 - row of what waits for a
            row.
        """
        ready = snapshot.ready
        demand = np.ascontiguousarray(ready["compute_gflop"]), np.ascontiguousarray(ready["memory_gb"])
        weight = np.ones(len(ready)) if weight is None else weight
        price = np.zeros(len(self.capacity)) if price is None else price
        rows = (self.capacity, self.limit, self.host, self.wait, self.is_open, self.free, self.next_end)
        chosen = _visit(order, rule, waiting, weight, price, penalty, *demand, snapshot.transfer_s, *rows)
        answered = order[chosen[order] != -1]
        return np.stack([ready["workflow"][answered], ready["task"][answered], chosen[answered]], axis=1)


def starts(answers: np.ndarray) -> np.ndarray:
    """(K, 3) those of the answers of `Rows.visit` that start a task."""
    return answers[answers[:, 2] >= 0]


@partial(compiled, allocates=True)
def _visit(  # type: ignore[no-untyped-def]
    order, rule, waiting, weight, price, penalty, compute, memory, transfer, capacity, limit, host, wait, is_open, free,
    next_end,
):  # fmt: skip
    """(R,) row on which each task starts, -2 - row for which it waits, -1: neither.

    `wait`, `is_open` and `free` are then as after the round.
    """
    chosen = np.full(len(order), -1)
    num_open = is_open.sum()
    for i in order:
        if num_open == 0:
            break
        best = choose(
            rule, waiting, weight[i], price, penalty, compute[i], memory[i], transfer[i], capacity, limit, host, wait,
            is_open, free, next_end,
        )  # fmt: skip
        if best < 0:
            continue
        chosen[i] = -2 - best
        if is_open[best]:
            if memory[i] <= free[host[best]]:
                chosen[i] = best
                free[host[best]] -= memory[i] + MEMORY_TOLERANCE_GB
            is_open[best] = False
            num_open -= 1
        wait[best] += transfer[i, best] + compute[i] / capacity[best]
    return chosen


@internal
def choose(  # type: ignore[no-untyped-def]
    rule, waiting, weight, price, penalty, compute, memory, transfer, capacity, limit, host, wait, is_open, free,
    next_end,
):  # fmt: skip
    """Row that a task starts on or waits for; -1: it fits none. `transfer` (N,) s to move its input there."""
    best, least, best_open, least_open = -1, np.inf, -1, np.inf
    for j in range(len(capacity)):
        if memory > limit[j]:
            continue
        can_start = is_open[j] and memory <= free[host[j]]
        lasts = transfer[j] + compute / capacity[j]
        ahead = wait[j]
        if is_open[j] and not can_start and next_end[host[j]] < np.inf:
            ahead = next_end[host[j]]
        if rule == FASTEST_OPEN:
            cost = -capacity[j] if can_start else np.inf
        elif rule == EARLIEST_FINISH:
            cost = ahead + lasts
            if can_start and lasts < least_open:
                best_open, least_open = j, lasts
        else:
            cost = weight * (waiting * ahead + lasts) + price[j] * lasts
            if not can_start:
                cost += penalty
        if cost < least:
            best, least = j, cost
    if best_open >= 0 and waiting * least >= least_open:
        best = best_open
    return best


class Descendants:
    """Tasks that follow each, itself included, of the workflows of one environment; counted once, at their arrival."""

    def __init__(self) -> None:
        self._counts: list[list[int]] = []

    def __call__(self, snapshot: Snapshot) -> np.ndarray:
        """(R,) float64 of the tasks that wait; 1 of one that was not seen when its workflow arrived."""
        for number in range(len(self._counts), snapshot.num_arrived):
            workflow = snapshot.workflows.get(number)
            counts = None if workflow is None else descendants(len(workflow.task), workflow.edges)
            self._counts.append([] if counts is None else counts.tolist())
        waiting = zip(snapshot.ready["workflow"].tolist(), snapshot.ready["task"].tolist(), strict=True)
        of_each = ((self._counts[workflow], task) for workflow, task in waiting)
        return np.array([of[task] if task < len(of) else 1 for of, task in of_each], dtype=np.float64)
