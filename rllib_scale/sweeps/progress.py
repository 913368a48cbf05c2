"""What happens beside Tune while it trains: the end of a sweep, published policies, and a line of progress."""

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
from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import is_there
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.sweep import Sweep

CHECK_INTERVAL_S = 1.0
"""Between two checks that the results folder is there."""
INTERVAL_S = 10.0
"""Between two lines of progress."""


class StopAll(tune.Stopper):
    """Stops all trainings after Ctrl-C, and when the results folder is gone, which Tune would create again.

    A context: after Ctrl-C each training saves itself, and the end of the context passes the signal on to the previous
    handler. Further signals meanwhile change nothing.

    Args:
        results: the results; they are there as long as they hold a manifest.
    """

    def __init__(self, results: Location) -> None:
        self.results = results
        self.interrupted = False
        self.lost = False
        self._checked = -math.inf

    def __enter__(self) -> StopAll:
        self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)
        if self.interrupted:
            signal.raise_signal(signal.SIGINT)

    def _interrupt(self, number: int, frame: object) -> None:
        self.interrupted = True

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No training is stopped alone."""
        return False

    def stop_all(self) -> bool:
        """Whether Ctrl-C was pressed or the results folder is gone."""
        if not self.lost and time.monotonic() - self._checked >= CHECK_INTERVAL_S:
            self._checked = time.monotonic()
            self.lost = not is_there(self.results)
        return self.interrupted or self.lost

    def __reduce__(self) -> tuple[Any, ...]:
        return StopAll, (self.results,)  # Tune stores a copy with its own state and never uses it


class PublishPolicies(tune.Callback):
    """Publishes the policy of a training as soon as it ends, and evaluates it while others train.

    A training that a scheduler ended early is noted first: only then its policy counts as finished.

    Args:
        sweep: whose results folder receives the policies.
        evaluations: receives the names of published policies.
        stop: tells whether all trainings were stopped.
    """

    def __init__(self, sweep: Sweep, evaluations: Evaluations, stop: StopAll) -> None:
        self.sweep = sweep
        self.evaluations = evaluations
        self.stop = stop

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Publish the policy; Tune has written the last checkpoint. `train` repeats at its end what fails here."""
        name, epoch = str(trial.config["trial"]), int(trial.last_result.get("epoch", 0))
        planned = self.sweep.trial(name)
        if 0 < epoch < self.sweep.target_epochs(planned) and not self.stop.stop_all():
            self.sweep.note_stop(name, epoch)
        with suppress(UserError, OSError):
            if is_there(self.sweep.home) and self.sweep.publish(planned):
                self.evaluations.add_policy(name)

    def on_step_end(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Start evaluations and write the rows of finished ones."""
        if is_there(self.sweep.home):
            self.evaluations.poll()


class TuneProgress(tune.Callback):
    """Says how many trainings are done, running and waiting, their speed, responses and the time left.

    Args:
        targets: trial name -> epochs to train.
        say: receives the line.
        waiting: from the number of running trainings to how many start now, and why the others wait.
        interval_s: least time between two lines.
    """

    def __init__(
        self,
        targets: dict[str, int],
        say: Callable[[str], None],
        waiting: Callable[[int], tuple[int, str]],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.targets = targets
        self.say = say
        self.waiting = waiting
        self.interval_s = interval_s
        self.failed: dict[str, str] = {}
        """Trial name -> last line of its error."""
        self.ended = False
        """Whether Tune has nothing left to train."""
        self.last: dict[str, dict[str, Any]] = {}
        """Trial name -> its newest result. Tune's `last_result` waits for a process that starts."""
        self.first_epoch: dict[str, int] = {}
        self.start = self.latest = time.monotonic()
        """Times of the first and of the newest result."""
        self.spoken = -math.inf

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        """Note the newest result of a training."""
        self.latest = time.monotonic()
        if not self.last:
            self.start = self.latest  # the start of Ray tells nothing about the time left
        name = str(trial.config["trial"])
        self.first_epoch.setdefault(name, result["epoch"])
        self.last[name] = result

    def on_step_end(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Say a line at intervals, also while no epoch ends."""
        if time.monotonic() - self.spoken >= self.interval_s:
            self._speak(trials)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Note the error of a training that failed for good; Tune's results are read from a storage that may fail."""
        lines = Path(trial.error_file).read_text(encoding="utf-8").strip().splitlines()
        self.failed[str(trial.config["trial"])] = lines[-1]
        self._speak(trials)

    def on_experiment_end(self, trials: list[Any], **_: Any) -> None:
        """Say the last line."""
        self.ended = True
        self._speak(trials)

    def _speak(self, trials: list[Any]) -> None:
        self.spoken = time.monotonic()
        status = {trial.config["trial"]: trial.status for trial in trials}
        running = [row for name, row in self.last.items() if status[name] == "RUNNING"]
        parts = [f"{datetime.now():%H:%M:%S} trainings {self._counts(trials)}"]
        if running:
            first, last = min(row["epoch"] for row in running), max(row["epoch"] for row in running)
            parts.append(f"epoch {first}" + (f" to {last}" if last > first else ""))
            parts.append(f"{sum(row['env_steps_per_s'] for row in running):,.0f} env steps/s")
        if responses := [value for row in self.last.values() if not math.isnan(value := row["response_recent_s"])]:
            parts.append(f"response best {min(responses):.2f}, median {statistics.median(responses):.2f} s")
        if sum(row["runners"] for row in running):
            healthy = sum(row["runners_healthy"] for row in running)
            restarts = sum(row["runner_restarts"] for row in self.last.values())
            parts.append(f"environment runners: {healthy} healthy, {restarts} restarts")
        trained = sum(row["epoch"] - self.first_epoch[name] for name, row in self.last.items())
        epochs = {name: row["epoch"] for name, row in self.last.items()}
        left = sum(
            target - epochs.get(name, 0)
            for name, target in self.targets.items()
            if status.get(name) not in ("TERMINATED", "ERROR")
        )
        if running and trained > 0 and left > 0:  # measured to the newest result: it does not grow while nothing ends
            parts.append(f"{timedelta(seconds=round((self.latest - self.start) / trained * left))} left")
        self.say(" | ".join(parts))

    def _counts(self, trials: list[Any]) -> str:
        """How many trainings are done, run, start, wait and why, have restarted after an error, and failed."""
        ended = sum(trial.is_finished() for trial in trials)
        running = sum(trial.status == "RUNNING" for trial in trials)
        training = sum(trial.status == "RUNNING" and trial.config["trial"] in self.last for trial in trials)
        text = f"{ended}/{len(self.targets)} done"
        text += f", {training} running" if training else ""
        if unfinished := len(self.targets) - ended:
            placed, why = self.waiting(running)
            starting = min(running + placed, unfinished) - training
            text += f", {starting} starting ({STARTING})" if starting else ""
            wait = unfinished - training - starting
            text += f", {wait} waiting ({why})" if wait else ""
        if restarts := sum(trial.num_failures for trial in trials):
            text += f", {restarts} " + ("restart after an error" if restarts == 1 else "restarts after errors")
        return text + (f", {len(self.failed)} failed" if self.failed else "")
