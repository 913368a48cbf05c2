"""In which order planners take the tasks of a workflow: longest ways through it, on a mean server."""

from __future__ import annotations

from functools import partial

import numpy as np

from rllib_scale.compiled import compiled


@partial(compiled, allocates=True)
def upward_rank(mean, edges, delay):  # type: ignore[no-untyped-def]
    """(T,) longest path from a task to the end, itself included: mean execution and mean communication."""
    rank = mean.copy()
    changed = True
    while changed:  # backwards through edges by predecessor, once and a check where tasks are numbered in their order
        changed = False
        for e in range(len(edges) - 1, -1, -1):
            i, j = edges[e, 0], edges[e, 1]
            longer = mean[i] + delay[e] + rank[j]
            if longer > rank[i]:
                rank[i] = longer
                changed = True
    return rank


@partial(compiled, allocates=True)
def downward_rank(mean, edges, delay):  # type: ignore[no-untyped-def]
    """(T,) longest path from the beginning to a task, itself excluded."""
    rank = np.zeros(len(mean))
    changed = True
    while changed:
        changed = False
        for e in range(len(edges)):
            i, j = edges[e, 0], edges[e, 1]
            longer = rank[i] + mean[i] + delay[e]
            if longer > rank[j]:
                rank[j] = longer
                changed = True
    return rank


@partial(compiled, allocates=True)
def critical_path(upward, priority, edges, delay):  # type: ignore[no-untyped-def]
    """Tasks of a longest path, from its entry on."""
    is_entry = np.ones(len(upward), dtype=np.bool_)
    for e in range(len(edges)):
        is_entry[edges[e, 1]] = False
    at = np.argmax(np.where(is_entry, priority, -1.0))
    path = [at]
    while True:
        longest, following = -1.0, -1
        for e in range(len(edges)):
            if edges[e, 0] == at and delay[e] + upward[edges[e, 1]] > longest:
                longest, following = delay[e] + upward[edges[e, 1]], edges[e, 1]
        if following < 0:
            return np.array(path)
        path.append(following)
        at = following


@partial(compiled, allocates=True)
def by_priority(priority, edges):  # type: ignore[no-untyped-def]
    """(T,) tasks in the order in which they are taken from the queue of the ready ones."""
    num_tasks = len(priority)
    missing = np.zeros(num_tasks, dtype=np.int64)
    for e in range(len(edges)):
        missing[edges[e, 1]] += 1
    order = np.empty(num_tasks, dtype=np.int64)
    for position in range(num_tasks):
        first = -1
        # Linear search: workflows have few tasks, and ties go to the lowest index.
        for k in range(num_tasks):
            if missing[k] == 0 and (first < 0 or priority[k] > priority[first]):
                first = k
        order[position] = first
        missing[first] = -1
        for e in range(len(edges)):
            if edges[e, 0] == first:
                missing[edges[e, 1]] -= 1
    return order
