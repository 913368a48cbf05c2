"""The heap of tasks that wait: whatever is taken out of it, the rest keeps coming out in the order of level 1."""

import numba
import numpy as np
import pytest

from rllib_scale.simulator import heaps
from rllib_scale.simulator.state import TASK
from seeds import each_of

_push, _remove = heaps.push, heaps.remove


@numba.njit
def push(heap, size, order, tasks, finish, row):
    _push(heap, size, order, tasks, finish, row)


@numba.njit
def remove(heap, size, order, tasks, finish, at):
    _remove(heap, size, order, tasks, finish, at)


KEYS = {
    heaps.BY_RANK: lambda tasks, finish, row: (-tasks[row]["rank"], tasks[row]["ready"], row),
    heaps.BY_ARRIVAL: lambda tasks, finish, row: (-tasks[row]["rank"], row),
    heaps.BY_READY: lambda tasks, finish, row: (tasks[row]["ready"], row),
    heaps.BY_FINISH: lambda tasks, finish, row: (finish[row], row),
}


@pytest.mark.parametrize("order", KEYS)
@each_of(range(20))
def test_any_entry_may_be_taken_out(seed, order):
    rng = np.random.default_rng(seed)
    tasks = np.zeros(200, dtype=TASK)
    tasks["rank"], tasks["ready"] = rng.integers(0, 6, 200), rng.integers(0, 4, 200)
    finish = rng.integers(0, 50, 200).astype(np.float64)
    heap, inside = np.zeros(200, dtype=np.int64), set()
    for row in rng.permutation(200).tolist():
        push(heap, len(inside), order, tasks, finish, row)
        inside.add(row)
        while inside and rng.random() < 0.4:
            at = int(rng.integers(len(inside)))
            taken = int(heap[at])
            remove(heap, len(inside), order, tasks, finish, at)
            inside.remove(taken)
    for row in sorted(inside, key=lambda row: KEYS[order](tasks, finish, row)):
        assert heap[0] == row
        remove(heap, len(inside), order, tasks, finish, 0)
        inside.remove(row)
