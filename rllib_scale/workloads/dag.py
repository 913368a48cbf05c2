"""Tables of a workflow's DAG: successors, hop counts and numbers of descendants."""

from __future__ import annotations

from functools import partial

import numpy as np

from rllib_scale.compiled import compiled

WORD = 64
"""Tasks whose descendants are counted in one pass."""


@compiled
def sort_by_predecessor(n, e, edges, first, successors, missing, order):  # type: ignore[no-untyped-def]
    """Write the successors of each task, and the tasks in topological order (Kahn's algorithm); returns how many.

    Fewer than n: the others are on a cycle, or behind one.

    Args:
        n: tasks.
        e: edges.
        edges: (E, 2) predecessor, successor, in any order.
        first: (T + 1,) written: the successors of task k are `successors` [first[k] : first[k + 1]], in the order of
            `edges`.
        successors: (E,) written.
        missing: (T,) scratch.
        order: (T,) written.
    """
    for k in range(n + 1):
        first[k] = 0
    for k in range(n):
        missing[k] = 0
    for i in range(e):
        first[edges[i, 0] + 1] += 1
        missing[edges[i, 1]] += 1
    for k in range(n):
        first[k + 1] += first[k]
        order[k] = first[k]
    for i in range(e):
        successors[order[edges[i, 0]]] = edges[i, 1]
        order[edges[i, 0]] += 1
    head, tail = 0, 0
    for k in range(n):
        if missing[k] == 0:
            order[tail] = k
            tail += 1
    while head < tail:
        k = order[head]
        head += 1
        for i in range(first[k], first[k + 1]):
            missing[successors[i]] -= 1
            if missing[successors[i]] == 0:
                order[tail] = successors[i]
                tail += 1
    return tail


@compiled
def count_hops(n, first, successors, order, hops):  # type: ignore[no-untyped-def]
    """Write to `hops` (T,) the edges on the longest path from each task to a sink."""
    for at in range(n - 1, -1, -1):
        k, hop = order[at], 0
        for i in range(first[k], first[k + 1]):
            hop = max(hop, hops[successors[i]] + 1)
        hops[k] = hop


@compiled
def count_descendants(n, first, successors, order, reached, counts):  # type: ignore[no-untyped-def]
    """Write to `counts` (T,) how many tasks follow each, itself included.

    A pass finds which of the next WORD tasks in topological order each task leads to, as bits. `reached` is scratch,
    (T,) uint64, 0 before and after.
    """
    for k in range(n):
        counts[k] = 0
    for begin in range(0, n, WORD):
        end = min(n, begin + WORD)
        for at in range(end - 1, -1, -1):
            k = order[at]
            bits = np.uint64(1) << np.uint64(at - begin) if at >= begin else np.uint64(0)
            for i in range(first[k], first[k + 1]):
                bits |= reached[successors[i]]
            reached[k] = bits
            counts[k] += _ones(bits)
        for at in range(end):
            reached[order[at]] = np.uint64(0)


@compiled
def _ones(bits):  # type: ignore[no-untyped-def]
    """Number of bits that are set."""
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@partial(compiled, allocates=True)
def hops_and_descendants(n, edges):  # type: ignore[no-untyped-def]
    """(2, T) int64 edges on the longest path to a sink, and tasks that follow, itself included, of each of n tasks.

    Edges (E, 2) are in any order.
    """
    first, order, found = np.empty(n + 1, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty((2, n), dtype=np.int64)
    successors, missing = np.empty(len(edges), dtype=np.int64), np.empty(n, dtype=np.int64)
    sort_by_predecessor(n, len(edges), edges, first, successors, missing, order)
    count_hops(n, first, successors, order, found[0])
    count_descendants(n, first, successors, order, np.zeros(n, dtype=np.uint64), found[1])
    return found
