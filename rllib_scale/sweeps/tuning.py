"""Ray Tune trains the unfinished trials of a sweep and resumes those that have a checkpoint."""

from __future__ import annotations

import errno
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from rllib_scale.clusters.placement import waiting
from rllib_scale.clusters.session import keep_credentials_out_of_logs, keep_trackers_unloaded
from rllib_scale.config.plan import Trial
from rllib_scale.config.search import SearchConfig
from rllib_scale.errors import UserError
from rllib_scale.results.status import MAX_RESTARTS
from rllib_scale.results.storage import Location, is_uri
from rllib_scale.results.tables import check_there
from rllib_scale.sweeps.checkpoints import Checkpoint, check_formats, newest_checkpoints
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.history import logged, settings_at_end
from rllib_scale.sweeps.sweep import Sweep

SYNC_S = 15
"""Between two copies of Tune's files, with the curves of running trainings, to results on this machine."""
UPLOAD_S = 60
"""The same, to a bucket."""


def train(
    sweep: Sweep, reuse: Sequence[Location], trusted: bool, at_once: int | None, evaluations: Evaluations
) -> list[str]:
    """Train unfinished trials and publish every finished policy; returns one line for each training that failed.

    Args:
        sweep: the sweep whose trials to train.
        reuse: results folders whose finished trainings of the same trials are reused.
        trusted: whether checkpoints, which are pickles, may be loaded.
        at_once: number of trainings that fit at the same time; None if Ray decides.
        evaluations: receives each policy as it is published.

    Raises:
        UserError: checkpoints are not trusted or of another version; the results folder is gone; or see `rehearse`.
        OSError: the disk of the checkpoints is full.
    """
    checkpoints = newest_checkpoints(sweep.tune_folder)
    pending: list[Trial] = []
    reused = sweep.reuse(reuse)
    for trial in sweep.trials:
        if sweep.is_finished(trial) or sweep.publish(trial, checkpoints.get(trial.name)):
            evaluations.add_policy(trial.name)
        else:
            pending.append(trial)
    resumed = {trial.name: checkpoints[trial.name] for trial in pending if trial.name in checkpoints}
    if reuse:
        sweep.say(f"{reused} trainings are reused from {', '.join(map(str, reuse))}")
    if len(pending) < len(sweep.trials) or resumed:
        done = len(sweep.trials) - len(pending)
        sweep.say(f"{done} of {len(sweep.trials)} trainings are finished, {len(resumed)} resume")
    if resumed and not trusted:
        raise UserError(
            f"{sweep.tune_folder}: another account or machine wrote its checkpoints, and resuming runs the code in "
            "them. If you trust their source, give --trust"
        )
    check_formats(resumed.values())
    if not pending:
        return []
    evaluations.rehearse()
    with patch.dict(os.environ):  # Tune reads settings from it and MLflow writes its server to it
        errors = _fit(sweep, pending, resumed, at_once, evaluations)
    unpublished = [trial for trial in pending if not sweep.is_finished(trial)]  # most are published as they end
    checkpoints = newest_checkpoints(sweep.tune_folder) if unpublished else {}
    unfinished = []
    for trial in unpublished:
        if sweep.publish(trial, checkpoints.get(trial.name)):
            evaluations.add_policy(trial.name)
        else:
            unfinished.append(trial.name)
    where = f"(see error.txt in {sweep.tune_folder})"
    return [f"{name}: {errors.get(name, 'stopped without an error')} {where}" for name in unfinished]


