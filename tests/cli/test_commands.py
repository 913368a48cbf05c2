"""The command line as a person meets it: what it prints and writes, and a process that ends in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jsonschema
import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from artificial_results import publish
from networks.observations import random_network
from refused import refused
from rllib_scale import presets
from rllib_scale.cli import doctor, main
from rllib_scale.cli.problems import Problem
from rllib_scale.cli.terminal import show
from rllib_scale.config import METHODS, SCENARIOS, TrialConfig, scenario
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.yaml_files import parse_yaml
from rllib_scale.files import write_json
from rllib_scale.loading import load_sweep
from rllib_scale.policies.policy import save_policy
from rllib_scale.results.dataset import append
from rllib_scale.results.tables import open_folder
from rllib_scale.schedulers.rules import SCHEDULERS
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.workloads.generators import generate

ROOT = Path(__file__).parents[2]
SCHEDULE_COLUMNS = [
    *("workflow", "task", "server", "tier", "arrival_s", "ready_s", "start_s", "finish_s"),
    *("outcome", "transfer_s", "work_gflop"),
]
TIERS = (
    "{name: slow, count: 3, compute_gflops: 10, memory_gb: 128, idle_power_w: 1, busy_power_w: 2}",
    "{name: fast, count: 2, compute_gflops: 50, memory_gb: 128, idle_power_w: 1, busy_power_w: 2}",
)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert result.stderr == ""
    return result.stdout


def shown(*arguments: object) -> Any:
    """What a command prints with `--json`."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, (result.stderr, result.exception)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies") / "scale"
    save_policy(folder, random_network(), TrialConfig.of(), epochs=1)
    return folder


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 workflows that arrive for 150 s."""
    path = tmp_path_factory.mktemp("workload") / "w.json"
    generate(scenario("steady-0.7").at_scale(8), 1000, 0).save(path)
    return path


# ---------------------------------------------------------------------- what there is


@pytest.mark.parametrize(
    ("command", "names"),
    [("methods", METHODS), ("schedulers", SCHEDULERS), ("scenarios", SCENARIOS), ("presets", presets.names())],
)
def test_registries_are_listed(command: str, names: Collection[str]) -> None:
    text = succeed(command)
    assert all(name in text for name in names)
    rows = shown(command)
    assert [row["name"] for row in rows][: len(names)] == list(names)
    assert all(row["description"] for row in rows[: len(names)])


def test_what_rules_take_and_what_they_are_told() -> None:
    rules = {row["name"]: row for row in shown("schedulers")}
    assert rules["reserve"]["parameters"]["waiting"] == 1.5
    assert (rules["heft"]["sees"], rules["reserve"]["sees"], rules["reserve"]["knows"]) == ("workflows", "tasks", "")
    assert {name for name, row in rules.items() if row.get("knows")} == {"dual-price"}, "its `check` reads the workload"
    done = CliRunner().invoke(main, ["schedulers"], env={"COLUMNS": "250"})
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(" dual-price "))
    assert "waiting tasks; the" in line


def test_every_table_can_be_had_as_json() -> None:
    tables = [command for command in main.commands.values() if any("--json" in p.opts for p in command.params)]
    names = {command.name for command in tables}
    assert names >= {"evaluate", "simulate", "bounds", "doctor", "import", "execute", "fit-workload", "status"}
    rows = shown("bounds", "steady-0.5", "--scales", "4,8", "--episodes", 2)
    assert [(row["test_servers"], row["episode"]) for row in rows] == [(4, 0), (4, 1), (8, 0), (8, 1)]
    assert all(0 < row["bound_critical_path_s"] <= row["bound_capacity_s"] for row in rows)
    trials = shown("validate", "tune_configs/smoke.yaml")
    assert {trial["method"] for trial in trials} >= {"scale"}
    assert all(trial["trial"]["seed"] == trial["seed"] for trial in trials)


@pytest.mark.parametrize("name", presets.names())
def test_validate_shows_trainings_and_resources(name: str) -> None:
    text = succeed("validate", name)
    assert f"{name}: " in text
    assert 30 < len(presets.summary(name)) < 120, "the first line says what the preset is for"
    assert presets.summary(name).endswith((".", "?"))
    assert "each needs" in text or "rules alone" in text
    assert "evaluations of" in text


def test_the_schema_of_a_sweep_accepts_every_preset_and_what_a_text_stands_for(tmp_path: Path) -> None:
    succeed("schema", "--output", tmp_path / "sweep.json")
    schema = json.loads((tmp_path / "sweep.json").read_text())
    assert json.loads(succeed("schema")) == schema
    editor = jsonschema.Draft202012Validator(schema)
    editor.check_schema(schema)
    for name in presets.names():
        editor.validate(parse_yaml(presets.sweep_file(name).read_text(), name))
    short = {"env": {"cluster": "paper-32", "communication": "transfer", "workload": {"trace": "calls.json"}}}
    editor.validate({"name": "short", "methods": []} | short)
    for wrong in ({"trainin": {}}, {"env": {"cluster": "paper-33"}}, {"algorithm": {"lr": 1}}, {"seeds": ["x"]}):
        assert not editor.is_valid({"name": "wrong", "methods": []} | wrong)


def test_the_manifest_of_results_is_their_sweep_again(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    for name in ("table4", "any_cluster", "imitate", "population", "agents_scale"):
        sweep = load_sweep(presets.sweep_file(name))
        write_json(manifest, {"config": sweep.model_dump(mode="json")})
        assert load_sweep(manifest) == sweep
        assert load_sweep(manifest, ["seeds=[1, 2]"]) == sweep.model_copy(update={"seeds": (1, 2)})
    succeed("validate", manifest, "--set", "seeds=[1, 2]")
    manifest.write_text("{}")
    assert "not the manifest of a results folder" in refused("validate", manifest)


def test_validate_shows_resolved_configs_with_overrides() -> None:
    overrides = ["--set", "algorithm.gamma=0.875", "--set", "seeds=[9]", "--set", "resources.env_runners=2"]
    trial = shown("validate", "tune_configs/smoke.yaml", *overrides)[0]["trial"]
    text = succeed("validate", "tune_configs/smoke.yaml", *overrides)
    assert (trial["algorithm"]["gamma"], trial["seed"]) == (0.875, 9)
    steps = 2 * 2 * trial["algorithm"]["steps_per_epoch"]
    assert f"smoke: 2 trainings of 2 epochs (the paper trains 1000), {steps:,} env steps in all; each needs 3" in text
    assert "ppo: evaluated only at the number of servers trained on" in text


# ---------------------------------------------------------------------- evaluate


def test_schedulers_play_the_same_episodes_in_one_table(tmp_path: Path) -> None:
    options = ["--scales", "8,16", "--episodes", 3]
    rows = shown("evaluate", "fastest-idle", "large-only", *options, "--output", tmp_path / "rows.csv")
    assert [(row["method"], row["servers"]) for row in rows] == [
        *(("fastest-idle", 8), ("large-only", 8)),
        *(("fastest-idle", 16), ("large-only", 16)),
    ]
    table = pd.read_csv(tmp_path / "rows.csv")
    ours, theirs = (rows for _, rows in table.groupby("method"))
    keys = [(servers, episode) for servers in (8, 16) for episode in (0, 1, 2)]
    for frame in (ours, theirs):
        assert list(zip(frame["test_servers"], frame["episode"], strict=True)) == keys
    assert ours["arrived"].tolist() == theirs["arrived"].tolist()
    assert ours["arrived"].nunique() > 1
    assert ours["completed"].tolist() != theirs["completed"].tolist()
    completed = table.groupby(["test_servers", "method"])["completed"].mean()
    assert [row["mean"]["completed"] for row in rows] == completed.tolist()
    succeed("evaluate", "large-only", *options, "--output", tmp_path / "rows.parquet")
    alone = pd.read_parquet(tmp_path / "rows.parquet")
    assert alone["response_mean_s"].tolist() == pytest.approx(theirs["response_mean_s"].tolist(), nan_ok=True)


def test_evaluate_on_other_scenario_seed_and_mask(tmp_path: Path) -> None:
    def rows(*options: object) -> pd.DataFrame:
        output = tmp_path / "rows.csv"
        succeed("evaluate", "large-only", "--scales", 8, "--episodes", 2, "--output", output, *options)
        return pd.read_csv(output)

    plain = rows()
    assert rows("--seed", 5)["arrived"].tolist() != plain["arrived"].tolist()
    assert rows("--scenario", "steady-0.5")["arrived"].tolist() != plain["arrived"].tolist()
    masked = rows("--mask", "feasible")
    assert masked["mask"].tolist() == ["feasible"] * 2
    assert masked.filter(like="invalid_").to_numpy().sum() == 0


def test_a_policy_is_played_at_scales_it_was_not_trained_at(policy: Path, tmp_path: Path) -> None:
    for decision in ("argmax", "sample"):
        options = ["--scales", "8,32", "--episodes", 2, "--decision", decision]
        succeed("evaluate", policy, *options, "--output", tmp_path / f"{decision}.csv")
    argmax, sample = (pd.read_csv(tmp_path / f"{decision}.csv") for decision in ("argmax", "sample"))
    assert argmax["test_servers"].tolist() == [8, 8, 32, 32]
    assert argmax["arrived"].tolist() == sample["arrived"].tolist()
    assert argmax["decisions"].tolist() != sample["decisions"].tolist()
    assert shown("simulate", "--scheduler", policy)["episode_return"] != shown("simulate")["episode_return"]


def test_names_are_whole_and_what_says_nothing_is_no_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "finance.py").write_text(
        "from rllib_scale.schedulers.rules import RULES\nGreedy = RULES['fastest-idle']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert " finance:Greedy " in succeed("evaluate", "fastest-idle", "finance:Greedy", "--episodes", 1, "--scales", 8)
    done = invoke("evaluate", "fastest-idle", "zoo:context-price", "--scenario", "steady-0.5", "--episodes", 2)
    above = done.output.partition("──")[0].split()
    head = above[above.index("episodes") + 1 :]
    expected = "scheduler servers mean response of all tasks that arrived (s) ↓ mean JCT (s) ↓ completed ↑ return ↑"
    assert sorted(head) == sorted(expected.split())
    assert " zoo:context-price " in done.output
    seen = "observability: waiting tasks (fastest-idle); clairvoyant (zoo:context-price)"
    assert seen in " ".join(done.output.split())
    paper = " ".join(invoke("evaluate", "round-robin", "--episodes", 2).output.split())
    assert all(column in paper for column in ("unfinished", "JCT", "invalid", "observability: waiting tasks"))


def test_a_policy_that_cannot_play_the_default_scenario_plays_another_beside_a_baseline() -> None:
    cut = ["--workload", "sample:agents", "--scales", 8]
    done = invoke("evaluate", "zoo:context-price", *cut)
    assert "zoo:context-price cannot play the default scenario, paper: playing steady-0.7 beside" in done.output
    assert "sample:agents" in done.output
    rows = json.loads(invoke("evaluate", "zoo:context-price", "fastest-idle", *cut, "--json").stdout)
    assert [row["method"] for row in rows] == ["fastest-idle", "zoo:context-price"]
    assert {row["scenario"] for row in rows} == {"steady-0.7"}
    assert rows[1]["mean"]["response_mean_s"] < rows[0]["mean"]["response_mean_s"]


# ---------------------------------------------------------------------- a user-defined problem


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


def test_a_scenario_of_ones_own_is_played_at_its_own_size(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    tiers = [TIERS[0].replace("count: 3", "count: 9"), TIERS[1].replace("count: 2", "count: 3")]
    own.write_text("base: steady-0.5\nenv:\n  cluster:\n    tiers:\n" + "".join(f"      - {tier}\n" for tier in tiers))
    (row,) = shown("evaluate", "fastest-idle", "--scenario", own, "--episodes", 1)
    assert (row["servers"], row["scenario"]) == (12, str(own))
    assert shown("simulate", "--scenario", own)["utilisation_fast"] > 0
    small = "{tiers: [{name: one, count: 1, compute_gflops: 10, memory_gb: 128}]}"
    for options in ([], ["--scales", 1], ["--scales", 2]):
        own_size = ["--scenario", "steady-0.5", "--set", f"cluster={small}", "--episodes", 1]
        (row,) = shown("evaluate", "fastest-idle", *own_size, *options)
        assert row["servers"] == (options or [0, 1])[1]
        assert row["mean"]["completed"] > 0


def test_a_cluster_of_fewer_servers_than_tiers_says_which_tiers_remain() -> None:
    light = ["--set", "workload.memory_gb={mean: 4, std: 1, low: 1, high: 8}", "--episodes", 1]
    done = invoke("evaluate", "fastest-idle", "--scales", 2, *light)
    assert done.exit_code == 0, done.output
    assert "2 servers for 3 tiers: what remains is small (1), medium (1)" in done.output


@pytest.mark.parametrize("scales", [1, 2])
def test_of_a_given_workload_its_own_tasks_decide_what_fits(scales: int, tmp_path: Path) -> None:
    task = {"compute_gflop": 9.0, "memory_gb": 30.0, "output_gb": 0.4}
    workflow = {"arrival_s": 0.0, "tasks": [task], "edges": []}
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"format": "rllib-scale-workload", "version": 1, "workflows": [workflow]}))
    (row,) = shown("evaluate", "fastest-idle", "--workload", path, "--scales", scales)
    assert (row["servers"], row["mean"]["completed"]) == (scales, 1)
    assert shown("simulate", "--workload", path, "--servers", scales)["completed"] == 1
    at_16 = Problem("paper", workload_file=path).env(16)
    assert at_16.workload == scenario("paper").workload, "what could be drawn is changed only where it does not fit"


def test_the_first_table_has_the_mean_jct_which_may_rank_the_other_way(tmp_path: Path) -> None:
    rows = shown("evaluate", "fastest-idle", "heft", "--scenario", "overload-1.1", "--scales", 16, "--episodes", 3)
    text = " ".join(
        invoke("evaluate", "heft", "--scenario", "overload-1.1", "--scales", 16, "--episodes", 3).stdout.split()
    )
    assert "JCT" in text
    assert f"{rows[1]['mean']['jct_mean_s']:.2f}" in text


def test_doctor_imports_what_the_extras_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*doctor.EXTRAS} == {*optional} - {"test", "dev"}, "each extra is checked"
    (tmp_path / "torn.py").write_text("raise TypeError('gencode 7.35 against runtime 6.33')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert doctor._import("serve", ("json",)) == ("imports", True)
    assert doctor._import("serve", ("json", "no_such_module"))[1]
    said, well = doctor._import("serve", ("json", "torn"))
    assert not well
    assert "gencode 7.35" in said
    assert "--constraint constraints.txt" in said


def test_what_is_changed_is_what_is_played() -> None:
    steady = ["simulate", "--scenario", "steady-0.9", "--servers", 8]
    assert shown(*steady, "--set", "workload.offered_load=0.3")["arrived"] < shown(*steady)["arrived"]
    assert shown("simulate", "--set", "episode.horizon_s=3")["duration_s"] == 3


def test_a_given_workload_is_played_to_its_end(workload: Path, tmp_path: Path) -> None:
    """In the scenario `paper`, whose horizon is 12 s, and by a rule that keeps busy servers waiting."""
    (row,) = shown("evaluate", "large-only", "--workload", workload, "--scales", 8, "--output", tmp_path / "rows.csv")
    one = shown("simulate", "--scheduler", "large-only", "--workload", workload, "--servers", 8)
    assert row["episodes"] == 1
    assert one["workflows_completed"] == row["mean"]["workflows_completed"] == 18
    assert one["unfinished"] == 0
    assert one["response_mean_s"] == row["mean"]["response_mean_s"]
    assert 0 < pd.read_csv(tmp_path / "rows.csv")["bound_capacity_s"][0] <= one["response_mean_s"]
    for command in (["simulate", "--servers", 8], ["evaluate", "fastest-idle", "--scales", 8]):
        for option in (["--horizon", 30], ["--set", "episode.horizon_s=30"]):
            assert "of 18 workflows 4 had arrived" in succeed(*command, "--workload", workload, *option)


def test_simulate_writes_schedule_gantt_and_a_workload_that_plays_back(tmp_path: Path) -> None:
    schedule, gantt, workload, video = (tmp_path / name for name in ("s.csv", "g.png", "w.json", "v.gif"))
    drawn = ["--gantt", gantt, "--video", video]
    succeed("simulate", "--servers", 8, "--schedule", schedule, *drawn, "--save-workload", workload)
    assert video.read_bytes()[:6] == b"GIF89a"
    table = pd.read_csv(schedule)
    assert list(table.columns) == SCHEDULE_COLUMNS
    assert len(table) > 5
    assert (table["arrival_s"] <= table["ready_s"]).all()
    assert (table["ready_s"] <= table["start_s"]).all()
    picture = matplotlib.image.imread(gantt)
    assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 10

    again = tmp_path / "again.csv"
    succeed("simulate", "--servers", 8, "--workload", workload, "--horizon", 12, "--schedule", again)
    pd.testing.assert_frame_equal(pd.read_csv(again), table)


def test_simulate_exports_what_it_played(tmp_path: Path) -> None:
    schedule, trace = tmp_path / "s.csv", tmp_path / "trace.json"
    options = ["--scenario", "steady-0.5", "--horizon", 30, "--seed", 4, "--episode", 2]
    text = succeed("simulate", *options, "--schedule", schedule, "--trace", trace)
    assert all(f"wrote {path}" in text.replace("\n", "") for path in (schedule, trace))
    table, content = pd.read_csv(schedule), json.loads(trace.read_text())
    assert "seed 4, episode 2" in content["otherData"]["title"]
    slices = [event for event in content["traceEvents"] if "arrival_s" in event.get("args", {})]
    assert [event["ts"] for event in slices] == sorted((table["start_s"] * 1e6).round().astype(int))
    assert len(slices) > 5


def test_simulate_draws_several_schedulers_under_one_time_axis(tmp_path: Path) -> None:
    names, gantt, video = ("round-robin", "reserve:waiting=1.5"), tmp_path / "g.png", tmp_path / "v.gif"
    given = [part for name in names for part in ("--scheduler", name)]
    rows = shown("simulate", *given, "--servers", 4, "--gantt", gantt, "--video", video)
    assert [row.pop("scheduler") for row in rows] == list(names)
    single = [shown("simulate", "--servers", 4, "--scheduler", name, "--gantt", tmp_path / "1.png") for name in names]
    assert rows == [{name: value for name, value in row.items() if name != "scheduler"} for row in single]
    both, alone = matplotlib.image.imread(gantt), matplotlib.image.imread(tmp_path / "1.png")
    assert both.shape[0] > 1.2 * alone.shape[0]
    assert video.read_bytes()[:6] == b"GIF89a"
    assert set(names) <= set(succeed("simulate", *given, "--servers", 4).split())


def test_status_says_what_is_finished_and_what_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    evaluation = {"scales": [16, 32], "episodes": 1, "heuristics": ["fastest-idle"]}
    sweep = SweepConfig.model_validate(
        {"name": "tiny", "methods": ["scale"], "stop": {"epochs": 2}, "evaluation": evaluation}
    )
    plan = make_plan(sweep, "test")
    open_folder(folder, "tiny", sweep.model_dump(mode="json"), "hash", plan.to_json())
    first, *others = plan.units
    append(folder, episodes=[{"unit": unit.key} for unit in others])
    publish(folder, plan.trials[0], response_mean_s=4.5)
    (training,) = shown("status", folder)["trainings"]
    assert (training["state"], training["epoch"], training["epochs"]) == ("finished", 2, 2)
    assert training["last"]["response_mean_s"] == 4.5
    assert shown("status", folder)["evaluations"] == {"done": 3, "planned": 4}
    append(folder, episodes=[{"unit": first.key}] * 2)
    (folder / "policies" / plan.trials[0].name / "policy.json").write_bytes(b"")
    after = shown("status", folder)
    assert after["trainings"][0]["state"] != "finished", "its policy is torn"
    assert after["evaluations"] == {"done": 4, "planned": 4}
    assert training["training"] in invoke("status", folder).output


def test_status_of_many_trainings_lists_those_that_failed_and_counts_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    sweep = SweepConfig.model_validate({"name": "many", "methods": ["scale"], "seeds": list(range(300))})
    plan = make_plan(sweep, "test")
    open_folder(folder, "many", sweep.model_dump(mode="json"), "hash", plan.to_json())
    *others, last = plan.trials
    for trial in others:
        publish(folder, trial)
    error = folder / "trials" / "run-001" / last.name / "error.txt"
    error.parent.mkdir(parents=True)
    error.write_text("".join(f"Failure # {number}\nValueError: broken\n" for number in range(1, 10)))
    printed = invoke("status", folder).output
    assert last.name in printed
    assert "299 finished, 1 failed; 200 of 300 are listed, --json prints all" in printed
    assert len(shown("status", folder)["trainings"]) == 300


# ---------------------------------------------------------------------- processes


def process(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"stdout": subprocess.PIPE, "cwd": ROOT} | options
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


def test_a_process_ends_with_a_code_and_a_line_whatever_becomes_of_its_output() -> None:
    program = [sys.executable, "-m", "rllib_scale"]
    wrong = process(*program, "evaluate", "nobody")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    (line,) = wrong.stderr.splitlines()
    assert line.startswith("Error: unknown scheduler 'nobody'")
    for command in (("schedulers", "--json"), ("--help",)):
        with open("/dev/full", "w") as full:
            done = process(*program, *command, stdout=full)
        assert (done.returncode, done.stderr) == (2, "Error: output: No space left on device\n")
    closed = process("sh", "-c", '"$@" >&-', "sh", *program, "schedulers")
    assert (closed.returncode, closed.stderr) == (0, "")
    ascii_only = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    plain = process(*program, "evaluate", "fastest-idle", "--scales", "4", "--episodes", "1", env=ascii_only)
    assert plain.returncode == 0, plain.stderr
    assert " ? " in plain.stdout


def test_ctrl_c_while_the_program_is_read_is_no_traceback() -> None:
    code = """
