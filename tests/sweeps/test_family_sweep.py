"""Sweeps on a family of problems: what is drawn, planned, played and reported."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from envs.problems import reserving  # noqa: E402
from rllib_scale.config import EnvConfig, ProblemsConfig, TrialConfig, family, scenario  # noqa: E402
from rllib_scale.config.plan import Plan  # noqa: E402
from rllib_scale.evaluation.replay import Replay  # noqa: E402
from rllib_scale.loading import sweep_from  # noqa: E402
from rllib_scale.rl.drawn_problems import DrawnEngines, draw_problem  # noqa: E402
from rllib_scale.rl.vector_env import TrainingVectorEnv  # noqa: E402
from rllib_scale.sweeps.planning import make_plan  # noqa: E402
from rllib_scale.sweeps.validated import TRAINING, VALIDATION, draw_instances  # noqa: E402
from rllib_scale.workloads.family import fixed_problems, fixed_seed  # noqa: E402
from sweep_runs import episodes, file_times, refused, succeed  # noqa: E402

SWEEP: dict[str, Any] = {
    "name": "family",
    "scenario": "steady-0.7",
    "methods": ["adaptive-price"],
    "algorithm": {"problems": "any", "epochs": 1, "population": 4, "instances": 4, "validation_instances": 4},
    "evaluation": {
        "scenarios": ["any", "any-agents-revealed"],
        "family_problems": 2,
        "episodes": 1,
        "heuristics": ["reserve", "fastest-idle"],
    },
}


STEADY = scenario("steady-0.7")
RESERVING = reserving(STEADY)


def trial_of(
    method: str = "context-price", problems: object = "any", seed: int = 42, env: EnvConfig = STEADY
) -> TrialConfig:
    """A trial on a family of problems."""
    return TrialConfig.of(**{"method": method, "seed": seed, "env": env, "algorithm": {"problems": problems}})


def test_a_sweep_trains_on_any_problem_and_reports_the_test_problems(tmp_path: Path) -> None:
    file, results = tmp_path / "family.yaml", tmp_path / "results"
    short = {"problems": {"family": {"arrivals_s": [10, 10]}}}
    file.write_text(json.dumps(SWEEP | {"algorithm": SWEEP["algorithm"] | short}), encoding="utf-8")
    said = succeed("sweep", file, "--results", results)
    assert "12 evaluations of 1 episode at their own numbers of servers" in said
    rows = episodes(results)
    assert rows.groupby(["method", "scenario"]).size().tolist() == [2] * 6
    assert (rows["unfinished"] == 0).all()
    for name, (kind, revealed) in (("any", ("basic", False)), ("any-agents-revealed", ("agents", True))):
        own = rows[(rows["scenario"] == name) & (rows["method"] == "reserve")].set_index("eval_seed")
        problems = fixed_problems(kind, revealed)[:2]
        servers = {fixed_seed(kind, k, 1000): env.cluster.num_servers for k, env in enumerate(problems)}
        assert own["test_servers"].to_dict() == servers
    table = pd.read_csv(results / "report" / "tables" / "family-any-feasible-argmax.csv").set_index("variant")
    assert list(table.index) == ["adaptive-price", "reserve"]
    times = rows[rows["scenario"] == "any"].pivot_table(
        index="eval_seed", columns="method", values="response_censored_s"
    )
    expected = 100 * np.expm1(np.log(times["reserve"] / times["fastest-idle"]).mean())
    assert table.loc["reserve", "against_base_response_censored_s"] == pytest.approx(expected)
    assert "Against fastest-idle, over a family of problems" in (results / "report" / "report.html").read_text()
    before = file_times(results / "evaluations", results / "policies")
    succeed("sweep", file, "--results", results)
    assert file_times(results / "evaluations", results / "policies") == before
    assert "12 of 12 evaluations done" in succeed("status", results)
    for _, row in rows.groupby("method").head(1).iterrows():
        assert Replay(results).episode(row).engine.metrics()["completed"] == row["completed"]


def test_instances_represent_kinds_and_observability_evenly_and_are_never_drawn_twice() -> None:
    trial = trial_of()
    for count in (4, 12, 13):
        instances = draw_instances(trial, count, TRAINING, 1)
        kinds = Counter((i.env.workload.delay_s is None, i.env.information.workflows) for i in instances)
        assert all(count // 4 <= number <= -(-count // 4) for number in kinds.values())
        assert len(kinds) == 4
        assert sum(i.weight for i in instances) == pytest.approx(1)
    several = [
        draw_instances(trial_of(seed=seed), 4, stream, epoch)
        for seed, stream, epoch in ((42, TRAINING, 1), (42, TRAINING, 2), (42, VALIDATION, 0), (43, TRAINING, 1))
    ]
    loads = [i.env.workload.offered_load for instances in several for i in instances]
    seeds = [i.seed for instances in several for i in instances]
    assert len(set(loads)) == len(set(seeds)) == 16
    assert draw_instances(trial, 4, TRAINING, 1) == several[0]


def test_env_decides_how_a_drawn_problem_is_played() -> None:
    trial = trial_of("crossattn", env=RESERVING)
    problems = trial.algorithm.problems or ProblemsConfig()
    drawn = [draw_problem(problems, trial.env, 5, episode) for episode in range(8)]
    assert {env.cluster.num_rows for env in drawn} == {48}
    assert len({env.cluster.num_servers for env in drawn}) > 3
    assert len({env.cluster.num_places for env in drawn}) > 3
    for env in drawn:
        assert (env.decision, env.observation, env.reward) == (
            trial.env.decision,
            trial.env.observation,
            trial.env.reward,
        )
        assert (env.episode.mask, env.episode.horizon_is_terminal) == ("none", False)
        assert env.episode.arrivals_until_s == 120


def test_a_training_environment_plays_drawn_problems() -> None:
    trial = trial_of("crossattn", {"family": {"arrivals_s": [5, 5]}}, env=RESERVING)
    problems = trial.algorithm.problems
    env = TrainingVectorEnv(3, trial.env, 1, problems)
    assert isinstance(env._engine, DrawnEngines)
    observations, _ = env.reset(seed=1)
    ended = 0
    for _ in range(150):
        assert env.observation_space.contains(observations)
        choose = env._engine.mask[:, : env._engine.num_rows].argmax(axis=1)
        observations, rewards, terminated, truncated, _ = env.step(choose)
        assert np.isfinite(rewards).all()
        ended += int((terminated | truncated).sum())
    assert ended > 0


def test_a_plan_holds_the_problems_with_their_seeds() -> None:
    sweep = sweep_from(SWEEP, "test")
    plan = make_plan(sweep, "test")
    again = Plan.from_json(sweep, json.loads(json.dumps(plan.to_json())), "test")
    assert [unit.key for unit in again.units] == [unit.key for unit in plan.units]
    assert len({unit.seed for unit in plan.units}) == 4
    full = make_plan(sweep_from(SWEEP | {"evaluation": {"scenarios": list(family.SCENARIOS)}}, "test"), "test")
    assert len(full.units) == 4 * 120 * 5
    mixed = SWEEP["evaluation"] | {"scenarios": ["any", "steady-0.5"], "scales": [8], "seed": 7}
    units = make_plan(sweep_from(SWEEP | {"evaluation": mixed}, "test"), "test").units
    assert {(u.scenario, u.seed) for u in units if u.scenario != "any"} == {("steady-0.5", 7)}
    assert {u.seed for u in units if u.scenario == "any"} == {fixed_seed("basic", k, 7) for k in (0, 1)}


def test_a_method_of_fixed_size_is_not_evaluated_on_a_family() -> None:
    plan = make_plan(sweep_from({**SWEEP, "methods": ["ppo"], "algorithm": {}}, "test"), "test")
    assert not any(unit.learned for unit in plan.units)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("algorithm.problems={servers: [8], family: {}}", ["algorithm.problems", "leave out servers and offered_load"]),
        ("algorithm.problems=some", ["algorithm.problems", "valid: any"]),
        ("algorithm.problems.family.task_s=[9, 1]", ["task_s", "low 9 is above high 1"]),
        ("scenario=any", ["scenario any", "evaluation.scenarios"]),
        ("evaluation.scenarios=[anyone]", ["anyone", "steady-0.5"]),
        ("evaluation.family_problems=121", ["evaluation.family_problems", "121", "120"]),
        ("env.workload.offered_load=0.5", ["env.workload", "algorithm.problems"]),
        ("methods=[deeprm]", ["algorithm.problems any", "deeprm", "fixed"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, change: str, words: list[str]) -> None:
    file = tmp_path / "family.yaml"
    sweep = SWEEP | ({"algorithm": {"epochs": 1}} if "family" in change else {})
    sweep |= {"algorithm": {"problems": "any"}} if "methods" in change else {}
    file.write_text(json.dumps(sweep), encoding="utf-8")
    line = refused("validate", file, settings=[change])
    for word in words:
        assert word in line


def test_evaluate_refuses_a_family_in_one_line() -> None:
    assert "evaluation.scenarios" in refused("evaluate", "fastest-idle", "--scenario", "any-agents")
