"""Rounds of visits for all environments of a batch in one compiled call, from their `Moments`.

What `visiting` does from one snapshot: the same choices in the same order.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal
from rllib_scale.observation.moments import Moments
from rllib_scale.schedulers.kinds import KIND, MOST_KINDS, add, choose_by_kind, delay, sort_rows
from rllib_scale.schedulers.visiting import LEAST_COST, MEMORY_TOLERANCE_GB, choose

NUMBERS = ("a", "b", "age", "alpha", "kappa", "penalty")
"""Of the price rule, in the order of the columns of `visit_by_price`; see PriceParameters."""
ORDERS = ("longest-hop", "most-descendants", "shortest-task", "descendants-per-work", "first-ready", "first-arrival")
"""Of config.NamedOrder, in the order in which compiled code knows them."""


class Rounds:
    """Decides for a batch, with arrays that are kept from event to event.

    Args:
        by_kind_from: number of rows from which on they are looked at by kind (kinds.py), where each is a server. The
            choices are the same, in a tenth of the time for a thousand; fewer are faster looked at one by one.

    Attributes:
        visits: (1,) tasks visited until now.
    """

    def __init__(self, by_kind_from: int = 48) -> None:
        self._by_kind_from, self.visits = by_kind_from, np.zeros(1, dtype=np.int64)
        self._key = self._no_prices = np.zeros((0, 0))

    def by_name(self, moments: Moments, order: str, rule: int, waiting: float = 1.0) -> np.ndarray:
        """Visit the tasks that wait in a named order, by FASTEST_OPEN or EARLIEST_FINISH.

        Returns:
            (K, 4) environment, workflow, task, row: what starts, as `Engine.dispatch` takes it.
        """
        self._make_room(moments)
        numbers = np.zeros((len(moments.env), len(NUMBERS)))
        numbers[:, NUMBERS.index("kappa")] = waiting
        _keys_by_name(ORDERS.index(order), moments, self._key)
        return self._visited(moments, rule, order == "first-arrival", numbers, self._no_prices)

    def by_price(self, moments: Moments, numbers: np.ndarray, prices: np.ndarray) -> np.ndarray:
        """Visit the tasks that wait by the price rule.

        Args:
            moments: of the batch.
            numbers: (B, 6) float64, NUMBERS of each environment.
            prices: (B, N) float64 of a second on each row.

        Returns:
            As `by_name`.
        """
        self._make_room(moments)
        _keys_by_price(numbers, moments, self._key)
        return self._visited(moments, LEAST_COST, False, numbers, prices)

    def _visited(
        self, moments: Moments, rule: int, by_arrival: bool, numbers: np.ndarray, prices: np.ndarray
    ) -> np.ndarray:
        count = _visit_all(
            rule, by_arrival, numbers, prices, self._key, moments, *self._scratch, self._starts, self.visits
        )
        return self._starts[:count]

    def _make_room(self, moments: Moments) -> None:
        if self._key.shape == moments.waiting.shape and self._no_prices.shape == moments.limit.shape:
            return
        (b, tasks), n = moments.waiting.shape, len(moments.capacity)
        self._key, self._no_prices = np.empty((b, tasks)), np.zeros((b, n))
        self._starts = np.empty((b * n, 4), dtype=np.int64)
        there = np.flatnonzero(moments.host >= 0)
        by_kind = n >= self._by_kind_from and len(there) == moments.free.shape[1]
        row_of = there if by_kind else np.zeros(0, dtype=np.int64)  # hosts are numbered in the order of their rows
        order, transfer, stays = np.empty(tasks, dtype=np.int64), np.zeros(n), np.zeros(moments.free.shape[1])
        of_rows = [np.empty(n, dtype=np.int64) for _ in range(3)]
        self._scratch = (row_of, order, transfer, stays, np.zeros(MOST_KINDS, dtype=KIND), *of_rows)


# ---------------------------------------------------------------------- keys


@compiled
def keys_by_name(order, moments, key):  # type: ignore[no-untyped-def]
    """Write to `key` (B, R) by what each task is visited, largest first, in one of ORDERS."""
    for b in range(len(moments.env)):
        for i in range(moments.env[b].num_waiting):
            task = moments.waiting[b, i]
            if order == 0:
                key[b, i] = task.hop
            elif order == 1:
                key[b, i] = task.descendants
            elif order == 2:
                key[b, i] = -task.compute_gflop
            elif order == 3:
                key[b, i] = task.descendants / task.compute_gflop
            else:
                key[b, i] = 0.0


@compiled
def keys_by_price(numbers, moments, key):  # type: ignore[no-untyped-def]
    """Write to `key` (B, R) by what each task is visited, where a row is open."""
    for b in range(len(moments.env)):
        if not moments.is_open[b].any():
            continue
        a, power, age = numbers[b, 0], numbers[b, 1], numbers[b, 2]
        for i in range(moments.env[b].num_waiting):
            task = moments.waiting[b, i]
            urgent = float(task.descendants) ** a * (task.compute_gflop / 10) ** power
            key[b, i] = urgent + age * (moments.env[b].clock_s - task.arrival_s) / 10


# ---------------------------------------------------------------------- order


@internal
def _precedes(waiting, key, by_arrival, x, y):  # type: ignore[no-untyped-def]
    if key[x] != key[y]:
        return key[x] > key[y]
    if waiting[x].ready_s != waiting[y].ready_s and not by_arrival:
        return waiting[x].ready_s < waiting[y].ready_s
    if waiting[x].workflow != waiting[y].workflow:
        return waiting[x].workflow < waiting[y].workflow
    return waiting[x].task < waiting[y].task


@internal
def _sink(heap, size, at, waiting, key, by_arrival):  # type: ignore[no-untyped-def]
    """Let the entry at `at` go down to where it belongs in the heap."""
    moving = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _precedes(waiting, key, by_arrival, heap[child + 1], heap[child]):
            child += 1
        if not _precedes(waiting, key, by_arrival, heap[child], moving):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moving


# ---------------------------------------------------------------------- visits


@compiled
def visit_all(  # type: ignore[no-untyped-def]
    rule, by_arrival, numbers, prices, key, moments, row_of, order, transfer, stays, kinds, kind_of, open_rows,
    heap, starts, visits,
):  # fmt: skip
    """Visit the tasks of each environment until no row of it is open; returns how many `starts` (K, 4) were written.

    The round changes `wait`, `is_open` and `free` of the moments and adds to `visits` (1,). `row_of` (H,) the row of
    each host, where all have one and kinds are to be used. Scratch: `order` (R,), `transfer` (N,) and `stays` (H,),
    which are 0 between calls, and those of `kinds`. Rounds that end after a few tasks are common: a heap gives no more
    of the order than is used.
    """
    count = 0
    capacity, host = moments.capacity, moments.host
    for b in range(len(moments.env)):
        size, num_open = moments.env[b].num_waiting, 0
        limit, wait, is_open, free = moments.limit[b], moments.wait[b], moments.is_open[b], moments.free[b]
        for j in range(len(capacity)):
            num_open += int(is_open[j])
        if size == 0 or num_open == 0:
            continue
        waiting, inputs, keys = moments.waiting[b], moments.inputs[b], key[b]
        for i in range(size):
            order[i] = i
        for at in range(size // 2 - 1, -1, -1):
            _sink(order, size, at, waiting, keys, by_arrival)
        num_kinds = 0
        if len(row_of) > 0:
            num_kinds = sort_rows(limit, wait, is_open, prices[b], capacity, kinds, kind_of, open_rows, heap)
        while size > 0 and num_open > 0:
            i = order[0]
            size -= 1
            visits[0] += 1
            order[0] = order[size]
            _sink(order, size, 0, waiting, keys, by_arrival)
            task, total = waiting[i], 0.0
            weight = float(task.descendants) ** numbers[b, 3]  # 1 for rules without prices
            for k in range(task.first_input, task.first_input + task.num_inputs):
                total += inputs[k].transfer_s
                stays[inputs[k].host] += inputs[k].transfer_s
            best = -2
            if num_kinds > 0:
                best = choose_by_kind(
                    rule, numbers[b, 4], weight, numbers[b, 5], task, inputs, stays, total, host, row_of,
                    is_open, wait, num_kinds, kinds, kind_of, open_rows, heap,
                )  # fmt: skip
            if best == -2:
                if task.num_inputs > 0:
                    for j in range(len(host)):
                        transfer[j] = max(0.0, total - stays[host[j]]) if host[j] >= 0 else 0.0
                best = choose(
                    rule, numbers[b, 4], weight, prices[b], numbers[b, 5], task.compute_gflop, task.memory_gb,
                    transfer, capacity, limit, host, wait, is_open, free, moments.next_end[b],
                )  # fmt: skip
                if task.num_inputs > 0:
                    transfer[:] = 0.0
            if best >= 0:
                was_open, h = is_open[best], host[best]
                if was_open:
                    if task.memory_gb <= free[h]:
                        starts[count, 0], starts[count, 1], starts[count, 2] = b, task.workflow, task.task
                        starts[count, 3] = best
                        count += 1
                        free[h] -= task.memory_gb + MEMORY_TOLERANCE_GB
                    is_open[best] = False
                    num_open -= 1
                wait[best] += max(0.0, total - stays[h]) + task.compute_gflop / capacity[best]
                if num_kinds > 0 and was_open:
                    add(best, kinds[kind_of[best]], heap, wait)
                elif num_kinds > 0:
                    delay(best, kinds[kind_of[best]], heap, wait)
            for k in range(task.first_input, task.first_input + task.num_inputs):
                stays[inputs[k].host] = 0.0
    return count


_keys_by_name, _keys_by_price, _visit_all = Direct(keys_by_name), Direct(keys_by_price), Direct(visit_all)