import signal, sys

class AtClick:
    def find_spec(self, name, *_):
        if name == "click":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, AtClick())
import rllib_scale.__main__
"""
    done = process(sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


@pytest.mark.parametrize("command", ["evaluate", "simulate --scheduler"])
def test_ctrl_c_while_episodes_are_played_says_that_nothing_is_kept(command: str, tmp_path: Path) -> None:
    (tmp_path / "interrupting.py").write_text(
        "import signal\n"
        "from rllib_scale.schedulers.dispatcher import Dispatcher\n\n"
        "class AtOnce(Dispatcher):\n"
        "    def dispatch(self, now):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
    )
    program = [sys.executable, "-m", "rllib_scale", *command.split(), "interrupting:AtOnce"]
    done = process(*program, "--scenario", "steady-0.7", cwd=tmp_path)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("Compiling")]
    assert (done.returncode, done.stdout) == (130, "")
    assert line.startswith(f"Interrupted. {command.split()[0]} keeps nothing")


def test_the_shell_is_given_its_completion() -> None:
    assert "_RLLIB_SCALE_COMPLETE=bash_source" in invoke("--help").output.replace("\n", " ")
    program = Path(sys.executable).parent / "rllib-scale"
    env = os.environ | {"_RLLIB_SCALE_COMPLETE": "bash_complete", "COMP_WORDS": "rllib-scale simul", "COMP_CWORD": "1"}
    assert "simulate" in process(str(program), env=env).stdout


def test_a_wide_table_breaks_headings_and_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"scheduler": "lmetric:gate=.95,order=3,head_after_s=1200,active_for_s=160"} | {
        f"99th percentile of {k} (s) ↓": 71.525 + k for k in range(9)
    }
    show([row], {heading: heading for heading in row})
    printed = capsys.readouterr().out
    assert all(f"{row[heading]:.3f}" in printed for heading in row if heading != "scheduler")
    assert max(map(len, printed.splitlines())) <= 120
    assert all(part in printed for part in row["scheduler"].split(":")[1].split(",")), "nor one in a name"
