"""A problem, workloads and schedulers of one's own on the command line; JSON for tables; the status of a sweep."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from rllib_scale.cli import main
from rllib_scale.config import scenario
from rllib_scale.config.plan import SweepConfig, evaluation_units, expand
from rllib_scale.files import write_json
from rllib_scale.policies.policy import load_policy
from rllib_scale.results.tables import open_folder
from rllib_scale.workloads.generators import generate

TIERS = (
    "{name: slow, count: 3, compute_gflops: 10, memory_gb: 128, idle_power_w: 1, busy_power_w: 2}",
    "{name: fast, count: 2, compute_gflops: 50, memory_gb: 128, idle_power_w: 1, busy_power_w: 2}",
)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def shown(*arguments: object) -> Any:
    """What a command prints with `--json`."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, (result.stderr, result.exception)
    return json.loads(result.stdout)


def refused(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 workflows that arrive for 150 s."""
    path = tmp_path_factory.mktemp("workload") / "w.json"
    generate(scenario("steady-0.7").at_scale(8), 1000, 0).save(path)
    return path


def test_several_schedulers_play_the_same_episodes_in_one_table(tmp_path: Path) -> None:
    options = ["--scales", "8,16", "--episodes", 2, "--output", tmp_path / "rows.csv"]
    rows = shown("evaluate", "fastest-idle", "large-only", *options)
    assert [(row["method"], row["servers"]) for row in rows] == [
        *(("fastest-idle", 8), ("large-only", 8)),
        *(("fastest-idle", 16), ("large-only", 16)),
    ]
    table = pd.read_csv(tmp_path / "rows.csv")
    of_each = [rows["arrived"].tolist() for _, rows in table.groupby("method")]
    assert of_each[0] == of_each[1]
    completed = table.groupby(["test_servers", "method"])["completed"].mean()
    assert [row["mean"]["completed"] for row in rows] == completed.tolist()
    text = invoke("evaluate", "fastest-idle", "heft", "--scales", 8, "--episodes", 1).output
    assert all(word in text for word in ("fastest-idle", "heft", "waiting tasks", "clairvoyant"))


def test_a_cluster_of_ones_own_is_played_at_its_own_size_and_at_others(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("cluster:\n  tiers:\n" + "".join(f"    - {tier}\n" for tier in TIERS))
    (row,) = shown("evaluate", "fastest-idle", "--config", own, "--episodes", 1)
    assert row["servers"] == 5
    assert {"utilisation_slow", "utilisation_fast"} <= set(row["mean"])
    (scaled,) = shown("evaluate", "fastest-idle", "--config", own, "--episodes", 1, "--scales", 10)
    assert scaled["servers"] == 10
    inline = ["--set", f"cluster={{tiers: [{', '.join(TIERS)}]}}"]
    assert "utilisation_fast" in shown("simulate", *inline)
    assert "utilisation_fast" in shown("simulate", "--config", own, "--set", "env.workload.offered_load=0.5")


def test_what_is_changed_is_what_is_played() -> None:
    plain, half = (
        shown("simulate", "--scenario", "steady-0.9", "--servers", 8, *more)
        for more in ([], ["--set", "workload.offered_load=0.3"])
    )
    assert half["arrived"] < plain["arrived"]
    assert shown("simulate", "--set", "episode.horizon_s=3")["duration_s"] == 3


def test_a_given_workload_is_played_to_its_end(workload: Path, tmp_path: Path) -> None:
    """In the scenario `paper`, whose horizon is 12 s, and by a rule that keeps busy servers waiting."""
    (row,) = shown("evaluate", "large-only", "--workload", workload, "--scales", 8, "--output", tmp_path / "rows.csv")
    one = shown("simulate", "--scheduler", "large-only", "--workload", workload, "--servers", 8)
    assert row["episodes"] == 1
    assert one["workflows_completed"] == row["mean"]["workflows_completed"] == 18
    assert one["unfinished"] == 0
    assert one["response_mean_s"] == row["mean"]["response_mean_s"]
    bound = pd.read_csv(tmp_path / "rows.csv")["bound_capacity_s"][0]
    assert 0 < bound <= one["response_mean_s"]


@pytest.mark.parametrize("command", [["simulate", "--servers", 8], ["evaluate", "fastest-idle", "--scales", 8]])
def test_where_it_is_cut_is_said(workload: Path, command: list[object]) -> None:
    for option in (["--horizon", 30], ["--set", "episode.horizon_s=30"]):
        result = invoke(*command, "--workload", workload, *option)
        assert result.exit_code == 0, result.output
        assert "of 18 workflows 4 had arrived" in result.stdout
    for option in (["--seed", 3], ["--episode" if command[0] == "simulate" else "--episodes", 3]):
        assert "leave one out" in refused(*command, "--workload", workload, *option)


def test_commands_that_print_a_table_print_it_as_json_too() -> None:
    assert {"name", "description"} <= set(shown("methods")[0])
    rules = {row["name"]: row for row in shown("schedulers")}
    assert rules["reserve"]["parameters"]["waiting"] == 1.5
    assert "steady-0.7" in [row["name"] for row in shown("scenarios")]
    cells = shown("validate", "tune_configs/smoke.yaml")
    assert {cell["method"] for cell in cells} >= {"scale"}
    assert all(cell["trial"]["seed"] == cell["train_seed"] for cell in cells)
    (row,) = shown("bounds", "steady-0.5", "--scales", 4, "--episodes", 1)
    assert row["bound_fluid_s"] is None
    assert row["bound_capacity_s"] > 0
    tables = [command for command in main.commands.values() if any("--json" in p.opts for p in command.params)]
    names = {command.name for command in tables}
    assert names >= {"evaluate", "simulate", "bounds", "doctor", "import", "execute", "fit-workload", "status"}


def test_status_says_what_is_finished_and_what_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    evaluation = {"scales": [16, 32], "episodes": 1, "heuristics": ["fastest-idle"]}
    sweep = SweepConfig.model_validate(
        {"name": "tiny", "methods": ["scale"], "stop": {"epochs": 2}, "evaluation": evaluation}
    )
    open_folder(folder, "tiny", sweep.model_dump(mode="json"), "hash")
    cells = expand(sweep, "test")
    (folder / "evaluations").mkdir()
    for unit in evaluation_units(sweep, cells):
        (folder / "evaluations" / f"{unit.key}.parquet").touch()
    write_json(folder / "policies" / cells[0].trial.name / "curve.json", [{"epoch": 1}, {"epoch": 2}])
    before = shown("status", folder)
    (training,) = before["trainings"]
    assert (training["state"], training["epoch"], training["epochs"]) == ("finished", 2, 2)
    next((folder / "evaluations").iterdir()).unlink()
    shutil.rmtree(folder / "policies")
    after = shown("status", folder)
    assert after["trainings"][0]["state"] != "finished"
    assert after["evaluations"] == {
        "done": before["evaluations"]["done"] - 1,
        "planned": before["evaluations"]["planned"],
    }
    assert training["training"] in invoke("status", folder).output


def test_the_shell_is_given_its_completion() -> None:
    assert "_RLLIB_SCALE_COMPLETE=bash_source" in invoke("--help").output.replace("\n", " ")
    program = Path(sys.executable).parent / "rllib-scale"
    env = os.environ | {"_RLLIB_SCALE_COMPLETE": "bash_complete", "COMP_WORDS": "rllib-scale simul", "COMP_CWORD": "1"}
    done = subprocess.run([program], env=env, capture_output=True, text=True, check=False)
    assert "simulate" in done.stdout


def test_names_are_whole_and_what_says_nothing_is_no_column() -> None:
    done = invoke("evaluate", "fastest-idle", "zoo:context-price", "--scenario", "steady-0.5", "--episodes", 2)
    head = next(line for line in done.output.splitlines() if "servers" in line)
    assert head.split() == ["scheduler", "servers", "completed", "response", "(s)", "return"]
    name = load_policy("zoo:context-price").name
    assert f" {name} " in done.output
    assert f"told: waiting tasks (fastest-idle); clairvoyant ({name})" in " ".join(done.output.split())
    paper = invoke("evaluate", "round-robin", "--episodes", 2).output
    assert all(column in paper for column in ("unfinished", "censored", "invalid", "told: waiting tasks"))
