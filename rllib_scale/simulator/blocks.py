"""Blocks of task rows and of edges, a workflow's own as long as it lives: sizes of powers of two, used again."""

from __future__ import annotations

from rllib_scale.compiled import compiled
from rllib_scale.simulator.state import CLASSES, FREE


@compiled
def size_class(rows):  # type: ignore[no-untyped-def]
    """The k of the smallest block 2^k that holds so many rows."""
    k = 0
    while (1 << k) < rows:
        k += 1
    return k


@compiled
def forget_blocks(env):  # type: ignore[no-untyped-def]
    """Give all blocks back at once."""
    env.task_top = env.edge_top = 0
    for k in range(CLASSES):
        env.free_tasks[k] = FREE
        env.free_edges[k] = FREE


@compiled
def take_tasks(env, tasks, k):  # type: ignore[no-untyped-def]
    """First row of a block of 2^k task rows; -1 where there is no room."""
    first = env.free_tasks[k]
    if first >= 0:
        env.free_tasks[k] = tasks[first].workflow
    elif env.task_top + (1 << k) <= len(tasks):
        first = env.task_top
        env.task_top += 1 << k
    return first


@compiled
def give_tasks(env, tasks, first, k):  # type: ignore[no-untyped-def]
    """Give a block back."""
    tasks[first].workflow = env.free_tasks[k]
    env.free_tasks[k] = first


@compiled
def take_edges(env, edges, k):  # type: ignore[no-untyped-def]
    """First of a block of 2^k edges; -1 where there is no room."""
    first = env.free_edges[k]
    if first >= 0:
        env.free_edges[k] = edges[first]
    elif env.edge_top + (1 << k) <= len(edges):
        first = env.edge_top
        env.edge_top += 1 << k
    return first


@compiled
def give_edges(env, edges, first, k):  # type: ignore[no-untyped-def]
    """Give a block back."""
    edges[first] = env.free_edges[k]
    env.free_edges[k] = first
