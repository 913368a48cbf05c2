"""The three binary heaps of an environment: tasks that wait, tasks whose release delay runs, busy rows."""

from __future__ import annotations

from rllib_scale.compiled import internal

# ---------------------------------------------------------------------- tasks that wait


@internal
def _precedes(slots, tasks, ties_by_arrival, a, b):  # type: ignore[no-untyped-def]
    """Level 1 [SCALE, sec. 4.1]: largest rank first; ties by ready time, or not, then workflow and task."""
    x, y = tasks[a], tasks[b]
    if x.rank != y.rank:
        return x.rank > y.rank
    if x.ready != y.ready and not ties_by_arrival:
        return x.ready < y.ready
    if x.slot != y.slot:
        return slots[x.slot].workflow < slots[y.slot].workflow
    return a < b


@internal
def push_ready(heap, size, slots, tasks, ties_by_arrival, row):  # type: ignore[no-untyped-def]
    """Add a task row to the `size` that are in the heap."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _precedes(slots, tasks, ties_by_arrival, row, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = row


@internal
def remove_ready(heap, size, slots, tasks, ties_by_arrival, at):  # type: ignore[no-untyped-def]
    """Take the task row at position `at` out of the `size` in the heap; the first of all is at 0."""
    last = heap[size - 1]
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _precedes(slots, tasks, ties_by_arrival, heap[child + 1], heap[child]):
            child += 1
        if not _precedes(slots, tasks, ties_by_arrival, heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    # Where it did not go down, the last one may have to go up.
    push_ready(heap, at, slots, tasks, ties_by_arrival, last)


# ---------------------------------------------------------------------- release delays


@internal
def _released_before(slots, tasks, a, b):  # type: ignore[no-untyped-def]
    x, y = tasks[a], tasks[b]
    if x.ready != y.ready:
        return x.ready < y.ready
    if x.slot != y.slot:
        return slots[x.slot].workflow < slots[y.slot].workflow
    return a < b


@internal
def push_released(heap, size, slots, tasks, row):  # type: ignore[no-untyped-def]
    """Add a task row to the `size` whose delay runs; its `ready` says until when."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _released_before(slots, tasks, row, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = row


@internal
def pop_released(heap, size, slots, tasks):  # type: ignore[no-untyped-def]
    """Take the first of `size` task rows off the heap."""
    last = heap[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _released_before(slots, tasks, heap[child + 1], heap[child]):
            child += 1
        if not _released_before(slots, tasks, heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last


# ---------------------------------------------------------------------- busy rows


@internal
def _finishes_before(finish, i, j):  # type: ignore[no-untyped-def]
    return finish[i] < finish[j] or (finish[i] == finish[j] and i < j)


@internal
def push_busy(queue, size, finish, row):  # type: ignore[no-untyped-def]
    """Add a row to the `size` in the heap, by the finish time of its task."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _finishes_before(finish, row, queue[parent]):
            break
        queue[at] = queue[parent]
        at = parent
    queue[at] = row


@internal
def remove_busy(queue, size, finish, at):  # type: ignore[no-untyped-def]
    """Take the row at position `at` out of the `size` in the heap; the one that finishes first is at 0."""
    last = queue[size - 1]
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _finishes_before(finish, queue[child + 1], queue[child]):
            child += 1
        if not _finishes_before(finish, queue[child], last):
            break
        queue[at] = queue[child]
        at = child
    push_busy(queue, at, finish, last)
