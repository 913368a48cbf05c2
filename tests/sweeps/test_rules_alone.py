"""A sweep of rules alone: nothing is trained, and the problems of its grid are all played."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from networks.observations import random_network
from rllib_scale.config import TrialConfig
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.files import write_json
from rllib_scale.loading import sweep_from
from rllib_scale.policies.policy import load_policy, policy_files, save_policy
from rllib_scale.sweeps.planning import make_plan
from sweep_runs import episodes, refused, succeed

RULES = {
    "name": "rules",
    "methods": [],
    "grid": {"env.workload.offered_load": [0.5, 0.9]},
    "evaluation": {"scales": [4], "episodes": 2, "heuristics": ["fastest-idle", "reserve"]},
}


def test_every_problem_of_the_grid_is_played_by_every_rule() -> None:
    sweep = sweep_from(RULES, "test")
    assert make_plan(sweep, "test").trials == ()
    units = make_plan(sweep, "test").units
    played = [(unit.name, unit.env.workload.offered_load) for unit in units]
    assert played == [*product(("fastest-idle", "reserve"), (0.5, 0.9))]
    with pytest.raises(UserError, match="search"):
        sweep_from(RULES | {"search": {"samples": 2, "space": {}}}, "test")


def test_a_league_of_three_rules_and_four_scenarios(tmp_path: Path) -> None:
    settings = [
        "evaluation.scales=[6]",
        "evaluation.episodes=2",
        "evaluation.heuristics=[fastest-idle, reserve, 'zoo:context-price']",
        "evaluation.scenarios=[steady-0.7, stragglers, failures-often, spot]",
    ]
    league = Path(__file__).parents[2] / "tune_configs" / "league.yaml"
    assert "rules alone" in succeed("sweep", league, "--results", tmp_path, settings=settings)
    rows = episodes(tmp_path)
    assert (rows["arrived"] == rows["completed"] + rows["unfinished"]).all()
    assert rows.groupby(["method", "scenario"]).size().tolist() == [2] * 12
    table = pd.read_csv(next((tmp_path / "report").rglob("league.csv")))
    assert sorted(table["variant"]) == ["fastest-idle", "reserve", "zoo:context-price"]
    assert table["mean_rank"].sum() == pytest.approx(6, abs=0.02)
    assert (table["problems"] == 4).all()
    assert table["worst_in"].isin(rows["scenario"]).all()


def with_policies(*names: str, scale: int = 4, scenario: str = "steady-0.7") -> SweepConfig:
    evaluation = {"scales": [scale], "episodes": 2, "heuristics": names}
    return sweep_from(RULES | {"scenario": scenario, "grid": {}, "evaluation": evaluation}, "test")


def test_a_policy_is_evaluated_beside_rules_and_known_by_its_content(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    save_policy(folder, random_network(), TrialConfig.of(), epochs=1)
    sweep = with_policies("fastest-idle", "zoo:context-price", str(folder))
    rule, price, mine = make_plan(sweep, "test").units
    assert [unit.spec.label for unit in (rule, price, mine)] == ["fastest-idle", "zoo:context-price", "mine"]
    (tmp_path / "elsewhere").mkdir()
    moved = folder.rename(tmp_path / "elsewhere" / "mine")
    assert make_plan(with_policies(str(moved)), "test").units[0].key == mine.key
    rows = evaluate_unit(mine, policy_files(moved)).episodes
    assert {row.pop("observability") for row in rows} == {"waiting tasks"}
    assert rows == evaluate(load_policy(moved, mask="feasible"), mine.env, mine.seed, 2)
    assert {row["observability"] for row in evaluate_unit(price, None).episodes} == {"clairvoyant"}
    save_policy(moved, random_network(seed=1), TrialConfig.of(), epochs=1)
    assert make_plan(with_policies(str(moved)), "test").units[0].key != mine.key


def test_a_policy_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    trial = TrialConfig.of("ppo")
    save_policy(tmp_path / "mlp", random_network(method="ppo"), trial, epochs=1)
    for heuristic, scenario, part in (
        (f"{tmp_path}/mlp", "steady-0.7", "was trained at 16 servers and knows no other number (got 4)"),
        ("zoo:context-price", "paper", "valid: mask feasible"),
        ("heft", "spot", "cluster.changes is set; valid for it: none"),
    ):
        with pytest.raises(UserError) as error:
            make_plan(with_policies(heuristic, scenario=scenario), "test")
        assert str(error.value).startswith(f"evaluation.heuristics, scenario {scenario}: ")
        assert part in str(error.value)
    make_plan(with_policies(f"{tmp_path}/mlp", scale=16), "test")
    save_policy(tmp_path / "other" / "mlp", random_network(method="ppo"), trial, epochs=1)
    with pytest.raises(UserError, match="two schedulers are named mlp"):
        with_policies(f"{tmp_path}/mlp", f"{tmp_path}/other/mlp")
    with pytest.raises(UserError, match="no file"):
        with_policies(f"{tmp_path}/none")


def test_a_plan_is_checked_without_building_a_policy() -> None:
    code = f"""
import sys
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.checks import check_plan
from rllib_scale.sweeps.planning import make_plan
plan = make_plan(sweep_from({RULES | {"scenario": "steady-0.7", "methods": ["scale"]}!r}, "x"), "x")
plan = make_plan(sweep_from({RULES | {"evaluation": {"heuristics": ["zoo:scale", "heft"]}}!r}, "x"), "x")
check_plan(plan)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=1800)


def test_what_fails_when_it_plays_is_known_before_anything_is_trained(local_ray: None, tmp_path: Path) -> None:
    save_policy(tmp_path / "torn", random_network(), TrialConfig.of(), epochs=1)
    weights = tmp_path / "torn" / "policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    heuristics = ["fastest-idle", "zoo:scale", str(tmp_path / "torn")]
    evaluation = {"scales": [4], "episodes": 2, "heuristics": heuristics, "scenarios": ["paper", "steady-0.5"]}
    content = {"name": "x", "methods": ["scale"], "algorithm": {"epochs": 2}, "evaluation": evaluation}
    write_json(tmp_path / "x.yaml", content)
    line = refused("sweep", tmp_path / "x.yaml", "--results", tmp_path / "out")
    for scenario in ("paper", "steady-0.5"):
        assert f"torn, scenario {scenario}: torn: policy.safetensors is damaged" in line
    assert "zoo:scale," not in line
    assert not (tmp_path / "out" / "trials").exists()
