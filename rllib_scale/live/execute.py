"""A workload on a Ray cluster: a scheduler decides, surrogate tasks sleep for their demand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.exports import Played
from rllib_scale.live.backend import RayBackend
from rllib_scale.live.flows import Ended, Flow
from rllib_scale.live.guard import Guard, play_guarded, rehearse_all
from rllib_scale.live.servers import check_live
from rllib_scale.live.surrogates import Surrogates
from rllib_scale.observation.policy import Policy
from rllib_scale.workloads.model import Workload

SAY_EVERY_S = 10.0


@dataclass(frozen=True, eq=False)
class LiveRun(Played):
    """A workload that was played on a live cluster.

    Attributes:
        time_scale: seconds of the wall clock per second of the workload.
        metrics: see `Engine.metrics`; the return is NaN.
        overheads_s: for each task of this process, the time from the event that began its round until its end was
            known, less the time for which it slept [s of the wall clock].
        failed: workflows that were given up, and why.
        guard: one line about what the guard did or has seen; empty without one.
    """

    time_scale: float
    metrics: dict[str, float | int]
    overheads_s: np.ndarray
    failed: dict[int, BaseException]
    guard: str = ""


def check(
    player: Policy, env: EnvConfig, workload: Workload, surrogates: Surrogates, source: str = "workload"
) -> EnvConfig:
    """The problem as the scheduler plays it, which needs no Ray.

    Args:
        player: as for `execute`.
        env: as for `execute`.
        workload: as for `execute`.
        surrogates: as for `execute`.
        source: of the workload, for messages.

    Raises:
        UserError: the scheduler does not fit the cluster, a task fits no server, or a live cluster cannot play it.
    """
    problem = player.problem(env)
    check_live(problem)
    workload.check_fits(env.cluster, source)
    surrogates.check(workload, env.cluster, source)
    return problem


def execute(
    player: Policy,
    env: EnvConfig,
    workload: Workload,
    surrogates: Surrogates,
    retries: int = 3,
    nodes: list[str] | None = None,
    seed: int = 0,
    horizon_s: float = math.inf,
    say: Callable[[str], None] = lambda line: None,
    guard: Guard | None = None,
) -> LiveRun:
    """Play a workload on the Ray cluster that this process is connected to.

    Args:
        player: the scheduler.
        env: the problem: cluster, decisions, communication.
        workload: to play.
        surrogates: its tasks.
        retries: see `RayBackend`.
        nodes: see `RayBackend`.
        seed: seed of the scheduler's draws.
        horizon_s: end of the run [s]; inf: when all workflows have ended.
        say: receives lines about the progress.
        guard: takes over once the scheduler has fallen behind.

    Raises:
        UserError: see `check`.
    """
    problem = check(player, env, workload, surrogates)
    guard = rehearse_all(player, env, guard)
    player.reset([(seed, 0)])
    said = time.monotonic()

    def progress(_: Ended) -> None:
        nonlocal said
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            done = workload.num_workflows - len(backend.flows)
            say(f"{done} of {workload.num_workflows} workflows done after {backend.now:.1f} s of the workload")

    backend = RayBackend(problem, surrogates, surrogates.time_scale, retries, nodes, progress, horizon_s=horizon_s)
    try:
        for number in range(workload.num_workflows):
            backend.expect(Flow.of(workload, number, env.cluster))
        watched = play_guarded(player, backend, env, guard, say, seed)
        if backend.guard == "watching":
            say(watched)
    finally:
        backend.shut_down()
    return LiveRun(
        env=problem,
        workload=workload,
        schedule=backend.engine.schedule(),
        end_s=backend.now,
        name=player.name,
        time_scale=surrogates.time_scale,
        metrics=backend.engine.metrics() | {"episode_return": math.nan},
        overheads_s=np.array(backend.overheads_s),
        failed=backend.failed,
        guard=watched,
    )
