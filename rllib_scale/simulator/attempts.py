"""Attempts to run a task: one starts on a server, and ends, or is ended; and what the server shows then."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import internal, rare
from rllib_scale.observation.orders import order_key
from rllib_scale.simulator.heaps import BY_ARRIVAL, BY_FINISH, BY_RANK, push, remove
from rllib_scale.simulator.reward import reward_of_start
from rllib_scale.simulator.state import AWAY, DRAINING, FAILED, FAR, NONE, TO_END

# ---------------------------------------------------------------------- tasks that wait


@internal
def rank(task, detail, order):  # type: ignore[no-untyped-def]
    """Key of a task in a named order, largest first."""
    if task.left == 0.0:  # never waits
        return 0.0
    return order_key(order, detail.hop, detail.descendants, task.left * detail.error)


@internal
def error_of(b, row, state, p):  # type: ignore[no-untyped-def]
    """Demand of a task as schedulers see it over the true one [1]."""
    return state.details[b, row].error if p.estimates else 1.0


@internal
def labels_of(b, row, state, p):  # type: ignore[no-untyped-def]
    """Labels that a task needs of a server, as bits."""
    return state.details[b, row].labels if p.labels else 0


@internal
def places_of(b, row, state, p):  # type: ignore[no-untyped-def]
    """Places that a task takes of a server."""
    return state.details[b, row].places if p.several else 1


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


# ---------------------------------------------------------------------- servers


@internal
def set_room(b, j, state):  # type: ignore[no-untyped-def]
    """Capacity of server j for a start now: none, where it takes no tasks, has no free place or is reserved."""
    before = state.room[b, j] >= 0.0
    is_open = state.limit[b, j] >= 0.0 and state.free_places[b, j] > 0 and state.extra[b, j] == 0.0
    state.room[b, j] = state.free[b, j] if is_open else -1.0
    # Counted along, so that a round knows at once when nothing can start.
    state.env[b].num_open += int(is_open) - int(before)


@internal
def show(b, j, state, problem):  # type: ignore[no-untyped-def]
    """Update what server j reports of its running tasks, after one began or ended. Decided here alone."""
    server, p = problem.servers[j], problem.parameters[0]
    # Summed again, in the order of places: a running difference would depend on the order of ends in its last digits.
    used, next_end, running = 0.0, np.inf, 0
    for place in range(server.first_place, server.first_place + server.max_concurrent):
        if state.finish[b, place] < np.inf:
            used += state.tasks[b, state.running[b, place]].memory
            next_end = min(next_end, state.expected[b, place])
            # A task of several places has a row of its own for one; the others are counted.
            running += places_of(b, state.running[b, place], state, p)
    state.free_places[b, j] = server.max_concurrent - running
    state.free[b, j] = max(0.0, server.memory - used)
    state.next_end[b, j] = next_end
    if running == 0:
        state.power[b, j] = server.idle_power
    elif running == server.max_concurrent:
        state.power[b, j] = server.busy_power
    else:
        share = running / server.max_concurrent
        state.power[b, j] = server.idle_power + (server.busy_power - server.idle_power) * share
    set_room(b, j, state)


@internal
def leave_if_done(b, j, state, problem):  # type: ignore[no-untyped-def]
    """A server that drains leaves when nothing runs on it any more."""
    presence = state.presence[b, j]
    if presence.status == DRAINING and state.free_places[b, j] == problem.servers[j].max_concurrent:
        presence.status = AWAY
        presence.left = state.env[b].clock


# ---------------------------------------------------------------------- attempts


@internal
def input_of(b, row, predecessor, state):  # type: ignore[no-untyped-def]
    """Input of a task from its first predecessor [GB]."""
    return state.details[b, row].input if state.env[b].per_edge else predecessor.output


@internal
def transfer_time(b, row, j, state, problem):  # type: ignore[no-untyped-def]
    """Time [s] to move a task's input to server j, from where its predecessors ran [SCALE, sec. 3].

    A predecessor without work ran nowhere: nothing of it is moved.
    """
    p, task = problem.parameters[0], state.tasks[b, row]
    if not p.from_all:
        if task.first_predecessor < 0:
            return 0.0
        # [SCALE, sec. 3]: one predecessor counts, and where it ran is the place it keeps after its end.
        predecessor = state.tasks[b, task.first_predecessor]
        if predecessor.place < 0 or problem.server_of[predecessor.place] == j:
            return 0.0
        return input_of(b, row, predecessor, state) / p.bandwidth + p.latency
    return _transfer_from_all(b, state.details[b, row], j, state, problem)


@rare
def _transfer_from_all(b, detail, j, state, problem):  # type: ignore[no-untyped-def]
    p, total = problem.parameters[0], 0.0
    for i in range(detail.predecessors, detail.predecessors + detail.num_predecessors):
        predecessor = state.tasks[b, state.edges[b, i]]
        if predecessor.place >= 0 and problem.server_of[predecessor.place] != j:
            total += state.moved[b, i] / p.bandwidth + p.latency
    return total


@internal
def start(b, row, j, state, problem):  # type: ignore[no-untyped-def]
    """Start a task, which waits no longer, on server j, which is open for it. Returns the reward."""
    env, p, server, task = state.env[b], problem.parameters[0], problem.servers[j], state.tasks[b, row]
    # With `communication.mode: reward` the transfer takes no time on the server, and is a cost of the reward alone.
    delay = transfer_time(b, row, j, state, problem)
    # t = transfer + left / capacity (1 + slowdown others) [s]; those that run beside it are not slowed down afterwards.
    others = server.max_concurrent - state.free_places[b, j]
    execution = task.left / server.capacity * (1.0 + server.slowdown * others)
    places = places_of(b, row, state, p)
    before = delay if p.transfer else 0.0
    taken = before + execution
    # With outside events the end is unknown until it is reported: the queue keeps the place, at infinity.
    finish = FAR if env.outside else env.clock + taken
    # Any free place is as good; the lowest keeps runs comparable.
    place = server.first_place
    while state.finish[b, place] < np.inf:
        place += 1
    task.place = place
    state.finish[b, place] = finish
    # As schedulers estimate it; the true finish is hidden from them.
    state.expected[b, place] = env.clock + (before + execution * error_of(b, row, state, p))
    state.running[b, place] = row
    state.busy[b, j] += 0.0 if env.outside else taken * places  # counted when it has ended
    show(b, j, state, problem)
    push(state.queue[b], env.num_busy, BY_FINISH, state.tasks[b], state.finish[b], place)
    env.num_busy += 1
    env.next_finish = min(env.next_finish, finish)
    state.attempt[b, place] = env.num_started
    log, workflow = state.log[b, env.num_started], state.workflows[b, task.workflow]
    log.workflow, log.task, log.server, log.outcome = workflow.number, row - workflow.first_task, j, TO_END
    log.arrival, log.ready, log.start, log.finish = workflow.arrival, task.ready, env.clock, finish
    log.transfer, log.work = before, task.left
    env.num_started += 1
    return reward_of_start(taken, delay, server.reward_power * places * taken, p)


@internal
def clear(b, place, state, problem):  # type: ignore[no-untyped-def]
    """Nothing runs on a place any more, which is out of the queue."""
    env, j = state.env[b], problem.server_of[place]
    env.num_busy -= 1
    # The queue is a heap by finish: its first place ends next.
    env.next_finish = state.finish[b, state.queue[b, 0]] if env.num_busy > 0 else np.inf
    state.finish[b, place] = state.expected[b, place] = np.inf
    state.running[b, place] = NONE
    show(b, j, state, problem)
    leave_if_done(b, j, state, problem)


@rare
def leave_queue(b, place, state):  # type: ignore[no-untyped-def]
    """Take a busy place out of the queue, wherever it is in there."""
    # A search, as positions in the heap are not kept: only attempts that are ended early leave from the middle.
    num_busy = state.env[b].num_busy
    for at in range(num_busy):
        if state.queue[b, at] == place:
            remove(state.queue[b], num_busy, BY_FINISH, state.tasks[b], state.finish[b], at)
            break


@rare
def fail_attempt(b, place, state, problem):  # type: ignore[no-untyped-def]
    """The task of a place fails before its end, and waits again: from now on, or until a lost input is made again."""
    env, p, row = state.env[b], problem.parameters[0], state.running[b, place]
    task, detail, log = state.tasks[b, row], state.details[b, row], state.log[b, state.attempt[b, place]]
    leave_queue(b, place, state)
    took = env.clock - log.start
    # Only execution does work, in proportion to its time: the transfer before it is lost in any case.
    worked = max(0.0, took - log.transfer)
    # done = left worked / planned execution [GFLOP]: the speed of an attempt is constant.
    planned = state.expected[b, place] if env.outside else log.finish
    done = min(task.left, task.left * worked / (planned - log.start - log.transfer))
    places = places_of(b, row, state, p)
    state.busy[b, log.server] += (took if env.outside else env.clock - log.finish) * places
    log.finish, log.outcome, log.work = env.clock, FAILED, done
    env.failed_attempts += 1
    env.lost += took * places
    task.place = NONE
    task.rank = rank(task, detail, p.order)
    clear(b, place, state, problem)
    if task.num_missing == 0:
        make_ready(b, row, state, p)
