"""Events from outside: what happens on a live cluster, each with its time, and the rounds between them.

The clock of such an environment runs when somebody says so, and nothing fires from an expected finish: a task runs
until `ended`. Release delays are the only events of its own. Events of one time take effect in the order in which
they are told. All functions are about environment 0.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled, internal
from rllib_scale.observation.answers import OPEN
from rllib_scale.simulator.attempts import (
    clear,
    fail_attempt,
    leave_queue,
    make_ready,
    places_of,
    push_waiting,
    rank,
    remove_waiting,
    start,
)
from rllib_scale.simulator.changes import FAIL, apply
from rllib_scale.simulator.events import advance, arrive, complete, end_delay, skip_completed
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.heaps import BY_READY, remove
from rllib_scale.simulator.kernel import begin_episode
from rllib_scale.simulator.load import FIRST, MISSING, ORDER, add, count_levels
from rllib_scale.simulator.rounds import (
    find_row,
    find_waiting,
    fit_of,
)
from rllib_scale.simulator.state import FAILED, FAR, NONE
from rllib_scale.workloads.dag import sort_by_predecessor

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


(FINE, NO_TASK, DEMAND, EDGE, EDGE_GB, CYCLE, BEFORE_FIRST) = range(7)
"""Faults of a workflow."""


@compiled
def wrong_in(demand, edges, moved, has_home, table):  # type: ignore[no-untyped-def]
    """The fault of a workflow, and its task or edge; see `arrive_now`. There is room for it."""
    problem = problem_of(table)
    if len(demand) <= has_home:
        return NO_TASK, 0
    for k in range(len(demand)):
        needs = demand[k]
        if (
            not (0.0 <= needs.compute < np.inf and 0.0 <= needs.memory < np.inf)
            or not (0.0 <= needs.output < np.inf and 0.0 <= needs.delay < np.inf)
            or needs.places < 1
            or needs.labels < 0
        ):
            return DEMAND, k
    for i in range(len(edges)):
        before, after = edges[i, 0], edges[i, 1]
        is_behind = i == 0 or before > edges[i - 1, 0] or (before == edges[i - 1, 0] and after > edges[i - 1, 1])
        if not (is_behind and 0 <= before < len(demand) and 0 <= after < len(demand)):
            return EDGE, i
        if has_home and after == 0:
            return BEFORE_FIRST, i
    for i in range(len(moved)):
        if not 0.0 <= moved[i] < np.inf:
            return EDGE_GB, i
    tables = problem.tables
    sorts = tables[FIRST], problem.successors, tables[MISSING], tables[ORDER]
    if sort_by_predecessor(len(demand), len(edges), edges, *sorts) < len(demand):
        return CYCLE, 0
    return FINE, 0


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
        home: server on which its first task, which follows none, has ended before; -1: none has.
        first: its task rows begin there.
        at: its edges begin there.
        demand: (T,) generators.TASK_DEMAND.
        edges: (E, 2) predecessor, successor; sorted, each once, acyclic.
        moved: (E,) GB that the successor needs of the predecessor.
        table: of state and problem, with room for it; `wrong_in` found nothing.

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
    n = len(demand)
    at = add(B, arrival, n, demand, len(edges), edges, moved, first, at, state, problem)
    workflow = state.workflows[B, env.num_workflows - 1]
    workflow.number = number
    # A call before this one has a row, so that its output has a server, but it was never in the system here.
    if home >= 0:  # what had ended before is no arrived work, and no task of the longest path
        state.tasks[B, first].place = problem.servers[home].first_place
        workflow.num_completed = 1
        state.details[B, first].level = 0
        for row in range(first + 1, first + n):
            state.details[B, row].level = 1
        count_levels(B, first, n, state, problem)
        ended = state.tasks[B, first]
        for i in range(ended.first_successor, ended.first_successor + ended.num_successors):
            state.tasks[B, state.edges[B, i]].num_missing -= 1
        ended.num_missing = 1  # it is not released
    arrive(B, state, problem)
    if home >= 0:
        state.tasks[B, first].num_missing = 0
        env.arrived -= 1
        env.in_system -= 1
    _end_delays(state, problem)
    return at


@internal
def _count_busy(place, state, problem):  # type: ignore[no-untyped-def]
    """The attempt on a place has ended: its time counts for each place that it took."""
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
    """The attempt of a place came to nothing: its task waits again."""
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
        # One that waited, or whose release delay ran, must not start without its input.
        if state.tasks[B, after].num_missing == 0 and state.tasks[B, after].place == NONE:
            _withdraw(after, state, p)
        state.tasks[B, after].num_missing += 1
    task.place = NONE
    task.rank = rank(task, state.details[B, row], p.order)
    if task.num_missing == 0:
        make_ready(B, row, state, p)


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
        if task.place == NONE and task.num_missing == 0:
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
def resume(workflow, task, j, since, table):  # type: ignore[no-untyped-def]
    """A task that waits has been running on server j since then; whether there is room for it."""
    state, problem = state_of(table), problem_of(table)
    env, at = state.env[B], find_waiting(B, workflow, task, state)
    row = state.ready[B, at]
    if fit_of(B, row, j, state, problem) != OPEN:
        return False
    remove_waiting(B, at, state, problem.parameters[0])
    # The clock is set back for this one start: its expected end follows from when it really began.
    now, env.clock = env.clock, since
    start(B, row, j, state, problem)
    env.clock = now
    return True


@compiled
def is_waiting(workflow, task, table):  # type: ignore[no-untyped-def]
    """Whether a task waits between two rounds."""
    return find_waiting(B, workflow, task, state_of(table)) >= 0


@compiled
def stopped(place, table):  # type: ignore[no-untyped-def]
    """The abandoned attempt on a place has stopped."""
    state, problem = state_of(table), problem_of(table)
    _stop(place, state, problem)


@internal
def _stop(place, state, problem):  # type: ignore[no-untyped-def]
    _count_busy(place, state, problem)
    leave_queue(B, place, state)
    clear(B, place, state, problem)


@compiled
def change_server(j, event, table):  # type: ignore[no-untyped-def]
    """A server joins, drains or fails: its tasks wait again, and abandoned ones have stopped."""
    state, problem = state_of(table), problem_of(table)
    first = problem.servers[j].first_place
    for place in range(first, first + problem.servers[j].max_concurrent if event == FAIL else first):
        # Abandoned attempts that still ran here stop with the server; their tasks do not wait again.
        row = state.running[B, place]
        if row >= 0 and state.tasks[B, row].place != place:
            _stop(place, state, problem)
    apply(B, j, event, state, problem)
