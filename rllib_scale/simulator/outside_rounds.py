"""Rounds of decisions between events from outside; see `outside`. All functions are about environment 0."""

from __future__ import annotations

from rllib_scale.compiled import compiled, internal
from rllib_scale.observation.answers import STARTED
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.kernel import is_answer
from rllib_scale.simulator.outside import B
from rllib_scale.simulator.rounds import (
    answer,
    fit_of,
    force,
    offer,
    open_all,
    set_room,
    some_candidate_open,
    withdraw,
)
from rllib_scale.simulator.writers import write_observation


@internal
def _end_round(state, p):  # type: ignore[no-untyped-def]
    """Reservations are forgotten, and all that waits is in the heap."""
    env = state.env[B]
    open_all(B, state, p)
    for i in range(env.num_reserved):
        state.extra[B, state.reserved[B, i]] = 0.0
        set_room(B, state.reserved[B, i], state)
    env.num_reserved = env.in_round = 0


@internal
def _ask(state, problem):  # type: ignore[no-untyped-def]
    """Offer the next tasks of the round; whether an answer can change anything."""
    env, p = state.env[B], problem.parameters[0]
    # With a mask tasks that no open server has room for are skipped in this round, and block no other.
    filtered = p.feasible_only != 0
    offer(B, filtered and p.reserve != 0, state, problem)
    wanted = env.num_offered > 0 and env.num_open > 0 and (not filtered or some_candidate_open(B, state, problem))
    if wanted:
        write_observation(B, env.num_offered, state, problem)
    return wanted


@compiled
def begin_round(per_task, table):  # type: ignore[no-untyped-def]
    """Begin a round of decisions, if a task waits that one is wanted for; `per_task`: for those on offer alone."""
    state, problem = state_of(table), problem_of(table)
    _end_round(state, problem.parameters[0])
    if state.env[B].num_ready == 0:
        return False
    state.env[B].in_round = problem.parameters[0].reserve
    return _ask(state, problem) if per_task else True


@internal
def seen_in_round(state, problem):  # type: ignore[no-untyped-def]
    """Observation (W,), and how each server is for the first candidate (N,); written for it."""
    row, fit = state.offered[B, 0], state.fit[B, 0]
    for j in range(len(fit)):
        fit[j] = fit_of(B, row, j, state, problem)
    return state.observation[B], fit


@internal
def step_on(action, state, problem):  # type: ignore[no-untyped-def]
    """Answer for a candidate; whether another answer is wanted in this round.

    A busy server that cannot be waited for ends the round: outside of a simulation nobody stops the clock.
    """
    p = problem.parameters[0]
    answer(B, action, state, problem)
    done = not p.reserve and state.outcome[B] != STARTED
    if not p.reserve:
        withdraw(B, state, p)
    return not done and state.env[B].num_ready + state.env[B].num_offered > 0 and _ask(state, problem)


NOT_ASKED = -1
"""Result of `step_in_round`: the action is not valid now."""


@compiled
def step_in_round(action, table):  # type: ignore[no-untyped-def]
    """See `step_on`; NOT_ASKED: nothing was done."""
    state = state_of(table)
    if state.env[B].num_offered == 0 or not is_answer(B, action, state):
        return NOT_ASKED
    return int(step_on(action, state, problem_of(table)))


@compiled
def end_round(starts, table):  # type: ignore[no-untyped-def]
    """Forget the reservations; `starts`: where nothing runs, the first task that can start does so, for progress."""
    state, problem = state_of(table), problem_of(table)
    _end_round(state, problem.parameters[0])
    if starts and state.env[B].num_ready > 0 and state.env[B].num_busy == 0:
        force(B, state, problem)
