"""What has become of each training, told from files as Ray Tune and a sweep leave them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from artificial_results import publish
from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import Plan, SweepConfig, Trial
from rllib_scale.errors import UserError
from rllib_scale.results import tables as results
from rllib_scale.results.dataset import append
from rllib_scale.results.status import (
    MAX_RESTARTS,
    QUIET_S,
    Training,
    evaluations,
    found_trainings,
    read_curve,
    read_plan,
    trainings,
)
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.planning import make_plan

NOW = 1_000_000.0
ROWS = [{"epoch": epoch, "completed": 5.0} for epoch in (1, 2, 3)]
ERROR = "Failure # {} (occurred at 2026-11-21_05-14-10)\nTraceback\nValueError: it broke\n\n"


def age(folder: Path, seconds: float) -> None:
    """Date everything below a folder back."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (NOW - seconds, NOW - seconds))


def open_home(folder: Path, **settings: Any) -> tuple[Location, Plan]:
    """The results of a sweep that begins, and its plan."""
    config = SweepConfig.model_validate({"name": "two"} | settings)
    plan = make_plan(config, "two")
    results.open_folder(folder, "two", config.model_dump(mode="json"), "0", plan.to_json())
    return Location(str(folder)), plan


@pytest.fixture
def sweep(tmp_path: Path) -> tuple[Path, list[str]]:
    """A results folder of a sweep with two trainings of 60 epochs, and their names."""
    _, plan = open_home(tmp_path, methods=("scale", "ppo"), algorithm={"epochs": 60})
    return tmp_path, [trial.name for trial in plan.trials]


def trial_of(name: str) -> Trial:
    """The training of that name in the sweep of `sweep`."""
    method = name.split("-")[0]
    config = TrialConfig.of(method, algorithm={"epochs": 60})  # type: ignore[arg-type]
    return Trial(config)


def log_of(folder: Path, name: str, rows: list[dict[str, Any]], run: str = "run-001") -> Location:
    """Tune's log of a training in a run."""
    path = folder / "trials" / run / name / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Location(str(folder)) / "trials" / run / name / "result.json"


def only(folder: Path, name: str) -> Training:
    (found,) = [training for training in trainings(Location(str(folder)), NOW) if training.name == name]
    return found


def test_a_training_waits_then_runs_then_stops_or_finishes(sweep: tuple[Path, list[str]]) -> None:
    folder, (name, other) = sweep
    assert [(t.name, t.state, t.epochs, t.logs) for t in trainings(Location(str(folder)), NOW)] == [
        (name, "waiting", 60, ()),
        (other, "waiting", 60, ()),
    ]
    log = log_of(folder, name, ROWS)
    age(folder / "trials", 10)
    running = only(folder, name)
    assert (running.state, running.logs, running.updated_s) == ("running", (log,), NOW - 10)
    assert running.last == ROWS[-1]
    assert running.scheduler == trial_of(name).planned_id
    age(folder / "trials", QUIET_S + 1)
    assert only(folder, name).state == "stopped"
    assert only(folder, other).state == "waiting"
    log_of(folder, name, [{"epoch": epoch} for epoch in range(51, 61)], "run-002")
    assert only(folder, name).state == "finished", "its last epoch is done, its policy is not copied yet"
    publish(folder, trial_of(name), epochs=60, published_s=NOW)
    finished = only(folder, name)
    assert (finished.state, finished.logs, finished.updated_s) == ("finished", (), NOW)
    (folder / "policies" / name / "policy.json").write_bytes(b"")
    assert only(folder, name).logs, "a torn policy is none"


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
    log_of(folder, name, [], "run-002")
    assert only(folder, name).logs == (first,), "the run has just begun"
    second = log_of(folder, name, [{"epoch": 3, "completed": 6.0}, {"epoch": 4, "completed": 7.0}], "run-002")
    found = only(folder, name)
    assert (found.logs, found.last["epoch"]) == ((first, second), 4)
    assert [row["completed"] for row in read_curve(found.logs)] == [5.0, 5.0, 6.0, 7.0]


