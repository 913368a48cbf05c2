"""One line per interval about the trainings of a sweep, with or without a terminal."""

from __future__ import annotations

import math
import signal
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ray import tune

from rllib_scale.clusters.placement import STARTING
from rllib_scale.config.plan import Trial
from rllib_scale.errors import UserError
from rllib_scale.results.tables import is_there
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.sweep import Sweep

LOOK_INTERVAL_S = 1.0
"""Between two looks at the results folder."""


class StopAll(tune.Stopper):
    """What stops all trainings while Tune runs: Ctrl-C, and the loss of the results folder, which Tune would make anew.

    A context: after Ctrl-C each training saves itself, then the context's end passes the interruption on to whoever
    handled it before. More of them meanwhile change nothing.

    Args:
        results: the folder, there as long as it holds a manifest.
    """

    def __init__(self, results: Path) -> None:
        self.results = results
        self.interrupted = False
        self.lost = False
        self._looked = -math.inf

    def __enter__(self) -> StopAll:
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
        """Whether there was a Ctrl-C, or the results folder is gone."""
        if not self.lost and time.monotonic() - self._looked >= LOOK_INTERVAL_S:
            self._looked = time.monotonic()
            self.lost = not is_there(self.results)
        return self.interrupted or self.lost

    def __reduce__(self) -> tuple[Any, ...]:
        return StopAll, (self.results,)  # Tune saves a copy with its own state, which is never used


class NoteStops(tune.Callback):
    """Notes each training that a scheduler ended before its last epoch, at once: what comes after may be a crash.

    Args:
        targets: trial name -> epochs it is to run.
        stop: whether all were stopped.
        note: receives trial name and epoch.
    """

    def __init__(self, targets: dict[str, int], stop: StopAll, note: Callable[[str, int], None]) -> None:
        self.targets = targets
        self.stop = stop
        self.note = note

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Note it, where it ended early."""
        name, epoch = str(trial.config["trial"]), int(trial.last_result.get("epoch", 0))
        if 0 < epoch < self.targets[name] and not self.stop.stop_all():
            self.note(name, epoch)


class PublishPolicies(tune.Callback):
    """Publishes the policy of a training as soon as it ends, and evaluates it while others train.

    Args:
        trials: by name, the trainings.
        sweep: whose results folder receives the policies.
        evaluations: receives the names of what is published.
    """

    def __init__(self, trials: dict[str, Trial], sweep: Sweep, evaluations: Evaluations) -> None:
        self.trials = trials
        self.sweep = sweep
        self.evaluations = evaluations

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Publish its policy; Tune has written its last checkpoint. What fails here is tried again at the end."""
        name = str(trial.config["trial"])
        with suppress(UserError, OSError):
            if is_there(self.sweep.folder) and self.sweep.publish(self.trials[name]):
                self.evaluations.add_policy(name)

    def on_step_end(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Write what is evaluated by now."""
        if is_there(self.sweep.folder):
            self.evaluations.poll()


class TuneProgress(tune.Callback):
    """Says how many trainings are done, running and waiting, their speed, newest figures and the time left.

    Args:
        targets: trial name -> epochs it is to run.
        say: receives the line.
        interval_s: least time between two lines.
        why_waiting: says, given how many trainings run, what the others wait for.
    """

    def __init__(
        self,
        targets: dict[str, int],
        say: Callable[[str], None],
        interval_s: float,
        why_waiting: Callable[[int], str],
    ) -> None:
        self.targets = targets
        self.say = say
        self.interval_s = interval_s
        self.why_waiting = why_waiting
        self.last: dict[str, dict[str, Any]] = {}
        self.done: set[str] = set()
        self.failed: dict[str, str] = {}
        """Trial name -> last line of its error, of those that failed for good."""
        self.ended = False
        """Whether Tune has nothing left to train."""
        self.first_epoch: dict[str, int] = {}
        self.start = time.monotonic()
        self.spoken = -math.inf

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        """Note the newest row of a training."""
        name = str(trial.config["trial"])
        if not self.last:
            self.start = time.monotonic()  # the time left is told from epochs alone, not from how long Ray starts
        self.first_epoch.setdefault(name, result["epoch"])
        self.last[name] = result
        if result["epoch"] >= self.targets[name]:
            self.done.add(name)

    def on_step_end(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Say how things stand though no training reports."""
        self._speak(trials)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Note a training that ended, early or not."""
        self.done.add(str(trial.config["trial"]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Note a training that failed for good."""
        # Here and not from Tune's results, which it reads back from a storage that may be what failed.
        lines = Path(trial.error_file).read_text(encoding="utf-8").strip().splitlines()
        self.failed[str(trial.config["trial"])] = lines[-1]
        self._speak(trials, at_once=True)

    def on_experiment_end(self, trials: list[Any], **_: Any) -> None:
        """Say how it ended."""
        self.ended = True
        self._speak(trials, at_once=True)

    def _speak(self, trials: list[Any], at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self.spoken < self.interval_s:
            return
        self.spoken = now
        running = [row for name, row in self.last.items() if name not in self.done | self.failed.keys()]
        parts = [f"{datetime.now():%H:%M:%S} trainings {self._counts(trials)}"]
        if running:
            first, last = min(row["epoch"] for row in running), max(row["epoch"] for row in running)
            parts.append(f"epoch {first}" + (f" to {last}" if last > first else ""))
            parts.append(f"{sum(row['env_steps_per_s'] for row in running):,.0f} env steps/s")
        completed = [row["completed"] for row in self.last.values() if not math.isnan(row["completed"])]
        if completed:
            parts.append(f"completed {statistics.median(completed):.2f} tasks")
        responses = [value for row in self.last.values() if not math.isnan(value := row["response_recent_s"])]
        if responses:
            parts.append(f"response best {min(responses):.2f}, median {statistics.median(responses):.2f} s")
        agreed = [value for row in self.last.values() if not math.isnan(value := row["agreement"])]
        if agreed:
            parts.append(f"agreement {statistics.median(agreed):.1%}")
        if sum(row["runners"] for row in running):
            healthy = sum(row["runners_healthy"] for row in running)
            restarts = sum(row["runner_restarts"] for row in self.last.values())
            parts.append(f"env runners {healthy} healthy, {restarts} restarts")
        trained = sum(row["epoch"] - self.first_epoch[name] for name, row in self.last.items())
        left = sum(
            target - (self.last[name]["epoch"] if name in self.last else 0)
            for name, target in self.targets.items()
            if name not in self.done | self.failed.keys()
        )
        if trained > 0 and left > 0:
            parts.append(f"{timedelta(seconds=round((now - self.start) / trained * left))} left")
        self.say(" | ".join(parts))

    def _counts(self, trials: list[Any]) -> str:
        """How many trainings are done, run, wait, failed and began anew."""
        ended = len(self.done) + len(self.failed)
        unfinished = len(self.targets) - ended
        running = min(unfinished, sum(trial.status == "RUNNING" for trial in trials))
        silent = sum(trial.status == "RUNNING" and trial.config["trial"] not in self.last for trial in trials)
        text = f"{ended}/{len(self.targets)} done, {running} running"
        text += f" ({silent} {STARTING})" if silent else ""
        text += f", {unfinished - running} waiting"
        if unfinished > running:
            text += f" ({self.why_waiting(running)})"
        anew = sum(trial.num_failures for trial in trials)
        text += f", {anew} begun anew from a checkpoint" if anew else ""
        return text + (f", {len(self.failed)} failed" if self.failed else "")
