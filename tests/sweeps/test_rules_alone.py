"""A sweep of rules alone: nothing is trained, and the problems of its grid are all played."""

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from rllib_scale.cli import main
from rllib_scale.config.plan import evaluation_units, expand
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError

RULES = {
    "name": "rules",
    "methods": [],
    "grid": {"env.workload.offered_load": [0.5, 0.9]},
    "evaluation": {"scales": [4], "episodes": 2, "heuristics": ["fastest-idle", "reserve"]},
}


def test_every_problem_of_the_grid_is_played_by_every_rule() -> None:
    sweep = build_model(SweepConfig, RULES, "test")
    assert expand(sweep, "test") == []
    units = evaluation_units(sweep, [])
    assert [(unit.scheduler, unit.env.workload.offered_load) for unit in units] == [
        ("fastest-idle", 0.5),
        ("fastest-idle", 0.9),
        ("reserve", 0.5),
        ("reserve", 0.9),
    ]


def test_a_league_of_three_rules_and_four_scenarios(tmp_path: Path) -> None:
    chosen = {
        "scales": "[6]",
        "episodes": "2",
        "heuristics": "[fastest-idle, reserve, min-min]",
        "scenarios": "[steady-0.7, stragglers, failures-often, spot]",
    }
    changed = [word for key, value in chosen.items() for word in ("--set", f"evaluation.{key}={value}")]
    league = Path(__file__).parents[2] / "tune_configs" / "league.yaml"
    done = CliRunner().invoke(main, ["sweep", str(league), "--results", str(tmp_path / "out"), *changed])
    assert done.exit_code == 0, done.output
    rows = pd.read_parquet(tmp_path / "out" / "episodes.parquet")
    assert (rows["arrived"] == rows["completed"] + rows["unfinished"]).all()
    assert rows.groupby(["method", "scenario"]).size().tolist() == [2] * 12
    table = pd.read_csv(next((tmp_path / "out" / "report").rglob("league.csv")))
    assert sorted(table["variant"]) == ["fastest-idle", "min-min", "reserve"]
    assert table["mean_rank"].sum() == pytest.approx(6, abs=0.02)
    assert (table["problems"] == 4).all()
    assert table["worst_in"].isin(rows["scenario"]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evaluation": {"heuristics": []}}, "both empty"),
        ({"search": {"sampler": "random", "samples": 2, "space": {}}}, "search"),
    ],
)
def test_what_would_run_nothing_is_refused(change, message) -> None:
    with pytest.raises(UserError, match=message):
        build_model(SweepConfig, RULES | change, "test")


def test_the_command_writes_rows_and_report(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "name: rules\nmethods: []\nscenario: steady-0.7\n"
        "evaluation: {scales: [4], episodes: 2, heuristics: [fastest-idle, reserve]}\n",
        encoding="utf-8",
    )
    done = CliRunner().invoke(main, ["sweep", str(tmp_path / "rules.yaml"), "--results", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "rules alone" in done.output
    rows = pd.read_parquet(tmp_path / "out" / "episodes.parquet")
    assert rows.groupby("method").size().to_dict() == {"fastest-idle": 2, "reserve": 2}
    assert (tmp_path / "out" / "report" / "report.html").is_file()
