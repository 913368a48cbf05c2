"""Training by Ray Tune those cells of a sweep that are not finished, from their checkpoints where they have one."""

from __future__ import annotations

import errno
import json
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rllib_scale.clusters.placement import Room, trials_at_once, why_waiting
from rllib_scale.clusters.session import keep_credentials_out_of_logs
from rllib_scale.config import plan
from rllib_scale.config.search import SearchConfig
from rllib_scale.errors import UserError
from rllib_scale.files import write_json
from rllib_scale.results.status import MAX_RESTARTS
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import check_there

INTERVAL_S = 10.0
"""Between two lines of progress."""


def train(
    sweep: plan.SweepConfig,
    cells: Sequence[plan.Cell],
    folder: Path,
    trials: Location,
    room: Room,
    say: Callable[[str], None],
    reuse: Sequence[Path],
    trusted: bool,
) -> list[str]:
    """Train what is not finished and publish every finished policy; returns one line for each training that failed.

    Raises:
        UserError: there are checkpoints to go on from, and they are not trusted; or the results folder is gone.
        OSError: there is no room left for checkpoints.
    """
    from rllib_scale.sweeps.trainable import copy_policy, latest_checkpoint

    policies = folder / "policies"
    policies.mkdir(exist_ok=True)
    checkpoints: dict[str, str] = {}
    pending: list[plan.Cell] = []
    for cell in cells:
        name = cell.trial.name
        if published_epochs(policies / name) >= target_epochs(sweep, cell, folder):
            continue
        elsewhere = (other / "policies" / name for other in reuse)
        found = next((policy for policy in elsewhere if published_epochs(policy) >= cell.trial.stop_epochs), None)
        if found is not None:
            copy_policy(found, policies / name)
            continue
        if _publish(sweep, cell, folder, trials):
            continue
        checkpoint = latest_checkpoint(trials, name)
        if checkpoint is not None:
            checkpoints[name] = str(checkpoint)
        pending.append(cell)
    if len(pending) < len(cells) or checkpoints:
        say(f"{len(cells) - len(pending)} of {len(cells)} trainings are finished, {len(checkpoints)} go on")
    if checkpoints and not trusted:
        raise UserError(
            f"{trials}: holds checkpoints that this account did not write here; to go on from one runs the code in it. "
            "If you know where they come from, say --trust"
        )
    if not pending:
        return []
    errors = _fit(sweep, cells, pending, checkpoints, folder, trials, room, say)
    return [
        f"{cell.trial.name}: {errors.get(cell.trial.name, 'stopped without an error')} (see error.txt in {trials})"
        for cell in pending
        if not _publish(sweep, cell, folder, trials)
    ]


def target_epochs(sweep: plan.SweepConfig, cell: plan.Cell, folder: Path) -> int:
    """Epochs after which a cell is finished: those of its config, or fewer where ASHA stopped it for good."""
    if sweep.search is None or sweep.search.scheduler != "asha":
        return cell.trial.stop_epochs
    mark = _mark(folder, cell.trial.name)
    return int(json.loads(mark.read_text(encoding="utf-8"))["epoch"]) if mark.is_file() else cell.trial.stop_epochs


def published_epochs(policy: Path) -> int:
    """Epochs of a finished training's policy folder; -1 where there is none."""
    try:
        return int(json.loads((policy / "policy.json").read_text(encoding="utf-8"))["epochs"])
    except FileNotFoundError:
        return -1


def curve_of(folder: Path, cell: plan.Cell) -> list[dict[str, Any]]:
    """The training curve of a finished cell; empty where there is none."""
    path = folder / "policies" / cell.trial.name / "curve.json"
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []


def _mark(folder: Path, name: str) -> Path:
    return folder / "stopped" / f"{name}.json"


def _publish(sweep: plan.SweepConfig, cell: plan.Cell, folder: Path, trials: Location) -> bool:
    """Copy the policy of a training to the results, if it is finished; says whether it is."""
    from rllib_scale.sweeps.trainable import epoch_of, latest_checkpoint, publish

    checkpoint = latest_checkpoint(trials, cell.trial.name)
    if checkpoint is None or epoch_of(checkpoint) < target_epochs(sweep, cell, folder):
        return False
    publish(checkpoint, folder / "policies" / cell.trial.name)
    return True


