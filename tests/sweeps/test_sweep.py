"""Whole sweeps on a local Ray through the command line: what they write, and that nothing finished is done twice."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale import plugins
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.loading import load_sweep
from rllib_scale.policies.policy import load_policy, policy_files
from rllib_scale.results.columns import EPISODE_KEY, FEATURE_KEY
from rllib_scale.results.status import read_curve, trainings
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import read_manifest
from rllib_scale.sweeps.checkpoints import newest_checkpoints
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.sweep import Sweep
from sweep_runs import (
    SHORT,
    await_that,
    episodes,
    epochs,
    features,
    file_times,
    kill,
    refused,
    run,
    start,
    succeed,
    training,
    weights,
)

pytestmark = LOCAL_RAY
SRR = "{lambda_decorrelation: 0.02, lambda_kl: 0.003, ramp_start_epoch: 0, ramp_epochs: 1}"
SWEEP = f"""
name: tiny
methods: [scale, ppo]
srr: {SRR}
algorithm: {{epochs: 3, {SHORT}}}
evaluation: {{scales: [8, 16], episodes: 3, heuristics: [fastest-idle]}}
"""
EPOCHS, EVERY = 200, 40
OFF_POLICY = [(name, "warmup_steps: 128, steps_per_update: 32") for name in ("dqn", "sac")]
LONG = f"""
name: long
methods: [scale]
seeds: [5]
algorithm: {{epochs: {EPOCHS}, {SHORT}}}
evaluation: {{scales: [16], episodes: 2, heuristics: [], features: false}}
"""
BROKEN = """
calls = 0

def broken(step):
    global calls
    calls += 1
    if calls > 100:
        raise RuntimeError("the sensor is broken")
    return step.reward
