"""Rounds of visits for all environments of a batch in one compiled call, from their `View`."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal
from rllib_scale.observation.orders import ORDERS, order_key
from rllib_scale.observation.starting import give
from rllib_scale.observation.view import View
from rllib_scale.schedulers.kinds import add, choose_by_kind, delay, room_for, sort_servers
from rllib_scale.schedulers.visiting import (
    LEAST_COST,
    OPTION,
    Way,
    choose,
    compiled_servers_in,
    fits_on,
    write_options,
)
from rllib_scale.workloads.fitting import MEMORY_TOLERANCE_GB

NUMBERS = ("a", "b", "age", "alpha", "kappa", "penalty", "scarce", "compute_unit_gflop", "time_unit_s")
"""Parameters, in the order of the columns of `visit_by_price`; see PriceParameters, whose units are UNITS."""
UNITS = (10.0, 10.0)
SHARE = np.dtype([("places", "i8"), ("labels", "i8"), ("above_gb", "f8"), ("most_gb", "f8"), ("share", "f8")])
"""Share of the capacity for tasks of these places and labels that need more than `above_gb` and at most `most_gb`."""
MOST_SHARES = 16
"""Shares that are kept in a round; a further one takes the place of the oldest."""
KINDS_FROM = 6
"""Waiting tasks from which on servers are sorted by kind: of fewer, looking at all servers is faster."""


class Visits:
    """Decides for a batch, with arrays that are kept from event to event.

    Args:
        by_kind_from: number of servers from which on they are looked at by kind (kinds.py), where each has one place.
            The choices are the same, in a tenth of the time for a thousand; fewer are faster looked at one by one.

    Attributes:
        visited: (1,) tasks visited until now.
    """

    def __init__(self, by_kind_from: int = 48) -> None:
        self._by_kind_from, self.visited = by_kind_from, np.zeros(1, dtype=np.int64)
        self._key = self._no_prices = np.zeros((0, 0))
        self._no_options, self._shares = np.zeros((0, 2), dtype=OPTION), room_for_shares()

    def by_name(self, view: View, order: str, rule: int, waiting: float = 1.0) -> np.ndarray:
        """Visit the tasks that wait in a named order, by FASTEST_OPEN or EARLIEST_FINISH.

        Returns:
            (K, 4) environment, workflow, task, and the server on which it starts, or -2 - server of one that waits.
        """
        self._make_room(view)
        numbers = np.zeros((len(view.env), len(NUMBERS)))
        numbers[:, NUMBERS.index("kappa")] = waiting
        _keys_by_name(ORDERS.index(order), view, self._key)
        return self._visit(view, rule, order == "first-arrival", numbers, self._no_prices)

    def by_price(
        self, view: View, numbers: np.ndarray, prices: np.ndarray, options: np.ndarray | None = None
    ) -> np.ndarray:
        """Visit the tasks that wait by the price rule.

        Args:
            view: of the batch.
            numbers: (B, 9) float64, NUMBERS of each environment.
            prices: (B, N) float64 of a second on each server.
            options: (at least K, 2) OPTION, written: for each answer the chosen server and the best other one.

        Returns:
            As `by_name`.
        """
        self._make_room(view)
        _keys_by_price(numbers, view, self._shares, self._key)
        return self._visit(view, LEAST_COST, False, numbers, prices, options)

    def _visit(
        self,
        view: View,
        rule: int,
        by_arrival: bool,
        numbers: np.ndarray,
        prices: np.ndarray,
        options: np.ndarray | None = None,
    ) -> np.ndarray:
        written = self._no_options if options is None else options
        count = _visit_all(
            rule, by_arrival, numbers, prices, self._key, view, *self._scratch, self._answers, self.visited, written
        )
        return self._answers[:count]

    def _make_room(self, view: View) -> None:
        if self._key.shape == view.waiting.shape and self._no_prices.shape == view.limit.shape:
            return
        (b, tasks), n = view.waiting.shape, len(view.capacity)
        self._key, self._no_prices = np.empty((b, tasks)), np.zeros((b, n))
        self._answers = np.empty((b * tasks, 4), dtype=np.int64)
        by_kind = n >= self._by_kind_from and bool(view.properties["max_concurrent"].max() <= 1)
        self._scratch = (by_kind, np.empty(tasks, dtype=np.int64), np.zeros(n), room_for(n))


def room_for_shares() -> np.ndarray:
    """Scratch of `keys_by_price`."""
    return np.zeros(MOST_SHARES, dtype=SHARE)


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
            key[b, i] = order_key(order, task.hop, task.descendants, task.compute_gflop)


@compiled
def keys_by_price(numbers, view, shares, key):  # type: ignore[no-untyped-def]
    """Write to `key` (B, R) by what each task is visited, where a server is open. Scratch: `shares` (any,) SHARE."""
    for b in range(len(view.env)):
        if not view.is_open[b].any():
            continue
        a, power, age, scarce = numbers[b, 0], numbers[b, 1], numbers[b, 2], numbers[b, 6]
        unit, time_unit, found = numbers[b, 7], numbers[b, 8], 0
        for i in range(view.env[b].num_waiting):
            task = view.waiting[b, i]
            urgent = task.descendants**a * (task.compute_gflop / unit) ** power
            if scarce > 0.0:
                k = _known_share(task, shares, found)
                if k < 0:
                    k = found % len(shares)
                    _write_share(b, task, view, shares[k])
                    found += 1
                urgent *= shares[k].share ** -scarce
            key[b, i] = urgent + age * (view.env[b].clock_s - task.arrival_s) / time_unit


@internal
def _known_share(task, shares, found):  # type: ignore[no-untyped-def]
    """Which of the `found` shares is that of a task; -1: none that is kept."""
    needed = task.memory_gb - MEMORY_TOLERANCE_GB
    for k in range(min(found, len(shares))):
        of = shares[k]
        if of.above_gb < needed <= of.most_gb and of.places == task.places and of.labels == task.labels:
            return k
    return -1


@internal
def _write_share(b, task, view, out):  # type: ignore[no-untyped-def]
    """Share of the capacity that is there on servers that a task fits; 1 where it fits none.

    It holds for all tasks of these places and labels between two memories of servers.
    """
    servers, able, whole, needed = compiled_servers_in(view, b), 0.0, 0.0, task.memory_gb - MEMORY_TOLERANCE_GB
    out.places, out.labels, out.above_gb, out.most_gb = task.places, task.labels, -np.inf, np.inf
    for j in range(len(servers.capacity)):
        limit = servers.limit[j]
        if limit < 0.0:
            continue
        capacity = servers.capacity[j] * servers.properties[j].max_concurrent
        whole += capacity
        able += capacity if fits_on(j, task, servers) else 0.0
        # Also of servers that lack places or labels: then the share holds for fewer tasks than it could, no more.
        if needed <= limit:
            out.most_gb = min(out.most_gb, limit)
        else:
            out.above_gb = max(out.above_gb, limit)
    out.share = able / whole if able > 0.0 else 1.0


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
def sink(heap, size, at, waiting, key, by_arrival):  # type: ignore[no-untyped-def]
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


@internal
def make_heap(order, size, waiting, key, by_arrival):  # type: ignore[no-untyped-def]
    """Let `order` begin with a heap of the `size` waiting tasks.

    O(R), in place of sorting: most rounds end long before all tasks are visited, and a heap gives no more of the order
    than is used.
    """
    for i in range(size):
        order[i] = i
    for at in range(size // 2 - 1, -1, -1):
        sink(order, size, at, waiting, key, by_arrival)


@internal
def take_first(order, size, waiting, key, by_arrival):  # type: ignore[no-untyped-def]
    """Take the task that is visited next off a heap of `size` tasks."""
    first, order[0] = order[0], order[size - 1]
    sink(order, size - 1, 0, waiting, key, by_arrival)
    return first


# ---------------------------------------------------------------------- visits


@internal
def add_inputs(b, task, view, stays):  # type: ignore[no-untyped-def]
    """Seconds that moving all input of a task takes; `stays` (N,), which is 0, gets those of what each server holds."""
    total = 0.0
    for k in range(task.first_input, task.first_input + task.num_inputs):
        total += view.inputs[b, k].transfer_s
        stays[view.inputs[b, k].server] += view.inputs[b, k].transfer_s
    return total


@internal
def forget_inputs(b, task, view, stays):  # type: ignore[no-untyped-def]
    """Set `stays` back to 0, at the cost of the inputs, not of the servers."""
    for k in range(task.first_input, task.first_input + task.num_inputs):
        stays[view.inputs[b, k].server] = 0.0


@internal
def answer(b, task, j, total, stays, servers, out):  # type: ignore[no-untyped-def]
    """Give server j to a task, and write the answer (4,)."""
    lasts = max(0.0, total - stays[j]) + task.compute_gflop / servers.capacity[j]
    starts = give(servers, j, task.memory_gb, task.places, task.labels, lasts)
    out[0], out[1], out[2], out[3] = b, task.workflow, task.task, j if starts else -2 - j


@compiled
def visit_all(  # type: ignore[no-untyped-def]
    rule, by_arrival, numbers, prices, key, view, by_kind, order, stays, kinds, answers, visits, options
):  # fmt: skip
    """Visit the tasks of each environment until no server of it is open; returns how many `answers` (K, 4) there are.

    The round changes the servers of the view, adds to `visits` (1,), and writes to `options` (K, 2), where it has rows,
    why each answer is given. `by_kind`: each server has one place, and kinds are to be used. Scratch: `order` (R,),
    `stays` (N,), which is 0 between calls, and `kinds`.
    """
    count = 0
    for b in range(len(view.env)):
        size, num_open, servers = view.env[b].num_waiting, 0, compiled_servers_in(view, b)
        for j in range(len(servers.is_open)):
            num_open += int(servers.is_open[j])
        if size == 0 or num_open == 0:
            continue
        waiting, keys = view.waiting[b], key[b]
        make_heap(order, size, waiting, keys, by_arrival)
        kinds.number[0] = 0
        if by_kind and size >= KINDS_FROM:
            sort_servers(servers, prices[b], kinds)
        while size > 0 and num_open > 0:
            task, best = waiting[take_first(order, size, waiting, keys, by_arrival)], -2
            size -= 1
            visits[0] += 1
            total = add_inputs(b, task, view, stays)
            weight = task.descendants ** numbers[b, 3]  # 1 for rules without prices
            way = Way(rule, numbers[b, 4], weight, numbers[b, 5])
            if kinds.number[0] > 0:
                inputs = view.inputs[b, task.first_input : task.first_input + task.num_inputs]
                # -2 where only a look at all servers decides between equal costs.
                best = choose_by_kind(way, task, inputs, total, stays, servers, kinds)
            if best == -2:
                best = choose(way, task, total, stays, servers, prices[b])
            if best >= 0:
                if len(options) > 0:
                    write_options(options[count], best, way, task, total, stays, servers, prices[b])
                was_open = servers.is_open[best]
                answer(b, task, best, total, stays, servers, answers[count])
                count += 1
                # The round is over once nothing can start any more: reservations alone change nothing.
                num_open -= int(was_open and not servers.is_open[best])
                if kinds.number[0] > 0 and was_open:
                    add(best, kinds, servers.wait)
                elif kinds.number[0] > 0:
                    delay(best, kinds, servers.wait)
            forget_inputs(b, task, view, stays)
    return count


_keys_by_name, _keys_by_price, _visit_all = Direct(keys_by_name), Direct(keys_by_price), Direct(visit_all)
