"""The features and the fit of a snapshot in plain code, by formulas of its own: the engine gives the same bits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import CLOSED, OPEN, TAKEN
from rllib_scale.observation.feature_sets import FEATURE_SETS, PAPER
from rllib_scale.observation.snapshot import UP, LiveWorkflow, Snapshot
from rllib_scale.workloads.fitting import fits


def observe(now: Snapshot, env: EnvConfig) -> NDArray[np.float32]:
    """The flat observation (W,) of a state, of the feature set and with the normalisers of `env.observation`.

    Args:
        now: the state; its first K candidates are shown.
        env: the problem; its cluster is not read.
    """
    features, count = FEATURE_SETS[env.observation.feature_set], env.decision.offered
    tasks = np.zeros((count, features.task_dim))
    for k, at in enumerate(now.candidates[:count]):
        tasks[k] = _task(now, now.ready[at], env)
    context = _context(now)[: features.context_dim]
    servers = _servers(now, env)[:, : features.server_dim]
    return np.concatenate([context, tasks.ravel(), servers.ravel()]).astype(np.float32)


def fit_of(now: Snapshot, env: EnvConfig) -> NDArray[np.uint8]:
    """How each server is for each of K candidates, CLOSED, TAKEN or OPEN, (K, N); CLOSED for one that is not there."""
    fit = np.full((env.decision.offered, len(now.status)), CLOSED, dtype=np.uint8)
    for k, at in enumerate(now.candidates[: len(fit)]):
        fit[k, (now.status == UP) & has_room(now.ready[at], now.memory_gb, now.max_concurrent, now)] = TAKEN
        fit[k, opened(now) & has_room_now(now.ready[at], now)] = OPEN
    return fit


def has_room(
    task: np.void, space_gb: NDArray[np.float64], places: NDArray[np.int64], now: Snapshot
) -> NDArray[np.bool_]:
    """(N,) whether a task fits so much memory and so many places of each server."""
    needs = task["memory_gb"], task["places"], task["labels"]
    found: NDArray[np.bool_] = fits(*needs, space_gb, places, now.properties["labels"])
    return found


def has_room_now(task: np.void, now: Snapshot) -> NDArray[np.bool_]:
    """(N,) whether a task fits what is free of each server."""
    return has_room(task, now.free_memory_gb, now.max_concurrent - now.num_running, now)


def opened(now: Snapshot) -> NDArray[np.bool_]:
    """(N,) whether the server takes tasks, has a free place, and none waits for it."""
    return now.idle & (now.available_at_s == now.clock_s)


def _context(now: Snapshot) -> NDArray[np.float64]:
    servers = max(1, int((now.status == UP).sum()))
    system = sum(int((~workflow.completed).sum()) for workflow in now.workflows.values())
    return np.array(
        [
            math.log2(servers / 16) / 3,
            math.log1p(len(now.ready) / servers),
            math.log1p(system / servers),
            opened(now).sum() / servers,
        ]
    )


def _task(now: Snapshot, task: np.void, env: EnvConfig) -> tuple[float, ...]:
    scales = env.observation
    workflow = now.workflow(int(task["workflow"]))
    row = int(np.searchsorted(workflow.task, task["task"]))
    paper = (
        task["compute_gflop"] / scales.task_compute_max_gflop,
        task["memory_gb"] / scales.memory_max_gb,
        int((workflow.edges[:, 0] == row).sum()) / 5,
        int(workflow.completed.sum()) / len(workflow.task),
        task["output_gb"] * (1 / scales.output_unit_gb),
    )
    if scales.feature_set == PAPER.name:
        return paper
    return (
        *paper,
        task["hop"] / 5,
        math.log(_followers(workflow, row)),
        math.log1p((now.clock_s - task["arrival_s"]) / 10),
        math.log1p((now.clock_s - task["ready_s"]) / 10),
    )


def _followers(workflow: LiveWorkflow, row: int) -> int:
    """Tasks that follow, itself included."""
    found, new = np.zeros(len(workflow.task), dtype=bool), np.array([row])
    while len(new):
        found[new] = True
        following = workflow.edges[np.isin(workflow.edges[:, 0], new), 1]
        new = np.unique(following[~found[following]])
    return int(found.sum())


def _servers(now: Snapshot, env: EnvConfig) -> NDArray[np.float64]:
    scales, running, places = env.observation, now.num_running, now.max_concurrent
    idle, busy = now.properties["idle_power"], now.properties["busy_power"]
    load = running / np.maximum(1, places)
    delays = transfer_s(now, int(now.candidates[0])) if len(now.candidates) else np.zeros(len(places))
    servers = np.stack(
        [
            now.capacity_gflops / scales.server_compute_max_gflops,
            now.memory_gb / scales.memory_max_gb,
            (now.free_at_s - now.clock_s) * (1 / scales.time_unit_s),
            np.where(running < places, idle + (busy - idle) * load, busy),
            delays * (1 / scales.delay_unit_s),
            now.free_memory_gb / scales.memory_max_gb,
            (now.available_at_s - now.clock_s) * (1 / scales.time_unit_s),
            load,
        ],
        axis=1,
    )
    return np.where((now.status == UP)[:, None], servers, 0.0)


def transfer_s(now: Snapshot, at: int) -> NDArray[np.float64]:
    """(N,) time to move the input of waiting task `at`, a row of `now.ready`, to each server [s]."""
    total = np.zeros(len(now.status))
    for moved in now.inputs[now.inputs["task"] == at]:
        total[np.arange(len(total)) != moved["server"]] += moved["transfer_s"]
    return total