"""


@pytest.fixture(scope="module")
def base(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sweep's YAML and its results."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "tiny.yaml").write_text(SWEEP)
    succeed("sweep", folder / "tiny.yaml", "--results", folder / "results")
    return folder


def test_a_sweep_writes_manifest_policies_tables_and_report(base: Path) -> None:
    results = base / "results"
    manifest = read_manifest(results)
    assert manifest is not None
    assert (manifest["sweep"], manifest["config"]["srr"]["lambda_decorrelation"]) == ("tiny", 0.02)
    rows = episodes(results)
    assert not rows.duplicated(list(EPISODE_KEY)).any()
    counts = rows.groupby(["method", "test_servers"])["episode"].agg(sorted).to_dict()
    wanted = [("fastest-idle", 8), ("fastest-idle", 16), ("scale", 8), ("scale", 16), ("ppo", 16)]
    assert counts == {key: [0, 1, 2] for key in wanted}
    assert set(rows["observability"]) == {"waiting tasks"}
    table = features(results)
    assert not table.duplicated(list(FEATURE_KEY)).any()
    at = [*zip(table["method"], table["test_servers"], table["feature_dim"], strict=True)]
    assert sorted(at) == [("ppo", 16, 256), ("scale", 8, 16), ("scale", 16, 16)]
    assert table["drift_mmd2"].isna().tolist() == (table["method"] == "ppo").tolist()
    assert epochs(results, by="method") == {"scale": [1, 2, 3], "ppo": [1, 2, 3]}
    last = training(results).query("epoch == 3").set_index("method")[["srr_lambda_decorrelation", "srr_lambda_kl"]]
    assert last.loc["scale"].tolist() == pytest.approx([0.02, 0.003]), "as they reached the loss"
    assert last.loc["ppo"].tolist() == [0, 0]
    assert sorted(load_policy(path).trial.method for path in (results / "policies").iterdir()) == ["ppo", "scale"]
    assert (results / "report" / "report.html").is_file()


def test_a_finished_sweep_starts_no_ray_and_leaves_its_files(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr("rllib_scale.sweeps.run.ray_session", started)
    results = base / "results"
    before = file_times(results)
    said = succeed("sweep", base / "tiny.yaml", "--results", results)
    assert "Nothing is left to do: 2 trainings and 5 evaluations are finished" in said
    after = file_times(results)
    assert {path for path in after if before.get(path) != after[path]} == {results / "manifest.json"}
    shutil.rmtree(results / "features")
    assert "Ray was started" in str(run("sweep", base / "tiny.yaml", "--results", results).exception)
    succeed("status", results)
    monkeypatch.undo()
    assert "evaluations 3/3 done" in succeed("sweep", base / "tiny.yaml", "--results", results)
    assert len(features(results)) == 3


def test_a_policy_is_published_and_rules_are_evaluated_while_others_train(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(SWEEP.replace("[scale, ppo]", "[scale]").replace("epochs: 3", "epochs: 30"))
    settings = ["seeds=[1, 2]", "resources={max_concurrent: 1}", "evaluation.features=false"]
    succeed("sweep", tmp_path / "two.yaml", "--results", tmp_path / "out", settings=settings)
    published = sorted(path.stat().st_mtime for path in tmp_path.glob("out/policies/*/policy.json"))
    trained = sorted(path.stat().st_mtime for path in tmp_path.glob("out/trials/*/*/checkpoint_*/epoch-*.zip"))
    assert len(published) == 2
    assert published[0] < trained[-1], "the last checkpoint is of the training that came second"


def test_evaluations_run_beside_trainings(tmp_path: Path) -> None:
    rules = "{name: rules, methods: [], evaluation: {scales: [8, 16], episodes: 1, heuristics: [sticky]}}"
    (tmp_path / "rules.yaml").write_text(rules)
    sweep = Sweep(make_plan(load_sweep(tmp_path / "rules.yaml"), "rules.yaml"), tmp_path / "out", print)
    sweep.open()
    evaluations = Evaluations(sweep, trust=False, beside=1)
    until = time.monotonic() + 120
    while not all(map(sweep.is_evaluated, sweep.plan.units)):
        assert time.monotonic() < until
        evaluations.poll()
        time.sleep(0.05)
    assert evaluations.finished == 2


def test_rows_do_not_depend_on_where_they_are_computed(base: Path) -> None:
    config = load_sweep(base / "tiny.yaml")
    for unit in make_plan(config, "test").units:
        policy = policy_files(base / "results" / "policies" / unit.name) if unit.learned else None
        result = evaluate_unit(unit, policy)
        stored, told = (
            table[(table["scheduler"] == unit.scheduler) & (table["problem"] == unit.problem.id)]
            for table in (episodes(base / "results"), features(base / "results"))
        )
        fresh = pd.DataFrame(result.episodes).drop(columns="observability")
        kept = stored.sort_values("episode", ignore_index=True)[fresh.columns]
        pd.testing.assert_frame_equal(kept.astype(float), fresh.astype(float), check_exact=True)
        assert (result.features is not None) == unit.learned == bool(len(told))
        for name, value in (result.features or {}).items():
            assert value == told[name].item(), (unit.name, name)


def test_run_again_a_sweep_does_only_what_is_new(base: Path) -> None:
    results = base / "results"
    trained, evaluated = [results / "policies", results / "trials"], [results / "episodes", results / "features"]
    before = file_times(*trained, *evaluated)
    succeed("sweep", base / "tiny.yaml", "--results", results)
    assert file_times(*trained, *evaluated) == before

    done = succeed("sweep", base / "tiny.yaml", "--results", results, settings=["evaluation.scales=[8,16,24]"])
    assert "evaluations 2/2 done" in done
    after = file_times(*trained, *evaluated)
    assert after.items() > before.items()
    assert all(
        path.is_relative_to(results / "episodes") or path.is_relative_to(results / "features")
        for path in after.keys() - before.keys()
    )
    assert sorted(episodes(results).query("test_servers == 24")["method"].unique()) == ["fastest-idle", "scale"]


@pytest.mark.slow
def test_features_that_a_finished_sweep_lacks_are_added_without_training_anew(base: Path, tmp_path: Path) -> None:
    """Rows of a sweep that ran without features."""
    results = tmp_path / "results"
    shutil.copytree(base / "results", results)
    trained = file_times(results / "policies")
    words = ["sweep", base / "tiny.yaml", "--results", results]
    scales = ["evaluation.scales=[8,16,24]"]
    succeed(*words, settings=scales)
    before = features(results), episodes(results)
    assert len(before[0]) == 4
    shutil.rmtree(results / "features")
    succeed(*words, settings=[*scales, "evaluation.features=false"])
    assert features(results).empty
    assert "evaluations 4/4 done" in succeed(*words, settings=scales)  # none of a heuristic
    pd.testing.assert_frame_equal(features(results), before[0])
    pd.testing.assert_frame_equal(episodes(results), before[1])
    assert file_times(results / "policies") == trained


@pytest.mark.slow
def test_train_is_a_sweep_of_one_cell(base: Path, tmp_path: Path) -> None:
    settings = [f"algorithm={{epochs: 3, {SHORT}}}", f"srr={SRR}"]
    settings += ["evaluation.heuristics=[]", "evaluation.episodes=3", "evaluation.scales=[8, 16]"]
    options = ["--epochs", 3, "--results", tmp_path / "train"]
    succeed("train", *options, settings=settings)
    ((name, trained),) = weights(tmp_path / "train").items()
    assert weights(base / "results")[name] == trained
    assert len(episodes(tmp_path / "train")) == 2 * 3


def saved_epoch(results: Path, name: str) -> int:
    """The epoch of a training's newest whole checkpoint; -1 where there is none."""
    checkpoint = newest_checkpoints(results / "trials").get(name)
    return -1 if checkpoint is None else checkpoint.epoch


