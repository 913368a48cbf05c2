"""The row for a task among rows of few kinds, without a look at all of them.

Where every server is one row, the rows of one speed, memory and price differ for a task in two things alone: whether
its input is there, and when they are available. So of each kind the first open row and the one that is available first
are enough, and the rows that the input is on. A thousand servers take hardly longer than a hundred.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import internal
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, cost_of

MOST_KINDS = 16
KIND = np.dtype(
    [
        ("capacity", "f8"),
        ("limit", "f8"),
        ("price", "f8"),
        ("first", "i8"),  # where its rows begin among `open_rows` and in `heap`
        ("end_open", "i8"),  # end of those that were open when the round began, lowest first
        ("next_open", "i8"),
        ("size", "i8"),  # of its heap of rows that are not open, by availability
    ]
)


@internal
def sort_rows(limit, wait, is_open, price, capacity, kinds, kind_of, open_rows, heap):  # type: ignore[no-untyped-def]
    """Sort the rows of an environment by kind; returns the number of kinds, 0 where they are too many."""
    count, k = 0, 0
    for j in range(len(capacity)):
        kind_of[j] = -1
        if limit[j] < 0.0:
            continue
        if count == 0 or not _is_of(kinds[k], capacity[j], limit[j], price[j]):
            k = 0
            while k < count and not _is_of(kinds[k], capacity[j], limit[j], price[j]):
                k += 1
        if k == count:
            if count == len(kinds):
                return 0
            kinds[k].capacity, kinds[k].limit, kinds[k].price = capacity[j], limit[j], price[j]
            kinds[k].first = 0
            count += 1
        kind_of[j] = k
        kinds[k].first += 1  # how many they are, until the next loop
    at = 0
    for k in range(count):
        size = kinds[k].first
        kinds[k].first = kinds[k].next_open = kinds[k].end_open = at
        kinds[k].size = 0
        at += size
    for j in range(len(capacity)):
        if kind_of[j] < 0:
            continue
        kind = kinds[kind_of[j]]
        if is_open[j]:
            open_rows[kind.end_open] = j
            kind.end_open += 1
        else:
            add(j, kind, heap, wait)
    return count


@internal
def _is_of(kind, capacity, limit, price):  # type: ignore[no-untyped-def]
    return kind.capacity == capacity and kind.limit == limit and kind.price == price


@internal
def _is_before(wait, i, j):  # type: ignore[no-untyped-def]
    return wait[i] < wait[j] or (wait[i] == wait[j] and i < j)


@internal
def add(j, kind, heap, wait):  # type: ignore[no-untyped-def]
    """Row j is open no longer, or was not at the beginning."""
    at = kind.size
    kind.size += 1
    while at > 0:
        parent = (at - 1) >> 1
        if not _is_before(wait, j, heap[kind.first + parent]):
            break
        heap[kind.first + at] = heap[kind.first + parent]
        at = parent
    heap[kind.first + at] = j


@internal
def delay(j, kind, heap, wait):  # type: ignore[no-untyped-def]
    """Row j, which is not open, is available later than before."""
    at = 0
    while heap[kind.first + at] != j:
        at += 1
    while True:
        child = 2 * at + 1
        if child >= kind.size:
            break
        if child + 1 < kind.size and _is_before(wait, heap[kind.first + child + 1], heap[kind.first + child]):
            child += 1
        if not _is_before(wait, heap[kind.first + child], j):
            break
        heap[kind.first + at] = heap[kind.first + child]
        at = child
    heap[kind.first + at] = j


@internal
def choose_by_kind(  # type: ignore[no-untyped-def]
    rule, waiting, weight, penalty, task, inputs, stays, total, host, row_of, is_open, wait, num_kinds, kinds, kind_of,
    open_rows, heap,
):  # fmt: skip
    """Row that a task starts on or waits for; -1: it fits none; -2: it takes a look at all rows to know.

    `total` s for all input of the task, `stays` (H,) s of it on each host, `row_of` (H,) the row of each. -2: rows that
    are available at different times may cost the same once rounded, and the lowest of them is wanted.
    """
    best, least, best_open, least_open, unsure = -1, np.inf, -1, np.inf, np.inf
    compute, memory = task.compute_gflop, task.memory_gb
    for c in range(2 * num_kinds + task.num_inputs):
        if c < 2 * num_kinds:
            kind = kinds[c >> 1]
            if c & 1 == 0:
                while kind.next_open < kind.end_open and not is_open[open_rows[kind.next_open]]:
                    kind.next_open += 1
                j = open_rows[kind.next_open] if kind.next_open < kind.end_open else -1
            else:
                j = heap[kind.first] if kind.size > 0 else -1
        else:
            j = row_of[inputs[task.first_input + c - 2 * num_kinds].host]
            if kind_of[j] < 0:
                j = -1
        if j < 0:
            continue
        kind = kinds[kind_of[j]]
        if memory > kind.limit:
            continue
        lasts = max(0.0, total - stays[host[j]]) + compute / kind.capacity
        cost = cost_of(rule, waiting, weight, kind.price, penalty, wait[j], lasts, kind.capacity, is_open[j])
        if cost < least or (cost == least and j < best):
            best, least = j, cost
        if is_open[j] and (lasts < least_open or (lasts == least_open and j < best_open)):
            best_open, least_open = j, lasts
        if c < 2 * num_kinds and c & 1 == 1 and kind.size > 1:
            after = heap[kind.first + 1]
            if kind.size > 2 and wait[heap[kind.first + 2]] < wait[after]:
                after = heap[kind.first + 2]
            lasts = total + compute / kind.capacity
            after_cost = cost_of(rule, waiting, weight, kind.price, penalty, wait[after], lasts, kind.capacity, False)
            if after_cost <= cost:
                unsure = min(unsure, cost)
    if rule == EARLIEST_FINISH and best_open >= 0 and waiting * least >= least_open:
        return best_open
    return -2 if unsure == least and best >= 0 else best
