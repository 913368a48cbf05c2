"""Starts one after another in one moment: what each changes for those after it."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import ClusterConfig, TierConfig
from rllib_scale.observation.answers import Answer
from rllib_scale.observation.starting import Servers, Starting, give_one
from rllib_scale.simulator.cluster import SERVER
from small_moments import SMALL, TWO_FLOWS, moments, workload


def test_what_can_start_is_what_fits_an_open_server() -> None:
    now = Starting(moments(TWO_FLOWS)[0])
    assert now.snapshot.ready[["workflow", "task"]].tolist() == [(0, 0), (1, 0), (1, 1)]
    assert now.can_start.tolist() == [[True, True, True], [False, False, True], [True, True, True]]
    np.testing.assert_allclose(now.execution_s, [[8, 8, 2], [4, 4, 1], [12, 12, 3]])


def test_a_start_takes_its_server_and_no_other() -> None:
    now = Starting(moments(TWO_FLOWS)[0])
    now.start(2, 2)
    assert now.waits.tolist() == [True, True, False]
    assert now.can_start.tolist() == [[True, True, False], [False, False, False], [False, False, False]]
    np.testing.assert_allclose(now.servers.wait, [0, 0, 3])
    np.testing.assert_allclose(now.servers.free, [8, 8, 14])
    now.start(0, 1)
    assert now.answers().tolist() == [[1, 1, 2], [0, 0, 1]]
    with pytest.raises(ValueError, match="waiting task 1 cannot start on server 2"):
        now.start(1, 2)


def test_tasks_of_one_server_share_its_memory_and_its_input() -> None:
    tiers = (
        TierConfig(name="shared", count=1, max_concurrent=2, compute_gflops=2.0, memory_gb=10.0),
        TierConfig(name="other", count=1, compute_gflops=2.0, memory_gb=16.0),
    )
    env = SMALL.model_copy(update={"cluster": ClusterConfig(tiers=tiers, bandwidth_gb_s=0.5, latency_s=0.0)})
    given = workload((0.0, [(4.0, 6.0), (4.0, 6.0), (4.0, 3.0), (2.0, 3.0)], [[0, 1]]))
    first, second = moments(given, env, [[Answer(0, 0, 0), Answer(0, 2, 0), Answer(0, 3, 1)]])
    now = Starting(first)
    now.start(0, 0)
    assert now.can_start.tolist() == [[False] * 2, [True, True], [True, True]], "4 GB and a place are left"
    np.testing.assert_allclose(now.servers.wait, [0, 0])
    now.start(2, 0)
    assert now.can_start.tolist() == [[False] * 2, [False, True], [False] * 2], "the server is full"
    np.testing.assert_allclose(now.servers.wait, [1, 0], err_msg="the first of its two ends after 1 s")
    assert second.num_running.tolist() == [0, 0]
    then = Starting(second)
    np.testing.assert_allclose(then.transfer_s, [[0, 2]], err_msg="1 GB at 0.5 GB/s, but not within a server")
    np.testing.assert_allclose(then.lasts_s, [[2, 4]])


def test_who_waits_for_a_server_is_shared_out_among_its_places() -> None:
    properties = np.zeros(2, dtype=SERVER)
    properties["max_concurrent"] = [4, 2]
    servers = Servers(
        capacity=np.array([1.0, 1.0]),
        properties=properties,
        limit=np.array([10.0, 10.0]),
        wait=np.array([0.0, 3.0]),
        free_places=np.array([2, 0]),
        is_open=np.array([True, False]),
        free=np.array([2.0, 0.0]),
        next_end=np.array([5.0, 3.0]),
    )
    assert not give_one(servers, 0, 4.0, 1, 0, 8.0), "2 GB are free: it waits for an end, and then for its share"
    assert servers.wait.tolist() == [7.0, 3.0]
    assert not give_one(servers, 0, 1.0, 1, 0, 4.0), "and nobody starts before it"
    assert not give_one(servers, 1, 1.0, 1, 0, 4.0)
    assert servers.wait.tolist() == [8.0, 5.0]
    assert (servers.free_places.tolist(), servers.free.tolist()) == ([2, 0], [2.0, 0.0])


def test_a_moment_with_a_busy_server() -> None:
    _, then = moments(TWO_FLOWS, answers=[[Answer(1, 0, 2)]])
    now = Starting(then)
    assert then.clock_s == 1.0
    np.testing.assert_allclose(now.servers.wait, [0, 0, 0])
    _, before = moments(workload((0.0, [(8.0, 4.0)], []), (1.0, [(4.0, 4.0)], [])), answers=[[Answer(0, 0, 2)]])
    assert Starting(before).can_start.tolist() == [[True, True, False]]
    np.testing.assert_allclose(Starting(before).servers.wait, [0, 0, 1])
