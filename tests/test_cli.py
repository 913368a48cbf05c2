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
from rllib_scale.policies.policy import save_policy
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


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies") / "scale"
    save_policy(folder, random_network(), TrialConfig(), epochs=1)
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


def test_evaluate_a_policy_at_scales_it_was_not_trained_at(policy: Path, tmp_path: Path) -> None:
    for decision in ("argmax", "sample"):
        options = ["--scales", "8,32", "--episodes", 2, "--decision", decision]
        succeed("evaluate", policy, *options, "--output", tmp_path / f"{decision}.csv")
    argmax, sample = (pd.read_csv(tmp_path / f"{decision}.csv") for decision in ("argmax", "sample"))
    assert argmax["test_servers"].tolist() == [8, 8, 32, 32]
    assert argmax["arrived"].tolist() == sample["arrived"].tolist()
    assert argmax["decisions"].tolist() != sample["decisions"].tolist()


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
    schedule, trace = tmp_path / "s.csv", tmp_path / "trace.json"
    options = ["--scenario", "steady-0.5", "--horizon", 30, "--seed", 4, "--episode", 2]
    text = succeed("simulate", *options, "--schedule", schedule, "--trace", trace)
    assert all(f"wrote {path}" in text.replace("\n", "") for path in (schedule, trace))
    table, content = pd.read_csv(schedule), json.loads(trace.read_text())
    assert "seed 4, episode 2" in content["otherData"]["title"]
    slices = [event for event in content["traceEvents"] if "arrival_s" in event.get("args", {})]
    assert [event["ts"] for event in slices] == sorted((table["start_s"] * 1e6).round().astype(int))
    assert len(slices) > 5


def test_simulate_plays_a_policy(policy: Path, tmp_path: Path) -> None:
    schedules = []
    for scheduler in (policy, "fastest-idle"):
        succeed("simulate", "--scheduler", scheduler, "--schedule", tmp_path / "s.csv")
        schedules.append((tmp_path / "s.csv").read_text())
    assert schedules[0] != schedules[1]


# ---------------------------------------------------------------------- processes


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


def test_a_full_disk_behind_the_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = installed("schedulers", "--json", stdout=full)
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
