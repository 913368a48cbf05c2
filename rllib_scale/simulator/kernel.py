"""The entry points: a batch of environments is begun, answers, and runs to its next decisions in one compiled call.

Compiled functions over the arrays of `state.py`, one row an environment. Where a buffer is full, they stop in a
consistent state and say so, the caller enlarges the buffer, and the same call goes on.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled, internal
from rllib_scale.observation.answers import BUSY, CLOSED, NO_FIT, PASSED, PREEMPTED, STARTED, TAKEN, WAITS
from rllib_scale.simulator.attempts import end_attempt, start
from rllib_scale.simulator.changes import begin_changes
from rllib_scale.simulator.events import schedule_arrival
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.heaps import remove_ready
from rllib_scale.simulator.reward import TASKS_IN_SYSTEM
from rllib_scale.simulator.rounds import answer, close, find_waiting, fit_of, reserve, run, withdraw
from rllib_scale.simulator.state import (
    DISPATCHED,
    FREE,
    GO_ON,
    NEEDS_LOG,
    NO_PREEMPTION,
    OWN,
    REFUSED,
    ROUNDS,
    RUNNING,
    STEPS,
)
from rllib_scale.simulator.state import PREEMPTED as STOPPED
from rllib_scale.simulator.writers import write_observation
from rllib_scale.workloads.random_numbers import ESTIMATES, STRAGGLERS, seed_generator, seed_stream


@internal
def _own_workload(b, p):  # type: ignore[no-untyped-def]
    """Row of the given workloads that an environment plays where it is given no other; -1: it draws."""
    return OWN + b if p.whole else FREE


@internal
def _begin(b, seed, episode, state, problem):  # type: ignore[no-untyped-def]
    """Empty the environment; set the first arrival, of its (seed, episode) or of a given workload."""
    env, p = state.env[b], problem.parameters[0]
    env.given = env.plays_next
    env.plays_next = _own_workload(b, p)
    seed_generator(env.rng, seed, episode)
    if p.estimates:
        seed_stream(env.seen_rng, seed, episode, ESTIMATES)
        seed_stream(env.straggler_rng, seed, episode, STRAGGLERS)
    env.clock = env.target = env.area = env.decided = 0.0
    env.pending = FREE
    env.num_drawn = env.num_ready = env.num_busy = env.in_system = env.end = 0
    env.num_offered = env.num_aside = env.num_released = env.num_reserved = env.in_round = 0
    env.episode_return = env.response_sum = env.makespan_sum = env.lost = 0.0
    env.decisions = env.invalid_no_fit = env.invalid_busy_avoidable = env.invalid_busy_unavoidable = 0
    env.waits = env.passed = env.failed_attempts = env.preempted_attempts = 0
    env.arrived = env.completed = env.workflows_arrived = env.workflows_completed = env.num_started = 0
    env.next_finish = env.next_release = np.inf
    num_slots = state.slots.shape[1]
    env.num_free = num_slots
    for s in range(num_slots):
        state.slots[b, s].workflow = FREE
        state.free[b, s] = num_slots - 1 - s
    env.task_top = env.edge_top = 0
    state.blocks[b] = FREE
    state.finish[b] = np.inf
    state.expected[b] = np.inf
    state.running[b] = FREE
    state.busy[b] = 0.0
    state.extra[b] = 0.0
    state.reward[b] = 0.0
    state.elapsed[b] = 0.0
    state.outcome[b] = STARTED
    state.done[b] = False
    begin_changes(b, seed, episode, state, problem)
    schedule_arrival(env, problem)


@compiled
def fit_batch(table):  # type: ignore[no-untyped-def]
    """Write how each row is for each candidate."""
    state = state_of(table)
    for b in range(len(state.env)):
        state.fit[b] = CLOSED
        for k in range(state.env[b].num_offered):
            memory, fit = state.tasks[b, state.offered[b, k]].memory, state.fit[b, k]
            for j in range(len(fit)):
                fit[j] = fit_of(b, memory, j, state)


@internal
def _is_answer(b, action, state, p):  # type: ignore[no-untyped-def]
    """Whether an action stands for an answer that can be given now."""
    env = state.env[b]
    K, N = state.fit.shape[1], state.fit.shape[2]
    if action < 0:
        return False
    if env.end != RUNNING:
        return action <= K * N + N
    if action < N:
        return env.num_offered > 0  # none is, after an answer for any task that waits
    if action < K * N:
        return action // N < env.num_offered
    j = action - K * N - 1
    return j < 0 or (j < N and p.preemption != NO_PREEMPTION and state.finish[b, j] < np.inf)


@compiled
def step_batch(start_at, resume, actions, active, begins, seeds, episodes, table):  # type: ignore[no-untyped-def]
    """From `start_at` on: bring each environment of `begins` to its first decision, answer in each other of `active`.

    Returns (GO_ON, B), or (REFUSED, b) where an action is no answer and nothing was done, or what buffer environment b
    needs: the caller enlarges it and calls again with start_at = b, and with `resume` where the answer was given
    already. `table` stands for state and problem, see handles.py.
    """
    state, problem = state_of(table), problem_of(table)
    p = problem.parameters[0]
    if start_at == 0 and not resume:
        for b in range(len(state.env)):
            if not (begins[b] or not active[b] or _is_answer(b, actions[b], state, p)):
                return REFUSED, b
    wake = np.int64(ROUNDS if p.reserve else STEPS)
    for b in range(start_at, len(state.env)):
        env = state.env[b]
        if not (active[b] or begins[b]):
            continue
        if not (resume and b == start_at):
            state.reward[b] = 0.0
            if begins[b]:
                _begin(b, seeds[b], episodes[b], state, problem)
            elif env.end != RUNNING:
                continue
            else:
                if env.num_started == state.log.shape[1]:
                    return NEEDS_LOG, b
                reward = answer(b, actions[b], state, problem)
                state.reward[b] = 0.0 if p.reward == TASKS_IN_SYSTEM else reward
        need = run(b, wake, state, problem)
        if need != GO_ON:
            return need, b
        if not begins[b]:
            if p.reward == TASKS_IN_SYSTEM:
                state.reward[b] = -env.area
            state.elapsed[b] = env.clock - env.decided
        env.episode_return += state.reward[b]
        state.done[b] = env.end != RUNNING
        write_observation(b, env.num_offered, state, problem)
    return GO_ON, len(state.env)


_IMPOSSIBLE, _LOG_IS_FULL = -1, -2


@internal
def _answer_for(b, workflow, task, j, state, problem):  # type: ignore[no-untyped-def]
    """Answer for any task that waits; see observation.backend.Answer. Returns the outcome, or why nothing was done.

    Beyond `max_decisions` every answer passes: the limit cuts the episode right after its last decision.
    """
    env, p = state.env[b], problem.parameters[0]
    if env.decisions >= p.max_decisions:
        return PASSED
    if env.end != RUNNING or not -1 <= j < len(problem.servers):
        return _IMPOSSIBLE
    withdraw(b, state, p)
    if task < 0:
        if p.preemption == NO_PREEMPTION or j < 0 or state.finish[b, j] == np.inf:
            return _IMPOSSIBLE
        env.decisions += 1
        end_attempt(b, j, np.int64(STOPPED), state, problem)
        return PREEMPTED
    at = find_waiting(b, workflow, task, state)
    if at < 0:
        return _IMPOSSIBLE
    if j < 0:
        env.decisions += 1
        env.passed += 1
        return PASSED
    row = state.ready[b, at]
    fit = fit_of(b, state.tasks[b, row].memory, j, state)
    if fit == CLOSED:
        return NO_FIT
    if fit == TAKEN and not p.reserve:
        return BUSY
    if env.num_started == state.log.shape[1]:
        return _LOG_IS_FULL
    env.decisions += 1
    remove_ready(state.ready[b], env.num_ready, state.slots[b], state.tasks[b], p.ties_by_arrival, at)
    env.num_ready -= 1
    if fit == TAKEN:
        reserve(b, row, j, state, problem)
        return WAITS
    reward = start(b, row, j, state, problem)
    if p.reward != TASKS_IN_SYSTEM:
        state.reward[b] += reward
        env.episode_return += reward
    return STARTED


@compiled
def answer_now(b, workflow, task, j, table):  # type: ignore[no-untyped-def]
    """One answer in environment b; no time passes. Returns GO_ON, NEEDS_LOG or REFUSED, and the outcome."""
    state, problem = state_of(table), problem_of(table)
    outcome = _answer_for(b, workflow, task, j, state, problem)
    if outcome == _LOG_IS_FULL:
        return NEEDS_LOG, outcome
    return (REFUSED, outcome) if outcome == _IMPOSSIBLE else (GO_ON, outcome)


@compiled
def dispatch_batch(first, start_at, resume, starts, active, table):  # type: ignore[no-untyped-def]
    """Several answers and a close: any tasks that wait, in any order; then each active environment runs on.

    `starts` (R, 4) holds environment, workflow, task, row; rows from `first` on are carried out, and environments from
    `start_at` on advanced, to the next event after which a task waits. Returns (GO_ON, R, B), or what was missing, or
    REFUSED, with the row and the environment: the caller enlarges the buffer and calls again from there, with `resume`
    where the environment is under way already.
    """
    state, problem = state_of(table), problem_of(table)
    p = problem.parameters[0]
    for i in range(first, len(starts)):
        b = starts[i, 0]
        if not 0 <= b < len(state.env) or not active[b] or starts[i, 3] < 0:
            return REFUSED, i, start_at
        outcome = _answer_for(b, starts[i, 1], starts[i, 2], starts[i, 3], state, problem)
        if outcome == _LOG_IS_FULL:
            return NEEDS_LOG, i, start_at
        if outcome in (_IMPOSSIBLE, BUSY, NO_FIT):
            return REFUSED, i, start_at
    for b in range(start_at, len(state.env)):
        env = state.env[b]
        if not active[b] or env.end != RUNNING:
            continue
        if not (resume and b == start_at):
            if env.num_started == state.log.shape[1]:
                return NEEDS_LOG, len(starts), b
            env.area = 0.0
            env.decided = env.clock
            close(b, bool(p.reserve), state, problem)
        need = run(b, np.int64(DISPATCHED), state, problem)
        if need != GO_ON:
            return need, len(starts), b
        if p.reward == TASKS_IN_SYSTEM and env.decisions > 0:
            state.reward[b] = -env.area
            env.episode_return -= env.area
        state.elapsed[b] = env.clock - env.decided
        state.done[b] = env.end != RUNNING
        write_observation(b, env.num_offered, state, problem)
    return GO_ON, len(starts), len(state.env)
