"""Running a sweep on Ray: train what is unfinished, evaluate what is unevaluated, write the tables."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rllib_scale.errors import UserError
from rllib_scale.experiments import plan
from rllib_scale.experiments.results import (
    EPISODE_COLUMNS,
    EPISODE_KEY,
    FEATURE_COLUMNS,
    FEATURE_KEY,
    TRAINING_COLUMNS,
    open_folder,
    read_manifest,
    read_table,
    typed,
    write_table,
)
from rllib_scale.experiments.session import keep_credentials_out_of_logs, ray_session
from rllib_scale.experiments.storage import Location
from rllib_scale.experiments.trust import is_own, remember

Report = Callable[[str], None]
INTERVAL_S = 10.0
MAX_RESTARTS = 3


def run_sweep(
    sweep: plan.SweepConfig,
    folder: Path,
    source: str,
    address: str | None,
    say: Report,
    reuse: Sequence[Path] = (),
    storage: Location | None = None,
    trust: bool = False,
) -> list[str]:
    """Run a sweep to its end, or go on with it, and return one line for each training that failed.

    Args:
        sweep: what to run.
        folder: results folder, made if need be.
        source: where the config came from, for messages.
        address: of a Ray cluster; None starts a local Ray.
        say: receives one line per interval of progress.
        reuse: results folders whose finished trainings of the same cells are taken over.
        storage: the results folder as every node of the cluster sees it, where that is not `folder`: checkpoints go
            there (`rllib_scale.experiments.storage.mirrored` brings the rest).
        trust: go on from checkpoints, which are pickles, though this account did not make the folder.

    Raises:
        UserError: the folder belongs to another sweep or cannot be written, holds checkpoints of somebody else's, or
            no training could ever start.
        KeyboardInterrupt: Ctrl-C. What is finished is kept, and the same call goes on from it.
    """
    cells = plan.expand(sweep, source)
    units = plan.evaluation_units(sweep, cells)
    content = sweep.model_dump(mode="json")
    folder = folder.absolute()
    new = not folder.exists() or read_manifest(folder) is None
    open_folder(folder, sweep.name, content, plan.digest(content))
    home = storage or Location(folder)
    created = str((read_manifest(folder) or {})["created"])
    if new:
        remember(str(home), created)
    trusted = trust or is_own(str(home), created)
    with ray_session(address) as largest_node:
        plan.check_fits(sweep.resources, largest_node)
        try:
            failures = _train(sweep, cells, folder, home / "trials", say, reuse, trusted)
            _evaluate(units, folder, say)
        finally:
            _write_training(sweep, cells, folder)
            _write_units(sweep, units, folder)
    return failures


# ---------------------------------------------------------------------- training


def _train(
    sweep: plan.SweepConfig,
    cells: list[plan.Cell],
    folder: Path,
    trials: Location,
    say: Report,
    reuse: Sequence[Path],
    trusted: bool,
) -> list[str]:
    from rllib_scale.experiments.trial import copy_policy, epoch_of, latest_checkpoint, publish

    policies = folder / "policies"
    policies.mkdir(exist_ok=True)
    checkpoints: dict[str, str] = {}
    pending: list[plan.Cell] = []
    for cell in cells:
        if (policies / cell.trial.name).is_dir():
            continue
        elsewhere = [other / "policies" / cell.trial.name for other in reuse]
        found = next((policy for policy in elsewhere if policy.is_dir()), None)
        if found is not None:
            copy_policy(found, policies / cell.trial.name)
            continue
        checkpoint = latest_checkpoint(trials, cell.trial.name)
        if checkpoint is not None and epoch_of(checkpoint) >= cell.trial.stop_epochs:
            publish(checkpoint, policies / cell.trial.name)
            continue
        if checkpoint is not None:
            checkpoints[cell.trial.name] = str(checkpoint)
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
    errors = _fit(sweep, pending, checkpoints, trials, say)
    failures = []
    for cell in pending:
        name = cell.trial.name
        checkpoint = latest_checkpoint(trials, name)
        if checkpoint is not None and epoch_of(checkpoint) >= cell.trial.stop_epochs:
            publish(checkpoint, policies / name)
        else:
            failures.append(f"{name}: {errors.get(name, 'stopped without an error')} (see error.txt in {trials})")
    return failures


def _fit(
    sweep: plan.SweepConfig, pending: list[plan.Cell], checkpoints: dict[str, str], trials: Location, say: Report
) -> dict[str, str]:
    """Train the pending cells by Tune. Returns trial name -> last line of the error, for those that failed."""
    from ray import tune

    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what failed is said once, at the end
    from rllib_scale.experiments.progress import StopOnInterrupt, TuneProgress
    from rllib_scale.experiments.trial import SchedulingTrial

    os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", str(os.cpu_count() or 1))
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # StopOnInterrupt handles it
    keep_credentials_out_of_logs()
    run = f"run-{1 + sum(name.startswith('run-') for name in trials.folders()):03d}"
    configs = {cell.trial.name: cell.trial.model_dump_json() for cell in pending}
    bundles: list[dict[str, float]] = [{"CPU": sweep.resources.cpus}]
    bundles += [{"CPU": 1.0}] * sweep.resources.env_runners
    trainable = tune.with_resources(
        tune.with_parameters(SchedulingTrial, trials=configs, restore=checkpoints, folder=str(trials)),
        tune.PlacementGroupFactory(bundles),
    )
    stop = StopOnInterrupt()
    tuner = tune.Tuner(
        trainable,
        param_space={"trial": tune.grid_search(list(configs))},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=sweep.resources.max_concurrent,
            trial_name_creator=lambda trial: str(trial.config["trial"]),
            trial_dirname_creator=lambda trial: str(trial.config["trial"]),
        ),
        run_config=tune.RunConfig(
            name=run,
            storage_path=str(trials),
            stop=stop,
            callbacks=[TuneProgress({cell.trial.name: cell.trial.stop_epochs for cell in pending}, say, INTERVAL_S)],
            failure_config=tune.FailureConfig(max_failures=MAX_RESTARTS),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=sweep.checkpoints.every_epochs,
                checkpoint_at_end=True,
                num_to_keep=sweep.checkpoints.keep,
            ),
            verbose=0,
        ),
    )
    with stop:
        results = tuner.fit()
    return {
        str(result.config["trial"]): str(result.error).strip().splitlines()[-1]
        for result in results
        if result.error is not None and result.config
    }


# ---------------------------------------------------------------------- evaluation


class UnitResult(NamedTuple):
    """What one evaluation unit gives, without the columns that its rows share."""

    episodes: list[dict[str, Any]]
    features: dict[str, Any] | None  # of a learned scheduler, where the unit asks for them


def evaluate_unit(unit: plan.EvaluationUnit, policy: dict[str, bytes] | None) -> UnitResult:
    """Play one evaluation unit. `policy` holds the files of a learned one by name."""
    from rllib_scale.experiments.evaluate import evaluate

    if policy is None:
        from rllib_scale.schedulers.heuristics import make_scheduler

        scheduler = make_scheduler(unit.scheduler, unit.env.observation, unit.env.episode.mask)
        return UnitResult(evaluate(scheduler, unit.env, unit.seed, unit.episodes), None)
    from rllib_scale.experiments.features import evaluate_with_features
    from rllib_scale.policy import policy_from_bytes

    trained = policy_from_bytes(policy, unit.scheduler, mask=unit.env.episode.mask, decision=unit.decision)
    if not unit.features:
        return UnitResult(evaluate(trained, unit.env, unit.seed, unit.episodes), None)
    return UnitResult(*evaluate_with_features(trained, unit.env, unit.seed, unit.episodes))


def _evaluate(units: list[plan.EvaluationUnit], folder: Path, say: Report) -> None:
    """Evaluate on Ray tasks. A unit is one batch of fixed composition, so its rows do not depend on where it runs."""
    import ray

    waiting = [
        unit
        for unit in units
        if not all(path.is_file() for path in _files(folder, unit))
        and (not unit.learned or (folder / "policies" / unit.scheduler).is_dir())
    ]
    if not waiting:
        return
    task = ray.remote(num_cpus=1, max_retries=MAX_RESTARTS)(evaluate_unit)
    shared: dict[str, Any] = {}
    running: dict[Any, plan.EvaluationUnit] = {}
    for unit in waiting:
        if unit.learned and unit.scheduler not in shared:
            from rllib_scale.policy import policy_files

            shared[unit.scheduler] = ray.put(policy_files(folder / "policies" / unit.scheduler))
        running[task.remote(unit, shared.get(unit.scheduler))] = unit
    start = spoken = time.monotonic()
    while running:
        done, _ = ray.wait(list(running), timeout=1.0)
        for reference in done:
            unit = running.pop(reference)
            result = ray.get(reference)
            write_table(_rows_file(folder, unit), pd.DataFrame([unit.columns | row for row in result.episodes]))
            if result.features is not None:
                write_table(_features_file(folder, unit), pd.DataFrame([unit.columns | result.features]))
        now = time.monotonic()
        if now - spoken >= INTERVAL_S or not running:
            spoken, finished = now, len(waiting) - len(running)
            line = f"{datetime.now():%H:%M:%S} evaluations {finished}/{len(waiting)} done"
            if finished and running:
                line += f" | {timedelta(seconds=round((now - start) / finished * len(running)))} left"
            say(line)


# ---------------------------------------------------------------------- tables


def _write_training(sweep: plan.SweepConfig, cells: list[plan.Cell], folder: Path) -> None:
    frames = [typed(pd.DataFrame(), TRAINING_COLUMNS)]
    for cell in cells:
        path = folder / "policies" / cell.trial.name / "curve.json"
        if path.is_file():
            frame = pd.DataFrame(json.loads(path.read_text(encoding="utf-8")))
            identity = {k: v for k, v in cell.identity.items() if k in TRAINING_COLUMNS and k != "env_steps"}
            frames.append(typed(frame.assign(sweep=sweep.name, **identity), TRAINING_COLUMNS))
    write_table(folder / "training.parquet", pd.concat(frames, ignore_index=True))


def _write_units(sweep: plan.SweepConfig, units: list[plan.EvaluationUnit], folder: Path) -> None:
    """All finished evaluation units of the sweep in one table, and their features in another."""
    for name, columns, key, file_of in (
        ("episodes", EPISODE_COLUMNS, EPISODE_KEY, _rows_file),
        ("features", FEATURE_COLUMNS, FEATURE_KEY, _features_file),
    ):
        files = sorted({file_of(folder, unit) for unit in units})
        frames = [typed(pd.DataFrame(), columns)]
        frames += [read_table(path, columns).assign(sweep=sweep.name) for path in files if path.is_file()]
        table = typed(pd.concat(frames, ignore_index=True), columns)
        write_table(folder / f"{name}.parquet", table.sort_values(list(key), ignore_index=True))


def _files(folder: Path, unit: plan.EvaluationUnit) -> list[Path]:
    """What stands there once a unit is finished."""
    return [_rows_file(folder, unit), *([_features_file(folder, unit)] if unit.features else [])]


def _rows_file(folder: Path, unit: plan.EvaluationUnit) -> Path:
    return folder / "evaluations" / f"{unit.key}.parquet"


def _features_file(folder: Path, unit: plan.EvaluationUnit) -> Path:
    return folder / "features" / f"{unit.key}.parquet"
