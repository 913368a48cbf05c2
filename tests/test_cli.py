"""The command line as a person meets it: what it prints and writes, and one clear line where the input is bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from networks.observations import random_network
from rllib_scale.cli import main
from rllib_scale.config import METHODS, SCENARIOS, TrialConfig
from rllib_scale.networks.build import build_network
from rllib_scale.policies.policy import TENSORS, save_policy
from rllib_scale.schedulers.rules import SCHEDULERS

ROOT = Path(__file__).parent.parent
CONFIGS = sorted(Path("tune_configs").glob("*.yaml"))
SCHEDULE_COLUMNS = [
    *("workflow", "task", "server", "tier", "arrival_s", "ready_s", "start_s", "finish_s"),
    *("outcome", "transfer_s", "work_gflop"),
]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert result.stderr == ""
    return result.stdout


def refuse(*arguments: object) -> str:
    """The one line on stderr of a command that refuses its input."""
    result = invoke(*arguments)
    assert result.exit_code == 2, (result.exit_code, result.exception)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies")
    for method in ("scale", "ppo"):
        save_policy(folder / method, random_network(method=method), TrialConfig(method=method), epochs=1)
    return folder


# ---------------------------------------------------------------------- what there is


@pytest.mark.parametrize(
    ("command", "names"), [("methods", METHODS), ("schedulers", SCHEDULERS), ("scenarios", SCENARIOS)]
)
def test_registries_are_listed(command: str, names: dict[str, object]) -> None:
    text = succeed(command)
    assert all(name in text for name in names)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_validate_shows_trainings_and_resources(path: Path) -> None:
    text = succeed("validate", path)
    assert f"{path.stem}: " in text
    assert "each needs" in text or "rules alone" in text
    assert "evaluations of" in text


def test_validate_full_shows_resolved_configs_with_overrides() -> None:
    text = succeed(
        "validate", "tune_configs/smoke.yaml", "--full", "--set", "training.gamma=0.875", "--set", "seeds=[9]"
    )
    start = text.index("\n{") + 1
    shown, _ = json.JSONDecoder().raw_decode(text[start:])
    assert shown["training"]["gamma"] == 0.875
    assert shown["seed"] == 9
    assert "2 trainings of 2 epochs" in text


# ---------------------------------------------------------------------- evaluate


def test_evaluate_writes_a_row_for_each_episode_paired_between_schedulers(tmp_path: Path) -> None:
    frames = {}
    for name, suffix in (("fastest-idle", "csv"), ("random-feasible", "parquet")):
        output = tmp_path / f"{name}.{suffix}"
        text = succeed("evaluate", name, "--scales", "8,16", "--episodes", 3, "--output", output)
        assert name in text
        frames[name] = pd.read_csv(output) if suffix == "csv" else pd.read_parquet(output)
    ours, theirs = frames.values()
    keys = [(servers, episode) for servers in (8, 16) for episode in (0, 1, 2)]
    for frame in (ours, theirs):
        assert list(zip(frame["test_servers"], frame["episode"], strict=True)) == keys
    assert ours["arrived"].tolist() == theirs["arrived"].tolist()
    assert ours["arrived"].nunique() > 1
    assert ours["completed"].tolist() != theirs["completed"].tolist()


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


def test_evaluate_a_policy_at_scales_it_was_not_trained_at(policies: Path, tmp_path: Path) -> None:
    for decision in ("argmax", "sample"):
        options = ["--scales", "8,32", "--episodes", 2, "--decision", decision]
        succeed("evaluate", policies / "scale", *options, "--output", tmp_path / f"{decision}.csv")
    argmax, sample = (pd.read_csv(tmp_path / f"{decision}.csv") for decision in ("argmax", "sample"))
    assert argmax["test_servers"].tolist() == [8, 8, 32, 32]
    assert argmax["arrived"].tolist() == sample["arrived"].tolist()
    assert argmax["decisions"].tolist() != sample["decisions"].tolist()


def test_an_mlp_policy_at_another_scale_says_to_what_it_is_fixed(policies: Path, tmp_path: Path) -> None:
    assert "16" in succeed("evaluate", policies / "ppo", "--scales", 16, "--episodes", 1)
    line = refuse("evaluate", policies / "ppo", "--scales", 32, "--episodes", 1, "--output", tmp_path / "rows.csv")
    assert "N=16" in line
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- simulate


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
    paths = schedule, wfformat, trace = (tmp_path / name for name in ("s.csv", "wf.json", "trace.json"))
    options = ["--scenario", "steady-0.5", "--horizon", 30, "--seed", 4, "--episode", 2]
    text = succeed("simulate", *options, "--schedule", schedule, "--wfformat", wfformat, "--trace", trace)
    assert all(f"wrote {path}" in text.replace("\n", "") for path in paths)
    table, instance = pd.read_csv(schedule), json.loads(wfformat.read_text())
    assert "seed 4, episode 2" in instance["name"]
    finished = table[table["outcome"] == "finished"]
    ran = [f"w{w}.t{t}" for w, t in zip(finished["workflow"], finished["task"], strict=True)]
    assert {task["id"] for task in instance["workflow"]["execution"]["tasks"]} == set(ran)
    slices = [event for event in json.loads(trace.read_text())["traceEvents"] if "arrival_s" in event.get("args", {})]
    assert [event["ts"] for event in slices] == sorted((table["start_s"] * 1e6).round().astype(int))
    assert len(slices) > 5


def test_simulate_plays_a_policy(policies: Path, tmp_path: Path) -> None:
    schedules = []
    for scheduler in (policies / "scale", "fastest-idle"):
        succeed("simulate", "--scheduler", scheduler, "--schedule", tmp_path / "s.csv")
        schedules.append((tmp_path / "s.csv").read_text())
    assert schedules[0] != schedules[1]


TASK = {"compute_gflop": 9.0, "memory_gb": 12.0, "output_gb": 0.4}


@pytest.mark.parametrize(
    ("workflow", "parts"),
    [
        ({"arrival_s": 0.0, "tasks": [TASK, TASK], "edges": [[0, 1], [1, 0]]}, ["cycl"]),
        ({"arrival_s": 0.0, "tasks": [TASK], "edges": [[0, 7]]}, ["7"]),
        ({"arrival_s": 0.0, "tasks": [TASK | {"compute_gflop": -1}], "edges": []}, ["compute_gflop", "-1"]),
        ({"arrival_s": 0.0, "tasks": [TASK | {"output_gb": float("nan")}], "edges": []}, ["output_gb", "nan"]),
        ({"arrival_s": 0.0, "tasks": [TASK | {"memory_gb": 1e6}], "edges": []}, ["memory", "fits"]),
    ],
    ids=["cycle", "unknown index", "negative", "not finite", "fits no server"],
)
def test_a_bad_workload_is_refused(tmp_path: Path, workflow: dict[str, object], parts: list[str]) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"format": "rllib-scale-workload", "version": 1, "workflows": [workflow]}))
    line = refuse("simulate", "--workload", path, "--schedule", tmp_path / "s.csv")
    assert all(part in line for part in parts), line
    assert list(tmp_path.iterdir()) == [path]


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["evaluate", "fastest"], ["unknown scheduler 'fastest'", "valid: fastest-idle,", "`rllib-scale schedulers`"]),
        (["simulate", "--scheduler", "fastest"], ["unknown scheduler 'fastest'", "did you mean 'fastest-idle'?"]),
        (["evaluate", "fastest-idle", "--scenario", "papr"], ["unknown scenario 'papr'", "`rllib-scale scenarios`"]),
        (["train", "--method", "scal"], ["unknown method 'scal'", "valid: scale, ", "`rllib-scale methods`"]),
        (["train", "--scenario", "papr"], ["unknown scenario 'papr'", "did you mean 'paper'? valid: paper, "]),
        (["evaluate", "fastest-idle", "--scales", "16,x"], ["--scales", "16,x"]),
        (["evaluate", "fastest-idle", "--scales", "3"], ["servers", "4", "3"]),
        (["evaluate", "fastest-idle", "--episodes", "0"], ["--episodes", "0"]),
        (["evaluate", "fastest-idle", "--seed", "-1"], ["--seed", "-1"]),
        (["evaluate", "fastest-idle", "--mask", "all"], ["--mask", "feasible"]),
        (["evaluate", "fastest-idle", "--output", "rows.txt"], [".csv", ".parquet"]),
        (["evaluate"], ["POLICY"]),
        (["simulate", "--episode", "-1"], ["--episode", "-1"]),
        (["simulate", "--horizon", "-3"], ["horizon_s", "-3"]),
        (["simulate", "--workload", "missing.json"], ["missing.json"]),
        (["validate", "missing.yaml"], ["missing.yaml"]),
        (["validate", "tune_configs/smoke.yaml", "--set", "traning.epochs=1"], ["traning", "training"]),
        (["validate", "tune_configs/smoke.yaml", "--set", "training.learning_rate=fast"], ["learning_rate", "fast"]),
        (["report", "missing"], ["missing"]),
        (["simulate", "--video", "out.mp4"], ["--video out.mp4", ".gif"]),
        (["swep"], ["swep"]),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value, list) else None,
)
def test_bad_arguments_are_refused_in_one_line(arguments: list[str], parts: list[str]) -> None:
    line = refuse(*arguments)
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    ("option", "name"),
    [("--schedule", "s.csv"), ("--gantt", "g.png"), ("--wfformat", "w"), ("--trace", "t"), ("--save-workload", "w")],
)
def test_simulate_to_an_unwritable_place(tmp_path: Path, option: str, name: str) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refuse("simulate", "--servers", 8, option, tmp_path / "file" / name)


def test_evaluate_to_an_unwritable_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = ["--scales", 8, "--episodes", 1, "--output", tmp_path / "file" / "rows.csv"]
    assert "cannot be written" in refuse("evaluate", "fastest-idle", *options)


def test_a_torn_policy_is_refused(tmp_path: Path) -> None:
    trial = TrialConfig()
    save_policy(tmp_path / "policy", build_network(trial), trial, epochs=1)
    tensors = tmp_path / "policy" / TENSORS
    tensors.write_bytes(tensors.read_bytes()[:-8])
    assert TENSORS in refuse("evaluate", tmp_path / "policy", "--scales", 16, "--episodes", 1)


def test_the_process_ends_with_the_code_and_the_line() -> None:
    code = "from rllib_scale.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "evaluate", "nobody"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Error: unknown scheduler 'nobody'")


def installed(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rllib_scale", *arguments]
    options = {"stdout": subprocess.PIPE} | options
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False, **options)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_full_disk_behind_the_output_is_one_line(form: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = installed("schedulers", *form, stdout=full)
    assert (done.returncode, done.stderr) == (2, "Error: output: No space left on device\n")


def test_output_that_is_closed_or_plain_ascii() -> None:
    command = [sys.executable, "-m", "rllib_scale", "schedulers"]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    plain = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = installed("evaluate", "fastest-idle", "--scales", "4", "--episodes", "1", env=plain)
    assert done.returncode == 0, done.stderr
    assert " ? " in done.stdout


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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")