class Curves(Mapping[str, Sequence[Mapping[str, Any]]]):
    """Training curves so far, read when they are asked for, so that the driver holds one at a time.

    Args:
        sweep: whose finished trainings have one in their table.
        resumed: checkpoints of unfinished trainings, which hold theirs.
    """

    def __init__(self, sweep: Sweep, resumed: Mapping[str, Checkpoint]) -> None:
        self._sweep = sweep
        self._resumed = resumed
        self._names = [trial.name for trial in sweep.trials]

    def __getitem__(self, name: str) -> Sequence[Mapping[str, Any]]:
        checkpoint = self._resumed.get(name)
        return self._sweep.curve(self._sweep.trial(name)) if checkpoint is None else checkpoint.curve()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _fit(
    sweep: Sweep,
    pending: Sequence[Trial],
    resumed: Mapping[str, Checkpoint],
    at_once: int | None,
    evaluations: Evaluations,
) -> dict[str, str]:
    """Train the pending trials. Returns trial name -> last line of the error, for those that failed.

    Raises:
        UserError: the results folder is gone.
        OSError: the disk of the checkpoints is full.
    """
    from ray import tune

    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # `sweep` prints each error once, at the end
    warnings.filterwarnings("ignore", "Consider boosting PBT")  # see `reuse_actors` below
    from rllib_scale.sweeps.progress import PublishPolicies, StopAll, TuneProgress
    from rllib_scale.sweeps.stopping import make_scheduler
    from rllib_scale.sweeps.tracking import trackers
    from rllib_scale.sweeps.trainable import SchedulingTrial
    from rllib_scale.sweeps.tune_loop import small_tune

    search, most = sweep.search, sweep.config.resources.max_concurrent or at_once
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # StopAll handles it
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = str(UPLOAD_S if is_uri(str(sweep.tune_folder)) else SYNC_S)
    keep_credentials_out_of_logs()
    keep_trackers_unloaded()
    run = f"run-{1 + sum(name.startswith('run-') for name in sweep.tune_folder.folders()):03d}"
    targets = {trial.name: sweep.target_epochs(trial) for trial in pending}
    settings = {trial.name: logged(trial) for trial in pending}
    stop = StopAll(sweep.home)
    progress = TuneProgress(targets, sweep.say, waiting([trial.config.resources for trial in pending], most))
    curves = Curves(sweep, resumed)
    publish = PublishPolicies(sweep, run, evaluations, stop)
    trainable = tune.with_parameters(
        SchedulingTrial,
        trials={trial.name: trial.config.model_dump_json() for trial in pending},
        targets=targets,
        restore={name: (checkpoint.epoch, str(checkpoint.file)) for name, checkpoint in resumed.items()},
        folder=str(sweep.tune_folder),
        search=search.model_dump_json(),
    )
    config: dict[str, Any] = {
        "trial": tune.grid_search(list(targets)),
        "settings": tune.sample_from(lambda config: settings[config["trial"]]),
        **_changing(search, pending, curves),
    }
    suggestions = None
    if search.algorithm == "optuna":
        from rllib_scale.sweeps.suggestions import Suggestions

        config, suggestions = {}, Suggestions(search, pending, curves)
    trainable.__qualname__ = SchedulingTrial.__qualname__  # what Ray's dashboard shows: Tune wraps the class in others
    with stop, publish, small_tune():
        try:
            tune.run(
                trainable,
                name=run,
                storage_path=str(sweep.tune_folder),
                config=config,
                search_alg=suggestions,
                num_samples=1 if suggestions is None else len(pending),
                scheduler=make_scheduler(search, pending, curves),
                max_concurrent_trials=None if search.scheduler == "pbt" else most,
                trial_name_creator=lambda trial: str(trial.config["trial"]),
                trial_dirname_creator=lambda trial: str(trial.config["trial"]),
                # A process that trains one trial after another starts once. ASHA and PBT resume a paused training in
                # a new process.
                reuse_actors=search.scheduler not in ("asha", "pbt"),
                stop=stop,
                callbacks=[progress, publish, *trackers(sweep)],
                max_failures=MAX_RESTARTS,
                raise_on_failed_trial=False,
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=sweep.config.checkpoints.every_epochs,
                    checkpoint_at_end=True,
                    num_to_keep=None if search.scheduler == "pbt" else sweep.config.checkpoints.keep,
                ),
                verbose=0,
            )
        except Exception:
            check_there(sweep.home)
            raise
    check_there(sweep.home)
    for line in progress.failed.values():
        for number in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(number) in line:
                raise OSError(number, os.strerror(number))
    return progress.failed


def _changing(search: SearchConfig, pending: Sequence[Trial], curves: Curves) -> dict[str, Any]:
    """Initial values of the settings that PBT changes, as config path -> a function of the trial's config."""
    from ray import tune

    if search.scheduler != "pbt":
        return {}
    first = {
        trial.name: {path: trial.config.setting(path) for path in search.space}
        | settings_at_end(curves.get(trial.name, ()))
        for trial in pending
    }

    def setting(path: str) -> Any:
        return tune.sample_from(lambda config: first[config["trial"]][path])

    return {path: setting(path) for path in search.space}
