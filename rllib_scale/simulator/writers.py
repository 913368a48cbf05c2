"""The compiled writers of the feature sets: from the arrays of an environment to one row of its observations."""

from __future__ import annotations

from functools import partial

import numpy as np

from rllib_scale.compiled import compiled, internal, rare
from rllib_scale.observation.feature_sets import (
    DELAY,
    FEATURE_SETS,
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
from rllib_scale.simulator.attempts import error_of, input_of, transfer_time
from rllib_scale.simulator.rounds import available_at

NAMES = tuple(FEATURE_SETS)
IS_ROUNDS = NAMES.index(ROUNDS.name)
_HEAD, _TASK, _SERVER = ROUNDS.context_dim, ROUNDS.task_dim, ROUNDS.server_dim
_HOP_AT = [feature.name for feature in ROUNDS.task].index("hop")
_FREE_AT = ROUNDS.server_column("free")
_PAPER_TASK, _PAPER_SERVER = PAPER.task_dim, PAPER.server_dim

# The formulas of the features, compiled; named as the features are. Of servers the static ones have none.
_scale, _waiting, _system, _open = (internal(feature.formula) for feature in ROUNDS.context)
_compute, _memory, _successors, _progress, _output, _hop, _descendants, _age, _waited = (
    internal(feature.formula) for feature in ROUNDS.task
)
_remaining, _power, _delay, _free, _wait, _load = (
    internal(feature.formula) for feature in ROUNDS.server if feature.static is None
)


@internal
def _columns(candidates, p):  # type: ignore[no-untyped-def]
    """Columns before the first server's, and of one server."""
    if p.feature_set == IS_ROUNDS:
        return _HEAD + candidates * _TASK, _SERVER
    return candidates * _PAPER_TASK, _PAPER_SERVER


@compiled
def write_static(row, candidates, columns, values, p):  # type: ignore[no-untyped-def]
    """Write the features that never change during an episode, as long as no server comes or goes.

    `columns` (S,) and `values` (N, S): see `static_features`.
    """
    first, width = _columns(candidates, p)
    for j in range(len(values)):
        for s in range(len(columns)):
            row[first + width * j + columns[s]] = values[j, s]


@internal
def write_observation(b, count, state, problem):  # type: ignore[no-untyped-def]
    """Write the observation of environment b, with `count` candidates; no task is current where that is 0."""
    p, row, K = problem.parameters[0], state.observation[b], state.fit.shape[1]
    home, delay = -1, 0.0  # the server of the first predecessor, and what a move from there takes
    if count > 0:
        task = state.tasks[b, state.offered[b, 0]]
        if task.first_predecessor >= 0:
            predecessor = state.tasks[b, task.first_predecessor]
            if predecessor.place >= 0:
                home, moved = problem.server_of[predecessor.place], input_of(b, state.offered[b, 0], predecessor, state)
                delay = _delay(moved / p.bandwidth + p.latency, p.per_delay_unit)
    # The widths are constants in each branch: the loops over the servers depend on that.
    if p.feature_set == IS_ROUNDS:
        _write_tasks(b, row, _HEAD, _TASK, count, state, p)
        _write_servers(b, row[_HEAD + K * _TASK :], _SERVER, home, delay, state, problem)
        _write_rounds(b, row, count, state, problem)
    else:
        _write_tasks(b, row, 0, _PAPER_TASK, count, state, p)
        _write_servers(b, row[K * _PAPER_TASK :], _PAPER_SERVER, home, delay, state, problem)
    if p.changes or (p.from_all and count > 0):
        _write_exceptions(b, row, count, state, problem)


@internal
def _write_tasks(b, row, first, width, count, state, p):  # type: ignore[no-untyped-def]
    """Write the paper's features of each candidate from column `first` on, and 0 for those that are not there."""
    for k in range(state.fit.shape[1]):
        columns = row[first + k * width : first + (k + 1) * width]
        if k < count:
            task = state.tasks[b, state.offered[b, k]]
            _write_task(columns, task, error_of(b, state.offered[b, k], state, p), state.workflows[b, task.workflow], p)
        else:
            columns[:] = 0.0


@internal
def _write_task(row, task, error, workflow, p):  # type: ignore[no-untyped-def]
    """Write the paper's features of a candidate, whose demand is seen with that error."""
    row[TASK_COMPUTE] = _compute(task.left * error, p.task_compute_max)
    row[TASK_MEMORY] = _memory(task.memory, p.memory_max)
    row[TASK_SUCCESSORS] = 0.0 if p.revealed else _successors(task.num_successors)
    row[TASK_PROGRESS] = _progress(workflow.num_completed, workflow.num_seen)
    row[TASK_OUTPUT] = _output(task.output, p.per_output_unit)


@partial(internal, per_constant=True)
def _write_servers(b, columns, width, home, delay, state, problem):  # type: ignore[no-untyped-def]
    """Write remaining time, power and delay of each server; `delay` holds for all but `home`."""
    clock, per_unit = state.env[b].clock, problem.parameters[0].per_time_unit
    next_end, free_places, power = state.next_end[b], state.free_places[b], state.power[b]
    for j in range(len(problem.at_random)):
        at = width * j
        # 0 where a place is free: the task could start at once.
        remaining = _remaining(next_end[j] - clock, per_unit)
        columns[at + REMAINING] = remaining if remaining > 0.0 and free_places[j] == 0 else 0.0
        columns[at + POWER] = _power(power[j])
        # The same for all servers but the one that has the input: the loop stays free of a comparison.
        columns[at + DELAY] = delay
    if home >= 0:
        columns[width * home + DELAY] = 0.0


@rare
def _write_exceptions(b, row, count, state, problem):  # type: ignore[no-untyped-def]
    """Input from several predecessors; and servers that are away or drain, which are shown as empty rows."""
    p, K = problem.parameters[0], state.fit.shape[1]
    first, width = _columns(K, p)
    for j in range(len(problem.servers)):
        at = first + width * j
        if p.changes and state.limit[b, j] < 0.0:
            row[at : at + width] = 0.0
            continue
        for s in range(len(problem.static_columns)):
            row[at + problem.static_columns[s]] = problem.static[j, s]
        if p.from_all and count > 0 and problem.servers[j].capacity > 0.0:
            row[at + DELAY] = _delay(transfer_time(b, state.offered[b, 0], j, state, problem), p.per_delay_unit)


# ---------------------------------------------------------------------- the set `rounds`


@internal
def _seen_in_system(b, state, p):  # type: ignore[no-untyped-def]
    """Unfinished tasks of the workflows that have arrived, as far as they are seen."""
    env, seen = state.env[b], 0
    if not p.revealed:
        return env.in_system
    for w in range(env.first_live, env.workflows_arrived):
        seen += state.workflows[b, w].num_seen - state.workflows[b, w].num_completed
    return seen


@rare
def _write_rounds(b, row, count, state, problem):  # type: ignore[no-untyped-def]
    """Write what the set has beyond the paper's features."""
    env, p, K = state.env[b], problem.parameters[0], state.fit.shape[1]
    # Servers that take tasks; of none, sums are divided by 1.
    there = 0
    for j in range(state.limit.shape[1]):
        there += int(state.limit[b, j] >= 0.0)
    servers = max(1, there)
    # With `peek` the candidate is still in the heap, and is counted there.
    waiting = env.num_ready + env.num_aside + (0 if p.peek else env.num_offered)
    row[0] = _scale(servers)
    row[1] = _waiting(waiting, servers)
    row[2] = _system(_seen_in_system(b, state, p), servers)
    row[3] = _open(env.num_open, servers)
    for k in range(count):
        task, detail = state.tasks[b, state.offered[b, k]], state.details[b, state.offered[b, k]]
        at = _HEAD + k * _TASK + _HOP_AT
        row[at] = _hop(detail.hop)
        row[at + 1] = _descendants(detail.descendants)
        row[at + 2] = _age(env.clock - state.workflows[b, task.workflow].arrival)
        row[at + 3] = _waited(env.clock - task.ready)
    for j in range(len(problem.at_random)):
        at, places = _HEAD + K * _TASK + _SERVER * j + _FREE_AT, problem.servers[j].max_concurrent
        wait = available_at(b, j, state) - env.clock
        row[at] = _free(state.free[b, j], p.memory_max)
        row[at + 1] = _wait(wait, p.per_time_unit) if wait < np.inf else 0.0
        row[at + 2] = _load(places - state.free_places[b, j], places)
