"""What a search compares is comparable, and what it changes may change."""

from __future__ import annotations

from typing import Any

import pytest

from rllib_scale.config import DQN, PPO, SAC, SRRConfig, TrialConfig
from rllib_scale.config.paths import may_change
from rllib_scale.config.search import changing_settings, few_points
from rllib_scale.errors import UserError
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan

SWEEP = {"name": "search", "methods": ["scale"], "algorithm": {"epochs": 300}, "evaluation": {"scales": [16]}}


def planned(**sections: Any) -> Any:
    return make_plan(sweep_from(SWEEP | sections, "x"), "x")


@pytest.mark.parametrize(
    "path",
    ["scenario", "network.embedding_dim", "env.workload.offered_load", "algorithm.num_envs", "stop.epochs"],
)
def test_pbt_changes_only_what_may_change_during_a_training(path: str) -> None:
    values = {"scenario": ["paper", "steady-0.7"], "env.workload.offered_load": [0.5, 0.9]}.get(path, [16, 32])
    space = {path: {"choice": values}}
    with pytest.raises(UserError, match=rf"search.space.{path}: is fixed .* valid: algorithm.clip, .*, srr.lambda_kl"):
        planned(search={"scheduler": "pbt", "space": space})


def test_what_may_change_is_said_by_its_type_in_every_member() -> None:
    assert may_change(TrialConfig, "algorithm.learning_rate")
    assert not may_change(TrialConfig, "algorithm.epochs")
    for method, member in (("scale", PPO), ("dqn", DQN), ("sac", SAC)):
        found = changing_settings(TrialConfig.of(method))
        assert "algorithm.learning_rate" in found
        assert {path.removeprefix("algorithm.") for path in found if path.startswith("algorithm.")} <= {
            *member.model_fields
        }
    assert {path for path in changing_settings(TrialConfig.of()) if path.startswith("srr.")} == {
        f"srr.{name}" for name in SRRConfig.model_fields if name.startswith("lambda_")
    }


@pytest.mark.parametrize("grid", [{"env.workload.offered_load": [0.5, 0.9]}, {"algorithm.problems": [None, "any"]}])
def test_asha_compares_trainings_of_one_problem(grid: dict[str, Any]) -> None:
    (path,) = grid
    with pytest.raises(UserError, match=f"search.scheduler asha: compares trainings of one problem.* {path}"):
        planned(search={"scheduler": "asha"}, grid=grid)
    planned(search={"scheduler": "asha"}, grid={"algorithm.gamma": [0.9, 0.99]})
    planned(grid=grid)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("scenario", ["paper", "energy"]),
        ("env.workload.offered_load", [None]),
        ("algorithm.problems", [None, "any"]),
        ("algorithm.problems.offered_load", [[0.5, 0.9], [0.6, 0.8]]),
        ("algorithm", [{}, {"problems": {"servers": [16]}}]),
        ("algorithm.reward", [None, "json:loads"]),
    ],
)
def test_optuna_suggests_nothing_that_changes_what_is_compared(path: str, values: list[Any]) -> None:
    with pytest.raises(UserError, match=rf"search.space.{path}: search.algorithm optuna"):
        planned(search={"algorithm": "optuna", "space": {path: {"choice": values}}})


def test_a_search_says_that_it_tries_less_than_it_was_asked_for() -> None:
    space = {"algorithm.passes": {"choice": [2, 8]}}
    many = {"algorithm.gamma": {"uniform": [0.9, 1.0]}}
    for search, said in (
        ({"samples": 8, "space": space}, "search.samples 8: equal points are drawn, so 2 of 8 are trained"),
        ({"samples": 8, "space": space, "algorithm": "optuna"}, "search.samples 8: search.space has 2 points"),
        (
            {"samples": 1, "space": many, "scheduler": "pbt"},
            "population of one",
        ),
        ({"samples": 8, "space": many}, None),
    ):
        plan = planned(search=search)
        found = few_points(plan.sweep.search, len(plan.trials), plan.sweep.most_trainings)
        assert len(found) == (said is not None)
        assert all(said in each for each in found)