def test_epochs_of_an_abandoned_attempt_are_not_part_of_the_curve(sweep: tuple[Path, list[str]]) -> None:
    """Tune appends to the log of a run where a training begins again from its checkpoint."""
    folder, (name, _) = sweep
    log = log_of(folder, name, [{"epoch": epoch, "completed": at} for at, epoch in enumerate((1, 2, 3, 4, 2, 3, 1))])
    assert read_curve([log]) == [{"epoch": 1, "completed": 6}]
    resumed = log_of(folder, name, [{"epoch": 2, "completed": 7}, {"epoch": 2, "completed": 8}], "run-002")
    assert [row["completed"] for row in read_curve([log, resumed])] == [6, 8]


def test_a_log_is_a_curve_though_its_last_line_is_half_written(sweep: tuple[Path, list[str]]) -> None:
    folder, (name, _) = sweep
    log = log_of(folder, name, ROWS)
    path = folder / "trials" / "run-001" / name / "result.json"
    assert read_curve([log]) == ROWS
    path.write_bytes(path.read_bytes()[:-9])
    assert read_curve([log]) == ROWS[:2]
    assert only(folder, name).last == ROWS[1]
    for content in ("[1, 2]\n{}", '{"a": \n{}', "null\n{}"):
        path.write_text(content)
        with pytest.raises(UserError, match="not a readable training curve"):
            read_curve([log])


def test_a_training_that_asha_stopped_is_done(sweep: tuple[Path, list[str]]) -> None:
    """Its evaluations bear the epochs that it ran."""
    folder, (name, other) = sweep
    log_of(folder, other, ROWS)
    age(folder / "trials", QUIET_S + 1)
    publish(folder, trial_of(name), epochs=3, stopped=True)
    assert (only(folder, name).state, only(folder, name).epochs) == ("finished", 3)
    assert (only(folder, other).state, only(folder, other).epochs) == ("stopped", 60)
    home = Location(str(folder))
    units = read_plan(home).units
    append(home, episodes=[{"unit": unit.key} for unit in units if unit.name == name])
    assert evaluations(home) == (3, len(units))


def test_trainings_that_the_plan_does_not_name_are_found_and_described(sweep: tuple[Path, list[str]]) -> None:
    folder, planned = sweep
    config = TrialConfig.of("scale", seed=7)
    trial = Trial(config)
    publish(folder, trial)
    home = Location(str(folder))
    assert [training.name for training in trainings(home, NOW)] == [*planned, trial.name]
    (found,) = found_trainings(home, NOW)
    assert (found.state, found.epochs, found.scheduler) == ("finished", 1000, trial.planned_id)


def test_a_sweep_without_a_plan_is_refused(tmp_path: Path) -> None:
    results.open_folder(tmp_path, "two", SweepConfig(name="two", methods=()).model_dump(mode="json"), "0")
    with pytest.raises(UserError, match=r"manifest\.json: of a sweep, but without its plan; .*`rllib-scale sweep`"):
        trainings(Location(str(tmp_path)), NOW)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not a readable manifest"),
        ("[" * 100_000, "not a readable manifest"),
        ("[]", "not a readable manifest"),
        ({"format": "thesis"}, "not a manifest of this program"),
        ({"versions": "x"}, "versions"),
        ({"host": 3}, "host"),
        ({"config": []}, "config"),
        ({"plan": {"trainings": [3], "evaluations": []}}, "plan.trainings.0"),
    ],
)
def test_odd_manifests_are_refused(sweep: tuple[Path, list[str]], content: str | dict[str, object], why: str) -> None:
    path = sweep[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(content if isinstance(content, str) else json.dumps(manifest | content))
    with pytest.raises(UserError, match=rf"manifest\.json: .*{why}"):
        trainings(Location(str(sweep[0])), NOW)
