"""Events of one environment: workflows arrive, tasks complete, others become ready."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import internal, rare
from rllib_scale.simulator.attempts import clear, make_ready
from rllib_scale.simulator.changes import change
from rllib_scale.simulator.heaps import BY_FINISH, BY_READY, push, remove
from rllib_scale.simulator.state import NONE, NOWHERE


@internal
def schedule_arrival(b, state):  # type: ignore[no-untyped-def]
    """Set the time of the next arrival; inf where no workflow arrives any more."""
    env, w = state.env[b], state.env[b].workflows_arrived
    env.next_arrival = state.workflows[b, w].arrival if w < env.num_workflows else env.after


@internal
def advance(env, time):  # type: ignore[no-untyped-def]
    """Let time pass in which nothing happens."""
    # Integral of the tasks in the system: a reward, and by Little's law the sum of responses.
    env.area += env.in_system * (time - env.clock)
    env.clock = time


@internal
def release(b, row, state, p):  # type: ignore[no-untyped-def]
    """All predecessors of a task have ended: it is ready after its delay."""
    env, task = state.env[b], state.tasks[b, row]
    if p.revealed:
        workflow = state.workflows[b, task.workflow]
        # A revealed workflow shows a task once nothing is missing for it, before its release delay has run.
        workflow.num_seen += 1
        state.details[b, row].seen = workflow.num_seen
    delay = state.details[b, row].delay if env.has_delays else 0.0
    # Without a delay it is ready at this very event, before the next one is looked at.
    if delay == 0.0 and task.left > 0.0:
        make_ready(b, row, state, p)
        return
    task.ready = env.clock + delay
    push(state.released[b], env.num_released, BY_READY, state.tasks[b], state.finish[b], row)
    env.num_released += 1
    env.next_release = min(env.next_release, task.ready)


@internal
def arrive(b, state, problem):  # type: ignore[no-untyped-def]
    """The next workflow arrives: its roots are released, and the time of the next arrival is set."""
    env = state.env[b]
    workflow = state.workflows[b, env.workflows_arrived]
    env.arrived += workflow.num_tasks
    # All tasks of a workflow are in the system from its arrival on, ready or not.
    env.in_system += workflow.num_tasks
    env.workflows_arrived += 1
    env.next_number = workflow.number + 1
    for row in range(workflow.first_task, workflow.first_task + workflow.num_tasks):
        if state.tasks[b, row].num_missing == 0:
            release(b, row, state, problem.parameters[0])
    schedule_arrival(b, state)


@internal
def _complete(b, state, problem):  # type: ignore[no-untyped-def]
    """The task that finishes first completes: its place is free, its successors may be ready."""
    place = state.queue[b, 0]
    remove(state.queue[b], state.env[b].num_busy, BY_FINISH, state.tasks[b], state.finish[b], 0)
    complete(b, place, state, problem)


@internal
def complete(b, place, state, problem):  # type: ignore[no-untyped-def]
    """The task of a place, which is out of the queue, has ended."""
    row = state.running[b, place]
    clear(b, place, state, problem)
    _end_task(b, row, state, problem.parameters[0])


@internal
def _end_task(b, row, state, p):  # type: ignore[no-untyped-def]
    """A task has ended: its successors may be ready, its workflow may be complete."""
    env, task = state.env[b], state.tasks[b, row]
    workflow = state.workflows[b, task.workflow]
    env.completed += 1
    env.in_system -= 1
    env.response_sum += env.clock - workflow.arrival
    # Successors in the order of their numbers: of tasks that become ready at once the first has the lowest.
    for i in range(task.first_successor, task.first_successor + task.num_successors):
        successor = state.tasks[b, state.edges[b, i]]
        successor.num_missing -= 1
        # One that runs or has ended had this output before it was lost, and made again.
        if successor.num_missing == 0 and successor.place == NONE:
            release(b, state.edges[b, i], state, p)
    workflow.num_completed += 1
    if workflow.num_completed == workflow.num_tasks:
        env.workflows_completed += 1
        env.makespan_sum += env.clock - workflow.arrival
        skip_completed(b, state)


@internal
def skip_completed(b, state):  # type: ignore[no-untyped-def]
    """Move `first_live` on."""
    env = state.env[b]
    # Workflows complete in any order; all before `first_live` have: loops over those under way begin there.
    while env.first_live < env.workflows_arrived and not is_live(state.workflows[b, env.first_live]):
        env.first_live += 1


@rare
def end_delay(b, state, p):  # type: ignore[no-untyped-def]
    """The release delay that ends first has ended: its task waits, or has ended if it has no work."""
    env, released = state.env[b], state.released[b]
    row = released[0]
    remove(released, env.num_released, BY_READY, state.tasks[b], state.finish[b], 0)
    env.num_released -= 1
    env.next_release = state.tasks[b, released[0]].ready if env.num_released > 0 else np.inf
    if state.tasks[b, row].left > 0.0:
        make_ready(b, row, state, p)
    else:
        # A task without work takes no server, and moves nothing to its successors.
        state.tasks[b, row].place = NOWHERE
        _end_task(b, row, state, p)


@internal
def is_live(workflow):  # type: ignore[no-untyped-def]
    """Whether a workflow that has arrived has unfinished tasks."""
    return workflow.num_completed < workflow.num_tasks


@internal
def next_event(env):  # type: ignore[no-untyped-def]
    """When something happens next; inf: never."""
    return min(min(env.next_finish, env.next_arrival), min(env.next_release, env.next_change))


@internal
def run_to_target(b, state, problem):  # type: ignore[no-untyped-def]
    """Process all events until `env.target`, the new time.

    At one time tasks complete first, then release delays end, then workflows arrive, then servers change.
    """
    env = state.env[b]
    while True:
        if env.in_system == 0 and env.next_arrival == np.inf:
            env.target = env.clock  # the last task completed within a clock step: the episode ends here, not after it
        other = min(env.next_release, env.next_change)
        # Finishes and arrivals are most events: the others are compared once, before.
        time = min(min(env.next_finish, env.next_arrival), other)
        if time > env.target:
            advance(env, env.target)
            return
        advance(env, time)
        if env.next_finish <= time:
            _complete(b, state, problem)
        elif env.next_release <= time:
            end_delay(b, state, problem.parameters[0])
        elif env.next_arrival <= time:
            arrive(b, state, problem)
        else:
            change(b, state, problem)
