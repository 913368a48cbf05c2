"""Events from outside: what happens on a live cluster, each with its time, and the rounds between them.

The clock of such an environment runs when somebody says so, and nothing fires from an expected finish: a task runs
until `ended`. Release delays are the only events of its own. Events of one time take effect in the order in which
they are told. All functions are about environment 0.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled, internal
from rllib_scale.observation.answers import STARTED
from rllib_scale.simulator.attempts import (
    clear,
    fail_attempt,
    leave_queue,
    make_ready,
    places_of,
    push_waiting,
    rank,
    remove_waiting,
)
from rllib_scale.simulator.changes import FAIL, apply
from rllib_scale.simulator.events import advance, arrive, complete, end_delay, skip_completed
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.heaps import BY_READY, remove
from rllib_scale.simulator.kernel import begin_episode
from rllib_scale.simulator.load import add
from rllib_scale.simulator.rounds import (
    answer,
    find_row,
    fit_of,
    force,
    offer,
    open_all,
    set_room,
    some_candidate_open,
    withdraw,
)
from rllib_scale.simulator.state import FAILED, FAR, NONE, NOWHERE
from rllib_scale.simulator.writers import write_observation

B = 0
"""The environment."""


@compiled
def begin_outside(table):  # type: ignore[no-untyped-def]
    """Begin at clock 0 without any workflow."""
    state, problem = state_of(table), problem_of(table)
    env = state.env[B]
    # Another workflow may always come, so no episode ends for want of them: `after` is never reached.
    env.num_workflows, env.after, env.has_delays, env.per_edge = 0, np.inf, 0, 0
    begin_episode(B, np.uint64(0), np.uint64(0), state, problem)
    env.outside = 1


@compiled
def row_of(number, task, table):  # type: ignore[no-untyped-def]
    """Row of a task by the number of its workflow; -1: that has not arrived, or is not kept any more."""
    return find_row(B, number, task, state_of(table))


@compiled
def order_anew(table):  # type: ignore[no-untyped-def]
    """Sort what waits by other parameters."""
    state, p = state_of(table), problem_of(table).parameters[0]
    env = state.env[B]
    # The heap is built again in place: row i is read before an entry could be written there.
    waiting, env.num_ready = env.num_ready, 0
    for w in range(env.workflows_arrived):
        workflow = state.workflows[B, w]
        for row in range(workflow.first_task, workflow.first_task + workflow.num_tasks):
            state.tasks[B, row].rank = rank(state.tasks[B, row], state.details[B, row], p.order)
    for i in range(waiting):  # a row is read before the heap grows up to it
        push_waiting(B, state.ready[B, i], state, p)


@internal
def _end_delays(state, problem):  # type: ignore[no-untyped-def]
    """End the release delays that are due; tasks without work are released with one of 0 s."""
    while state.env[B].next_release <= state.env[B].clock:
        end_delay(B, state, problem.parameters[0])


@compiled
def advance_to(time, table):  # type: ignore[no-untyped-def]
    """Let the clock run to `time` [s], where all release delays end that are due; returns whether any was."""
    state, problem = state_of(table), problem_of(table)
    env = state.env[B]
    advance(env, max(env.clock, time))
    any_due = env.next_release <= env.clock
    _end_delays(state, problem)
    return any_due


@compiled
def arrive_now(number, arrival, home, first, at, demand, edges, moved, table):  # type: ignore[no-untyped-def]
    """A workflow arrives.

    Args:
        number: by which it is known, above all former ones.
        arrival: when it arrived [s]: now, or before.
        home: server on which its first task has ended before, -1: none has.
        first: its task rows stand from there on.
        at: its edges stand from there on.
        demand: (T,) generators.TASK_DEMAND.
        edges: (E, 2) predecessor, successor; sorted.
        moved: (E,) GB that the successor needs of the predecessor.
        table: of state and problem, with room for it.

    Returns:
        Where the edges of the next one begin.
    """
    state, problem = state_of(table), problem_of(table)
    env = state.env[B]
    for k in range(len(demand)):
        if demand[k].delay > 0.0:
            env.has_delays = 1
    for i in range(len(edges)):
        if moved[i] != demand[edges[i, 0]].output:
            env.per_edge = 1
    at = add(B, arrival, len(demand), demand, len(edges), edges, moved, first, at, state, problem)
    workflow = state.workflows[B, env.num_workflows - 1]
    workflow.number = number
    # A call before this one has a row, so that its output has a server, but it was never in the system here.
    if home >= 0:  # what had ended before is no arrived work, and no task of the longest path
        state.tasks[B, first].place = problem.servers[home].first_place
        workflow.num_completed = 1
        for row in range(first + 1, first + len(demand)):
            state.details[B, row].level -= 1
        for i in range(state.tasks[B, first].first_successor, at):
            state.tasks[B, state.edges[B, i]].num_missing -= 1
        state.tasks[B, first].num_missing = 1  # it is not released
    arrive(B, state, problem)
    if home >= 0:
        state.tasks[B, first].num_missing = 0
        env.arrived -= 1
        env.in_system -= 1
    _end_delays(state, problem)
    return at


@internal
def _count_busy(place, state, problem):  # type: ignore[no-untyped-def]
    """What runs on a place has ended: its time counts for each place that it took."""
    took = state.env[B].clock - state.log[B, state.attempt[B, place]].start
    taken = places_of(B, state.running[B, place], state, problem.parameters[0])
    state.busy[B, problem.server_of[place]] += took * taken


@compiled
def ended(place, table):  # type: ignore[no-untyped-def]
    """The task of a place has ended."""
    state, problem = state_of(table), problem_of(table)
    log = state.log[B, state.attempt[B, place]]
    # `start` knew no end, and counted nothing yet.
    _count_busy(place, state, problem)
    log.finish = state.env[B].clock
    leave_queue(B, place, state)
    complete(B, place, state, problem)
    _end_delays(state, problem)


@compiled
def failed(place, table):  # type: ignore[no-untyped-def]
    """The attempt of a place came to nothing: its task waits anew."""
    fail_attempt(B, place, state_of(table), problem_of(table))


@compiled
def lost(row, table):  # type: ignore[no-untyped-def]
    """The output of a task that had ended is gone: it is to be run again, and tasks that need it wait for it."""
    state, p = state_of(table), problem_of(table).parameters[0]
    env, task = state.env[B], state.tasks[B, row]
    workflow = state.workflows[B, task.workflow]
    env.completed -= 1
    env.in_system += 1
    workflow.num_completed -= 1
    for at in range(env.num_started - 1, -1, -1):
        log = state.log[B, at]
        if log.workflow == workflow.number and log.task == row - workflow.first_task and log.finish < FAR:
            # The sum of responses is that of the last end of each task: this one is to come again.
            env.response_sum -= log.finish - workflow.arrival
            break
    for i in range(task.first_successor, task.first_successor + task.num_successors):
        after = state.edges[B, i]
        if state.tasks[B, after].place == NONE:
            # One that waited, or whose release delay ran, must not start without its input.
            if state.tasks[B, after].num_missing == 0:
                _withdraw(after, state, p)
            state.tasks[B, after].num_missing += 1
    task.place = NONE
    task.num_missing = _num_missing(row, workflow, state)
    task.rank = rank(task, state.details[B, row], p.order)
    if task.num_missing == 0:
        make_ready(B, row, state, p)


@internal
def _has_ended(row, state):  # type: ignore[no-untyped-def]
    place = state.tasks[B, row].place
    return place == NOWHERE or (place >= 0 and state.running[B, place] != row)


@internal
def _num_missing(row, workflow, state):  # type: ignore[no-untyped-def]
    """How many predecessors of a task have not ended."""
    missing = 0
    for before in range(workflow.first_task, workflow.first_task + workflow.num_tasks):
        task = state.tasks[B, before]
        for i in range(task.first_successor, task.first_successor + task.num_successors):
            missing += int(state.edges[B, i] == row and not _has_ended(before, state))
    return missing


@internal
def _withdraw(row, state, p):  # type: ignore[no-untyped-def]
    """A task waits no longer, nor does its release delay run."""
    env = state.env[B]
    for at in range(env.num_ready):
        if state.ready[B, at] == row:
            remove_waiting(B, at, state, p)
            return
    for at in range(env.num_released):
        if state.released[B, at] == row:
            remove(state.released[B], env.num_released, BY_READY, state.tasks[B], state.finish[B], at)
            env.num_released -= 1
            env.next_release = state.tasks[B, state.released[B, 0]].ready if env.num_released > 0 else np.inf
            return


@compiled
def give_up(w, table):  # type: ignore[no-untyped-def]
    """The workflow in row `w` is given up: nothing of it waits any more, and what runs of it is to be `stopped`.

    Until then it holds its place and memory. Returns the first of its task rows and how many there are.
    """
    state, p = state_of(table), problem_of(table).parameters[0]
    env, workflow = state.env[B], state.workflows[B, w]
    for row in range(workflow.first_task, workflow.first_task + workflow.num_tasks):
        task = state.tasks[B, row]
        if task.place < 0 and task.num_missing == 0:
            _withdraw(row, state, p)
        elif task.place >= 0 and state.running[B, task.place] == row:
            log = state.log[B, state.attempt[B, task.place]]
            # Its log row ends now, though its place and memory are taken until the call has really stopped.
            log.outcome, log.finish = FAILED, env.clock
            worked = max(0.0, env.clock - log.start - log.transfer)
            planned = state.expected[B, task.place] - log.start - log.transfer
            log.work = min(task.left, task.left * worked / planned)
            env.failed_attempts += 1
            env.lost += (env.clock - log.start) * places_of(B, row, state, p)
            task.place = NONE  # not where its attempt still runs
    # Given up tasks leave the system; their stay so far goes on counting as that of tasks that never end.
    left = workflow.num_tasks - workflow.num_completed
    env.in_system -= left
    env.given_up += left
    env.given_up_arrivals += left * workflow.arrival
    workflow.num_completed = workflow.num_tasks
    skip_completed(B, state)
    return workflow.first_task, workflow.num_tasks


@compiled
def stopped(place, table):  # type: ignore[no-untyped-def]
    """What ran on a place and was given up has stopped."""
    state, problem = state_of(table), problem_of(table)
    _stop(place, state, problem)


@internal
def _stop(place, state, problem):  # type: ignore[no-untyped-def]
    _count_busy(place, state, problem)
    leave_queue(B, place, state)
    clear(B, place, state, problem)


@compiled
def change_server(j, event, table):  # type: ignore[no-untyped-def]
    """A server joins, drains or fails: what ran there waits anew, and what was given up there has stopped."""
    state, problem = state_of(table), problem_of(table)
    first = problem.servers[j].first_place
    for place in range(first, first + problem.servers[j].max_concurrent if event == FAIL else first):
        # Those that were given up and still run here have stopped with the server; they do not wait anew.
        row = state.running[B, place]
        if row >= 0 and state.tasks[B, row].place != place:
            _stop(place, state, problem)
    apply(B, j, event, state, problem)


# ---------------------------------------------------------------------- rounds


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
    # With a mask tasks that no open server has room for are passed over in this round, and block nobody.
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


@compiled
def step_in_round(action, table):  # type: ignore[no-untyped-def]
    """See `step_on`."""
    return step_on(action, state_of(table), problem_of(table))


@compiled
def end_round(starts, table):  # type: ignore[no-untyped-def]
    """Forget the reservations; `starts`: where nothing runs, the first task that can start does so, for progress."""
    state, problem = state_of(table), problem_of(table)
    _end_round(state, problem.parameters[0])
    if starts and state.env[B].num_ready > 0 and state.env[B].num_busy == 0:
        force(B, state, problem)
