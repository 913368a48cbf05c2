"""Tasks without work and bytes of edges, by hand; every mode is compared with the reference in test_engine_modes."""

from __future__ import annotations

import pytest

from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, TierConfig
from rllib_scale.config.problem import CommunicationConfig
from rllib_scale.evaluation.play import evaluate
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload


def problem(servers: int, **communication: str) -> EnvConfig:
    """Servers of 1 GFLOPS, 1 GB/s apart, on which moves take server time."""
    tier = TierConfig(name="only", count=servers, compute_gflops=1.0, memory_gb=80.0)
    return EnvConfig(
        cluster=ClusterConfig(tiers=(tier,), bandwidth_gb_s=1.0, latency_s=0.0),
        episode=EpisodeConfig(horizon_s=1000.0, mask="feasible"),
        communication=CommunicationConfig(mode="transfer", **communication),
    )


def workload(*workflows: dict) -> Workload:
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 4, "workflows": list(workflows)}, "test")


def task(compute: float, output: float = 0.0, delay: float = 0.0) -> dict:
    return {"compute_gflop": compute, "memory_gb": 1, "output_gb": output, "delay_s": delay}


@pytest.mark.parametrize("policy", ["fastest-idle", "reserve", "hungarian", "heft", "adaptive-price"])
def test_a_join_does_not_wait_for_a_busy_server(policy: str) -> None:
    """An operator without work at the end of a workflow ends with its predecessor, at 10 s and not at 110 s."""
    given = workload(
        {"arrival_s": 0, "tasks": [task(0), task(10), task(0)], "edges": [[0, 1], [1, 2]], "deadline_s": 10},
        {"arrival_s": 5, "tasks": [task(100)], "edges": [], "deadline_s": 90},
    )
    env = problem(1)
    (row,) = evaluate(make_policy(policy, env), env, 0, 1, given=given)
    assert row["jct_mean_s"] == (10 + 105) / 2
    assert row["response_median_s"] == 10
    assert row["response_mean_s"] == (0 + 10 + 10 + 105) / 4
    assert (row["arrived"], row["completed"], row["workflows_completed"]) == (4, 4, 2)
    assert row["slo_share"] == 0.5
    assert row["bound_capacity_s"] <= row["response_censored_s"]


def test_an_episode_lasts_until_the_delay_of_a_task_without_work_has_ended() -> None:
    given = workload({"arrival_s": 1, "tasks": [task(2), task(0, delay=7.5)], "edges": [[0, 1]]})
    env = problem(1)
    (row,) = evaluate(make_policy("fastest-idle", env), env, 0, 1, given=given)
    assert (row["duration_s"], row["jct_mean_s"], row["decisions"]) == (10.5, 9.5, 1)


@pytest.mark.parametrize(
    ("communication", "moved_s"),
    [
        ({"predecessors": "first"}, 3.0),
        ({"predecessors": "first", "first": "largest-output"}, 4.0),
        ({"predecessors": "all"}, 7.0),
    ],
)
def test_an_edge_moves_its_own_bytes(communication: dict[str, str], moved_s: float) -> None:
    """Of two outputs of 9 GB a join on a third server needs 3 and 4 GB; of a source without work it gets nothing."""
    tasks = [task(1, 9), task(1, 9), task(0, 9), task(5)]
    given = workload({"arrival_s": 0, "tasks": tasks, "edges": [[0, 3, 3.0], [1, 3, 4.0], [2, 3, 2.0]]})
    engine = Engine(problem(3, **communication))
    engine.reset([0], [0], workload=given)
    for server in range(3):
        engine.step([server])
    schedule = engine.schedule(0)
    assert schedule[["task", "server"]].tolist() == [(0, 0), (1, 1), (3, 2)]
    assert schedule["transfer_s"].tolist() == [0, 0, moved_s]
