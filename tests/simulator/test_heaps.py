"""The heap of tasks that wait: whatever is taken out of it, the rest keeps coming out in the order of level 1."""

import numba
import numpy as np
import pytest

from rllib_scale.simulator import heaps
from rllib_scale.simulator.state import SLOT, TASK
from seeds import each_of

_push, _remove = heaps.push_ready, heaps.remove_ready


@numba.njit
def push_ready(heap, size, slots, tasks, ties_by_arrival, row):
    _push(heap, size, slots, tasks, ties_by_arrival, row)


@numba.njit
def remove_ready(heap, size, slots, tasks, ties_by_arrival, at):
    _remove(heap, size, slots, tasks, ties_by_arrival, at)


@pytest.mark.parametrize("ties_by_arrival", [False, True])
@each_of(range(20))
def test_any_task_may_be_taken_out(seed, ties_by_arrival):
    rng = np.random.default_rng(seed)
    slots, tasks = np.zeros(10, dtype=SLOT), np.zeros(200, dtype=TASK)
    slots["workflow"] = rng.permutation(10)
    tasks["slot"] = np.repeat(np.arange(10), 20)
    tasks["rank"], tasks["ready"] = rng.integers(0, 6, 200), rng.integers(0, 4, 200)
    heap, inside = np.zeros(200, dtype=np.int64), set()

    def key(row):
        task = tasks[row]
        ready = () if ties_by_arrival else (task["ready"],)
        return (-task["rank"], *ready, slots["workflow"][task["slot"]], row)

    for row in rng.permutation(200).tolist():
        push_ready(heap, len(inside), slots, tasks, ties_by_arrival, row)
        inside.add(row)
        while inside and rng.random() < 0.4:
            at = int(rng.integers(len(inside)))
            taken = int(heap[at])
            remove_ready(heap, len(inside), slots, tasks, ties_by_arrival, at)
            inside.remove(taken)
    for row in sorted(inside, key=key):
        assert heap[0] == row
        remove_ready(heap, len(inside), slots, tasks, ties_by_arrival, 0)
        inside.remove(row)
