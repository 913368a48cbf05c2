"""Min-min and max-min: literal instances, and of independent tasks the schedules of anrg-saga."""

from __future__ import annotations

import numpy as np
import pytest

from schedulers.instances import cluster, saga_schedule, starts
from seeds import each_of
from small_moments import workload

SLOW_AND_FAST = cluster((1, 1, 10), (1, 2, 20))


def test_the_short_task_or_the_long_one_is_matched_first() -> None:
    given = workload((0, [(1, 5), (8, 5)], []))
    # 0.5 s and 4 s on the fast server, 1 s and 8 s on the slow one; after the short one the long one ends there at 4.5.
    assert starts("min-min", SLOW_AND_FAST, given) == {(0, 0): (1, 0.0), (0, 1): (1, 0.5)}
    assert starts("max-min", SLOW_AND_FAST, given) == {(0, 0): (0, 0.0), (0, 1): (1, 0.0)}


def test_who_waits_is_matched_again_when_something_has_happened() -> None:
    given = workload((0, [(8, 5)], []), (0, [(9, 5)], []), (0, [(3, 5)], []), (1, [(2, 15)], []))
    begun = starts("min-min", SLOW_AND_FAST, given)
    # 3 GFLOP first, on fast until 1.5; 8 GFLOP would end at 5.5 there, at 8 on slow, and waits; 9 GFLOP at 10 or 9.
    assert begun[2, 0] == (1, 0.0)
    assert begun[1, 0] == (0, 0.0)
    assert begun[3, 0] == (1, 1.5)  # fits fast alone, and is shorter than the one that waited for it
    assert begun[0, 0] == (1, 2.5)


def test_who_fits_nowhere_now_and_who_follows_are_left_alone() -> None:
    given = workload((0, [(4, 15), (2, 15), (1, 5)], [[0, 2]]))
    assert starts("min-min", SLOW_AND_FAST, given) == {(0, 1): (1, 0.0), (0, 0): (1, 1.0), (0, 2): (1, 3.0)}


def test_a_server_takes_as_many_tasks_as_it_has_places() -> None:
    given = workload((0, [(1, 5), (8, 5), (4, 5)], []))
    # 0.5 s, 4 s and 2 s on the fast server: two start there; 8 s on the slow one are more than 0.5 s and 4 s.
    begun = starts("min-min", cluster((1, 1, 20), (1, 2, 20), places=2), given)
    assert begun == {(0, 0): (1, 0.0), (0, 2): (1, 0.0), (0, 1): (1, 0.5)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["min-min", "max-min"])
@each_of(range(25))
def test_independent_tasks_run_as_by_anrg_saga(seed: int, name: str) -> None:
    from saga.schedulers.maxmin import MaxMinScheduler
    from saga.schedulers.minmin import MinMinScheduler

    rng = np.random.default_rng(seed)
    capacity, compute = rng.uniform(0.5, 5, rng.integers(2, 6)), rng.uniform(1, 20, 12)
    scheduler = MinMinScheduler() if name == "min-min" else MaxMinScheduler()
    given = workload((0, [(c, 5.0) for c in compute.tolist()], []))
    begun = starts(name, cluster(*((1, c, 20) for c in capacity.tolist())), given)
    assert begun == {
        (0, task): (server, pytest.approx(start))
        for task, (server, start) in saga_schedule(scheduler, capacity, compute, {}, 1.0).items()
    }