def test_a_killed_sweep_resumes_and_says_in_one_line_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 the weights are those of a sweep that was never stopped; a training that fails is reported.

    It fails in its fourth epoch each time that it begins again: Tune's one log holds the epochs of all attempts.
    """
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # which remembers that its checkpoints may be unpickled
    file, results = tmp_path / "long.yaml", tmp_path / "results"
    file.write_text(LONG + "checkpoints: {every_epochs: 5}\n")
    (tmp_path / "my_rewards.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_shipped", {})
    settings = ["grid={algorithm.reward: [null, 'my_rewards:broken']}"]
    good, _ = (trial.config.name for trial in make_plan(load_sweep(file, settings), "test").trials)
    killed = start(tmp_path / "home", "sweep", file, "--results", results, settings=settings)
    await_that(lambda: saved_epoch(results, good) > 0, killed)
    kill(killed)
    assert 0 < saved_epoch(results, good) < EPOCHS

    ended = start(tmp_path / "home", "sweep", file, "--results", results, settings=settings)
    said, errors = ended.communicate(timeout=600)
    assert ended.returncode == 1, (said, errors)
    (line,) = errors.splitlines()
    assert line.startswith("Failed: scale-s5-")
    assert good not in line
    assert "the sensor is broken" in line
    (failed,) = [training for training in trainings(Location(str(results)), time.time()) if training.state == "failed"]
    logged = [json.loads(line)["epoch"] for line in failed.logs[-1].read().splitlines()]
    assert len(logged) > len(set(logged)), "each attempt begins at the same epoch"
    assert [row["epoch"] for row in read_curve(failed.logs[-1:])] == sorted(set(logged))
    assert (results / "report" / "report.html").exists()
    succeed("sweep", file, "--results", tmp_path / "undisturbed")
    assert weights(results) == weights(tmp_path / "undisturbed")
    assert list(weights(results)) == [good]


@pytest.mark.slow
def test_interrupted_killed_and_torn_trainings_end_as_if_they_had_never_stopped(tmp_path: Path) -> None:
    """Ctrl-C at first, then kill -9 and a torn checkpoint; tables and weights equal those of an undisturbed sweep.

    That one is quiet, and leaves nothing in the home.
    """
    file, undisturbed, results = (tmp_path / name for name in ("long.yaml", "undisturbed", "results"))
    more = f"checkpoints: {{every_epochs: {EVERY}}}\nresources: {{cpus: 0.25}}\n"
    short = f"algorithm: {{epochs: {EPOCHS}, {SHORT}}}\n"
    own = ", ".join(f"{name}: {{algorithm: {{{text}}}}}" for name, text in (("scale", SHORT), *OFF_POLICY))
    long = LONG.replace("[scale]", f"[{own}]").replace(short, f"algorithm: {{epochs: {EPOCHS}}}\n")
    file.write_text(long + more)

    def sweep(folder: Path) -> subprocess.Popen[str]:
        return start(tmp_path, "sweep", file, "--results", folder)

    whole = sweep(undisturbed)
    said, errors = whole.communicate(timeout=1800)
    assert (whole.returncode, errors) == (0, "")
    for part in (f"3 trainings of {EPOCHS} epochs", "trainings 3/3 done", "evaluations 3/3 done"):
        assert part in said
    assert "WARNING" not in said
    assert not [path for path in tmp_path.rglob("*") if "ray_results" in str(path)]
    names = list(weights(undisturbed))
    assert len(names) == 3

    def saved() -> dict[str, int]:
        return {name: saved_epoch(results, name) for name in names}

    interrupted = sweep(results)
    await_that(lambda: min(saved().values()) > 0, interrupted)
    interrupted.send_signal(signal.SIGINT)
    time.sleep(0.2)
    interrupted.send_signal(signal.SIGINT)  # an impatient person
    _, errors = interrupted.communicate(timeout=120)
    assert interrupted.returncode == 130
    assert errors == "Interrupted. What was finished is kept; run the same command again.\n"
    before = saved()
    assert any(epoch % EVERY for epoch in before.values()), f"saved by the schedule alone: {before}"
    last = min(names, key=lambda name: before[name])
    assert before[last] < EPOCHS - EVERY

    killed = sweep(results)
    await_that(lambda: saved()[last] > before[last], killed)
    kill(killed)
    torn = newest_checkpoints(results / "trials")[last]
    archive = torn.file.local
    assert archive is not None
    archive.write_bytes(archive.read_bytes()[:-100])
    assert newest_checkpoints(results / "trials")[last].epoch < torn.epoch

    finished = sweep(results)
    said, errors = finished.communicate(timeout=1800)
    assert finished.returncode == 0, errors
    assert "trainings are finished, " in said
    pd.testing.assert_frame_equal(training(results), training(undisturbed), check_exact=True)
    pd.testing.assert_frame_equal(episodes(results), episodes(undisturbed), check_exact=True)
    assert weights(results) == weights(undisturbed)


@pytest.mark.parametrize(
    ("place", "settings", "why"),
    [
        ("results", ["name=other"], "belongs to sweep 'tiny', not 'other'"),
        ("foreign", [], "not empty and without a manifest.json"),
        ("tiny.yaml/below", [], "cannot be written (Not a directory)"),
        ("new", ["resources.cpus=10000"], "a training needs 10000 CPUs"),
    ],
)
def test_a_sweep_that_cannot_run_says_why_in_one_line(base: Path, place: str, settings: list[str], why: str) -> None:
    (base / "foreign").mkdir(exist_ok=True)
    (base / "foreign" / "thesis.txt").write_text("mine")
    line = refused("sweep", base / "tiny.yaml", "--results", base / place, settings=settings)
    assert line.startswith("Error: ")
    assert why in line
