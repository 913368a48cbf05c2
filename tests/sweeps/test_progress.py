"""The line that tells how a sweep's trainings stand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.progress import PublishPolicies, StopAll, TuneProgress
from rllib_scale.sweeps.sweep import Sweep


def trial(name: str, status: str = "RUNNING", **last: Any) -> Any:
    """A training as Tune describes it."""
    return SimpleNamespace(config={"trial": name}, status=status, last_result=last)


def row(epoch: int, response: float, **more: Any) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "env_steps_per_s": 500.0,
        "response_recent_s": response,
        "runners": 2,
        "runners_healthy": 2,
        "runner_restarts": 0,
    } | more


def saying(trials: str, starting: int = 0, why: str = "", interval_s: float = 0) -> tuple[TuneProgress, list[str]]:
    """The callback for trainings of ten epochs, and the lines that it says."""
    lines: list[str] = []
    progress = TuneProgress(dict.fromkeys(trials, 10), lines.append, lambda running: (starting, why), interval_s)
    return progress, lines


def test_the_line_tells_what_runs_waits_and_why_speed_responses_runners_and_time_left() -> None:
    progress, lines = saying("abcd", why="each needs 3 CPUs")
    trials = [trial("a"), trial("b"), trial("c", status="PENDING")]
    progress.on_trial_recover(1, trials, trials[1])
    progress.on_trial_result(1, trials, trials[0], row(3, 12.0))
    progress.on_trial_result(1, trials, trials[1], row(5, 16.0, runners_healthy=1, runner_restarts=1))
    progress.on_trial_result(1, trials, trials[1], row(6, math.nan, runners_healthy=1, runner_restarts=1))
    progress.on_trial_result(1, trials, trials[1], row(7, 14.0, runners_healthy=1, runner_restarts=1))
    progress.on_step_end(1, trials)
    line = lines[-1]
    assert "trainings 0/4 done, 2 running, 2 waiting (each needs 3 CPUs), 1 restart |" in line
    assert "epoch 3 to 7 | 1,000 env steps/s" in line
    assert "response best 12.00, median 13.00 s" in line
    assert "| environment runners: 3 healthy, 1 restarts" in line
    assert line.endswith(" left")


def test_the_time_left_does_not_grow_while_no_epoch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, lines = saying("a")
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("rllib_scale.sweeps.progress.time", SimpleNamespace(monotonic=lambda: clock.now))
    for epoch, clock.now in ((1, 100.0), (2, 105.0)):
        progress.on_trial_result(1, [trial("a")], trial("a"), row(epoch, 1.0))
    for clock.now in (106.0, 999.0):
        progress.on_step_end(1, [trial("a")])
        assert lines[-1].endswith(" | 0:00:40 left")
    progress.on_step_end(1, [trial("a", status="PENDING")])
    assert " left" not in lines[-1], "nothing runs"


def test_what_runs_and_has_no_epoch_yet_is_said_to_start() -> None:
    """One has its CPUs and no process yet, two have a process, and a fourth has neither."""
    progress, lines = saying("abcd", starting=1, why="3 at once")
    trials = [trial("a"), trial("b"), trial("c", status="PENDING"), trial("d", status="PENDING")]
    for count, running in ((3, ""), (2, ", 1 running"), (1, ", 2 running")):
        progress.on_step_end(1, trials)
        assert f"trainings 0/4 done{running}, {count} starting (imports, and compiles once after" in lines[-1]
        assert "a minute), 1 waiting (3 at once)" in lines[-1]
        progress.on_trial_result(1, trials, trials[3 - count], row(1, 12.0))


def test_between_two_lines_there_is_the_interval() -> None:
    progress, lines = saying("a", interval_s=3600)
    for epoch in range(1, 9):
        progress.on_trial_result(1, [trial("a")], trial("a"), row(epoch, 1.0))
        progress.on_step_end(1, [trial("a")])
    assert len(lines) == 1
    progress.on_experiment_end([trial("a")])
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("epoch", "why", "noted"), [(4, None, 4), (10, None, None), (4, "interrupted", None), (4, "lost", None)]
)
def test_only_a_scheduler_ends_a_training_early(epoch: int, why: str | None, noted: int | None, tmp_path: Path) -> None:
    plan = make_plan(sweep_from({"name": "one", "methods": ["scale"], "algorithm": {"epochs": 10}}, "one"), "one")
    sweep = Sweep(plan, tmp_path, print)
    name = plan.trials[0].name
    stop = StopAll(sweep.home)
    stop.interrupted = why == "interrupted"
    if why != "lost":
        (tmp_path / "manifest.json").touch()
    nothing_to_evaluate: Any = SimpleNamespace(poll=lambda: None)
    with PublishPolicies(sweep, "run-001", nothing_to_evaluate, stop) as publish:
        publish.on_trial_complete(1, [], trial(name, epoch=epoch))
    assert sweep.target_epochs(plan.trials[0]) == (noted or 10)


def test_after_an_interruption_the_line_counts_what_was_done_begun_and_never_begun() -> None:
    """Tune gives all three the same status."""
    progress, lines = saying("abcd")
    trials = [trial("a"), trial("b"), trial("c", status="PENDING")]
    for each in trials[:2]:
        progress.on_trial_result(1, trials, each, row(1, 12.0))
    progress.on_trial_complete(1, trials, trials[0])
    for each in trials:
        each.status = "TERMINATED"
    progress.on_experiment_end(trials)
    assert "trainings 1/4 done, 1 interrupted, 2 waiting |" in lines[-1]


def test_an_error_of_the_thread_that_publishes_ends_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").touch()
    plan = make_plan(sweep_from({"name": "one", "methods": ["scale"]}, "one"), "one")

    def poll() -> None:
        raise RuntimeError("a fault")

    evaluations: Any = SimpleNamespace(poll=poll)
    sweep = Sweep(plan, tmp_path, print)
    stop = StopAll(sweep.home)
    publish = PublishPolicies(sweep, "run-001", evaluations, stop)
    with pytest.raises(RuntimeError, match="a fault"), publish:
        publish.on_trial_complete(1, [], trial(plan.trials[0].name, epoch=1))
