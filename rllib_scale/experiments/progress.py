"""One line per interval about the trainings of a sweep, with or without a terminal."""

from __future__ import annotations

import math
import signal
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from ray import tune


class StopOnInterrupt(tune.Stopper):
    """Ctrl-C while Tune runs, as a context: trainings are stopped, each of which saves itself, then the context's end
    passes the interruption on to whoever handled it before. More of them meanwhile change nothing.
    """

    def __init__(self) -> None:
        self.interrupted = False

    def __enter__(self) -> StopOnInterrupt:
        self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)
        if self.interrupted:
            signal.raise_signal(signal.SIGINT)

    def _note(self, number: int, frame: object) -> None:
        self.interrupted = True

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No training is stopped alone."""
        return False

    def stop_all(self) -> bool:
        """Whether there was a Ctrl-C."""
        return self.interrupted

    def __reduce__(self) -> tuple[Any, ...]:
        return StopOnInterrupt, ()  # Tune saves a copy with its own state, which is never used


class TuneProgress(tune.Callback):
    """Says how many trainings are done, running and waiting, their speed, newest figures and the time left.

    Args:
        targets: trial name -> epochs it is to run.
        say: receives the line.
        interval_s: least time between two lines.
    """

    def __init__(self, targets: dict[str, int], say: Callable[[str], None], interval_s: float) -> None:
        self.targets = targets
        self.say = say
        self.interval_s = interval_s
        self.last: dict[str, dict[str, Any]] = {}
        self.done: set[str] = set()
        self.failed: set[str] = set()
        self.first_epoch: dict[str, int] = {}
        self.start = self.spoken = time.monotonic()

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        """Note the newest row of a training."""
        name = str(trial.config["trial"])
        if not self.last:
            self.start = time.monotonic()  # the time left is told from epochs alone, not from how long Ray starts
        self.first_epoch.setdefault(name, result["epoch"])
        self.last[name] = result
        if result["epoch"] >= self.targets[name]:
            self.done.add(name)
        self._speak(trials)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Note a training that failed for good."""
        self.failed.add(str(trial.config["trial"]))
        self._speak(trials, at_once=True)

    def on_experiment_end(self, trials: list[Any], **_: Any) -> None:
        """Say how it ended."""
        self._speak(trials, at_once=True)

    def _speak(self, trials: list[Any], at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self.spoken < self.interval_s:
            return
        self.spoken = now
        running = [row for name, row in self.last.items() if name not in self.done | self.failed]
        ended = len(self.done) + len(self.failed)
        line = f"{datetime.now():%H:%M:%S} trainings {ended}/{len(self.targets)} done"
        unfinished = len(self.targets) - ended
        started = min(unfinished, sum(trial.status == "RUNNING" for trial in trials))
        line += f", {started} running, {unfinished - started} waiting"
        if self.failed:
            line += f", {len(self.failed)} failed"
        if running:
            speed = sum(row["env_steps_per_s"] for row in running)
            first, last = min(row["epoch"] for row in running), max(row["epoch"] for row in running)
            line += f" | epoch {first}" + (f" to {last}" if last > first else "")
            line += f" | {speed:,.0f} env steps/s"
        for key, unit in (("completed", " tasks"), ("response_mean_s", " s")):
            values = [row[key] for row in self.last.values() if not math.isnan(row[key])]
            if values:
                label = {"completed": "completed", "response_mean_s": "response"}[key]
                line += f" | {label} {statistics.median(values):.2f}{unit}"
        trained = sum(row["epoch"] - self.first_epoch[name] for name, row in self.last.items())
        left = sum(
            target - (self.last[name]["epoch"] if name in self.last else 0)
            for name, target in self.targets.items()
            if name not in self.failed
        )
        if trained and left:
            line += f" | {timedelta(seconds=round((now - self.start) / trained * left))} left"
        self.say(line)
