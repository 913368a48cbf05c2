"""The compiled writers of the feature sets: from the arrays of an environment to one row of its observations."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.compiled import compiled, rare
from rllib_scale.observation.feature_sets import (
    CAPACITY,
    DELAY,
    FEATURE_SETS,
    MAX_SUCCESSORS,
    MEMORY,
    PAPER,
    POWER,
    REMAINING,
    ROUNDS,
    TASK_COMPUTE,
    TASK_MEMORY,
    TASK_OUTPUT,
    TASK_PROGRESS,
    TASK_SUCCESSORS,
)
from rllib_scale.simulator.attempts import transfer_time
from rllib_scale.simulator.rounds import available_at

NAMES = tuple(FEATURE_SETS)
IS_ROUNDS = NAMES.index(ROUNDS.name)
_HEAD, _TASK, _SERVER = ROUNDS.context_dim, ROUNDS.task_dim, ROUNDS.server_dim
_HOP = [feature.name for feature in ROUNDS.task].index("hop")
_FREE = ROUNDS.server_column("free")
_PAPER_TASK, _PAPER_SERVER = PAPER.task_dim, PAPER.server_dim


@compiled
def write_static(row, candidates, servers, p):  # type: ignore[no-untyped-def]
    """Write the features that never change during an episode, as long as no server comes or goes."""
    if p.feature_set == IS_ROUNDS:
        first, width = _HEAD + candidates * _TASK, _SERVER
    else:
        first, width = candidates * _PAPER_TASK, _PAPER_SERVER
    for j in range(len(servers)):
        at = first + width * j
        row[at + CAPACITY] = servers[j].capacity / p.server_compute_max
        row[at + MEMORY] = servers[j].memory / p.memory_max


@compiled
def write_observation(b, count, state, problem):  # type: ignore[no-untyped-def]
    """Write the observation of environment b, with `count` candidates; no task is current where that is 0."""
    p, row, K = problem.parameters[0], state.observation[b], state.fit.shape[1]
    if p.feature_set == IS_ROUNDS:
        _write_context(b, row, state, p)
        first, width, task_width, at = _HEAD + K * _TASK, _SERVER, _TASK, _HEAD
    else:
        first, width, task_width, at = K * _PAPER_TASK, _PAPER_SERVER, _PAPER_TASK, 0
    for k in range(K):
        if k < count:
            task = state.tasks[b, state.offered[b, k]]
            _write_task(row[at + k * task_width : at + (k + 1) * task_width], task, state.slots[b, task.slot], p)
            if p.feature_set == IS_ROUNDS:
                _write_standing(b, row, at + k * task_width, task, state)
        else:
            row[at + k * task_width : at + (k + 1) * task_width] = 0.0
    host, delay = -1, 0.0
    if count > 0:
        task = state.tasks[b, state.offered[b, 0]]
        if task.first_predecessor >= 0:
            predecessor = state.tasks[b, task.first_predecessor]
            host = problem.servers[predecessor.host].host
            delay = predecessor.output / p.bandwidth + p.latency
    _write_servers(row, first, width, problem.servers, state.expected[b], state.env[b].clock, host, delay)
    if count > 0 and p.from_all:
        task = state.tasks[b, state.offered[b, 0]]
        for j in range(len(problem.servers)):
            if problem.servers[j].capacity > 0.0:
                row[first + width * j + DELAY] = transfer_time(b, task, problem.servers[j].host, state, problem)
    if p.feature_set == IS_ROUNDS:
        _write_waits(b, row, first, state, problem)
    if p.changes:
        for j in range(len(problem.servers)):
            at = first + width * j
            if state.limit[b, j] < 0.0:
                row[at : at + width] = 0.0
            else:
                row[at + CAPACITY] = problem.servers[j].capacity / p.server_compute_max
                row[at + MEMORY] = problem.servers[j].memory / p.memory_max


@compiled
def _write_task(row, task, slot, p):  # type: ignore[no-untyped-def]
    """Write the paper's features of a candidate; `slot` is its workflow."""
    row[TASK_COMPUTE] = task.left * task.error / p.task_compute_max
    row[TASK_MEMORY] = task.memory / p.memory_max
    row[TASK_SUCCESSORS] = 0.0 if p.revealed else task.num_successors / MAX_SUCCESSORS
    row[TASK_PROGRESS] = slot.num_completed / slot.num_seen
    row[TASK_OUTPUT] = task.output


@compiled
def _write_servers(row, first, width, servers, expected, clock, host, delay):  # type: ignore[no-untyped-def]
    """Write remaining time, power and delay of each row.

    `expected` is inf where it runs nothing; `delay` [s] holds for every server but `host`.
    """
    # Whether a row is busy cannot be predicted: both values are read, so that the choice needs no branch.
    for j in range(len(servers)):
        if servers[j].capacity == 0.0:
            continue
        at = first + width * j
        busy = expected[j] < np.inf
        remaining, busy_power, idle_power = max(expected[j] - clock, 0.0), servers[j].busy_power, servers[j].idle_power
        row[at + REMAINING] = remaining if busy else 0.0
        row[at + POWER] = busy_power if busy else idle_power
        row[at + DELAY] = 0.0 if servers[j].host == host else delay


# ---------------------------------------------------------------------- the set `rounds`


@rare
def _write_context(b, row, state, p):  # type: ignore[no-untyped-def]
    env, there = state.env[b], 0
    for j in range(state.limit.shape[1]):
        there += int(state.limit[b, j] >= 0.0)
    rows = max(1, there)
    waiting = env.num_ready + env.num_aside + (0 if p.peek else env.num_offered)
    row[0] = math.log2(rows / 16.0) / 3.0
    row[1] = math.log1p(waiting / rows)
    row[2] = math.log1p(env.in_system / rows)
    row[3] = env.num_open / rows


@rare
def _write_standing(b, row, at, task, state):  # type: ignore[no-untyped-def]
    clock = state.env[b].clock
    row[at + _HOP] = task.hop / 5.0
    row[at + _HOP + 1] = math.log(task.descendants)
    row[at + _HOP + 2] = math.log1p((clock - state.slots[b, task.slot].arrival) / 10.0)
    row[at + _HOP + 3] = math.log1p((clock - task.ready) / 10.0)


@rare
def _write_waits(b, row, first, state, problem):  # type: ignore[no-untyped-def]
    for j in range(len(problem.servers)):
        h = problem.servers[j].host
        if h < 0:
            continue
        at, host = first + _SERVER * j, state.hosts[b, h]
        row[at + _FREE] = host.free / problem.parameters[0].memory_max
        wait = available_at(b, j, state) - state.env[b].clock
        row[at + _FREE + 1] = wait if wait < np.inf else 0.0
        row[at + _FREE + 2] = host.running / (problem.first_row[h + 1] - problem.first_row[h])
