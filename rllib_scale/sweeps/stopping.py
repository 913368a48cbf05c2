"""Tune's schedulers. ASHA and PBT count env steps, and a resumed sweep restores what they knew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining, TrialScheduler

from rllib_scale.config.plan import Trial
from rllib_scale.config.search import SCORE, Distribution, SearchConfig
from rllib_scale.sweeps.history import Curve

TIME = "env_steps"

Curves = Mapping[str, Curve]
"""Trial name -> training curve so far."""


class FirstComeFirstServed(FIFOScheduler):
    """Tune's order of submission, except that an idle process goes to a training without one.

    Tune gives an idle process to the first training that waits. If its own process is starting, Tune kills it and
    starts another: where trainings are shorter than the start of a process, no second process ever gets ready.
    """

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """The first pending training without a started process; None leaves the choice to Tune."""
        processes, manager = tune_controller._trial_to_actor, tune_controller._actor_manager
        for trial in tune_controller.get_trials():
            if trial.status != TuneTrial.PENDING:
                continue
            if trial not in processes or not manager.is_actor_started(processes[trial]):
                return trial
        return None


class ResumedASHA(ASHAScheduler):
    """ASHA that knows which rungs the trainings of an interrupted sweep have reached."""

    def __init__(self, search: SearchConfig, max_steps: int, curves: Curves, pending: Sequence[str]) -> None:
        grace = min(search.asha.grace_steps, max_steps)
        super().__init__(
            time_attr=TIME,
            metric=SCORE,
            mode=search.modes[0],
            max_t=max_steps,
            grace_period=grace,
            reduction_factor=search.asha.reduction_factor,
        )
        self._search = search
        self._curves = curves
        for name in curves.keys() - set(pending):
            self._replay(SimpleNamespace(trial_id=name), curves[name])

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Note the rungs that a resumed training has passed."""
        super().on_trial_add(tune_controller, trial)
        self._pass_rungs(trial, self._curves.get(str(trial.config["trial"]), ()))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Judge a training as soon as it has a score."""
        if math.isnan(result[SCORE]):
            return str(self.CONTINUE)
        return str(super().on_trial_result(tune_controller, trial, result))

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Note the last score, if there is one."""
        if not math.isnan(result.get(SCORE, math.nan)):
            super().on_trial_complete(tune_controller, trial, result)

    def _replay(self, trial: Any, curve: Curve) -> None:
        super().on_trial_add(None, trial)
        self._pass_rungs(trial, curve)

    def _pass_rungs(self, trial: Any, curve: Curve) -> None:
        for epoch, row in enumerate(curve, start=1):
            self.on_trial_result(None, trial, {TIME: row[TIME], **self._search.scores(curve[:epoch])})


class Population(PopulationBasedTraining):
    """PBT whose members keep their names when they clone another member, and whose settings stay in their space.

    Tune compares at multiples of the interval only and counts from 0: where an epoch ends elsewhere, where a sweep
    resumes, or where a member fails, all would wait for ever.

    Args:
        search: with the space and the interval.
        curves: of the members so far.
    """

    def __init__(self, search: SearchConfig, curves: Sequence[Curve]) -> None:
        super().__init__(
            time_attr=TIME,
            metric=SCORE,
            mode=search.modes[0],
            perturbation_interval=search.pbt.interval_steps,
            synch=True,  # without it, members that start at different times would never be compared
            quantile_fraction=search.pbt.quantile,
            resample_probability=search.pbt.resample,
            hyperparam_mutations={path: _domain(values) for path, values in search.space.items()},
        )
        self._space = search.space
        done = max((curve[-1][TIME] for curve in curves if curve), default=0)
        self._count_from(done - done % search.pbt.interval_steps)

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        """Add a member, also one that starts again after a failure."""
        super().on_trial_add(tune_controller, trial)
        self._trial_state[trial].last_perturbation_time = self._next_perturbation_sync - self._perturbation_interval

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        """Wait no longer for a member that failed."""
        self._trial_state[trial].last_train_time = math.inf

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        """Compare the members if this is the last that was waited for; the next comparison is an interval later."""
        expected = self._next_perturbation_sync
        decision = super().on_trial_result(tune_controller, trial, result)
        if self._next_perturbation_sync > expected:
            times = [state.last_train_time for state in self._trial_state.values()]
            self._count_from(max(time for time in times if time < math.inf))
        return str(decision)

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """The member that is furthest behind; if all wait for a failed one, they continue."""
        chosen = super().choose_trial_to_run(tune_controller)
        members = [trial for trial in tune_controller.get_live_trials() if not trial.is_finished()]
        if chosen is None and members and all(trial.status == TuneTrial.PAUSED for trial in members):
            self._count_from(self._next_perturbation_sync)
            chosen = super().choose_trial_to_run(tune_controller)
        return chosen

    def _count_from(self, steps: int) -> None:
        self._next_perturbation_sync = steps + self._perturbation_interval
        for state in self._trial_state.values():
            state.last_perturbation_time = steps

    def _get_new_config(self, trial: Any, trial_to_clone: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        config, operations = super()._get_new_config(trial, trial_to_clone)
        inside = {path: values.nearest(config[path]) for path, values in self._space.items()}
        return config | inside | {name: trial.config[name] for name in ("trial", "settings")}, operations


def make_scheduler(search: SearchConfig, pending: Sequence[Trial], curves: Curves) -> TrialScheduler:
    """The scheduler of the pending trials."""
    if search.scheduler == "asha":
        steps = max(trial.config.stop_epochs * (trial.config.env_steps_per_epoch or 0) for trial in pending)
        return ResumedASHA(search, steps, curves, [trial.config.name for trial in pending])
    if search.scheduler == "pbt":
        return Population(search, [curves.get(trial.name, ()) for trial in pending])
    return FirstComeFirstServed()


def _domain(values: Distribution) -> Any:
    if values.choice is not None:
        return list(values.choice)
    assert values.bounds is not None
    return tune.loguniform(*values.bounds) if values.loguniform else tune.uniform(*values.bounds)
