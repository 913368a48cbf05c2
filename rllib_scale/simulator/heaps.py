"""The two binary heaps of an environment: its ready tasks, and its busy servers."""

from __future__ import annotations

from rllib_scale.compiled import compiled
from rllib_scale.simulator.state import TASK_BITS

# ---------------------------------------------------------------------- the ready tasks, a binary heap


@compiled
def _precedes(slots, tasks, a, b):  # type: ignore[no-untyped-def]
    """Level 1 [SCALE, sec. 4.1]: longest hop count first; ties by ready time, workflow, task."""
    slot_a, slot_b = a >> TASK_BITS, b >> TASK_BITS
    task_a, task_b = a & 0xFFFF, b & 0xFFFF
    x, y = tasks[slot_a, task_a], tasks[slot_b, task_b]
    if x.hop != y.hop:
        return x.hop > y.hop
    if x.ready != y.ready:
        return x.ready < y.ready
    if slot_a != slot_b:
        return slots[slot_a].workflow < slots[slot_b].workflow
    return task_a < task_b


@compiled
def push_ready(heap, size, slots, tasks, code):  # type: ignore[no-untyped-def]
    """Add a task code to the `size` that are in the heap."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _precedes(slots, tasks, code, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = code


@compiled
def remove_ready(heap, size, slots, tasks, at):  # type: ignore[no-untyped-def]
    """Take the code at position `at` out of the `size` in the heap; the first of all is at 0."""
    last = heap[size - 1]
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _precedes(slots, tasks, heap[child + 1], heap[child]):
            child += 1
        if not _precedes(slots, tasks, heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    push_ready(heap, at, slots, tasks, last)  # where it did not go down, the last code may have to go up


# ---------------------------------------------------------------------- the busy servers, a binary heap


@compiled
def _finishes_before(finish, i, j):  # type: ignore[no-untyped-def]
    return finish[i] < finish[j] or (finish[i] == finish[j] and i < j)


@compiled
def push_busy(queue, size, finish, server):  # type: ignore[no-untyped-def]
    """Add a server to the `size` that are in the heap, by the finish time of its task."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _finishes_before(finish, server, queue[parent]):
            break
        queue[at] = queue[parent]
        at = parent
    queue[at] = server


@compiled
def pop_busy(queue, size, finish):  # type: ignore[no-untyped-def]
    """Take the first of `size` servers off the heap."""
    last = queue[size - 1]
    at = 0
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
    queue[at] = last
