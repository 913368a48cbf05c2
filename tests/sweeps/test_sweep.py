"""Whole sweeps on a local Ray through the command line: what they write, and that nothing finished is done twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import psutil
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.config import plan
from rllib_scale.config.yaml_files import load_model
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.policies.policy import load_policy, policy_files
from rllib_scale.results.tables import (
    EPISODE_COLUMNS,
    EPISODE_KEY,
    FEATURE_COLUMNS,
    FEATURE_KEY,
    TRAINING_COLUMNS,
    read_manifest,
    read_table,
)
from rllib_scale.sweeps.checkpoints import epoch_of, latest_checkpoint

pytestmark = LOCAL_RAY
TRAINING = "{epochs: %d, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}"
SWEEP = f"""
name: tiny
methods: [scale, ppo]
srr: {{lambda_decorrelation: 0.02, lambda_kl: 0.003, ramp_start_epoch: 0, ramp_epochs: 1}}
training: {TRAINING % 3}
evaluation: {{scales: [8, 16], episodes: 3, heuristics: [fastest-idle]}}
"""
EPOCHS, EVERY = 120, 10
OFF_POLICY = "{warmup_steps: 128, steps_per_update: 32}"
THREE = f"""
name: three
methods: [scale, dqn, sac]
seeds: [5]
training: {TRAINING % EPOCHS}
dqn: {OFF_POLICY}
sac: {OFF_POLICY}
evaluation: {{scales: [16], episodes: 2, heuristics: [], features: false}}
checkpoints: {{every_epochs: {EVERY}}}
resources: {{cpus: 0.25}}
"""
TWO = f"""
name: two
methods: [scale]
training: {TRAINING % EPOCHS}
evaluation: {{scales: [16], episodes: 2, heuristics: [], features: false}}
checkpoints: {{every_epochs: {EVERY}}}
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from rllib_scale.cli import main; main()", *map(str, arguments)]


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"HOME": str(home)}


def run(*arguments: object) -> Result:
    """Run a command in this process, on the Ray that the tests share."""
    return CliRunner().invoke(main, [*map(str, arguments)])


def run_alone(home: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a process that starts a Ray of its own."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=240, env=environment(home), start_new_session=True
    )


