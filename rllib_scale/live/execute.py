"""A workload on a Ray cluster: a scheduler decides, surrogate tasks sleep for their demand."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import Player
from rllib_scale.live.backend import Output, RayBackend, WorkflowFailedError, check_live
from rllib_scale.live.flows import Flow
from rllib_scale.live.journal import Journal
from rllib_scale.live.metrics import live_metrics
from rllib_scale.live.surrogates import Surrogates
from rllib_scale.observation.backend import Answer
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.on_snapshots import OnSnapshots
from rllib_scale.workloads.model import Workload

SAY_EVERY_S = 10.0
Watch = Callable[[Any, np.ndarray], None]
"""Is shown each snapshot with the answers (K, 3) to it, before they are carried out."""


@dataclass(frozen=True, eq=False)
class LiveRun:
    """A workload that was played on a live cluster.

    Attributes:
        env: the problem as the scheduler plays it.
        workload: what was played.
        schedule: every attempt, dtype `rllib_scale.simulator.record.SCHEDULE`.
        end_s: clock at the end [s].
        metrics: as `Engine.metrics`; the return is NaN.
        overheads_s: of each task of this process, from the event that began its round until its end was known, less
            the time for which it slept [s of the wall clock].
        failed: workflows that were given up, and why.
        noticed_s: (W,) when the arrival of each workflow was noticed [s].
    """

    env: EnvConfig
    workload: Workload
    schedule: np.ndarray
    end_s: float
    metrics: dict[str, float | int]
    overheads_s: np.ndarray
    failed: dict[int, BaseException]
    noticed_s: np.ndarray


def dispatcher_of(player: Player, env: EnvConfig) -> tuple[Dispatcher, EnvConfig]:
    """Whatever plays, as a dispatcher that decides from snapshots, and the problem as it plays it.

    Raises:
        UserError: it does not fit the cluster, or cannot play the problem.
    """
    trial = getattr(player, "trial", None)
    if trial is not None and not trial.spec.any_scale and trial.env.cluster.num_slots != env.cluster.num_slots:
        raise UserError(
            f"{player.name} was trained at {trial.env.cluster.num_slots} server slots and knows no other number; "
            f"this cluster has {env.cluster.num_slots}"
        )
    if isinstance(player, Dispatcher):
        player.check(env)
        return player, env
    made = OnSnapshots(player, env)
    return made, made.env


def execute(
    player: Player,
    env: EnvConfig,
    workload: Workload,
    surrogates: Surrogates,
    folder: Path | None = None,
    retries: int = 3,
    nodes: list[str] | None = None,
    seed: int = 0,
    horizon_s: float = math.inf,
    say: Callable[[str], None] = lambda line: None,
    watch: Watch | None = None,
) -> LiveRun:
    """Play a workload on the Ray cluster that this process is connected to.

    Args:
        player: decides.
        env: the problem: cluster, decisions, communication.
        workload: to play.
        surrogates: what its tasks are.
        folder: of its journal, from which the same call goes on; None: there is none.
        retries: as for `RayBackend`.
        nodes: as for `RayBackend`.
        seed: of the scheduler's draws.
        horizon_s: end of the run [s]; inf: when all workflows have ended.
        say: is told how far it is.
        watch: is shown each round.

    Raises:
        UserError: the scheduler does not fit the cluster, a task fits no server, or the folder holds another run.
    """
    dispatcher, problem = dispatcher_of(player, env)
    check_live(problem)
    workload.check_fits(max(tier.memory_gb for tier in env.cluster.tiers), "workload")
    flows = [Flow.of(workload, number) for number in range(workload.num_workflows)]
    journal = None
    if folder is not None:
        journal = Journal(folder, _identity(player, problem, workload, surrogates))
    try:
        dispatcher.reset([(seed, 0)])
        backend = RayBackend(problem, surrogates, surrogates.time_scale, retries, nodes, horizon_s=horizon_s)
        try:
            if journal is None:
                for flow in flows:
                    backend.ledger.expect(flow)
            else:
                _go_on(backend, journal, flows, surrogates, say)
            _play(backend, dispatcher, journal, workload.num_workflows, say, watch)
        finally:
            backend.shut_down()
    finally:
        if journal is not None:
            journal.close()
    return LiveRun(
        env=problem,
        workload=workload,
        schedule=backend.ledger.schedule(),
        end_s=backend.now,
        metrics=live_metrics(workload, backend.ledger, backend.now),
        overheads_s=np.array(backend.overheads_s),
        failed=backend.failed,
        noticed_s=np.array([flow.noticed_s for flow in flows]),
    )


def _play(
    backend: RayBackend,
    dispatcher: Dispatcher,
    journal: Journal | None,
    count: int,
    say: Callable[[str], None],
    watch: Watch | None,
) -> None:
    said = time.monotonic()
    ledger = backend.ledger
    while True:
        snapshot = backend.wait()
        if snapshot is not None:
            answers = dispatcher.dispatch(snapshot)
            if watch is not None:
                watch(snapshot, answers)
            for answer in answers.tolist():
                backend.apply(Answer(*answer))
        if journal is not None:
            journal.write(ledger, backend.now, backend.failed)
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            left = len(ledger.pending) + len(ledger.flows)
            say(f"{count - left} of {count} workflows done, clock {backend.now:.1f} s")
        if snapshot is None:
            return


def _go_on(
    backend: RayBackend, journal: Journal, flows: list[Flow], surrogates: Surrogates, say: Callable[[str], None]
) -> None:
    """Bring the backend to where the journal ends; what finished tasks had left behind is made again."""
    clock, given_up = journal.restore(backend.ledger, flows)
    backend.failed = {number: WorkflowFailedError(why) for number, why in given_up.items()}
    if clock == 0.0:
        return
    backend.begin_at(clock)
    for flow in backend.ledger.pending.values():
        for task in np.flatnonzero(flow.completed).tolist():
            content = np.zeros(surrogates.size(flow, task), dtype=np.uint8)
            backend.outputs[flow.number, task] = Output(ray.put(content))
    done = len(flows) - len(backend.ledger.pending)
    say(f"goes on at {clock:.1f} s: {done} of {len(flows)} workflows done")


def _identity(player: Player, env: EnvConfig, workload: Workload, surrogates: Surrogates) -> dict[str, Any]:
    """What makes a run another one."""
    content = json.dumps(workload.to_dict(), sort_keys=True).encode()
    problem = env.model_dump(mode="json", include={"cluster", "decision", "communication"})
    return {
        "scheduler": player.name,
        "workload": hashlib.sha256(content).hexdigest()[:16],
        "problem": hashlib.sha256(json.dumps(problem, sort_keys=True).encode()).hexdigest()[:16],
        "time_scale": surrogates.time_scale,
        "bytes_per_gb": surrogates.bytes_per_gb,
    }
