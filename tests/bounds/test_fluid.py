"""The fluid bound: by hand, against rules and the exact optimum on random instances, and where it is not known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bounds.optimum import optimal_response
from reference.cases import pick, random_workload
from rllib_scale.bounds import fluid
from rllib_scale.bounds.fluid import fluid_bound
from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.config import SCENARIOS, EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload


def problem(*tiers: tuple[int, float, float], horizon_s: float = 1000.0, **more: Any) -> EnvConfig:
    """Of (count, GFLOPS, GB)."""
    named = [
        {"name": f"tier_{k}", "count": n, "compute_gflops": speed, "memory_gb": memory}
        for k, (n, speed, memory) in enumerate(tiers)
    ]
    memory = {"mean": 2, "std": 0, "low": 1, "high": max(t[2] for t in tiers)}
    return EnvConfig.model_validate(
        {
            "cluster": {"tiers": named},
            "workload": {"memory_gb": memory},
            "episode": {"horizon_s": horizon_s, "mask": "feasible"},
        }
        | more
    )


def workload(*workflows: tuple[float, list[float], list[list[int]]], delay_s: float = 0.0) -> Workload:
    """Of arrival, GFLOP of each task, edges."""
    content = [
        {
            "arrival_s": arrival,
            "tasks": [{"compute_gflop": c, "memory_gb": 1.0, "output_gb": 0.0, "delay_s": delay_s} for c in tasks],
            "edges": edges,
        }
        for arrival, tasks, edges in workflows
    ]
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": content}, "test")


def test_a_task_alone_takes_its_time() -> None:
    env = problem((1, 1.0, 8.0), (1, 2.0, 8.0))
    assert fluid_bound(env, workload((3.0, [8.0], []))) == pytest.approx(4, rel=1e-5)
    assert fluid_bound(env, workload((3.0, [8.0, 4.0], [[0, 1]]), delay_s=1.0)) == pytest.approx(6.5, rel=1e-5)


def test_one_server_takes_one_at_a_time() -> None:
    """Ten of 1 s at 0 on one server end at 1 to 10 s, 5.5 in the mean; finer bins see more of that."""
    work, env = workload((0.0, [1.0] * 10, [])), problem((1, 1.0, 8.0), horizon_s=12.0)
    coarse, fine = fluid_bound(env, work, 4), fluid_bound(env, work, 400)
    assert 1 < coarse < fine <= 5.5
    assert fine == pytest.approx(5.5, rel=0.02)


def test_what_cannot_be_done_counts_up_to_the_horizon() -> None:
    # Two of 4 s end in time on one server; the others count 9 s.
    bound = fluid_bound(problem((1, 1.0, 8.0), horizon_s=9.0), workload((0.0, [4.0] * 5, [])), 90)
    assert bound <= (4 + 8 + 9 + 9 + 9) / 5
    assert bound > 7


def random_instance(case: int, most_tasks: int) -> tuple[EnvConfig, Workload]:
    rng = np.random.default_rng([23, case])
    tiers = [
        (int(rng.integers(1, 3)), pick(rng, 1.0, 2.0, 4.0), pick(rng, 4.0, 64.0)) for _ in range(rng.integers(1, 4))
    ]
    env = problem(*tiers, horizon_s=pick(rng, 400.0, float(rng.uniform(2, 25))))
    within = env.model_copy(update={"episode": env.episode.model_copy(update={"horizon_s": float(rng.uniform(1, 30))})})
    while True:
        work = Workload.from_dict(random_workload(rng, within, grid=bool(rng.integers(2))), "test")
        if work.num_tasks <= most_tasks:
            return env, work


@pytest.mark.parametrize("cases", [range(25), pytest.param(range(25, 100), marks=pytest.mark.slow)])
def test_no_rule_is_below_it(cases: range) -> None:
    binding = 0
    for case in cases:
        env, work = random_instance(case, 24)
        bound, others = fluid_bound(env, work), lower_bounds(env, work)
        if math.isnan(bound):
            continue
        assert bound >= others["bound_critical_path_s"] - 1e-4
        binding += bound > 1.02 * others["bound_capacity_s"]
        for name in ("fastest-idle", "non-blocking:order=shortest-task", "reserve", "hungarian", "price", "heft"):
            played = play(make_scheduler(name, env.observation, "feasible"), env, 0, [0], work)
            assert played.metrics()["response_censored_s"] >= bound - 1e-9, (case, name)
    assert binding > 3


def test_it_is_below_the_optimum() -> None:
    for case in range(7):
        env, work = random_instance(1000 + case, 7)
        if work.arrival_s[0] <= env.episode.horizon_s:
            assert fluid_bound(env, work) <= optimal_response(env, work).upper_s + 1e-9, case


def test_it_is_tighter_than_the_capacity_bound_where_there_are_queues() -> None:
    env = SCENARIOS["steady-0.9"][0]
    work = generate(env, 4, 0)
    assert fluid_bound(env, work, 20) > 1.02 * lower_bounds(env, work)["bound_capacity_s"]


def test_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    work = workload((5.0, [1.0, 2.0], []))
    assert math.isnan(fluid_bound(problem((1, 1.0, 8.0), horizon_s=4.0), work))
    resumed = problem((1, 1.0, 8.0), decision={"on_busy": "reserve", "preemption": "resume"})
    assert math.isnan(fluid_bound(resumed, work))
    monkeypatch.setattr(fluid, "MOST_TASKS", 1)
    with pytest.raises(UserError, match="2 tasks arrive in an episode; the fluid bound is for at most 1"):
        fluid_bound(problem((1, 1.0, 8.0)), work)
