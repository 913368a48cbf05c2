"""Callbacks of Tune during a sweep: its end, published policies, and a line of progress."""

from __future__ import annotations

import math
import queue
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ray import tune

from rllib_scale.clusters.placement import STARTING
from rllib_scale.errors import UserError, counted, last_line
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import is_there
from rllib_scale.sweeps.checkpoints import newest_in
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.sweep import Sweep

CHECK_INTERVAL_S = 1.0
"""Time between two checks that the results folder exists."""
INTERVAL_S = 10.0
"""Time between two lines of progress."""
POLL_INTERVAL_S = 0.1
"""Time between two checks of the evaluations that run during trainings."""


class StopAll(tune.Stopper):
    """Stops all trainings after Ctrl-C, and when the results folder is gone, as Tune would create it again.

    A context: after Ctrl-C each training saves itself, and the end of the context passes the signal on to the previous
    handler. Further signals meanwhile change nothing.

    Args:
        results: the results; they exist as long as they hold a manifest.
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


class PublishPolicies(tune.Callback):
    """Publishes the policy of a training as soon as it ends, and evaluates it while others train.

    A thread does the work, so that Tune's loop waits for no disk or store; it alone uses `evaluations` meanwhile. A
    training that a scheduler ended early is noted first: only then its policy counts as finished.

    A context: its end waits for the thread, and raises an error that ended it.

    Args:
        sweep: whose results folder receives the policies.
        run: name of Tune's folder in that of all runs.
        evaluations: receives the names of published policies.
        stop: says whether all trainings were stopped.
    """

    def __init__(self, sweep: Sweep, run: str, evaluations: Evaluations, stop: StopAll) -> None:
        self.sweep = sweep
        self.run = run
        self.evaluations = evaluations
        self.stop = stop
        self._ended: queue.SimpleQueue[tuple[str, int | None] | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="publish", daemon=True)

    def __enter__(self) -> PublishPolicies:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.put(None)
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Leave the training to the thread; Tune has written its last checkpoint."""
        name, epoch = str(trial.config["trial"]), int(trial.last_result.get("epoch", 0))
        early = 0 < epoch < self.sweep.target_epochs(self.sweep.trial(name)) and not self.stop.stop_all()
        self._ended.put((name, epoch if early else None))

    def _work(self) -> None:
        """Publish and evaluate until the end; an error ends it."""
        try:
            while True:
                with suppress(queue.Empty):
                    if (ended := self._ended.get(timeout=POLL_INTERVAL_S)) is None:
                        return
                    self._publish(*ended)
                if is_there(self.sweep.home):
                    self.evaluations.poll()
        except Exception as error:
            self._error = error

    def _publish(self, name: str, stopped_at: int | None) -> None:
        """Publish a policy; `train` retries at its end."""
        trial = self.sweep.trial(name)
        with suppress(UserError, OSError):
            if not is_there(self.sweep.home):
                return
            if stopped_at is not None:
                self.sweep.note_stop(name, stopped_at)
            if self.sweep.publish(trial, newest_in(self.sweep.tune_folder / self.run / name)):
                self.evaluations.add_policy(name)


class Newest(NamedTuple):
    """The fields of the newest result of a training that a line of progress needs."""

    epoch: int
    env_steps_per_s: float
    response_recent_s: float
    runners: int
    runners_healthy: int
    runner_restarts: int


