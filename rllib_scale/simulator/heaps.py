"""The binary heap behind the three queues of an environment: waiting tasks, release delays, busy places."""

from __future__ import annotations

from rllib_scale.compiled import internal

BY_RANK, BY_ARRIVAL, BY_READY, BY_FINISH = range(4)
"""First in a heap: the waiting task of the largest rank [SCALE, sec. 4.1, level 1], and of equal ones the first that
was ready, or not; the task that is ready first; the place that finishes first. Ties go to the lowest index: tasks are
numbered by workflow, in order of arrival."""


@internal
def _precedes(order, tasks, finish, a, b):  # type: ignore[no-untyped-def]
    if order == BY_FINISH:
        return finish[a] < finish[b] or (finish[a] == finish[b] and a < b)
    if order != BY_READY and tasks[a].rank != tasks[b].rank:
        return tasks[a].rank > tasks[b].rank
    if order != BY_ARRIVAL and tasks[a].ready != tasks[b].ready:
        return tasks[a].ready < tasks[b].ready
    return a < b


@internal
def push(heap, size, order, tasks, finish, entry):  # type: ignore[no-untyped-def]
    """Add an entry to the `size` that are in the heap: a row of `tasks` or, by finish, a place."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _precedes(order, tasks, finish, entry, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = entry


@internal
def remove(heap, size, order, tasks, finish, at):  # type: ignore[no-untyped-def]
    """Take the entry at position `at` out of the `size` in the heap; the first of all is at 0."""
    # The last entry takes the free position and sinks from there.
    last = heap[size - 1]
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _precedes(order, tasks, finish, heap[child + 1], heap[child]):
            child += 1
        if not _precedes(order, tasks, finish, heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    # Where it did not go down, the last one may have to go up.
    push(heap, at, order, tasks, finish, last)
