"""The server for a task among servers of few kinds, without a look at all of them.

Where every server has one place, the servers of one speed, memory, price and set of labels differ for a task in two
things alone: whether its input is there, and when they are available. So of each kind the first open server and the one
that is available first are enough, and the servers that the input is on. A thousand servers take hardly longer than a
hundred.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import internal
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, cost_of
from rllib_scale.workloads.fitting import fits

MOST_KINDS = 16
KIND = np.dtype(
    [
        ("capacity", "f8"),
        ("limit", "f8"),
        ("labels", "i8"),
        ("price", "f8"),
        ("first", "i8"),  # where its servers begin in `open` and in `heap`
        ("end_open", "i8"),  # end of those that were open when the round began, lowest first
        ("next_open", "i8"),
        ("size", "i8"),  # of its heap of servers that are not open, by availability
    ]
)


class Kinds(NamedTuple):
    """The servers of one environment by kind."""

    table: np.ndarray  # (MOST_KINDS,) KIND
    of: np.ndarray  # (N,) kind of each server; -1: none can start there any more
    open: np.ndarray  # (N,) servers
    heap: np.ndarray  # (N,) servers
    number: np.ndarray  # (1,) of kinds; 0: they are too many, or were not sorted


def room_for(num_servers: int) -> Kinds:
    """Arrays for the kinds of a given number of servers."""
    of, is_open, heap = np.empty((3, num_servers), dtype=np.int64)
    return Kinds(np.zeros(MOST_KINDS, dtype=KIND), of, is_open, heap, np.zeros(1, dtype=np.int64))


@internal
def sort_servers(servers, prices, kinds):  # type: ignore[no-untyped-def]
    """Sort the servers of an environment by kind."""
    capacity, limit, of, table = servers.capacity, servers.limit, kinds.of, kinds.table
    count, k, kinds.number[0] = 0, 0, 0
    for j in range(len(capacity)):
        of[j] = -1
        if limit[j] < 0.0:
            continue
        # Servers are sorted by tier: the kind of the one before is the first guess.
        if count == 0 or not _is_of(table[k], j, servers, prices):
            k = 0
            while k < count and not _is_of(table[k], j, servers, prices):
                k += 1
        if k == count:
            if count == len(table):
                return
            table[k].capacity, table[k].limit, table[k].price = capacity[j], limit[j], prices[j]
            table[k].labels = servers.properties[j].labels
            table[k].first = 0
            count += 1
        of[j] = k
        # Counting sort: sizes first, then where each kind begins.
        table[k].first += 1  # how many they are, until the next loop
    at = 0
    for k in range(count):
        size = table[k].first
        table[k].first = table[k].next_open = table[k].end_open = at
        table[k].size = 0
        at += size
    for j in range(len(capacity)):
        if of[j] < 0:
            continue
        if servers.is_open[j]:
            kind = table[of[j]]
            kinds.open[kind.end_open] = j
            kind.end_open += 1
        else:
            add(j, kinds, servers.wait)
    kinds.number[0] = count


@internal
def _is_of(kind, j, servers, prices):  # type: ignore[no-untyped-def]
    is_like = kind.capacity == servers.capacity[j] and kind.limit == servers.limit[j] and kind.price == prices[j]
    return is_like and kind.labels == servers.properties[j].labels


@internal
def _is_before(wait, i, j):  # type: ignore[no-untyped-def]
    return wait[i] < wait[j] or (wait[i] == wait[j] and i < j)


@internal
def add(j, kinds, wait):  # type: ignore[no-untyped-def]
    """Server j is open no longer, or was not at the beginning."""
    kind = kinds.table[kinds.of[j]]
    heap, at = kinds.heap[kind.first :], kind.size
    kind.size += 1
    while at > 0:
        parent = (at - 1) >> 1
        if not _is_before(wait, j, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = j


@internal
def delay(j, kinds, wait):  # type: ignore[no-untyped-def]
    """Server j, which is not open, is available later than before."""
    kind = kinds.table[kinds.of[j]]
    heap, at = kinds.heap[kind.first :], 0
    # Its position in the heap is not kept.
    while heap[at] != j:
        at += 1
    while True:
        child = 2 * at + 1
        if child >= kind.size:
            break
        if child + 1 < kind.size and _is_before(wait, heap[child + 1], heap[child]):
            child += 1
        if not _is_before(wait, heap[child], j):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = j


@internal
def choose_by_kind(way, task, inputs, total, stays, servers, kinds):  # type: ignore[no-untyped-def]
    """Server that a task starts on or waits for; -1: it fits none; -2: it takes a look at all servers to know.

    `inputs` of the task; `total` and `stays` as for `choose`. -2: servers that are available at different times may
    cost the same once rounded, and the lowest of them is wanted.
    """
    best, least, best_open, least_open, unsure = -1, np.inf, -1, np.inf, np.inf
    by_kind = 2 * kinds.number[0]
    for c in range(by_kind + len(inputs)):
        if c < by_kind:
            kind = kinds.table[c >> 1]
            # Of each kind two candidates: the first open server, then the one that is available first.
            if c & 1 == 0:
                while kind.next_open < kind.end_open and not servers.is_open[kinds.open[kind.next_open]]:
                    kind.next_open += 1
                j = kinds.open[kind.next_open] if kind.next_open < kind.end_open else -1
            else:
                j = kinds.heap[kind.first] if kind.size > 0 else -1
        else:
            j = inputs[c - by_kind].server
            if kinds.of[j] < 0:
                j = -1
        if j < 0:
            continue
        kind = kinds.table[kinds.of[j]]
        if not fits(task.memory_gb, task.places, task.labels, kind.limit, 1, kind.labels):
            continue
        lasts = max(0.0, total - stays[j]) + task.compute_gflop / kind.capacity
        cost = cost_of(way, kind.price, servers.wait[j], lasts, kind.capacity, servers.is_open[j])
        if cost < least or (cost == least and j < best):
            best, least = j, cost
        if servers.is_open[j] and (lasts < least_open or (lasts == least_open and j < best_open)):
            best_open, least_open = j, lasts
        if c < by_kind and c & 1 == 1 and kind.size > 1:
            after = kinds.heap[kind.first + 1]
            if kind.size > 2 and servers.wait[kinds.heap[kind.first + 2]] < servers.wait[after]:
                after = kinds.heap[kind.first + 2]
            # The next of the heap is available later and may cost as much once rounded: then the lowest number is
            # wanted, which only a look at all servers finds. One with input is a candidate of its own.
            lasts = total + task.compute_gflop / kind.capacity
            if cost_of(way, kind.price, servers.wait[after], lasts, kind.capacity, False) <= cost:
                unsure = min(unsure, cost)
    if way.rule == EARLIEST_FINISH and best_open >= 0 and way.waiting * least >= least_open:
        return best_open
    return -2 if unsure == least and best >= 0 else best