class TuneProgress(tune.Callback):
    """Prints how many trainings are done, running and waiting, their speed, responses and the time left.

    Args:
        targets: trial name -> epochs to train.
        say: receives the line.
        waiting: takes the number of running trainings; returns how many start now, and why the others wait.
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
        self.done: set[str] = set()
        self.restarts = 0
        """After errors and lost or preempted nodes, which Tune's `num_failures` does not count."""
        self.last: dict[str, Newest] = {}
        self.first_epoch: dict[str, int] = {}
        self.start = self.latest = time.monotonic()
        """Times of the first and of the newest result."""
        self.spoken = -math.inf

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        """Note the newest result of a training."""
        self.latest = time.monotonic()
        if not self.last:
            self.start = self.latest  # the start of Ray does not count for the time left
        name = str(trial.config["trial"])
        self.first_epoch.setdefault(name, result["epoch"])
        self.last[name] = Newest(**{field: result[field] for field in Newest._fields})

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Count a training that resumes from its checkpoint."""
        self.restarts += 1

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Note a training that is done. After Ctrl-C Tune gives all others the same status, without this call."""
        self.done.add(str(trial.config["trial"]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Note the error of a training that failed for good; Tune's results are read from a storage that may fail."""
        text = Path(trial.error_file).read_text(encoding="utf-8")
        self.failed[str(trial.config["trial"])] = last_line(text)
        self._speak(trials)

    def on_step_end(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Print a line at intervals, also while no epoch ends."""
        if time.monotonic() - self.spoken >= self.interval_s:
            self._speak(trials)

    def on_experiment_end(self, trials: list[Any], **_: Any) -> None:
        """Print the last line."""
        self._speak(trials)

    def _speak(self, trials: list[Any]) -> None:
        self.spoken = time.monotonic()
        names = {trial.config["trial"] for trial in trials if trial.status == "RUNNING"}
        running = [self.last[name] for name in names if name in self.last]
        parts = [f"{datetime.now():%H:%M:%S} trainings {self._counts(trials)}"]
        if running:
            first, last = min(row.epoch for row in running), max(row.epoch for row in running)
            parts.append(f"epoch {first}" + (f" to {last}" if last > first else ""))
            parts.append(f"{sum(row.env_steps_per_s for row in running):,.0f} env steps/s")
        if responses := [value for row in self.last.values() if not math.isnan(value := row.response_recent_s)]:
            parts.append(f"response best {min(responses):.2f}, median {statistics.median(responses):.2f} s")
        if sum(row.runners for row in running):
            healthy = sum(row.runners_healthy for row in running)
            restarts = sum(row.runner_restarts for row in self.last.values())
            parts.append(f"environment runners: {healthy} healthy, {restarts} restarts")
        trained = sum(row.epoch - self.first_epoch[name] for name, row in self.last.items())
        left = sum(
            target - (self.last[name].epoch if name in self.last else 0)
            for name, target in self.targets.items()
            if name not in self.done and name not in self.failed
        )
        if running and trained > 0 and left > 0:  # measured to the newest result: it does not grow while nothing ends
            parts.append(f"{timedelta(seconds=round((self.latest - self.start) / trained * left))} left")
        self.say(" | ".join(parts))

    def _counts(self, trials: list[Any]) -> str:
        """Counts of trainings that are done, running, starting, interrupted, waiting and why, restarted, failed."""
        running = [trial.config["trial"] for trial in trials if trial.status == "RUNNING"]
        stopped = [trial.config["trial"] for trial in trials if trial.status == "TERMINATED"]
        interrupted = sum(name not in self.done for name in stopped)
        training = sum(name in self.last for name in running)
        text = f"{len(self.done)}/{len(self.targets)} done"
        text += f", {training} running" if training else ""
        unfinished = len(self.targets) - len(self.done) - len(self.failed)
        if interrupted:
            begun = sum(name in self.last and name not in self.done for name in stopped)
            text += f", {begun} interrupted" if begun else ""
            wait = unfinished - training - begun
            text += f", {wait} waiting" if wait else ""
        elif unfinished:
            placed, why = self.waiting(len(running))
            starting = min(len(running) + placed, unfinished) - training
            text += f", {starting} starting ({STARTING})" if starting else ""
            wait = unfinished - training - starting
            text += f", {wait} waiting ({why})" if wait else ""
        text += f", {counted(self.restarts, 'restart')}" if self.restarts else ""
        return text + (f", {len(self.failed)} failed" if self.failed else "")