def file_times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def base(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sweep's YAML and its results."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "tiny.yaml").write_text(SWEEP)
    done = run("sweep", folder / "tiny.yaml", "--results", folder / "results")
    assert done.exit_code == 0, done.output
    return folder


def test_a_sweep_writes_manifest_policies_tables_and_report(base: Path) -> None:
    results = base / "results"
    manifest = read_manifest(results)
    assert manifest is not None
    assert manifest["sweep"] == "tiny"
    assert manifest["config"]["srr"]["lambda_decorrelation"] == 0.02
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert not episodes.duplicated(list(EPISODE_KEY)).any()
    counts = episodes.groupby(["method", "test_servers"])["episode"].agg(lambda numbers: sorted(numbers)).to_dict()
    wanted = [("fastest-idle", 8), ("fastest-idle", 16), ("scale", 8), ("scale", 16), ("ppo", 16)]
    assert counts == {key: [0, 1, 2] for key in wanted}
    written = pd.concat(map(pd.read_parquet, (results / "evaluations").iterdir()))
    assert set(written["information"]) == {"waiting tasks"}
    features = read_table(results / "features.parquet", FEATURE_COLUMNS)
    assert not features.duplicated(list(FEATURE_KEY)).any()
    at = [*zip(features["method"], features["test_servers"], features["feature_dim"], strict=True)]
    assert sorted(at) == [("ppo", 16, 256), ("scale", 8, 16), ("scale", 16, 16)]
    assert features["drift_mmd2"].isna().tolist() == (features["method"] == "ppo").tolist()
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    assert training.groupby("method")["epoch"].agg(list).to_dict() == {"scale": [1, 2, 3], "ppo": [1, 2, 3]}
    assert sorted(load_policy(path).trial.method for path in (results / "policies").iterdir()) == ["ppo", "scale"]
    assert (results / "report" / "report.html").is_file()


def test_lambdas_of_the_yaml_are_logged_as_they_reached_the_loss(base: Path) -> None:
    training = read_table(base / "results" / "training.parquet", TRAINING_COLUMNS)
    last = training[training["epoch"] == 3].set_index("method")
    assert last.loc["scale", ["srr_lambda_decorrelation", "srr_lambda_kl"]].tolist() == pytest.approx([0.02, 0.003])
    assert last.loc["ppo", ["srr_lambda_decorrelation", "srr_lambda_kl"]].tolist() == [0, 0]


@pytest.mark.slow
def test_a_sweep_is_quiet_and_leaves_nothing_in_the_home(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    done = run_alone(tmp_path / "home", "sweep", tmp_path / "tiny.yaml", "--results", tmp_path / "results")
    assert (done.returncode, done.stderr) == (0, "")
    assert not [path for path in (tmp_path / "home").rglob("*") if "ray_results" in str(path)]
    progress = done.stdout
    assert "2 trainings of 3 epochs" in progress
    assert "trainings 2/2 done" in progress
    assert "evaluations 5/5 done" in progress
    assert "WARNING" not in progress


def test_rows_do_not_depend_on_where_they_are_computed(base: Path) -> None:
    config = load_model(plan.SweepConfig, base / "tiny.yaml")
    stored = read_table(base / "results" / "episodes.parquet", EPISODE_COLUMNS)
    features = read_table(base / "results" / "features.parquet", FEATURE_COLUMNS)
    for unit in plan.evaluation_units(config, plan.expand(config, "test")):
        policy = policy_files(base / "results" / "policies" / unit.scheduler) if unit.learned else None
        result = evaluate_unit(unit, policy)
        fresh = pd.DataFrame(result.episodes)
        same = (stored["cell"] == unit.identity["cell"]) & (stored["test_servers"] == unit.columns["test_servers"])
        kept = stored[same].sort_values("episode", ignore_index=True)
        assert len(kept) == 3
        for name in fresh.columns:
            assert fresh[name].astype(float).equals(kept[name].astype(float)), (unit.scheduler, name)
        same = (features["cell"] == unit.identity["cell"]) & (features["test_servers"] == unit.columns["test_servers"])
        assert (result.features is not None) == unit.learned == bool(same.any())
        for name, value in (result.features or {}).items():
            assert value == features.loc[same, name].item(), (unit.scheduler, name)


def test_the_exported_policy_evaluates_to_the_rows_of_the_sweep(base: Path) -> None:
    (policy,) = (base / "results" / "policies").glob("scale-*")
    output = base / "rows.parquet"
    options = ["--scales", "8,16", "--episodes", "3", "--output", str(output)]
    CliRunner().invoke(main, ["evaluate", str(policy), *options], catch_exceptions=False)
    rows = pd.read_parquet(output)
    stored = read_table(base / "results" / "episodes.parquet", EPISODE_COLUMNS)
    stored = stored[stored["method"] == "scale"].sort_values(["test_servers", "episode"], ignore_index=True)
    for name in ("arrived", "completed", "response_mean_s", "episode_return", "energy_j", "decisions"):
        assert rows[name].astype(float).equals(stored[name].astype(float)), name


def test_run_again_a_sweep_does_only_what_is_new(base: Path) -> None:
    results = base / "results"
    before = {part: file_times(results / part) for part in ("policies", "trials", "evaluations", "features")}
    again = run("sweep", base / "tiny.yaml", "--results", results)
    assert again.exit_code == 0, again.stderr
    assert {part: file_times(results / part) for part in before} == before

    more = run("sweep", base / "tiny.yaml", "--results", results, "--set", "evaluation.scales=[8,16,24]")
    assert more.exit_code == 0, more.stderr
    assert "evaluations 2/2 done" in more.stdout
    after = {part: file_times(results / part) for part in before}
    assert after["policies"] == before["policies"]
    assert after["trials"] == before["trials"]
    assert after["evaluations"].items() > before["evaluations"].items()
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert sorted(episodes[episodes["test_servers"] == 24]["method"].unique()) == ["fastest-idle", "scale"]
    assert after["features"].items() > before["features"].items()


@pytest.mark.slow
def test_features_that_a_finished_sweep_lacks_are_added_without_training_anew(base: Path, tmp_path: Path) -> None:
    """Rows of a sweep that ran without features, or was stopped between an evaluation's two files."""
    results = tmp_path / "results"
    shutil.copytree(base / "results", results)
    trained = file_times(results / "policies")
    words = ["sweep", base / "tiny.yaml", "--results", results, "--set", "evaluation.scales=[8,16,24]"]
    first = run(*words)
    assert first.exit_code == 0, first.stderr
    features = read_table(results / "features.parquet", FEATURE_COLUMNS)
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert len(features) == 4
    shutil.rmtree(results / "features")
    without = ["--set", "evaluation.features=false"]
    assert run(*words, *without).exit_code == 0
    assert read_table(results / "features.parquet", FEATURE_COLUMNS).empty
    again = run(*words)
    assert "evaluations 4/4 done" in again.stdout  # none of a heuristic
    pd.testing.assert_frame_equal(read_table(results / "features.parquet", FEATURE_COLUMNS), features)
    pd.testing.assert_frame_equal(read_table(results / "episodes.parquet", EPISODE_COLUMNS), episodes)
    assert file_times(results / "policies") == trained


@pytest.mark.slow
def test_train_is_a_sweep_of_one_cell(base: Path, tmp_path: Path) -> None:
    settings = [
        "--set",
        f"training={TRAINING % 3}",
        "--set",
        "evaluation.heuristics=[]",
        "--set",
        "evaluation.episodes=3",
    ]
    settings += [part for key in ("lambda_decorrelation=0.02", "lambda_kl=0.003") for part in ("--set", f"srr.{key}")]
    settings += ["--set", "srr.ramp_start_epoch=0", "--set", "srr.ramp_epochs=1"]
    done = run("train", "--epochs", 3, "--scales", "8,16", "--results", tmp_path / "train", *settings)
    assert done.exit_code == 0, done.stderr
    (trained,) = (tmp_path / "train" / "policies").iterdir()
    swept = base / "results" / "policies" / trained.name
    assert (trained / "policy.safetensors").read_bytes() == (swept / "policy.safetensors").read_bytes()
    assert len(read_table(tmp_path / "train" / "episodes.parquet", EPISODE_COLUMNS)) == 2 * 3


def start(home: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
        start_new_session=True,
    )


def wait_for_checkpoints(process: subprocess.Popen[str], results: Path, after: dict[str, int]) -> None:
    """Until each training has a checkpoint of a later epoch than the given one; who has it is held till all have."""
    deadline = time.monotonic() + 120
    held: dict[str, psutil.Process] = {}
    while len(held) < len(after):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        for name in after.keys() - held:
            if saved_epoch(results, name) > after[name]:
                held[name] = process_of(name, process)
                held[name].suspend()
        time.sleep(0.05)
    for training in held.values():
        training.resume()


def process_of(name: str, driver: subprocess.Popen[str]) -> psutil.Process:
    """The process of a training, which Tune runs in a folder of that name."""
    for process in psutil.Process(driver.pid).children(recursive=True):
        with suppress(psutil.Error):
            if Path(process.cwd()).name == name:
                return process
    raise AssertionError(name)


def saved_epoch(results: Path, name: str) -> int:
    """The epoch of a training's newest whole checkpoint; -1 where there is none."""
    checkpoint = latest_checkpoint(results / "trials", name)
    return -1 if checkpoint is None else epoch_of(checkpoint)


def test_a_killed_sweep_resumes_and_says_in_one_line_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 the weights are those of a sweep that was never stopped; a training that fails is reported."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # which remembers that its checkpoints may be unpickled
    file, results, undisturbed = tmp_path / "tiny.yaml", tmp_path / "results", tmp_path / "undisturbed"
    file.write_text(TWO)
    options = ["--set", "grid={training.learning_rate: [0.0003, 1.0e+300]}", "--results", results]
    good, _ = (cell.trial.name for cell in plan.expand(load_model(plan.SweepConfig, file, options[1:2]), "test"))
    killed = start(tmp_path / "home", "sweep", file, *options)
    wait_for_checkpoints(killed, results, {good: 0})
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert 0 < saved_epoch(results, good) < EPOCHS

    ended = run("sweep", file, *options)
    assert ended.exit_code == 1, ended.output
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Failed: scale-s42-")
    assert good not in line
    (finished,) = (results / "policies").iterdir()
    assert finished.name == good
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert episodes["overrides"].unique().tolist() == ["training.learning_rate=0.0003"]
    assert run("sweep", file, "--results", undisturbed).exit_code == 0
    weights = [folder / "policies" / good / "policy.safetensors" for folder in (results, undisturbed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_interrupted_killed_and_torn_trainings_end_as_if_they_had_never_stopped(tmp_path: Path) -> None:
    """Ctrl-C at first, then kill -9 and a torn checkpoint; tables and weights equal those of an undisturbed sweep."""
    home, undisturbed, results = tmp_path / "home", tmp_path / "undisturbed", tmp_path / "results"
    home.mkdir()
    (tmp_path / "three.yaml").write_text(THREE)
    done = run_alone(home, "sweep", tmp_path / "three.yaml", "--results", undisturbed)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (undisturbed / "policies").iterdir())
    assert len(names) == 3

    def start_three() -> subprocess.Popen[str]:
        return start(home, "sweep", tmp_path / "three.yaml", "--results", results)

    at_interrupt = dict.fromkeys(names, 0)
    for _ in range(4):  # until one is met between two scheduled checkpoints, on most machines at once
        interrupted = start_three()
        wait_for_checkpoints(interrupted, results, at_interrupt)
        interrupted.send_signal(signal.SIGINT)
        time.sleep(0.2)
        interrupted.send_signal(signal.SIGINT)  # an impatient person
        _, stderr = interrupted.communicate(timeout=120)
        assert interrupted.returncode == 130
        assert stderr == "Interrupted. What is finished is kept; the same command goes on from it.\n"
        at_interrupt = {name: saved_epoch(results, name) for name in names}
        assert all(0 < epoch < EPOCHS for epoch in at_interrupt.values()), at_interrupt
        if any(epoch % EVERY for epoch in at_interrupt.values()):
            break
    else:
        pytest.fail(f"saved by the schedule alone, never when interrupted: {at_interrupt}")

    killed = start_three()
    wait_for_checkpoints(killed, results, at_interrupt)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    at_kill = {name: saved_epoch(results, name) for name in names}
    assert all(epoch < EPOCHS for epoch in at_kill.values()), at_kill
    torn = latest_checkpoint(results / "trials", names[-1])
    assert torn is not None
    assert torn.local is not None
    weights = torn.local / "policy" / "policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert latest_checkpoint(results / "trials", names[-1]) not in (None, torn)

    finished = run_alone(home, "sweep", tmp_path / "three.yaml", "--results", results)
    assert finished.returncode == 0, finished.stderr
    assert "0 of 3 trainings are finished, 3 go on" in finished.stdout
    for table, columns, times in (
        ("training", TRAINING_COLUMNS, ["wall_s", "env_steps_per_s"]),
        ("episodes", EPISODE_COLUMNS, []),
    ):
        one, other = (
            read_table(folder / f"{table}.parquet", columns).drop(columns=times) for folder in (results, undisturbed)
        )
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    for name in names:
        one, other = (folder / "policies" / name / "policy.safetensors" for folder in (results, undisturbed))
        assert one.read_bytes() == other.read_bytes(), name


@pytest.mark.parametrize("case", ["other sweep", "foreign folder", "below a file", "too many cpus"])
def test_a_sweep_that_cannot_run_says_why_in_one_line(base: Path, tmp_path: Path, case: str) -> None:
    results, settings = tmp_path / "results", []
    if case == "other sweep":
        results, settings, why = base / "results", ["--set", "name=other"], "belongs to sweep 'tiny', not 'other'"
    elif case == "foreign folder":
        results.mkdir()
        (results / "thesis.txt").write_text("mine")
        why = "not empty and without a manifest.json"
    elif case == "below a file":
        results.write_text("")
        results, why = results / "below", "cannot be written (Not a directory)"
    else:
        settings, why = ["--set", "resources.cpus=100000"], "a training needs 100000 CPUs"
    failed = run("sweep", base / "tiny.yaml", "--results", results, *settings)
    assert failed.exit_code == 2
    (line,) = failed.stderr.splitlines()
    assert line.startswith("Error: ")
    assert why in line
