"""Metrics of whole workflows: a literal episode, and the engine's own sums."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rllib_scale.bounds.lower_bounds import critical_path_s
from rllib_scale.config import EnvConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.evaluation.workflows import workflow_metrics
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

TIERS = [
    {"name": "slow", "count": 1, "compute_gflops": 1.0, "memory_gb": 8.0, "idle_power_w": 1.0, "busy_power_w": 2.0},
    {"name": "fast", "count": 1, "compute_gflops": 2.0, "memory_gb": 4.0, "idle_power_w": 1.0, "busy_power_w": 2.0},
]


def tiny(**settings):
    data = {
        "cluster": {"tiers": TIERS},
        "workload": {"memory_gb": {"mean": 1, "std": 0, "low": 1, "high": 8}},
        "episode": {"horizon_s": 100.0},
    }
    return build_model(EnvConfig, data | settings, "test")


def task(compute, memory=1.0, output=1.0, delay=0.0):
    return {"compute_gflop": compute, "memory_gb": memory, "output_gb": output, "delay_s": delay}


def given(*workflows):
    rows = [{"arrival_s": at, "tasks": tasks, "edges": edges} for at, tasks, edges in workflows]
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": rows}, "test")


def test_a_critical_path_counts_delays_and_the_fastest_server_that_fits() -> None:
    # 4 GFLOP on the fast server, 3 s of delay, 6 GFLOP that fit the slow one alone.
    workload = given((1.0, [task(4), task(6, memory=8.0, delay=3.0)], [[0, 1]]), (2.0, [task(2)], []))
    assert critical_path_s(tiny(), workload).tolist() == [2 + 3 + 6, 1]


def test_a_literal_episode() -> None:
    """Two chains of two tasks: the first moves to the other server, the second waits and stays."""
    workload = given((0.0, [task(4), task(4)], [[0, 1]]), (0.0, [task(2), task(2)], [[0, 1]]))
    env = tiny()
    engine = Engine(env)
    engine.reset([0], [0], workload=workload)
    for starts in ([(0, 0, 0), (1, 0, 1)], [(1, 1, 1)], [(0, 1, 1)]):
        engine.dispatch([(0, *start) for start in starts])
    assert engine.done[0]
    schedule = engine.schedule()
    assert [(row["workflow"], row["task"], row["start_s"], row["finish_s"]) for row in schedule] == [
        (0, 0, 0, 4),
        (1, 0, 0, 1),
        (1, 1, 1, 2),
        (0, 1, 4, 6),
    ]
    # Critical paths 4 and 2 s: 6 s is within 8 s, 2 s within 4 s. One of two successors moved.
    found = workflow_metrics(env, workload, schedule, 100.0)
    assert found == pytest.approx(
        {
            "jct_median_s": 4.0,
            "jct_p95_s": 5.8,
            "jct_p99_s": 5.96,
            # 4 s, then no wait: ready at 4, started there. 1 s, then 1 s.
            "sojourn_mean_s": 4.0,
            "sojourn_p95_s": 5.8,
            "slo_share": 1.0,
            "moved_share": 0.5,
        }
    )
    # Seen at 5 s, one workflow has had its time, and was done; the other's is not up.
    cut = schedule[schedule["start_s"] < 4]
    at_five = workflow_metrics(env, workload, cut, 5.0)
    assert (at_five["slo_share"], at_five["jct_median_s"], at_five["moved_share"]) == (1.0, 2.0, 0.0)
    # At 50 s without its last task the first one has missed its objective.
    assert workflow_metrics(env, workload, cut, 50.0)["slo_share"] == 0.5
    for deadlines, share in (((6, 2), 1.0), ((5.9, 2), 0.5), ((math.inf, 1.9), 0.0), ((6, math.inf), 1.0)):
        own = replace(workload, deadline_s=np.array(deadlines))
        assert workflow_metrics(env, own, schedule, 100.0)["slo_share"] == share
        assert workflow_metrics(env, own, schedule, 6.0)["slo_share"] == share, "what is done is decided"


def test_time_on_the_cluster_leaves_release_delays_out() -> None:
    workload = given((0.0, [task(2), task(4, delay=30.0)], [[0, 1]]))
    env = tiny()
    engine = play(make_scheduler("fastest-idle", env.observation, "feasible"), env, 0, [0], workload=workload)
    found = workflow_metrics(env, workload, engine.schedule(), 100.0)
    assert (found["jct_median_s"], found["sojourn_mean_s"]) == (1 + 30 + 2, 1 + 2)


def test_an_input_comes_from_the_predecessor_that_the_config_says() -> None:
    workload = given((0.0, [task(2, output=1.0), task(2, output=9.0), task(2)], [[0, 2], [1, 2]]))
    for first, moved in (("lowest-index", 1.0), ("largest-output", 0.0)):
        env = tiny(communication={"first": first})
        engine = Engine(env)
        engine.reset([0], [0], workload=workload)
        engine.dispatch([(0, 0, 0, 0), (0, 0, 1, 1)])
        while not engine.done[0]:
            waits = engine.snapshot().ready
            engine.dispatch([(0, 0, 2, 1)] if len(waits) else np.zeros((0, 4)))
        assert workflow_metrics(env, workload, engine.schedule(), 100.0)["moved_share"] == moved


def test_the_mean_over_completed_workflows_is_the_engines_own() -> None:
    env = EnvConfig()
    engine = play(make_scheduler("fastest-idle", env.observation), env, 5, [0])
    workload, schedule = generate(env, 5, 0), engine.schedule()
    done = [
        schedule["finish_s"][schedule["workflow"] == w].max() - workload.arrival_s[w]
        for w in range(workload.num_workflows)
        if (schedule["outcome"][schedule["workflow"] == w] == "finished").sum() == np.diff(workload.task_offsets)[w]
    ]
    assert np.mean(done) == pytest.approx(engine.metrics()["jct_mean_s"])
    row = evaluate(make_scheduler("fastest-idle", env.observation), env, 5, 1)[0]
    assert row["jct_p95_s"] == pytest.approx(float(np.quantile(done, 0.95)))


def test_an_episode_without_workflows_has_no_metrics_of_them() -> None:
    env = EnvConfig()
    empty = np.zeros(0, dtype=Engine(env).schedule().dtype)
    workload = generate(env.model_copy(update={"episode": env.episode.model_copy(update={"horizon_s": 1e-9})}), 0, 0)
    assert all(math.isnan(value) for value in workflow_metrics(env, workload, empty, 0.0).values())
