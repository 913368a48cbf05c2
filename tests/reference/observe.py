"""The features and the fit of a snapshot, in plain code: what the observation of the engine must be.

What the formulas of the features take is found here in plain code; the simulator's compiled writers give the same to
the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import CLOSED, OPEN, TAKEN
from rllib_scale.observation.feature_sets import (
    FEATURE_SETS,
    LEAST,
    PAIRS,
    PAPER,
    ROUNDS,
    UNITS,
    Feature,
    static_features,
)
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
        memory = now.ready["memory_gb"][at]
        fit[k, (now.status == UP) & fits(memory, now.memory_gb)] = TAKEN
        fit[k, opened(now) & fits(memory, now.free_memory_gb)] = OPEN
    return fit


def opened(now: Snapshot) -> NDArray[np.bool_]:
    """(N,) whether the server takes tasks, has a free place, and none waits for it."""
    return now.idle & (now.available_at_s == now.clock_s)


def _context(now: Snapshot) -> NDArray[np.float64]:
    servers = max(1, int((now.status == UP).sum()))
    system = sum(int((~workflow.completed).sum()) for workflow in now.workflows.values())
    found = ((servers,), (len(now.ready), servers), (system, servers), (opened(now).sum(), servers))
    return _written(ROUNDS.context, found)


def _written(features: Sequence[Feature], found: Iterable[tuple[Any, ...]]) -> NDArray[np.float64]:
    """The features that are not static by their formulas, of what was found for each in the state."""
    formulas = [feature.formula for feature in features if feature.static is None]
    return np.array([formula(*terms) for formula, terms in zip(formulas, found, strict=True)])


def _task(now: Snapshot, task: np.void, env: EnvConfig) -> NDArray[np.float64]:
    scales = env.observation
    workflow = now.workflow(int(task["workflow"]))
    row = int(np.searchsorted(workflow.task, task["task"]))
    found: list[tuple[Any, ...]] = [
        (task["compute_gflop"], scales.task_compute_max_gflop),
        (task["memory_gb"], scales.memory_max_gb),
        (int((workflow.edges[:, 0] == row).sum()),),
        (int(workflow.completed.sum()), len(workflow.task)),
        (task["output_gb"], 1 / scales.output_unit_gb),
    ]
    if scales.feature_set == PAPER.name:
        return _written(PAPER.task, found)
    left, there = ~workflow.completed, now.status == UP
    found += [
        (task["hop"],),
        (_followers(workflow, row),),
        (now.clock_s - task["arrival_s"],),
        (now.clock_s - task["ready_s"],),
        (task["compute_gflop"] / scales.task_compute_max_gflop,),
        (left.sum(),),
        (_units(workflow.compute_gflop[left] / scales.task_compute_max_gflop), 1.0),
        (int(fits(task["memory_gb"], now.memory_gb[there]).sum()), max(1, int(there.sum()))),
    ]
    return _written(PAIRS.task, found)


def _units(shares: NDArray[np.float64]) -> int:
    """Their sum [UNITS], each in whole ones, so that it does not depend on their order."""
    return int(np.floor(shares * UNITS + 0.5).astype(np.int64).sum())


def _work(now: Snapshot, env: EnvConfig) -> NDArray[np.float64]:
    """What `pairs` knows of the state beyond `rounds`."""
    scales, there = env.observation, now.status == UP
    capacity = now.capacity_gflops[there]
    demands = [w.compute_gflop[~w.completed] for w in now.workflows.values()]
    work = (now.ready["compute_gflop"], np.concatenate(demands) if demands else np.zeros(0))
    unit = scales.task_compute_max_gflop / scales.server_compute_max_gflops / scales.time_unit_s
    of_places = np.repeat(capacity / scales.server_compute_max_gflops, now.max_concurrent[there])
    per = unit / max(LEAST, _units(of_places) / UNITS)
    shares = [(opened(now)[there][of_class].sum(), max(1, of_class.sum())) for of_class in _classes(capacity)]
    units = [(_units(demands / scales.task_compute_max_gflop), per) for demands in work]
    return _written(PAIRS.context[ROUNDS.context_dim :], [*units, *shares])


def _classes(capacity: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Which servers, of those there, are the slowest, neither, the fastest; all are the slowest of one speed."""
    slow = capacity == capacity.min(initial=np.inf)
    fast = (capacity == capacity.max(initial=0.0)) & ~slow
    return [slow, ~slow & ~fast, fast]


def _pairs(now: Snapshot, env: EnvConfig) -> NDArray[np.float64]:
    """(N, 6) what `pairs` knows of the first candidate on each server beyond `rounds`; 0 where there is none."""
    pairs, there = np.zeros((len(now.status), 6)), now.status == UP
    capacity = now.capacity_gflops[there]
    lasts, busy, speed, busy_shared, lasts_middle, lasts_fast = (
        feature.formula for feature in PAIRS.server[ROUNDS.server_dim :]
    )
    pairs[there, 2] = [speed(c, capacity.min()) for c in capacity]
    if len(now.candidates):
        at = int(now.candidates[0])
        task = now.ready[at]
        workflow = now.workflow(int(task["workflow"]))
        squared = float(_followers(workflow, int(np.searchsorted(workflow.task, task["task"])))) ** 2
        taken = lasts(transfer_s(now, at)[there] + task["compute_gflop"] / capacity, 1 / env.observation.time_unit_s)
        waits = 1.0 - (opened(now) & fits(task["memory_gb"], now.free_memory_gb))[there]
        _, middle, fast = _classes(capacity)
        shared = (busy_shared(waits, squared), lasts_middle(taken, squared) * middle, lasts_fast(taken, squared) * fast)
        pairs[there] = np.stack((taken, busy(waits), pairs[there, 2], *shared), axis=1)
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
    found = (
        (now.free_at_s - now.clock_s, 1 / scales.time_unit_s),
        (np.where(running < places, idle + (busy - idle) * load, busy),),
        (delays, 1 / scales.delay_unit_s),
        (now.free_memory_gb, scales.memory_max_gb),
        (now.available_at_s - now.clock_s, 1 / scales.time_unit_s),
        (running, np.maximum(1, places)),
    )
    servers = np.zeros((len(places), ROUNDS.server_dim))
    columns, static = static_features(ROUNDS, now.properties, scales)
    servers[:, columns] = static
    servers[:, np.setdiff1d(np.arange(ROUNDS.server_dim), columns)] = _written(ROUNDS.server, found).T
    return np.where((now.status == UP)[:, None], servers, 0.0)


def transfer_s(now: Snapshot, at: int) -> NDArray[np.float64]:
    """(N,) time to move the input of waiting task `at`, a row of `now.ready`, to each server [s]."""
    total = np.zeros(len(now.status))
    for moved in now.inputs[now.inputs["task"] == at]:
        total[np.arange(len(total)) != moved["server"]] += moved["transfer_s"]
    return total
