"""Ray Tune trains the unfinished trials of a sweep and resumes those that have a checkpoint."""

from __future__ import annotations

import errno
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rllib_scale.clusters.placement import waiting
from rllib_scale.clusters.session import keep_credentials_out_of_logs, keep_trackers_unloaded
from rllib_scale.config.plan import Trial
from rllib_scale.config.search import SearchConfig
from rllib_scale.errors import UserError
from rllib_scale.results.status import MAX_RESTARTS, published_epochs
from rllib_scale.results.storage import Location, is_uri
from rllib_scale.results.tables import check_there
from rllib_scale.sweeps.checkpoints import check_format, copy_policy, curve_at
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.history import settings_after
from rllib_scale.sweeps.sweep import Sweep

SYNC_S = 15
"""Between two copies of Tune's files, with the curves of running trainings, to results on this machine."""


def train(
    sweep: Sweep, reuse: Sequence[Path], trusted: bool, at_once: int | None, evaluations: Evaluations
) -> list[str]:
    """Train unfinished trials and publish every finished policy; returns one line for each training that failed.

    Args:
        sweep: whose trials to train.
        reuse: results folders whose finished trainings of the same trials are reused.
        trusted: whether checkpoints, which are pickles, may be loaded.
        at_once: how many trainings fit side by side; None if Ray decides.
        evaluations: receives each policy as it is published.

    Raises:
        UserError: checkpoints are not trusted or of another version; or the results folder is gone.
        OSError: the disk of the checkpoints is full.
    """
    (sweep.folder / "policies").mkdir(exist_ok=True)
    checkpoints: dict[str, Location] = {}
    pending: list[Trial] = []
    reused = 0
    for trial in sweep.trials:
        finished = sweep.is_finished(trial) or sweep.publish(trial)
        if not finished and (policy := _reusable(trial, reuse)) is not None:
            copy_policy(policy, sweep.policy(trial.name))
            finished, reused = True, reused + 1
        if finished:
            evaluations.add_policy(trial.name)
            continue
        if checkpoint := sweep.checkpoint(trial):
            checkpoints[trial.name] = checkpoint
        pending.append(trial)
    if reuse:
        sweep.say(f"{reused} trainings are reused from {', '.join(map(str, reuse))}")
    if len(pending) < len(sweep.trials) or checkpoints:
        done = len(sweep.trials) - len(pending)
        sweep.say(f"{done} of {len(sweep.trials)} trainings are finished, {len(checkpoints)} resume")
    if checkpoints and not trusted:
        raise UserError(
            f"{sweep.tune_folder}: another account or machine wrote its checkpoints, and resuming runs the code in "
            "them. If you trust their source, give --trust"
        )
    for checkpoint in checkpoints.values():
        check_format(checkpoint)
    if not pending:
        return []
    with patch.dict(os.environ):  # Tune reads settings from it and MLflow writes its server to it
        errors = _fit(sweep, pending, checkpoints, at_once, evaluations)
    unfinished = []
    for trial in pending:
        if sweep.is_finished(trial):  # published as it ended
            continue
        if sweep.publish(trial):
            evaluations.add_policy(trial.name)
        else:
            unfinished.append(trial.name)
    where = f"(see error.txt in {sweep.tune_folder})"
    return [f"{name}: {errors.get(name, 'stopped without an error')} {where}" for name in unfinished]


def _reusable(trial: Trial, reuse: Sequence[Path]) -> Path | None:
    """The first finished policy of the same trial in other results folders."""
    found = (folder / "policies" / trial.name for folder in reuse)
    return next((policy for policy in found if published_epochs(policy) >= trial.config.stop_epochs), None)