def _fit(
    sweep: plan.SweepConfig,
    cells: Sequence[plan.Cell],
    pending: Sequence[plan.Cell],
    checkpoints: dict[str, str],
    folder: Path,
    trials: Location,
    room: Room,
    say: Callable[[str], None],
) -> dict[str, str]:
    """Train the pending cells. Returns trial name -> last line of the error, for those that failed.

    Raises:
        UserError: the results folder is gone.
        OSError: there is no room left for checkpoints.
    """
    from ray import tune

    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what failed is said once, at the end
    warnings.filterwarnings("ignore", "Consider boosting PBT")  # a reused actor would keep RLlib's state
    from rllib_scale.sweeps.progress import NoteStops, StopAll, TuneProgress
    from rllib_scale.sweeps.stopping import make_scheduler
    from rllib_scale.sweeps.tracking import trackers
    from rllib_scale.sweeps.trainable import SchedulingTrial, curve_at, settings_at

    fits = trials_at_once(sweep.resources, room)
    at_once = sweep.resources.max_concurrent or fits
    # What does not wait as a placement group, no autoscaler adds nodes for.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(min(len(pending), at_once or len(pending)))
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # StopAll handles it
    keep_credentials_out_of_logs()
    run = f"run-{1 + sum(name.startswith('run-') for name in trials.folders()):03d}"
    targets = {cell.trial.name: target_epochs(sweep, cell, folder) for cell in pending}
    search = sweep.search or SearchConfig()
    curves = {cell.trial.name: curve_of(folder, cell) for cell in cells}
    curves |= {name: curve_at(checkpoint) for name, checkpoint in checkpoints.items()}
    bundles: list[dict[str, float]] = [{"CPU": sweep.resources.cpus}]
    bundles += [{"CPU": 1.0}] * sweep.resources.env_runners
    trainable = tune.with_resources(
        tune.with_parameters(
            SchedulingTrial,
            trials={cell.trial.name: cell.trial.model_dump_json() for cell in pending},
            targets=targets,
            restore=checkpoints,
            folder=str(trials),
            search=search.model_dump_json(),
        ),
        tune.PlacementGroupFactory(bundles),
    )
    stop = StopAll(folder)
    progress = TuneProgress(targets, say, INTERVAL_S, why_waiting(sweep.resources, at_once, room))
    tuner = tune.Tuner(
        trainable,
        param_space={
            "trial": tune.grid_search(list(targets)),
            **_changing(search, {c.trial.name: settings_at(checkpoints.get(c.trial.name), c) for c in pending}),
        },
        tune_config=tune.TuneConfig(
            scheduler=make_scheduler(search, pending, curves),
            max_concurrent_trials=None if search.scheduler == "pbt" else at_once,
            trial_name_creator=lambda trial: str(trial.config["trial"]),
            trial_dirname_creator=lambda trial: str(trial.config["trial"]),
        ),
        run_config=tune.RunConfig(
            name=run,
            storage_path=str(trials),
            stop=stop,
            callbacks=[
                progress,
                NoteStops(targets, stop, lambda name, epoch: write_json(_mark(folder, name), {"epoch": epoch})),
                *trackers(sweep, pending, folder, say),
            ],
            failure_config=tune.FailureConfig(max_failures=MAX_RESTARTS),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=sweep.checkpoints.every_epochs,
                checkpoint_at_end=True,
                num_to_keep=None if search.scheduler == "pbt" else sweep.checkpoints.keep,
            ),
            verbose=0,
        ),
    )
    with stop:
        try:
            tuner.fit()
        except Exception:
            check_there(folder)
            if not progress.ended:
                raise
            # At last Tune reads back its own files, which a full disk tears. Nothing here needs them.
    check_there(folder)
    for line in progress.failed.values():
        for number in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(number) in line:
                raise OSError(number, os.strerror(number))
    return progress.failed


def _changing(search: SearchConfig, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What of each trial's config PBT changes on the way, as it starts: config path -> value by trial name."""
    from ray import tune

    if search.scheduler != "pbt":
        return {}

    def setting(path: str) -> Any:
        return tune.sample_from(lambda config: settings[config["trial"]][path])

    return {path: setting(path) for path in search.space}
