"""Running a sweep on Ray: train what is unfinished, evaluate what is unevaluated, write the tables."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from rllib_scale.clusters.placement import check_fits, cluster_room
from rllib_scale.clusters.session import ray_session
from rllib_scale.config import plan
from rllib_scale.config.search import Point, SearchConfig, points, recent
from rllib_scale.errors import UserError
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.files import write_json
from rllib_scale.results.status import MAX_RESTARTS
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import (
    EPISODE_COLUMNS,
    EPISODE_KEY,
    FEATURE_COLUMNS,
    FEATURE_KEY,
    TRAINING_COLUMNS,
    check_there,
    open_folder,
    read_manifest,
    read_table,
    typed,
    write_table,
)
from rllib_scale.results.trust import is_own, remember
from rllib_scale.sweeps.tuning import INTERVAL_S, curve_of, published_epochs, train

Report = Callable[[str], None]


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
            there (`rllib_scale.results.storage.mirrored` brings the rest).
        trust: go on from checkpoints, which are pickles, though this account did not make the folder.

    Raises:
        UserError: the folder belongs to another sweep or cannot be written, holds checkpoints of somebody else's, or
            no training could ever start.
        KeyboardInterrupt: Ctrl-C. What is finished is kept, and the same call goes on from it.
    """
    searched = points(sweep.search)
    cells = plan.expand(sweep, source, searched)
    content = sweep.model_dump(mode="json")
    folder = folder.absolute()
    new = not folder.exists() or read_manifest(folder) is None
    open_folder(folder, sweep.name, content, plan.digest(content))
    home = storage or Location(folder)
    trials = home / "trials"
    created = str((read_manifest(folder) or {})["created"])
    if new:
        remember(str(home), created)
    trusted = trust or is_own(str(home), created)
    search = sweep.search or SearchConfig()
    failures: list[str] = []
    with ray_session(address):
        room = cluster_room()
        check_fits(sweep.resources, room)
        try:
            while True:
                failures += train(sweep, cells, folder, trials, room, say, reuse, trusted)
                scores = [_score(cells, point, folder, search) for point in searched]
                if len(more := points(sweep.search, scores)) == len(searched):
                    break
                searched, cells = more, plan.expand(sweep, source, more)
            cells = [_as_trained(cell, folder) for cell in cells]
            _evaluate(plan.evaluation_units(sweep, cells), folder, say)
            if best := _best(cells, folder, search):
                say(best)
        except BaseException as error:
            with suppress(UserError, OSError):
                _write_tables(sweep, cells, folder)
            if isinstance(error, OSError):
                raise UserError(
                    f"{home}: {error.strerror or error}; what is finished there is whole, and the same command goes on"
                ) from None
            raise
        _write_tables(sweep, cells, folder)
    return list(dict.fromkeys(failures))


def _as_trained(cell: plan.Cell, folder: Path) -> plan.Cell:
    """The cell with the epochs that it ran, where a scheduler stopped it early."""
    epochs = published_epochs(folder / "policies" / cell.trial.name)
    return replace(cell, stopped_epochs=epochs if 0 < epochs < cell.trial.stop_epochs else None)


def _score(cells: list[plan.Cell], point: Point, folder: Path, search: SearchConfig) -> float:
    """Mean score of the trainings of a point of the search; NaN where one failed."""
    scores = [
        recent(curve_of(folder, cell), search.metric, search.window)
        for cell in cells
        if point.items() <= dict(cell.overrides).items()
    ]
    return sum(scores) / len(scores) if scores else math.nan


def _best(cells: list[plan.Cell], folder: Path, search: SearchConfig) -> str | None:
    """One line about the settings with the best score in training; None where there is nothing to choose.

    A training's score is the mean over its last epochs, that of its settings the mean over their seeds. Evaluation
    episodes are left out: choosing by them would make their results too good.
    """
    of_settings: dict[tuple[Any, ...], list[plan.Cell]] = {}
    for cell in cells:
        if cell.stopped_epochs is None:
            of_settings.setdefault((cell.trial.method, repr(cell.overrides)), []).append(cell)
    scores = {
        key: sum(recent(curve_of(folder, cell), search.metric, search.window) for cell in group) / len(group)
        for key, group in of_settings.items()
    }
    key = search.better(scores)
    if key is None or len({(cell.trial.method, repr(cell.overrides)) for cell in cells}) == 1:
        return None
    first = of_settings[key][0]
    settings = "".join(f", {path}={value}" for path, value in first.overrides)
    seeds = f"mean of {len(of_settings[key])} seeds" if len(of_settings[key]) > 1 else "one seed"
    return f"best in training: {first.trial.method}{settings}: {search.metric} {scores[key]:.4g} ({seeds})"


# ---------------------------------------------------------------------- evaluation


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
            from rllib_scale.policies.policy import policy_files

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


def _write_tables(sweep: plan.SweepConfig, cells: list[plan.Cell], folder: Path) -> None:
    """What is finished by now.

    Raises:
        UserError: it cannot be written, or the results folder is gone.
    """
    check_there(folder)
    cells = [_as_trained(cell, folder) for cell in cells]
    _write_training(sweep, cells, folder)
    _write_units(sweep, plan.evaluation_units(sweep, cells), folder)
    _write_nodes(cells, folder)


def _write_training(sweep: plan.SweepConfig, cells: list[plan.Cell], folder: Path) -> None:
    frames = [typed(pd.DataFrame(), TRAINING_COLUMNS)]
    for cell in cells:
        path = folder / "policies" / cell.trial.name / "curve.json"
        if path.is_file():
            frame = pd.DataFrame(json.loads(path.read_text(encoding="utf-8")))
            identity = {k: v for k, v in cell.identity.items() if k in TRAINING_COLUMNS and k != "env_steps"}
            frames.append(typed(frame.assign(sweep=sweep.name, **identity), TRAINING_COLUMNS))
    write_table(folder / "training.parquet", pd.concat(frames, ignore_index=True))


def _write_nodes(cells: list[plan.Cell], folder: Path) -> None:
    """Into the manifest: on which nodes of the cluster each finished training ran, from which epoch on."""
    manifest = read_manifest(folder) or {}
    paths = {cell.trial.name: folder / "policies" / cell.trial.name / "nodes.json" for cell in cells}
    nodes = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.is_file()}
    write_json(folder / "manifest.json", manifest | {"nodes": nodes})


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