def _fit(
    sweep: Sweep,
    pending: Sequence[Trial],
    checkpoints: Mapping[str, Location],
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

    resources, search = sweep.config.resources, sweep.search
    most = resources.max_concurrent or at_once
    # An autoscaler adds nodes only for trainings that wait as placement groups.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(min(len(pending), most or len(pending)))
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # StopAll handles it
    keep_credentials_out_of_logs()
    keep_trackers_unloaded()
    run = f"run-{1 + sum(name.startswith('run-') for name in sweep.tune_folder.folders()):03d}"
    targets = {trial.name: sweep.target_epochs(trial) for trial in pending}
    curves = {trial.name: sweep.curve(trial) for trial in sweep.trials}
    curves |= {name: curve_at(checkpoint) for name, checkpoint in checkpoints.items()}
    bundles: list[dict[str, float]] = [{"CPU": resources.cpus}]
    bundles += [{"CPU": 1.0}] * (resources.env_runners + resources.learners)
    trainable = tune.with_resources(
        tune.with_parameters(
            SchedulingTrial,
            trials={trial.name: trial.config.model_dump_json() for trial in pending},
            targets=targets,
            restore={name: str(checkpoint) for name, checkpoint in checkpoints.items()},
            folder=str(sweep.tune_folder),
            search=search.model_dump_json(),
        ),
        tune.PlacementGroupFactory(bundles),
    )
    # What Ray's dashboard shows of a training: its class, which Tune wraps in others, and its name.
    trainable.__qualname__ = SchedulingTrial.__qualname__
    trainable.__repr__ = lambda self: self.trial_name
    settings = {trial.name: trial.identity | dict(trial.overrides) for trial in pending}  # for Tune's logs
    scheduler = make_scheduler(search, pending, curves)
    stop = StopAll(sweep.folder)
    progress = TuneProgress(targets, sweep.say, waiting(resources, most))
    tuner = tune.Tuner(
        trainable,
        param_space={
            "trial": tune.grid_search(list(targets)),
            "settings": tune.sample_from(lambda config: settings[config["trial"]]),
            **_changing(search, {trial.name: settings_after(trial, curves[trial.name]) for trial in pending}),
        },
        tune_config=tune.TuneConfig(
            scheduler=scheduler,
            max_concurrent_trials=None if search.scheduler == "pbt" else most,
            trial_name_creator=lambda trial: str(trial.config["trial"]),
            trial_dirname_creator=lambda trial: str(trial.config["trial"]),
            # A process that trains one trial after another starts once, but keeps its name in the dashboard of a
            # cluster. ASHA and PBT resume a paused training in a new process.
            reuse_actors=at_once is not None and search.scheduler not in ("asha", "pbt"),
        ),
        run_config=tune.RunConfig(
            name=run,
            storage_path=str(sweep.tune_folder),
            sync_config=tune.SyncConfig() if is_uri(str(sweep.tune_folder)) else tune.SyncConfig(sync_period=SYNC_S),
            stop=stop,
            callbacks=[progress, PublishPolicies(sweep, evaluations, stop), *trackers(sweep)],
            failure_config=tune.FailureConfig(max_failures=MAX_RESTARTS),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=sweep.config.checkpoints.every_epochs,
                checkpoint_at_end=True,
                num_to_keep=None if search.scheduler == "pbt" else sweep.config.checkpoints.keep,
            ),
            verbose=0,
        ),
    )
    with stop:
        try:
            tuner.fit()
        except Exception:
            check_there(sweep.folder)
            if not progress.ended:
                raise
            # Tune finally reads its own files back, which a full disk has torn. Nothing here needs them.
    check_there(sweep.folder)
    for line in progress.failed.values():
        for number in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(number) in line:
                raise OSError(number, os.strerror(number))
    return progress.failed


def _changing(search: SearchConfig, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Initial values of the settings that PBT changes, as config path -> a function of the trial's config."""
    from ray import tune

    if search.scheduler != "pbt":
        return {}

    def setting(path: str) -> Any:
        return tune.sample_from(lambda config: settings[config["trial"]][path])

    return {path: setting(path) for path in search.space}
