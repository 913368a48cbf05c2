"""What has become of each training, told from files as Ray Tune and a sweep leave them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.errors import UserError
from rllib_scale.results import tables as results
from rllib_scale.results.status import (
    MAX_RESTARTS,
    QUIET_S,
    Training,
    evaluations,
    found_trainings,
    homes,
    published_epochs,
    read_curve,
    trainings,
)

NOW = 1_000_000.0
ROWS = [{"epoch": epoch, "completed": 5.0} for epoch in (1, 2, 3)]
ERROR = "Failure # {} (occurred at 2026-11-21_05-14-10)\nTraceback\nValueError: it broke\n\n"


def age(folder: Path, seconds: float) -> None:
    """Date everything below a folder back."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (NOW - seconds, NOW - seconds))


@pytest.fixture
def sweep(tmp_path: Path) -> tuple[Path, list[str]]:
    """A results folder of a sweep with two trainings of 60 epochs, and their names."""
    config = SweepConfig(name="two", methods=("scale", "ppo"), training={"epochs": 60})  # type: ignore[arg-type]
    results.open_folder(tmp_path, "two", config.model_dump(mode="json"), "0")
    return tmp_path, [trial.config.name for trial in make_plan(config, "two").trials]


def log_of(folder: Path, name: str, rows: list[dict[str, float]], run: str = "run-001") -> Path:
    """Tune's log of a training in a run."""
    path = folder / "trials" / run / name / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def only(folder: Path, name: str) -> Training:
    (found,) = [training for training in trainings(folder, NOW) if training.name == name]
    return found


def test_a_training_waits_then_runs_then_stops_or_finishes(sweep: tuple[Path, list[str]]) -> None:
    folder, (name, other) = sweep
    assert [(t.name, t.state, t.epochs, t.curve) for t in trainings(folder, NOW)] == [
        (name, "waiting", 60, None),
        (other, "waiting", 60, None),
    ]
    log = log_of(folder, name, ROWS)
    age(folder / "trials", 10)
    running = only(folder, name)
    assert (running.state, running.curve, running.updated_s) == ("running", log, NOW - 10)
    assert running.identity["method"] == "scale"
    age(folder / "trials", QUIET_S + 1)
    assert only(folder, name).state == "stopped"
    assert only(folder, other).state == "waiting"
    log_of(folder, name, [{"epoch": epoch} for epoch in range(51, 61)], "run-002")
    assert only(folder, name).state == "finished", "its last epoch is done, its policy is not copied yet"
    results.write_json(folder / "policies" / name / "curve.json", ROWS)
    assert (only(folder, name).state, only(folder, name).curve) == (
        "finished",
        folder / "policies" / name / "curve.json",
    )


@pytest.mark.parametrize(
    ("failures", "seconds", "state"),
    [(1, 10.0, "running"), (MAX_RESTARTS + 1, 10.0, "failed"), (1, QUIET_S + 1, "failed")],
)
def test_an_error_is_final_after_the_restarts_or_when_nothing_follows(
    sweep: tuple[Path, list[str]], failures: int, seconds: float, state: str
) -> None:
    folder, (name, _) = sweep
    trial = folder / "trials" / "run-001" / name
    trial.mkdir(parents=True)
    (trial / "error.txt").write_text("".join(ERROR.format(n + 1) for n in range(failures)))
    age(folder / "trials", seconds)
    assert (only(folder, name).state, only(folder, name).error) == (state, "ValueError: it broke")


def test_a_restored_run_leaves_the_error_of_an_earlier_one_behind(sweep: tuple[Path, list[str]]) -> None:
    folder, (name, _) = sweep
    for run in ("run-001", "run-002"):
        (folder / "trials" / run / name).mkdir(parents=True)
    (folder / "trials" / "run-001" / name / "error.txt").write_text(ERROR.format(1) * 9)
    age(folder / "trials", 10)
    assert (only(folder, name).state, only(folder, name).error) == ("running", None)


def test_the_log_of_a_resumed_run_continues_that_of_the_run_before(sweep: tuple[Path, list[str]]) -> None:
    folder, (name, _) = sweep
    first = log_of(folder, name, ROWS)
    second = log_of(folder, name, [], "run-002")
    os.utime(second, (NOW, NOW))
    assert only(folder, name).curve == first, "the run has just begun"
    log_of(folder, name, [{"epoch": 3, "completed": 6.0}, {"epoch": 4, "completed": 7.0}], "run-002")
    assert only(folder, name).curve == second
    assert [row["completed"] for row in read_curve(second)] == [5.0, 5.0, 6.0, 7.0]


