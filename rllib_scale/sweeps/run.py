"""Running a sweep on Ray: train what is unfinished, evaluate what is unevaluated, write the tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from rllib_scale.clusters.placement import trials_at_once
from rllib_scale.clusters.session import ray_session
from rllib_scale.config.plan import Cell, EvaluationUnit, SweepConfig, evaluation_units
from rllib_scale.errors import UserError
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.results.status import MAX_RESTARTS
from rllib_scale.results.storage import Mirror
from rllib_scale.results.tables import INFORMATION, read_manifest, write_table
from rllib_scale.sweeps.sweep import Sweep
from rllib_scale.sweeps.tuning import INTERVAL_S, train
from rllib_scale.workloads.generators import check_source


def run_sweep(
    config: SweepConfig,
    folder: Path,
    source: str,
    address: str | None,
    say: Callable[[str], None],
    reuse: Sequence[Path] = (),
    mirror: Mirror | None = None,
    trust: bool = False,
) -> list[str]:
    """Run a sweep to its end, or go on with it, and return one line for each training that failed.

    Args:
        config: see `Sweep`.
        folder: see `Sweep`.
        source: see `Sweep`.
        address: of a Ray cluster; None starts a local Ray.
        say: see `Sweep`.
        reuse: results folders whose finished trainings of the same cells are taken over.
        mirror: see `Sweep`.
        trust: go on from checkpoints, which are pickles, though this account did not make the folder; and import the
            code that given policies name.

    Raises:
        UserError: the folder belongs to another sweep or cannot be written, holds checkpoints of somebody else's, no
            training could ever start, or no workload could be drawn.
        KeyboardInterrupt: Ctrl-C. What is finished is kept, and the same call goes on from it.
    """
    for other in reuse:
        if read_manifest(other) is None:
            raise UserError(f"--reuse {other}: no results folder (it has no manifest.json)")
    sweep = Sweep(config, folder, source, say, mirror)
    evaluated = [unit.env for unit in evaluation_units(config, sweep.cells)]
    for env in (*(cell.trial.env for cell in sweep.cells), *evaluated):
        check_source(env)
    for env in evaluated:
        env.check_size()
    check_policies(sweep.cells)
    trusted = sweep.open() or trust
    with ray_session(address, say=say):
        at_once = trials_at_once(config.resources, joined=address is not None)
        try:
            failures = train(sweep, reuse, trusted, at_once)
            evaluate(sweep, trust)
            if best := sweep.best():
                say(best)
        except BaseException as error:
            with suppress(UserError, OSError):
                sweep.write_tables()
            if isinstance(error, OSError):
                raise UserError(
                    f"{sweep.home}: {error.strerror or error}; what is finished there is whole, "
                    "and the same command goes on"
                ) from None
            raise
        sweep.write_tables()
    return failures


def check_policies(cells: Sequence[Cell]) -> None:
    """Refuse cells that can neither begin with the policy that they name nor imitate it, before anything is trained.

    Raises:
        UserError: see `policies.policy.initial_network` and `rl.imitation.demonstrations.expert_of`; or an encoder or a
            reward of one's own is none.
    """
    for cell in cells:
        if cell.trial.network.encoder is not None:
            from rllib_scale.networks.build import build_network

            build_network(cell.trial)
        if cell.trial.training.reward is not None:
            from rllib_scale.rl.environment import own_reward

            own_reward(cell.trial.training.reward)
    if any(cell.trial.training.initial_policy is not None for cell in cells):
        from rllib_scale.policies.policy import initial_network

        for cell in cells:
            initial_network(cell.trial)
    if any(cell.trial.imitation.expert is not None for cell in cells):
        from rllib_scale.rl.imitation.demonstrations import expert_of

        for cell in cells:
            if cell.trial.imitation.expert is not None:
                expert_of(cell.trial, cell.trial.env)


def evaluate(sweep: Sweep, trust: bool) -> None:
    """Evaluate on Ray tasks. A unit is one batch of fixed composition, so its rows do not depend on where it runs.

    A policy of the sweep's own imports the encoder that its config names and no other, a given one any, with `trust`.
    """
    import ray
    from ray.exceptions import RayTaskError

    waiting = [
        unit
        for unit in sweep.units()
        if not sweep.is_evaluated(unit) and (not unit.learned or sweep.policy(unit.scheduler).is_dir())
    ]
    if not waiting:
        return
    task = ray.remote(num_cpus=1, max_retries=MAX_RESTARTS)(evaluate_unit)
    encoders = {cell.trial.name: cell.trial.network.encoder for cell in sweep.cells}
    shared: dict[str, Any] = {}
    running: dict[Any, EvaluationUnit] = {}
    for unit in waiting:
        folder = sweep.policy(unit.scheduler) if unit.learned else unit.policy
        if folder is not None and unit.scheduler not in shared:
            from rllib_scale.policies.policy import policy_files

            shared[unit.scheduler] = ray.put(policy_files(folder))
        trusts = encoders[unit.scheduler] if unit.learned else trust
        running[task.remote(unit, shared.get(unit.scheduler), trusts)] = unit
    start = spoken = time.monotonic()
    while running:
        done, _ = ray.wait(list(running), timeout=1.0)
        for reference in done:
            unit = running.pop(reference)
            try:
                result = ray.get(reference)
            except RayTaskError as error:  # its text is a worker's traceback
                if isinstance(error.cause, UserError):
                    raise UserError(f"{unit.scheduler}, scenario {unit.scenario}: {error.cause}") from None
                raise
            columns = unit.columns | {INFORMATION: unit.information}
            write_table(sweep.rows_file(unit), pd.DataFrame([columns | row for row in result.episodes]))
            if result.features is not None:
                write_table(sweep.features_file(unit), pd.DataFrame([unit.columns | result.features]))
            sweep.save()
        now = time.monotonic()
        if now - spoken >= INTERVAL_S or not running:
            spoken, finished = now, len(waiting) - len(running)
            line = f"{datetime.now():%H:%M:%S} evaluations {finished}/{len(waiting)} done"
            if finished and running:
                line += f" | {timedelta(seconds=round((now - start) / finished * len(running)))} left"
            sweep.say(line)
