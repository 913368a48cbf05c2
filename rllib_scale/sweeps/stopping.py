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
from rllib_scale.config.search import Distribution, SearchConfig, recent

SCORE = "score"
"""Result key that the schedulers compare."""
TIME = "env_steps"
WORST = 1e30
"""Beyond any score, and finite for TensorBoard."""

Curves = Mapping[str, Sequence[Mapping[str, Any]]]
"""Trial name -> training curve so far."""


def score_of(curve: Sequence[Mapping[str, Any]], search: SearchConfig) -> float:
    """The score of a training; WORST if no episode has ended yet."""
    score = recent(curve, search.metric, search.window)
    return score if not math.isnan(score) else WORST if search.mode == "min" else -WORST


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
            mode=search.mode,
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

    def _replay(self, trial: Any, curve: Sequence[Mapping[str, Any]]) -> None:
        super().on_trial_add(None, trial)
        self._pass_rungs(trial, curve)

    def _pass_rungs(self, trial: Any, curve: Sequence[Mapping[str, Any]]) -> None:
        for epoch, row in enumerate(curve, start=1):
            super().on_trial_result(None, trial, {TIME: row[TIME], SCORE: score_of(curve[:epoch], self._search)})


class Population(PopulationBasedTraining):
    """PBT whose members keep their names when they clone another member."""

    def _get_new_config(self, trial: Any, trial_to_clone: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        config, operations = super()._get_new_config(trial, trial_to_clone)
        return config | {name: trial.config[name] for name in ("trial", "settings")}, operations


def make_scheduler(search: SearchConfig, pending: Sequence[Trial], curves: Curves) -> TrialScheduler:
    """The scheduler of the pending trials."""
    if search.scheduler == "asha":
        steps = max(trial.config.stop_epochs * (trial.config.env_steps_per_epoch or 0) for trial in pending)
        return ResumedASHA(search, steps, curves, [trial.config.name for trial in pending])
    if search.scheduler == "pbt":
        return Population(
            time_attr=TIME,
            metric=SCORE,
            mode=search.mode,
            perturbation_interval=search.pbt.interval_steps,
            synch=True,  # without it, members that start at different times would never be compared
            quantile_fraction=search.pbt.quantile,
            resample_probability=search.pbt.resample,
            hyperparam_mutations={path: _domain(values) for path, values in search.space.items()},
        )
    return FirstComeFirstServed()


def _domain(values: Distribution) -> Any:
    if values.choice is not None:
        return list(values.choice)
    assert values.bounds is not None
    return tune.loguniform(*values.bounds) if values.loguniform else tune.uniform(*values.bounds)
