"""The entry points: a batch of environments is begun, answers, and runs to its next decisions in one compiled call."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled, internal
from rllib_scale.observation.answers import BUSY, CLOSED, NO_FIT, PASS, PASSED, STARTED
from rllib_scale.simulator.attempts import remove_waiting
from rllib_scale.simulator.changes import begin_changes
from rllib_scale.simulator.events import schedule_arrival
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.load import draw
from rllib_scale.simulator.reward import reward_of_time
from rllib_scale.simulator.rounds import (
    answer,
    carry_out,
    close,
    find_waiting,
    fit_of,
    outcome_of,
    run,
    withdraw,
)
from rllib_scale.simulator.state import DISPATCHED, NONE, ROUNDS, RUNNING, STEPS
from rllib_scale.simulator.writers import write_observation

DONE, REFUSED, TOO_SMALL = range(3)
"""Result of a step of a batch."""


@internal
def begin_episode(b, seed, episode, state, problem):  # type: ignore[no-untyped-def]
    """Put the environment where its episode begins; its workload is there."""
    env = state.env[b]
    env.clock = env.target = env.area = env.decided = 0.0
    env.num_ready = env.num_busy = env.in_system = env.end = 0
    env.num_offered = env.num_aside = env.num_released = env.num_reserved = env.in_round = 0
    env.episode_return = env.response_sum = env.makespan_sum = env.lost = 0.0
    env.decisions = env.invalid_no_fit = env.invalid_busy_avoidable = env.invalid_busy_unavoidable = 0
    env.waits = env.passed = env.failed_attempts = 0
    env.arrived = env.completed = env.workflows_arrived = env.workflows_completed = env.num_started = 0
    env.first_live = env.outside = env.next_number = env.given_up = 0
    env.given_up_arrivals = 0.0
    env.next_finish = env.next_release = np.inf
    state.finish[b] = np.inf
    state.expected[b] = np.inf
    state.running[b] = NONE
    state.busy[b] = 0.0
    state.reward[b] = 0.0
    state.elapsed[b] = 0.0
    state.outcome[b] = STARTED
    state.done[b] = False
    begin_changes(b, seed, episode, state, problem)
    schedule_arrival(b, state)


@compiled
def fit_batch(table):  # type: ignore[no-untyped-def]
    """Write how each server is for each candidate."""
    state, problem = state_of(table), problem_of(table)
    for b in range(len(state.env)):
        state.fit[b] = CLOSED
        for k in range(state.env[b].num_offered):
            row, fit = state.offered[b, k], state.fit[b, k]
            for j in range(len(fit)):
                fit[j] = fit_of(b, row, j, state, problem)


@internal
def is_answer(b, action, state):  # type: ignore[no-untyped-def]
    """Whether an action is a valid answer now."""
    env = state.env[b]
    K, N = state.fit.shape[1], state.fit.shape[2]
    if action < 0:
        return False
    if env.end != RUNNING:
        return action <= K * N
    if action < N:
        return env.num_offered > 0  # none is, after an answer for any task that waits
    if action < K * N:
        return action // N < env.num_offered
    return action == K * N


@compiled
def step_batch(draws, answers, actions, begins, seeds, episodes, table):  # type: ignore[no-untyped-def]
    """Bring each environment of `begins` to its first decision, and where `answers`, answer in each other.

    Args:
        draws: whether those that begin draw their workload; where not, it was loaded.
        answers: whether the others are answered; where not, they stay as they are.
        actions: (B,).
        begins: (B,) bool.
        seeds: (B,) of those that begin.
        episodes: (B,) of those.
        table: of state and problem, see handles.py; the log has room for two more attempts in each.

    Returns:
        DONE, and -1. Or REFUSED and b, where an action is no answer, or TOO_SMALL and b, where the arrays have no room
        for the workload: no environment has changed then, but for workloads of those that begin.
    """
    state, problem = state_of(table), problem_of(table)
    p = problem.parameters[0]
    for b in range(len(state.env)):
        if answers and not (begins[b] or is_answer(b, actions[b], state)):
            return REFUSED, b
    if draws:
        for b in range(len(state.env)):
            if begins[b] and not draw(b, seeds[b], episodes[b], state, problem):
                return TOO_SMALL, b
    # All answers were checked before the first is carried out: a batch is refused as a whole.
    wake = np.int64(ROUNDS if p.reserve else STEPS)
    for b in range(len(state.env)):
        env = state.env[b]
        if not (answers or begins[b]):
            continue
        state.reward[b] = 0.0
        if begins[b]:
            begin_episode(b, seeds[b], episodes[b], state, problem)
        elif env.end != RUNNING:
            continue
        else:
            state.reward[b] = answer(b, actions[b], state, problem)
        run(b, wake, state, problem)
        if not begins[b]:
            # The time until the next decision belongs to this answer.
            state.reward[b] += reward_of_time(env, p)
            state.elapsed[b] = env.clock - env.decided
        env.episode_return += state.reward[b]
        state.done[b] = env.end != RUNNING
        write_observation(b, env.num_offered, state, problem)
    return DONE, -1


_IMPOSSIBLE = -1


@internal
def _answer_for(b, workflow, task, j, state, problem):  # type: ignore[no-untyped-def]
    """Answer for any task that waits; see observation.answers.Answer.

    Returns the outcome, or why nothing was done.

    Beyond `max_decisions` every answer passes: the limit cuts the episode right after its last decision.
    """
    env, p = state.env[b], problem.parameters[0]
    if env.decisions >= p.max_decisions:
        return PASSED
    if env.end != RUNNING or not PASS <= j < len(problem.servers):
        return _IMPOSSIBLE
    # Candidates wait like all others now: whichever task is named is then found in the heap.
    withdraw(b, state, p)
    at = find_waiting(b, workflow, task, state)
    if at < 0:
        return _IMPOSSIBLE
    if j == PASS:
        env.decisions += 1
        env.passed += 1
        return PASSED
    row = state.ready[b, at]
    outcome = outcome_of(b, row, j, state, problem)
    if outcome in (NO_FIT, BUSY):
        return outcome
    env.decisions += 1
    remove_waiting(b, at, state, p)
    reward = carry_out(b, row, j, outcome, state, problem)
    state.reward[b] += reward
    env.episode_return += reward
    return outcome


@compiled
def answer_now(b, workflow, task, j, table):  # type: ignore[no-untyped-def]
    """One answer in environment b; no time passes. Returns the outcome, or -1 where nothing was done."""
    return _answer_for(b, workflow, task, j, state_of(table), problem_of(table))


@compiled
def dispatch_batch(starts, table):  # type: ignore[no-untyped-def]
    """Several answers and a close: any tasks that wait, in any order; then each environment runs on.

    `starts` (R, 4) holds environment, workflow, task, server. Each environment runs to the next event after
    which a task waits. Returns the first row that is refused, which ends the call, or -1.
    """
    state, problem = state_of(table), problem_of(table)
    p = problem.parameters[0]
    for i in range(len(starts)):
        b = starts[i, 0]
        if not 0 <= b < len(state.env) or starts[i, 3] == PASS:
            return i
        outcome = _answer_for(b, starts[i, 1], starts[i, 2], starts[i, 3], state, problem)
        if outcome in (_IMPOSSIBLE, BUSY, NO_FIT):
            return i
    for b in range(len(state.env)):
        env = state.env[b]
        if env.end != RUNNING:
            continue
        # The reward is that of the time until the next decision, whose integral begins here.
        env.area = 0.0
        env.decided = env.clock
        close(b, bool(p.reserve), state, problem)
        run(b, np.int64(DISPATCHED), state, problem)
        if env.decisions > 0:
            reward = reward_of_time(env, p)
            state.reward[b] += reward
            env.episode_return += reward
        state.elapsed[b] = env.clock - env.decided
        state.done[b] = env.end != RUNNING
        write_observation(b, env.num_offered, state, problem)
    return -1
