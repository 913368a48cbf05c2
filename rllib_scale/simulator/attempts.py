"""Attempts to run a task: one starts on a row, and ends, or is ended; and what could start on the rows then."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import internal, rare
from rllib_scale.simulator.heaps import BY_ARRIVAL, BY_FINISH, BY_RANK, push, remove
from rllib_scale.simulator.reward import assignment_reward
from rllib_scale.simulator.state import AWAY, DRAINING, FAILED, NONE, PREEMPTED, RESUME, TO_END

# ---------------------------------------------------------------------- tasks that wait


@internal
def rank(task, detail, order):  # type: ignore[no-untyped-def]
    """Key of a task in a named order, largest first; in the order of config.NamedOrder."""
    if order == 0:  # longest-hop
        return float(detail.hop)
    if order == 3:  # most-descendants
        return float(detail.descendants)
    if order == 4:  # shortest-task
        return -task.left * detail.error
    if order == 5:  # descendants-per-work
        return detail.descendants / (task.left * detail.error)
    return 0.0


@internal
def error_of(b, row, state, p):  # type: ignore[no-untyped-def]
    """Demand of a task as schedulers see it over the true one [1]."""
    return state.details[b, row].error if p.estimates else 1.0


@internal
def make_ready(b, row, state, p):  # type: ignore[no-untyped-def]
    """A task waits from now on."""
    state.tasks[b, row].ready = state.env[b].clock
    push_waiting(b, row, state, p)


@internal
def push_waiting(b, row, state, p):  # type: ignore[no-untyped-def]
    """Put a task into the heap of those that wait."""
    env, order = state.env[b], BY_ARRIVAL if p.ties_by_arrival else BY_RANK
    push(state.ready[b], env.num_ready, order, state.tasks[b], state.finish[b], row)
    env.num_ready += 1


@internal
def remove_waiting(b, at, state, p):  # type: ignore[no-untyped-def]
    """Take the task at that position out of the heap of those that wait."""
    env, order = state.env[b], BY_ARRIVAL if p.ties_by_arrival else BY_RANK
    remove(state.ready[b], env.num_ready, order, state.tasks[b], state.finish[b], at)
    env.num_ready -= 1


# ---------------------------------------------------------------------- rows


@internal
def set_room(b, j, state, problem):  # type: ignore[no-untyped-def]
    """What could start on row j now: nothing, where its server is away or drains, or another task waits for it."""
    env = state.env[b]
    before = state.room[b, j] >= 0.0
    is_open = state.limit[b, j] >= 0.0 and state.finish[b, j] == np.inf and state.extra[b, j] == 0.0
    free = state.limit[b, j] if problem.parameters[0].simple else state.hosts[b, problem.servers[j].host].free
    state.room[b, j] = free if is_open else -1.0
    env.num_open += int(is_open) - int(before)


@rare
def share_memory(b, h, state, problem):  # type: ignore[no-untyped-def]
    """After a task of server h began or ended: what is free, and so what could start on its rows."""
    first, end = problem.first_row[h], problem.first_row[h + 1]
    host = state.hosts[b, h]
    used = 0.0
    for j in range(first, end):
        if state.finish[b, j] < np.inf:
            used += state.tasks[b, state.running[b, j]].memory
    host.free = max(0.0, problem.servers[first].memory - used)
    for j in range(first, end):
        set_room(b, j, state, problem)


@internal
def leave_if_done(b, h, state):  # type: ignore[no-untyped-def]
    """A server that drains leaves when nothing runs on it any more."""
    host = state.hosts[b, h]
    if host.status == DRAINING and host.running == 0:
        host.status = AWAY
        host.left = state.env[b].clock


# ---------------------------------------------------------------------- attempts


@internal
def transfer_time(b, row, host, state, problem):  # type: ignore[no-untyped-def]
    """Time [s] to move a task's input to a server, from where its predecessors ran [SCALE, sec. 3]."""
    p, task = problem.parameters[0], state.tasks[b, row]
    if not p.from_all:
        if task.first_predecessor < 0:
            return 0.0
        predecessor = state.tasks[b, task.first_predecessor]
        if problem.servers[predecessor.host].host == host:
            return 0.0
        return predecessor.output / p.bandwidth + p.latency
    return _transfer_from_all(b, state.details[b, row], host, state, problem)


