"""Rounds of visits for all environments of a batch in one compiled call, from their `View`."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal
from rllib_scale.observation.answers import MEMORY_TOLERANCE_GB
from rllib_scale.observation.view import View
from rllib_scale.schedulers.kinds import KIND, MOST_KINDS, add, choose_by_kind, delay, sort_rows
from rllib_scale.schedulers.visiting import LEAST_COST, choose

NUMBERS = ("a", "b", "age", "alpha", "kappa", "penalty")
"""Of the price rule, in the order of the columns of `visit_by_price`; see PriceParameters."""
ORDERS = ("longest-hop", "most-descendants", "shortest-task", "descendants-per-work", "first-ready", "first-arrival")
"""Of config.NamedOrder, in the order in which compiled code knows them."""
KINDS_FROM = 6
"""Waiting tasks from which on rows are sorted by kind: of fewer, looking at all rows is faster."""


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

    def by_name(self, view: View, order: str, rule: int, waiting: float = 1.0) -> np.ndarray:
        """Visit the tasks that wait in a named order, by FASTEST_OPEN or EARLIEST_FINISH.

        Returns:
            (K, 4) environment, workflow, task, and the row on which it starts, or -2 - row of one that waits for it.
        """
        self._make_room(view)
        numbers = np.zeros((len(view.env), len(NUMBERS)))
        numbers[:, NUMBERS.index("kappa")] = waiting
        _keys_by_name(ORDERS.index(order), view, self._key)
        return self._visited(view, rule, order == "first-arrival", numbers, self._no_prices)

    def by_price(self, view: View, numbers: np.ndarray, prices: np.ndarray) -> np.ndarray:
        """Visit the tasks that wait by the price rule.

        Args:
            view: of the batch.
            numbers: (B, 6) float64, NUMBERS of each environment.
            prices: (B, N) float64 of a second on each row.

        Returns:
            As `by_name`.
        """
        self._make_room(view)
        _keys_by_price(numbers, view, self._key)
        return self._visited(view, LEAST_COST, False, numbers, prices)

    def _visited(self, view: View, rule: int, by_arrival: bool, numbers: np.ndarray, prices: np.ndarray) -> np.ndarray:
        count = _visit_all(
            rule, by_arrival, numbers, prices, self._key, view, *self._scratch, self._answers, self.visits
        )
        return self._answers[:count]

    def _make_room(self, view: View) -> None:
        if self._key.shape == view.waiting.shape and self._no_prices.shape == view.limit.shape:
            return
        (b, tasks), n = view.waiting.shape, len(view.capacity)
        self._key, self._no_prices = np.empty((b, tasks)), np.zeros((b, n))
        self._answers = np.empty((b * tasks, 4), dtype=np.int64)
        there = np.flatnonzero(view.host >= 0)
        by_kind = n >= self._by_kind_from and len(there) == view.free.shape[1]
        row_of = there if by_kind else np.zeros(0, dtype=np.int64)  # hosts are numbered in the order of their rows
        order, transfer, stays = np.empty(tasks, dtype=np.int64), np.zeros(n), np.zeros(view.free.shape[1])
        of_rows = [np.empty(n, dtype=np.int64) for _ in range(3)]
        self._scratch = (row_of, order, transfer, stays, np.zeros(MOST_KINDS, dtype=KIND), *of_rows)


def in_order(view: View, order: str) -> list[np.ndarray]:
    """The waiting tasks of each environment, WAITING (R,), in one of ORDERS."""
    key, sorted_tasks = np.empty(view.waiting.shape), []
    _keys_by_name(ORDERS.index(order), view, key)
    for b, count in enumerate(view.env["num_waiting"].tolist()):
        waiting = view.waiting[b, :count]
        ready = np.zeros(count) if order == "first-arrival" else waiting["ready_s"]
        at = np.lexsort((waiting["task"], waiting["workflow"], ready, -key[b, :count]))
        sorted_tasks.append(waiting[at])
    return sorted_tasks


# ---------------------------------------------------------------------- keys


@compiled
def keys_by_name(order, view, key):  # type: ignore[no-untyped-def]
    """Write to `key` (B, R) by what each task is visited, largest first, in one of ORDERS."""
    for b in range(len(view.env)):
        for i in range(view.env[b].num_waiting):
            task = view.waiting[b, i]
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
def keys_by_price(numbers, view, key):  # type: ignore[no-untyped-def]
    """Write to `key` (B, R) by what each task is visited, where a row is open."""
    for b in range(len(view.env)):
        if not view.is_open[b].any():
            continue
        a, power, age = numbers[b, 0], numbers[b, 1], numbers[b, 2]
        for i in range(view.env[b].num_waiting):
            task = view.waiting[b, i]
            urgent = float(task.descendants) ** a * (task.compute_gflop / 10) ** power
            key[b, i] = urgent + age * (view.env[b].clock_s - task.arrival_s) / 10


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
    rule, by_arrival, numbers, prices, key, view, row_of, order, transfer, stays, kinds, kind_of, open_rows,
    heap, answers, visits,
):  # fmt: skip
    """Visit the tasks of each environment until no row of it is open; returns how many `answers` (K, 4) were written.

    The round changes `wait`, `is_open` and `free` of the view and adds to `visits` (1,). `row_of` (H,) the row of
    each host, where all have one and kinds are to be used. Scratch: `order` (R,), `transfer` (N,) and `stays` (H,),
    which are 0 between calls, and those of `kinds`. Rounds that end after a few tasks are common: a heap gives no more
    of the order than is used.
    """
    count = 0
    capacity, host = view.capacity, view.host
    for b in range(len(view.env)):
        size, num_open = view.env[b].num_waiting, 0
        limit, wait, is_open, free = view.limit[b], view.wait[b], view.is_open[b], view.free[b]
        for j in range(len(capacity)):
            num_open += int(is_open[j])
        if size == 0 or num_open == 0:
            continue
        waiting, inputs, keys = view.waiting[b], view.inputs[b], key[b]
        for i in range(size):
            order[i] = i
        for at in range(size // 2 - 1, -1, -1):
            _sink(order, size, at, waiting, keys, by_arrival)
        num_kinds = 0
        if len(row_of) > 0 and size >= KINDS_FROM:
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
                    transfer, capacity, limit, host, wait, is_open, free, view.next_end[b],
                )  # fmt: skip
                if task.num_inputs > 0:
                    transfer[:] = 0.0
            if best >= 0:
                was_open, h = is_open[best], host[best]
                answers[count, 0], answers[count, 1], answers[count, 2] = b, task.workflow, task.task
                answers[count, 3] = -2 - best
                count += 1
                if was_open:
                    if task.memory_gb <= free[h]:
                        answers[count - 1, 3] = best
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
