"""Blocks of task rows and of edges, a workflow's own as long as it lives: sizes of powers of two, used again.

A free block of task rows holds the next free one of its size in `first_successor` of its first row, one of edges in its
first edge.
"""

from __future__ import annotations

from rllib_scale.compiled import compiled, internal

TASKS, EDGES = range(2)


@compiled
def size_class(rows):  # type: ignore[no-untyped-def]
    """The k of the smallest block 2^k that holds so many rows."""
    k = 0
    while (1 << k) < rows:
        k += 1
    return k


@internal
def take_tasks(env, blocks, tasks, k):  # type: ignore[no-untyped-def]
    """First row of a block of 2^k task rows; -1 where there is no room."""
    first = blocks[TASKS, k]
    if first >= 0:
        blocks[TASKS, k] = tasks[first].first_successor
    elif env.task_top + (1 << k) <= len(tasks):
        first = env.task_top
        env.task_top += 1 << k
    return first


@internal
def give_tasks(blocks, tasks, first, k):  # type: ignore[no-untyped-def]
    """Give a block back."""
    tasks[first].first_successor = blocks[TASKS, k]
    blocks[TASKS, k] = first


@internal
def take_edges(env, blocks, edges, k):  # type: ignore[no-untyped-def]
    """First of a block of 2^k edges; -1 where there is no room."""
    first = blocks[EDGES, k]
    if first >= 0:
        blocks[EDGES, k] = edges[first]
    elif env.edge_top + (1 << k) <= len(edges):
        first = env.edge_top
        env.edge_top += 1 << k
    return first


@internal
def give_edges(blocks, edges, first, k):  # type: ignore[no-untyped-def]
    """Give a block back."""
    edges[first] = blocks[EDGES, k]
    blocks[EDGES, k] = first
