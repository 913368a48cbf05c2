"""Rounds of decisions: tasks that wait are offered, answers are carried out, then time runs to the next event.

Feasibility, outcomes and what an answer does are decided here and nowhere else; docs/simulator.md has the rules. A task
that waits is in the heap, among the candidates that are offered, or deferred until the round ends.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import internal, rare
from rllib_scale.observation.answers import BUSY, CLOSED, NO_FIT, OPEN, PASSED, STARTED, TAKEN, WAITS
from rllib_scale.simulator.attempts import (
    error_of,
    labels_of,
    places_of,
    push_waiting,
    remove_waiting,
    set_room,
    start,
)
from rllib_scale.simulator.events import next_event, run_to_target
from rllib_scale.simulator.reward import reward_of_invalid
from rllib_scale.simulator.state import (
    ALL_DONE,
    AT_HORIZON,
    AT_MAX_DECISIONS,
    DISPATCHED,
    NONE,
    ROUNDS,
    RUNNING,
)
from rllib_scale.workloads.fitting import fits

# ---------------------------------------------------------------------- feasibility


@internal
def fit_of(b, row, j, state, problem):  # type: ignore[no-untyped-def]
    """State of server j for a task: CLOSED, TAKEN or OPEN. Decided here alone."""
    memory, server, p = state.tasks[b, row].memory, problem.servers[j], problem.parameters[0]
    places, labels = places_of(b, row, state, p), labels_of(b, row, state, p)
    if fits(memory, places, labels, state.room[b, j], state.free_places[b, j], server.labels):
        return OPEN
    return TAKEN if fits(memory, places, labels, state.limit[b, j], server.max_concurrent, server.labels) else CLOSED


@internal
def _some_open(b, row, state, problem):  # type: ignore[no-untyped-def]
    """Whether some server is OPEN for a task."""
    return _first_open(b, row, state, problem) >= 0


@internal
def _first_open(b, row, state, problem):  # type: ignore[no-untyped-def]
    """The first server that is OPEN for a task; -1: none is."""
    memory, p = state.tasks[b, row].memory, problem.parameters[0]
    places, labels = places_of(b, row, state, p), labels_of(b, row, state, p)
    for j in range(state.room.shape[1]):
        if fits(memory, places, labels, state.room[b, j], state.free_places[b, j], problem.servers[j].labels):
            return j
    return -1


# ---------------------------------------------------------------------- candidates


@internal
def _pop(b, state, p):  # type: ignore[no-untyped-def]
    """Take the first task out of the heap."""
    row = state.ready[b, 0]
    remove_waiting(b, 0, state, p)
    return row


@internal
def withdraw(b, state, p):  # type: ignore[no-untyped-def]
    """Put the candidates back into the heap."""
    if not p.peek:
        _put_back(b, state, p)
    state.env[b].num_offered = 0


@rare
def _put_back(b, state, p):  # type: ignore[no-untyped-def]
    for k in range(state.env[b].num_offered):
        push_waiting(b, state.offered[b, k], state, p)


@internal
def offer(b, filtered, state, problem):  # type: ignore[no-untyped-def]
    """Offer the first K tasks that wait; `filtered`: only those that some server is OPEN for; others are deferred."""
    if problem.parameters[0].peek:
        # A single candidate is shown where it is, and taken out of the heap only when it starts.
        state.offered[b, 0] = state.ready[b, 0]
        state.env[b].num_offered = 1
    else:
        _fill_offers(b, filtered, state, problem)


@rare
def _fill_offers(b, filtered, state, problem):  # type: ignore[no-untyped-def]
    env, offered, p = state.env[b], state.offered[b], problem.parameters[0]
    if filtered:
        # Candidates that no server is open for any more, since the answer before, are deferred too.
        kept = 0
        for k in range(env.num_offered):
            if _some_open(b, offered[k], state, problem):
                offered[kept] = offered[k]
                kept += 1
            else:
                _set_aside(b, offered[k], state)
        env.num_offered = kept
    while env.num_offered < len(offered) and env.num_ready > 0:
        row = _pop(b, state, p)
        if filtered and not _some_open(b, row, state, problem):
            _set_aside(b, row, state)
        else:
            offered[env.num_offered] = row
            env.num_offered += 1


@internal
def _set_aside(b, row, state):  # type: ignore[no-untyped-def]
    env = state.env[b]
    state.aside[b, env.num_aside] = row
    env.num_aside += 1


@internal
def _take(b, k, state, p):  # type: ignore[no-untyped-def]
    """Candidate k is one no longer, and waits nowhere else."""
    env, offered = state.env[b], state.offered[b]
    row = offered[k]
    if p.peek:
        _pop(b, state, p)
    # The others keep their order.
    for i in range(k, env.num_offered - 1):
        offered[i] = offered[i + 1]
    env.num_offered -= 1
    return row


# ---------------------------------------------------------------------- answers


@rare
def reserve(b, row, j, state, problem):  # type: ignore[no-untyped-def]
    """A deferred task waits for server j until the round ends; its places share what waits for them."""
    env, p, server, task = state.env[b], problem.parameters[0], problem.servers[j], state.tasks[b, row]
    if state.extra[b, j] == 0.0:
        state.reserved[b, env.num_reserved] = j
        env.num_reserved += 1
    # What will run beside it: no other task will take its places.
    places = places_of(b, row, state, p)
    others = min(server.max_concurrent - state.free_places[b, j], server.max_concurrent - places)
    execution = task.left * error_of(b, row, state, p) / server.capacity * (1.0 + server.slowdown * others)
    state.extra[b, j] += execution * places / server.max_concurrent
    set_room(b, j, state)
    _set_aside(b, row, state)
    env.waits += 1


@internal
def outcome_of(b, row, j, state, problem):  # type: ignore[no-untyped-def]
    """Result of naming server j for a waiting task: STARTED, WAITS, BUSY or NO_FIT. Decided here alone."""
    fit = fit_of(b, row, j, state, problem)
    if fit == OPEN:
        return STARTED
    if fit == CLOSED:
        return NO_FIT
    return WAITS if problem.parameters[0].reserve else BUSY


@internal
def carry_out(b, row, j, outcome, state, problem):  # type: ignore[no-untyped-def]
    """Let a task, which waits nowhere any more, start on server j or wait for it. Returns the reward."""
    if outcome == STARTED:
        return start(b, row, j, state, problem)
    reserve(b, row, j, state, problem)
    return 0.0


@internal
def available_at(b, j, state):  # type: ignore[no-untyped-def]
    """Virtual availability of server j [s]: when a place is free; inf where nothing can start on it any more."""
    if state.limit[b, j] < 0.0:
        return np.inf
    clock = state.env[b].clock
    return (clock if state.free_places[b, j] > 0 else max(clock, state.next_end[b, j])) + state.extra[b, j]


@internal
def answer(b, action, state, problem):  # type: ignore[no-untyped-def]
    """Carry out a valid action, and say with `env.target` how far time may run. Returns the reward."""
    env, p = state.env[b], problem.parameters[0]
    K, N = state.fit.shape[1], state.fit.shape[2]
    env.decisions += 1
    # The integral of the time reward restarts at each decision.
    env.area = 0.0
    env.decided = env.clock
    if action == K * N:
        env.passed += 1
        state.outcome[b] = PASSED
        if p.reserve:
            for k in range(env.num_offered):
                _set_aside(b, state.offered[b, k], state)
            env.num_offered = 0
        else:
            env.target = np.inf  # the round is over
        return 0.0
    # Candidate k on server j is k N + j. The common case, one candidate, needs no division.
    k, j = (0, action) if action < N else (action // N, action % N)
    row = state.offered[b, k]
    outcome = outcome_of(b, row, j, state, problem)
    state.outcome[b] = outcome
    if outcome in (STARTED, WAITS):
        _take(b, k, state, p)
        return carry_out(b, row, j, outcome, state, problem)
    # Nothing was done: three counters distinguish names that never can be, those too early, and if another was open.
    if outcome == NO_FIT:
        env.invalid_no_fit += 1
    elif _some_open(b, row, state, problem):
        env.invalid_busy_avoidable += 1
    else:
        env.invalid_busy_unavoidable += 1
    if p.reserve:
        _take(b, k, state, p)
        _set_aside(b, row, state)
    else:
        # [SCALE, sec. 4.1]: an invalid decision costs a clock step, in which nothing is asked.
        env.target = min(p.horizon, env.clock + p.clock_step)
    return reward_of_invalid(p)


# ---------------------------------------------------------------------- rounds


@internal
def find_row(b, workflow, task, state):  # type: ignore[no-untyped-def]
    """Row of a task by the number of its workflow, which has arrived; -1: there is none."""
    env, low = state.env[b], workflow
    if not (0 <= workflow < env.workflows_arrived and state.workflows[b, workflow].number == workflow):
        # Binary search for the first number that is not below.
        low, high = 0, env.workflows_arrived  # rows of older workflows were recycled: numbers are in order
        while low < high:
            middle = (low + high) // 2
            if state.workflows[b, middle].number < workflow:
                low = middle + 1
            else:
                high = middle
        if low == env.workflows_arrived or state.workflows[b, low].number != workflow:
            return np.int64(NONE)
    found = state.workflows[b, low]
    return found.first_task + task if 0 <= task < found.num_tasks else np.int64(NONE)


@internal
def find_waiting(b, workflow, task, state):  # type: ignore[no-untyped-def]
    """Position of a task in the heap; -1: it does not wait there."""
    row = find_row(b, workflow, task, state)
    for at in range(state.env[b].num_ready):
        if state.ready[b, at] == row:
            return at
    return -1


@rare
def open_all(b, state, p):  # type: ignore[no-untyped-def]
    """Put every candidate and every deferred task back into the heap."""
    env = state.env[b]
    withdraw(b, state, p)
    for i in range(env.num_aside):
        push_waiting(b, state.aside[b, i], state, p)
    env.num_aside = 0


@rare
def close(b, is_round, state, problem):  # type: ignore[no-untyped-def]
    """End the round: reservations are forgotten, and time may run to the next event.

    Where nothing runs and nothing is to come, the first task that can start does so: not after a dispatch with
    `on_busy: step`, which is no round.
    """
    env, p = state.env[b], problem.parameters[0]
    open_all(b, state, p)
    for i in range(env.num_reserved):
        state.extra[b, state.reserved[b, i]] = 0.0
        set_room(b, state.reserved[b, i], state)
    env.num_reserved = env.in_round = 0
    # Time advances only if a task waits: then nothing changes before the next event.
    env.target = env.clock
    if env.num_ready > 0 and env.decisions < p.max_decisions:
        # No event would ever come: without this an agent that only waits would stop the clock for good.
        if is_round and env.num_busy == 0 and next_event(env) >= p.horizon:
            force(b, state, problem)
        env.target = min(p.horizon, next_event(env))


@rare
def force(b, state, problem):  # type: ignore[no-untyped-def]
    """Start the first task that some server is OPEN for, on the first such server: progress."""
    env, p = state.env[b], problem.parameters[0]
    while env.num_ready > 0:
        row = _pop(b, state, p)
        j = _first_open(b, row, state, problem)
        if j >= 0:
            start(b, row, j, state, problem)
        if env.num_busy > 0:
            break
        _set_aside(b, row, state)
    open_all(b, state, p)


@internal
def run(b, wake, state, problem):  # type: ignore[no-untyped-def]
    """Let the clock run until a decision is wanted or the episode ends.

    `wake` says when one is wanted: STEPS, ROUNDS or DISPATCHED.
    """
    env, p = state.env[b], problem.parameters[0]
    filtered = p.feasible_only != 0 and wake == ROUNDS
    while True:
        # A round goes on at one time: as long as it does, no event is taken from the queues.
        if env.in_round:
            if env.decisions < p.max_decisions:
                offer(b, filtered, state, problem)
                if env.num_offered > 0 and env.num_open > 0:
                    return
            close(b, True, state, problem)
        elif env.target == np.inf:
            close(b, True, state, problem)
        else:
            withdraw(b, state, p)
        run_to_target(b, state, problem)
        if env.clock >= p.horizon:
            env.end = AT_HORIZON
        elif env.in_system == 0 and env.next_arrival == np.inf:
            env.end = ALL_DONE
        elif env.decisions >= p.max_decisions:
            env.end = AT_MAX_DECISIONS
        if env.end != RUNNING:
            # The episode was cut: the next candidates are shown, from which a critic values what was to come.
            cut = env.end == AT_MAX_DECISIONS or (env.end == AT_HORIZON and not p.horizon_is_terminal)
            if cut and env.num_ready > 0:
                offer(b, False, state, problem)
            return
        if env.num_ready == 0:
            # Nothing waits: in the paper's mode the clock goes on step by step, else to the next event.
            by_step = p.idle_by_step and not p.reserve
            env.target = min(p.horizon, env.clock + p.clock_step if by_step else next_event(env))
        elif wake == ROUNDS:
            env.in_round = env.num_open > 0
            if not env.in_round:
                env.target = min(p.horizon, next_event(env))
        else:
            offer(b, filtered, state, problem)
            if wake == DISPATCHED or not p.feasible_only or some_candidate_open(b, state, problem):
                env.in_round = p.reserve
                return
            env.target = min(p.horizon, next_event(env))


@internal
def some_candidate_open(b, state, problem):  # type: ignore[no-untyped-def]
    """Whether some server is OPEN for some candidate."""
    for k in range(state.env[b].num_offered):  # noqa: SIM110 (compiled code knows no generators)
        if _some_open(b, state.offered[b, k], state, problem):
            return True
    return False
