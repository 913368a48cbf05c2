"""The heap of ready tasks: whatever is taken out of it, the rest keeps coming out in the order of level 1."""

import numpy as np
import pytest

from rllib_scale.simulator.heaps import push_ready, remove_ready
from rllib_scale.simulator.state import SLOT, TASK, TASK_BITS


@pytest.mark.parametrize("seed", range(20))
def test_any_task_may_be_taken_out(seed):
    rng = np.random.default_rng(seed)
    slots, tasks = np.zeros(10, dtype=SLOT), np.zeros((10, 20), dtype=TASK)
    slots["workflow"] = rng.permutation(10)
    tasks["hop"], tasks["ready"] = rng.integers(0, 6, (10, 20)), rng.integers(0, 4, (10, 20))
    heap, inside = np.zeros(200, dtype=np.int64), set()

    def key(code):
        s, k = code >> TASK_BITS, code % (1 << TASK_BITS)
        return (-tasks["hop"][s, k], tasks["ready"][s, k], slots["workflow"][s], k)

    codes = [s << TASK_BITS | k for s in range(10) for k in range(20)]
    for code in rng.permutation(codes).tolist():
        push_ready(heap, len(inside), slots, tasks, code)
        inside.add(code)
        while inside and rng.random() < 0.4:
            at = int(rng.integers(len(inside)))
            taken = int(heap[at])
            remove_ready(heap, len(inside), slots, tasks, at)
            inside.remove(taken)
    for code in sorted(inside, key=key):
        assert heap[0] == code
        remove_ready(heap, len(inside), slots, tasks, 0)
        inside.remove(code)
