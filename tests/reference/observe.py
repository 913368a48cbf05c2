"""The features and the fit of a snapshot in plain code, by formulas of its own: the engine gives the same bits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import CLOSED, OPEN, TAKEN
from rllib_scale.observation.feature_sets import FEATURE_SETS, LEAST, PAIRS, PAPER, UNITS
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
        tasks[k] = _task(now, now.ready[at], env)[: features.task_dim]
    context = _context(now)[: features.context_dim]
    servers = _servers(now, env)[:, : features.server_dim]
    if features is PAIRS:
        context = np.append(context, _work(now, env))
        servers = np.concatenate([servers, _pairs(now, env)], axis=1)
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
        math.log(max(LEAST, task["compute_gflop"] / scales.task_compute_max_gflop)),
        math.log((~workflow.completed).sum()),
        math.log1p(_units(_of_places(workflow, scales.task_compute_max_gflop))),
        int(has_room(task, now.memory_gb, now.max_concurrent, now)[now.status == UP].sum())
        / max(1, int((now.status == UP).sum())),
    )


def _of_places(workflow: LiveWorkflow, most_gflop: float) -> NDArray[np.float64]:
    """Demand of each place that the unfinished tasks of a workflow take [most_gflop]."""
    left = ~workflow.completed
    return np.repeat(workflow.compute_gflop[left] / most_gflop, workflow.places[left])


def _units(shares: NDArray[np.float64]) -> float:
    """Their sum, each in whole units, so that it does not depend on their order."""
    return float(np.floor(shares * UNITS + 0.5).astype(np.int64).sum()) / UNITS


def _work(now: Snapshot, env: EnvConfig) -> NDArray[np.float64]:
    """What `pairs` knows of the state beyond `rounds`."""
    scales, there = env.observation, now.status == UP
    capacity = now.capacity_gflops[there]
    most = scales.task_compute_max_gflop
    demands = [_of_places(workflow, most) for workflow in now.workflows.values()]
    waiting = np.repeat(now.ready["compute_gflop"] / most, now.ready["places"])
    work = (waiting, np.concatenate(demands) if demands else np.zeros(0))
    unit = scales.task_compute_max_gflop / scales.server_compute_max_gflops / scales.time_unit_s
    speeds = np.repeat(capacity / scales.server_compute_max_gflops, now.max_concurrent[there])
    per = unit / max(LEAST, _units(speeds))
    shares = [opened(now)[there][of_class].mean() if of_class.any() else 0.0 for of_class in _classes(capacity)]
    return np.array([*(math.log1p(_units(of_places) * per) for of_places in work), *shares])


def _classes(capacity: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Which servers, of those there, are the slowest, neither, the fastest; all are the slowest of one speed."""
    slow = capacity == capacity.min(initial=np.inf)
    fast = (capacity == capacity.max(initial=0.0)) & ~slow
    return [slow, ~slow & ~fast, fast]


def _pairs(now: Snapshot, env: EnvConfig) -> NDArray[np.float64]:
    """(N, 6) what `pairs` knows of the first candidate on each server beyond `rounds`; 0 where there is none."""
    pairs, there = np.zeros((len(now.status), 6)), now.status == UP
    capacity = now.capacity_gflops[there]
    pairs[there, 2] = [math.log2(c / capacity.min()) / 2 for c in capacity]
    if len(now.candidates):
        at = int(now.candidates[0])
        task = now.ready[at]
        workflow = now.workflow(int(task["workflow"]))
        squared = float(_followers(workflow, int(np.searchsorted(workflow.task, task["task"])))) ** 2
        lasts = (transfer_s(now, at)[there] + task["compute_gflop"] / capacity) * (1 / env.observation.time_unit_s)
        busy = 1.0 - (opened(now) & has_room_now(task, now))[there]
        _, middle, fast = _classes(capacity)
        columns = (lasts, busy, pairs[there, 2], busy / squared, lasts / squared * middle, lasts / squared * fast)
        pairs[there] = np.stack(columns, axis=1)
    return pairs


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