@rare
def _transfer_from_all(b, detail, host, state, problem):  # type: ignore[no-untyped-def]
    p, total = problem.parameters[0], 0.0
    for i in range(detail.predecessors, detail.predecessors + detail.num_predecessors):
        predecessor = state.tasks[b, state.edges[b, i]]
        if problem.servers[predecessor.host].host != host:
            total += predecessor.output / p.bandwidth + p.latency
    return total


@internal
def start(b, row, j, state, problem):  # type: ignore[no-untyped-def]
    """Start a task, which waits no longer, on row j, which is open for it. Returns the reward."""
    env, p, server, task = state.env[b], problem.parameters[0], problem.servers[j], state.tasks[b, row]
    host = state.hosts[b, server.host]
    delay = transfer_time(b, row, server.host, state, problem)
    execution = task.left / server.capacity
    if not p.simple:
        execution *= 1.0 + server.slowdown * host.running
    before = delay if p.transfer else 0.0
    taken = before + execution
    finish = env.clock + taken
    task.host = j
    state.finish[b, j] = finish
    state.expected[b, j] = env.clock + (before + execution * error_of(b, row, state, p))
    state.running[b, j] = row
    state.busy[b, j] += taken
    state.room[b, j] = -1.0
    env.num_open -= 1
    if not p.simple:
        host.running += 1
        share_memory(b, server.host, state, problem)
    push(state.queue[b], env.num_busy, BY_FINISH, state.tasks[b], state.finish[b], j)
    env.num_busy += 1
    env.next_finish = min(env.next_finish, finish)
    state.attempt[b, j] = env.num_started
    log, workflow = state.log[b, env.num_started], state.workflows[b, task.workflow]
    log.workflow, log.task, log.server, log.outcome = task.workflow, row - workflow.first_task, j, TO_END
    log.arrival, log.ready, log.start, log.finish = workflow.arrival, task.ready, env.clock, finish
    log.transfer, log.work = before, task.left
    env.num_started += 1
    return assignment_reward(taken, delay, server.reward_power * taken, p)


@rare
def end_attempt(b, j, outcome, state, problem):  # type: ignore[no-untyped-def]
    """The task on row j stops before its end, FAILED or PREEMPTED, and waits anew from now on."""
    env, p, row = state.env[b], problem.parameters[0], state.running[b, j]
    task, detail, log = state.tasks[b, row], state.details[b, row], state.log[b, state.attempt[b, j]]
    for at in range(env.num_busy):
        if state.queue[b, at] == j:
            remove(state.queue[b], env.num_busy, BY_FINISH, state.tasks[b], state.finish[b], at)
            break
    env.num_busy -= 1
    took = env.clock - log.start
    worked = max(0.0, took - log.transfer)
    done = task.left * worked / (log.finish - log.start - log.transfer)
    state.busy[b, j] -= log.finish - env.clock
    log.finish, log.outcome, log.work = env.clock, outcome, done
    if outcome == PREEMPTED:
        env.preempted_attempts += 1
    else:
        env.failed_attempts += 1
    if outcome == PREEMPTED and p.preemption == RESUME:
        task.left -= done
        detail.spent += worked
        env.lost += took - worked
    else:
        env.lost += took
        if outcome == FAILED:
            env.lost += detail.spent
            detail.spent = 0.0
            task.left = detail.compute
    task.host = NONE
    task.rank = rank(task, detail, p.order)
    h = problem.servers[j].host
    state.finish[b, j] = state.expected[b, j] = np.inf
    state.running[b, j] = NONE
    state.hosts[b, h].running -= 1
    env.next_finish = state.finish[b, state.queue[b, 0]] if env.num_busy > 0 else np.inf
    share_memory(b, h, state, problem)
    leave_if_done(b, h, state)
    make_ready(b, row, state, p)
