"""Evaluations of a sweep as Ray tasks. Each starts when its policy is published, also while trainings run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from rllib_scale.config.plan import EvaluationUnit
from rllib_scale.config.schedulers import PluginSpec, PolicySpec
from rllib_scale.errors import UserError, counted
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.policies.description import policy_files
from rllib_scale.results.status import MAX_RESTARTS, published_policy
from rllib_scale.sweeps.planning import distinct_of
from rllib_scale.sweeps.sweep import Sweep

INTERVAL_S = 10.0
"""Between two lines of progress."""
MAX_SUBMITTED = 1000
"""Tasks submitted to Ray at once; each takes memory of the driver."""


class Evaluations:
    """The unfinished evaluations of a sweep.

    A unit is one batch of fixed composition, so its rows do not depend on when or where it runs.

    Args:
        sweep: the sweep to evaluate.
        trust: import the encoder that a given policy names. A policy of the sweep imports only what its config names.
        beside: number of evaluations that run during trainings that occupy all CPUs, without reserving one; None: each
            reserves a CPU and waits for it.
    """

    def __init__(self, sweep: Sweep, trust: bool, beside: int | None) -> None:
        self.sweep = sweep
        self.trust = trust
        self.beside = beside
        self.finished = 0
        self.failed: list[str] = []
        """One line for each evaluation that failed or was lost; the next run repeats it."""
        self.waiting: deque[EvaluationUnit] = deque()
        self._running: dict[Any, EvaluationUnit] = {}
        self._policy: tuple[str, Any] = ("", None)  # the last scheduler, and its files in Ray's object store
        self._failure: Exception | None = None
        self._task = ray.remote(max_retries=MAX_RESTARTS)(evaluate_unit)
        self.add(unit for unit in sweep.plan.units if not unit.learned)

    def add(self, units: Iterable[EvaluationUnit]) -> None:
        """Add the unfinished ones of these units."""
        self.waiting.extend(unit for unit in units if not self.sweep.is_evaluated(unit))

    def add_policy(self, name: str) -> None:
        """Add the evaluations of a published policy."""
        self.add(self.sweep.units_of(name))

    def rehearse(self) -> None:
        """Play an episode of each unfinished policy and user-defined rule on each of its problems, on the nodes.

        An error there is known before anything is trained. A process that dies is none: its evaluation is repeated.

        Raises:
            UserError: with the error of each that failed.
        """
        given = [unit for unit in self.waiting if isinstance(unit.spec, PluginSpec | PolicySpec) or unit.code]
        task, failed, waiting = self._task.options(num_cpus=1, max_retries=0), [], deque(distinct_of(given))
        running: dict[Any, EvaluationUnit] = {}
        if waiting:
            self.sweep.say(
                f"playing {counted(len(waiting), 'episode')} of given policies and rules, to see whether they can"
            )
        while waiting or running:
            while waiting and len(running) < MAX_SUBMITTED:
                unit = waiting.popleft()
                running[task.remote(replace(unit, episodes=1), self._files(unit), self.trust)] = unit
            (done, *_), _ = ray.wait([*running], num_returns=1)
            unit = running.pop(done)
            try:
                ray.get(done)
            except RayTaskError as error:
                failed.append(f"{_name(unit)}, scenario {unit.scenario}: {_reason(error)}")
            except RayError:
                continue
        if failed:
            raise UserError("; ".join(failed))

    def poll(self) -> None:
        """Start evaluations during trainings and write the rows of finished ones. Keeps an error for `finish`."""
        if self._failure is not None:
            return
        try:
            self._start(self.beside)
            self._collect(0.0)
        except Exception as error:  # without stopping trainings; `finish` raises it
            self._failure = error

    def finish(self) -> None:
        """Run the remaining evaluations on all CPUs.

        Raises:
            UserError: rows cannot be written.
        """
        start = ended = spoken = time.monotonic()
        left = len(self.waiting) + len(self._running)
        while self.waiting or self._running:
            if self._failure is not None:
                raise self._failure
            before = self.finished
            self._start(None)
            self._collect(1.0)
            now, remaining = time.monotonic(), len(self.waiting) + len(self._running)
            ended = now if self.finished > before else ended
            total = self.finished + len(self.failed) + remaining
            if now - spoken >= INTERVAL_S or not remaining:
                spoken = now
                line = f"{datetime.now():%H:%M:%S} evaluations {self.finished}/{total} done"
                line += f", {len(self.failed)} failed" if self.failed else ""
                if left > remaining > 0:
                    line += f" | {timedelta(seconds=round((ended - start) / (left - remaining) * remaining))} left"
                self.sweep.say(line)

    def _start(self, beside: int | None) -> None:
        """Submit units to Ray; with `beside`, at most that many, which reserve no CPU."""
        task = self._task.options(num_cpus=1 if beside is None else 0)
        while self.waiting and len(self._running) < (MAX_SUBMITTED if beside is None else beside):
            unit = self.waiting.popleft()
            trusts = self.sweep.trial(unit.name).config.encoder if unit.learned else self.trust
            self._running[task.remote(unit, self._files(unit), trusts)] = unit

    def _files(self, unit: EvaluationUnit) -> Any:
        """The files of a unit's policy in Ray's object store, put there once for its units; None for a rule."""
        given = unit.policy
        if not unit.learned and given is None:
            return None
        if self._policy[0] != unit.name:
            files = published_policy(self.sweep.home, unit.name) if given is None else policy_files(given)
            self._policy = unit.name, ray.put(files)
        return self._policy[1]

    def _collect(self, timeout_s: float) -> None:
        """Write the rows of finished units, waiting up to `timeout_s` for the first."""
        if not self._running:
            self.sweep.save()
            return
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for reference in {*done, *more}:
            unit = self._running.pop(reference)
            try:
                result = ray.get(reference)
            except RayError as error:
                self.failed.append(f"evaluation of {_name(unit)}, scenario {unit.scenario}: {_reason(error)}")
                continue
            self.sweep.add_rows(unit, result.episodes, result.features)
            self.finished += 1
        self.sweep.save()


def _name(unit: EvaluationUnit) -> str:
    """The training or the scheduler that a unit evaluates."""
    return unit.name if unit.spec is None else unit.spec.label


def _reason(error: RayError) -> str:
    """Why an evaluation has no rows."""
    if isinstance(error, RayTaskError):  # whose text is a worker's traceback
        cause = error.cause
        return str(cause) if isinstance(cause, UserError) else f"{type(cause).__name__}: {cause}"
    if isinstance(error, OutOfMemoryError):
        return "its process ran out of memory; the next run repeats it"
    return f"lost {1 + MAX_RESTARTS} times with its process or node ({type(error).__name__}); the next run repeats it"
