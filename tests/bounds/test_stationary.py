"""The bound in the long run: by hand, against every assignment, against rules at scale, and what it refuses."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bounds.instances import problem
from reference.cases import random_workload
from rllib_scale.bounds import stationary
from rllib_scale.bounds.stationary import cheapest, stationary_bound
from rllib_scale.cli import main
from rllib_scale.config import SCENARIOS, EnvConfig
from rllib_scale.evaluation.play import evaluate
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.model import Workload
from seeds import each_of

SPEED, MEMORY = np.array([1.0, 2.0, 4.0]), np.array([4.0, 16.0, 64.0])


def one_in_two(tasks: int, delay_s: float | None = None, **more: Any) -> EnvConfig:
    """A fast server and eight slow ones; a chain of tasks of 8 GFLOP every `tasks` seconds."""
    workload = {
        "arrival_rate_per_server": 1 / (9 * tasks),
        "min_tasks": tasks,
        "max_tasks": tasks,
        "topology": "chain",
        "compute_gflop": {"mean": 8, "std": 0, "low": 1},
        "delay_s": delay_s and {"mean": delay_s, "std": 0, "low": 0.01},
    }
    return problem((1, 4.0, 80.0), (8, 1.0, 80.0), workload=workload, **more)


def test_every_other_task_can_run_fast() -> None:
    """2 s on the fast server, which has half of the time that it takes; 8 s on a slow one."""
    bound = stationary_bound(one_in_two(1), 300)
    assert bound.response_s == pytest.approx(5, abs=0.05)
    assert bound.response_s <= 5 + 1e-9
    assert bound.standard_error_s == pytest.approx(0, abs=1e-9)


def test_the_first_of_a_chain_runs_fast() -> None:
    """2 and 10 s after the arrival."""
    bound = stationary_bound(one_in_two(2), 300)
    assert 5.95 < bound.response_s <= 6 + 1e-9


def test_release_delays_count_in_full() -> None:
    delayed, plain = stationary_bound(one_in_two(2, delay_s=3), 300), stationary_bound(one_in_two(2), 300)
    assert delayed.response_s - plain.response_s == pytest.approx((3 + 6) / 2, abs=0.05)


def least_by_hand(work: Workload, w: int, price: np.ndarray) -> float:
    """Over all assignments of one workflow."""
    tasks = range(work.task_offsets[w], work.task_offsets[w + 1])
    edges = work.edges[work.edge_offsets[w] : work.edge_offsets[w + 1]].tolist()
    before: dict[int, list[int]] = {k: [a for a, b in edges if b == k] for k in range(len(tasks))}
    best = math.inf
    for classes in itertools.product(range(3), repeat=len(tasks)):
        if all(work.memory_gb[t] <= MEMORY[k] for t, k in zip(tasks, classes, strict=True)):
            lasts = [work.compute_gflop[t] / SPEED[k] for t, k in zip(tasks, classes, strict=True)]
            finish: dict[int, float] = {}
            while len(finish) < len(tasks):
                for k in range(len(tasks)):
                    if k not in finish and all(a in finish for a in before[k]):
                        ready = max([0.0, *(finish[a] for a in before[k])])
                        finish[k] = ready + work.delay_s[tasks[k]] + lasts[k]
            best = min(best, sum(finish.values()) + sum(price[k] * x for k, x in zip(classes, lasts, strict=True)))
    return best


def random_workflows(case: int) -> Workload:
    rng = np.random.default_rng([5, case])
    while True:
        work = Workload.from_dict(random_workload(rng, EnvConfig(), grid=bool(case % 2)), "test")
        if np.diff(work.task_offsets).max() <= 6 and work.memory_gb.max() <= MEMORY[-1]:
            return work


@each_of(range(12))
def test_the_cheapest_assignment_is_the_least_of_all_of_them(case: int) -> None:
    work, price = random_workflows(case), np.random.default_rng(case).uniform(0, 6, size=3)
    cost, seconds = cheapest(work, SPEED, MEMORY, price)
    exact = [least_by_hand(work, w, price) for w in range(work.num_workflows)]
    np.testing.assert_allclose(cost, exact)
    assert (seconds @ SPEED).sum() == pytest.approx(work.compute_gflop.sum())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stationary, "MOST_NODES", 0)
        shortened, _ = cheapest(work, SPEED, MEMORY, price)
    assert (shortened <= cost * (1 + 1e-12)).all()
    assert (shortened > 0.5 * cost).all()


@pytest.mark.parametrize(("name", "within"), [("steady-0.5", 1.12), ("steady-0.7", 1.12), ("wide", 1.8)])
def test_no_rule_is_below_it_at_scale(name: str, within: float) -> None:
    env = SCENARIOS[name][0].at_scale(128)
    bound = stationary_bound(env, 1500)
    for rule in ("fastest-idle", "dual-price"):
        rows = evaluate(make_scheduler(rule, env.observation, "feasible"), env, 5, 3)
        mean = float(np.mean([row["response_censored_s"] for row in rows]))
        assert mean > bound.response_s - 3 * bound.standard_error_s
    assert mean < within * bound.response_s, "or the bound is not worth having"


def test_without_a_stationary_state_there_is_no_bound() -> None:
    assert math.isnan(stationary_bound(SCENARIOS["overload-1.1"][0], 100).response_s)
    resumed = one_in_two(1, decision={"on_busy": "reserve", "preemption": "resume"})
    assert math.isnan(stationary_bound(resumed, 100).response_s)


def test_the_command_writes_a_row_an_episode(tmp_path: Path) -> None:
    output = tmp_path / "bounds.csv"
    shown = CliRunner().invoke(
        main, ["bounds", "steady-0.7", "--scales", "8,16", "--episodes", "2", "--fluid", "--output", str(output)]
    )
    assert shown.exit_code == 0, shown.output
    rows = pd.read_csv(output)
    assert rows[["test_servers", "episode"]].to_numpy().tolist() == [[8, 0], [8, 1], [16, 0], [16, 1]]
    assert (rows["bound_critical_path_s"] <= rows["bound_capacity_s"]).all()
    assert (rows["bound_fluid_s"] > rows["bound_critical_path_s"]).all()
    assert (rows["bound_stationary_s"] > 8).all()
