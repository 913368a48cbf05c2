"""Live runs on a Ray cluster of two nodes: a node is killed, and no workflow is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray

from clusters.nodes import Nodes, nodes
from live.problems import DIAMOND, problem, task, work
from rllib_scale.config import TierConfig, scenario
from rllib_scale.live import servers
from rllib_scale.live.execute import LiveRun, execute
from rllib_scale.live.servers import Call, alive, nodes_as_servers
from rllib_scale.live.surrogates import Surrogates
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.outside_state import Attempt

pytestmark = [pytest.mark.cluster, pytest.mark.ray]
FOUR = (TierConfig(name="only", count=4, compute_gflops=1.0, memory_gb=8.0),)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(2, 1) as two:
        ray.init(address=two.cluster.address, logging_level="error", log_to_driver=False)
        try:
            yield two
        finally:
            ray.shutdown()


class KillsANode(Surrogates):
    """Tasks that sleep; a node is killed as the first of them starts that is due after `kill_at` [s]."""

    def __init__(self, cluster: Nodes, kill_at: float) -> None:
        super().__init__(time_scale=0.1)
        self.cluster, self.kill_at, self.left = cluster, kill_at, list(cluster.workers)

    def __call__(self, attempt: Attempt, inputs: list[Any]) -> Call:
        if attempt.start_s > self.kill_at and self.left:
            self.cluster.kill(self.left.pop())
        return super().__call__(attempt, inputs)


def check_whole(played: LiveRun) -> None:
    finished = played.schedule[played.schedule["outcome"] == "finished"]
    assert len(np.unique(finished[["workflow", "task"]])) == played.workload.num_tasks
    assert played.failed == {}
    assert played.metrics["workflows_completed"] == played.workload.num_workflows


def play_and_kill(cluster: Nodes, kill_at: float) -> LiveRun:
    """Eight workflows on four servers; outputs are large enough to lie on the nodes, and are lost with one."""
    tasks = [task(4, output=1.0) for _ in range(4)]
    workload = work(*((float(k), tasks, DIAMOND) for k in range(8)))
    env = problem(FOUR)
    rule = make_scheduler("round-robin", env.observation, "feasible")
    return execute(rule, env, workload, KillsANode(cluster, kill_at))


def test_a_node_is_killed_and_no_workflow_is_lost(cluster: Nodes) -> None:
    played = play_and_kill(cluster, kill_at=4.0)
    check_whole(played)
    assert played.metrics["failed_attempts"] > 0
    lost = set(played.schedule["server"][played.schedule["outcome"] == "failed"].tolist())
    after = played.schedule[played.schedule["start_s"] > played.schedule["finish_s"][-1] - 4.0]
    assert lost
    assert not lost & set(after["server"].tolist()) or len(lost) == 4
    cluster.workers.append(cluster.add(1))


def test_the_nodes_of_ray_are_servers(cluster: Nodes) -> None:
    env, names = nodes_as_servers(scenario("steady-0.7"))
    assert sorted(names) == alive()
    assert sorted(tier.max_concurrent for tier in env.cluster.tiers) == [1, 2]
    assert all(tier.memory_gb > 0.1 for tier in env.cluster.tiers)
    workload = work((0.0, [task(1, memory=0.01) for _ in range(6)], []))
    rule = make_scheduler("fastest-idle", env.observation, "feasible")
    played = execute(rule, env, workload, Surrogates(time_scale=0.1), nodes=names)
    check_whole(played)
    first = np.bincount(played.schedule["server"][:3])
    assert first.tolist() == [tier.max_concurrent for tier in env.cluster.tiers]


def test_labels_of_nodes_are_those_of_servers_but_for_names_of_nodes() -> None:
    nodes = [
        {"ray.io/node-id": f"{k}", "host": f"h{k}", "gflops": "2", "ray.io/accelerator-type": ("A100", "H100")[k % 2]}
        for k in range(70)
    ]
    nodes[3] |= {"region": "eu"}
    found = servers._labels_of(nodes)
    assert found[:4] == [
        ("ray.io/accelerator-type=A100",),
        ("ray.io/accelerator-type=H100",),
        ("ray.io/accelerator-type=A100",),
        ("ray.io/accelerator-type=H100", "region=eu"),
    ]
    assert servers._labels_of(nodes[:2])[1] == ("host=h1", "ray.io/accelerator-type=H100")
    TierConfig(name="node", count=1, compute_gflops=1, memory_gb=1, labels=found[3])


@pytest.mark.slow
def test_nodes_are_killed_at_any_time(cluster: Nodes) -> None:
    generator = random.Random(3)
    for _ in range(10):
        check_whole(play_and_kill(cluster, kill_at=generator.uniform(0.0, 9.0)))
        cluster.workers.append(cluster.add(1))