def test_tunes_own_log_is_a_curve_though_its_last_line_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "run-001" / "scale" / "result.json"
    path.parent.mkdir(parents=True)
    lines = [json.dumps(row) for row in ROWS]
    path.write_text("\n".join([*lines[:2], lines[2][:7]]))
    assert read_curve(path) == ROWS[:2]
    path.write_text("\n".join(lines) + "\n")
    assert read_curve(path) == ROWS
    for content in ("", "[1, 2]", '{"a": ', "null"):
        (tmp_path / "curve.json").write_text(content)
        with pytest.raises(UserError, match="not a readable training curve"):
            read_curve(tmp_path / "curve.json")


def test_a_training_that_asha_stopped_is_done(sweep: tuple[Path, list[str]]) -> None:
    """As soon as it stops, and its evaluations when they are there: they bear the epochs that it ran."""
    folder, (name, other) = sweep
    for trial in (name, other):
        log_of(folder, trial, ROWS)
    results.write_json(folder / "stopped" / f"{name}.json", {"epoch": 3})
    age(folder / "trials", QUIET_S + 1)
    assert (only(folder, name).state, only(folder, name).epochs) == ("finished", 3)
    assert (only(folder, other).state, only(folder, other).epochs) == ("stopped", 60)
    results.write_json(folder / "policies" / name / "policy.json", {"epochs": 3})
    assert (only(folder, name).state, only(folder, name).epochs) == ("finished", 3)
    config = SweepConfig(name="two", methods=("scale", "ppo"), training={"epochs": 60})  # type: ignore[arg-type]
    units = make_plan(config, "two").as_trained({name: 3}).units
    for unit in units:
        if unit.scheduler == name:
            results.write_json(folder / "evaluations" / f"{unit.key}.parquet", {})
    assert evaluations(folder) == (3, len(units))
    (folder / "policies" / name / "policy.json").write_bytes(b"")
    assert published_epochs(folder / "policies" / name) == -1, "torn: it is published again"


def test_trainings_that_the_plan_does_not_name_are_found_and_described(sweep: tuple[Path, list[str]]) -> None:
    folder, planned = sweep
    trial = TrialConfig(method="scale", seed=7)
    description = {"trial": trial.model_dump(mode="json"), "train_servers": 16}
    results.write_json(folder / "policies" / trial.name / "policy.json", description)
    (folder / "policies" / ".scale-s8-0123.tmp").mkdir()
    assert [training.name for training in trainings(folder, NOW)] == [*planned, trial.name]
    (found,) = found_trainings(folder, NOW)
    assert (found.state, found.epochs) == ("finished", 1000)
    assert found.identity == {
        "method": "scale",
        "train_seed": 7,
        "trial_id": trial.trial_id,
        "lambda_decorrelation": 0.01,
        "lambda_kl": 0.001,
        "train_servers": 16,
    }


def test_parts_of_a_reproduction_have_their_own_plans(sweep: tuple[Path, list[str]], tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    results.open_folder(whole, "reproduction", {"one": {}}, "0")
    results.open_folder(whole / "parts" / "one", "one", {"name": "one", "methods": ["sac"]}, "0")
    (whole / "parts" / "two").mkdir()  # not begun
    assert homes(whole) == [whole, whole / "parts" / "one"]
    assert trainings(whole, NOW) == []
    assert [training.identity["method"] for training in trainings(whole / "parts" / "one", NOW)] == ["sac"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not a readable manifest"),
        ("[" * 100_000, "not a readable manifest"),
        ("[]", "not a readable manifest"),
        ({"format": "thesis"}, "not a manifest of this program"),
        ({"methods": ["marsh"]}, "methods"),
        ({"versions": "x"}, "versions"),
        ({"host": 3}, "host"),
        ({"config": []}, "config"),
        ({"plan": {"trainings": [3], "evaluations": []}}, "plan.trainings.0"),
    ],
)
def test_odd_manifests_are_refused(sweep: tuple[Path, list[str]], content: str | dict[str, object], why: str) -> None:
    path = sweep[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    if isinstance(content, dict) and "methods" in content:
        content = {"config": manifest["config"] | content}
    path.write_text(content if isinstance(content, str) else json.dumps(manifest | content))
    with pytest.raises(UserError, match=rf"manifest\.json: .*{why}"):
        trainings(sweep[0], NOW)
