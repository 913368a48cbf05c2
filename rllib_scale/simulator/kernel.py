"""The state machine of the simulator: compiled functions over the arrays of `state.py`, one row an environment.

Where a buffer is full, a kernel stops in a consistent state and says so, the caller enlarges the buffer, and the same
call goes on.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.simulator.compiled import compiled
from rllib_scale.simulator.heaps import pop_busy, pop_ready, push_busy, push_ready
from rllib_scale.simulator.observation import write_servers, write_task
from rllib_scale.simulator.reward import TASKS_IN_SYSTEM, assignment_reward
from rllib_scale.simulator.state import (
    ALL_DONE,
    AT_HORIZON,
    AT_MAX_DECISIONS,
    FREE,
    GO_ON,
    NEEDS_LOG,
    NEEDS_SLOTS,
    RUNNING,
    TASK_BITS,
)
from rllib_scale.simulator.workload import draw_gap, draw_workflow, seed_generator

# ---------------------------------------------------------------------- workflows


@compiled
def _link(tasks, successors, edges, n, e, order):  # type: ignore[no-untyped-def]
    """Derive successors, missing predecessors, first predecessors and hop counts of a workflow from its edges."""
    for k in range(n):
        tasks[k].num_successors = 0
        tasks[k].num_missing = 0
        tasks[k].first_predecessor = -1
        tasks[k].hop = 0
        tasks[k].host = -1
    for i in range(e):
        tasks[edges[i, 0]].num_successors += 1
        task = tasks[edges[i, 1]]
        task.num_missing += 1
        if task.first_predecessor < 0 or edges[i, 0] < task.first_predecessor:
            task.first_predecessor = edges[i, 0]
    at = 0
    for k in range(n):
        tasks[k].first_successor = at
        at += tasks[k].num_successors
        order[k] = tasks[k].first_successor
    for i in range(e):
        successors[order[edges[i, 0]]] = edges[i, 1]
        order[edges[i, 0]] += 1
    # Topological order by Kahn's algorithm; num_missing is counted down and restored.
    head, tail = 0, 0
    for k in range(n):
        if tasks[k].num_missing == 0:
            order[tail] = k
            tail += 1
    while head < tail:
        task = tasks[order[head]]
        head += 1
        for i in range(task.first_successor, task.first_successor + task.num_successors):
            tasks[successors[i]].num_missing -= 1
            if tasks[successors[i]].num_missing == 0:
                order[tail] = successors[i]
                tail += 1
    for i in range(e):
        tasks[edges[i, 1]].num_missing += 1
    for position in range(n - 1, -1, -1):
        task = tasks[order[position]]
        for i in range(task.first_successor, task.first_successor + task.num_successors):
            task.hop = max(task.hop, tasks[successors[i]].hop + 1)


@compiled
def _draw_next(b, state, problem):  # type: ignore[no-untyped-def]
    """Put the next workflow into a free slot, where one arrives at all; its arrival time is known already."""
    env = state.env[b]
    env.num_free -= 1
    s = state.free[b, env.num_free]
    slot, tasks, edges = state.slots[b, s], state.tasks[b, s], problem.edge_scratch
    if env.is_given:
        w = env.num_drawn
        first, first_edge = problem.given_task_offsets[w], problem.given_edge_offsets[w]
        n, e = problem.given_task_offsets[w + 1] - first, problem.given_edge_offsets[w + 1] - first_edge
        for k in range(n):
            tasks[k].compute = problem.given_tasks[first + k].compute
            tasks[k].memory = problem.given_tasks[first + k].memory
            tasks[k].output = problem.given_tasks[first + k].output
        for i in range(e):
            edges[i, 0], edges[i, 1] = problem.given_edges[first_edge + i, 0], problem.given_edges[first_edge + i, 1]
    else:
        n, e = draw_workflow(env.rng, problem.workload[0], tasks, edges)
    _link(tasks, state.successors[b, s], edges, n, e, problem.order_scratch)
    slot.workflow = env.num_drawn
    slot.arrival = env.next_arrival
    slot.num_tasks = n
    slot.num_completed = 0
    env.num_drawn += 1
    env.pending = s


@compiled
def _schedule_arrival(env, problem):  # type: ignore[no-untyped-def]
    """Set the time of the next arrival; inf where no workflow arrives any more."""
    if env.is_given:
        w = env.num_drawn
        env.next_arrival = problem.given_arrival[w] if w < len(problem.given_arrival) else np.inf
        return
    env.next_arrival = env.clock + draw_gap(env.rng, problem.workload[0], env.num_drawn == 0)
    if env.next_arrival > problem.parameters[0].arrivals_until:
        env.next_arrival = np.inf


# ---------------------------------------------------------------------- events


@compiled
def _advance(env, time):  # type: ignore[no-untyped-def]
    env.area += env.in_system * (time - env.clock)
    env.clock = time


@compiled
def _make_ready(b, s, k, state):  # type: ignore[no-untyped-def]
    env = state.env[b]
    state.tasks[b, s, k].ready = env.clock
    push_ready(state.ready[b], env.num_ready, state.slots[b], state.tasks[b], (s << TASK_BITS) | k)
    env.num_ready += 1


@compiled
def _arrive(b, state, problem):  # type: ignore[no-untyped-def]
    """The pending workflow arrives: its roots are ready, and the time of the next arrival is set."""
    env = state.env[b]
    s = env.pending
    n = state.slots[b, s].num_tasks
    env.pending = FREE
    env.arrived += n
    env.in_system += n
    env.workflows_arrived += 1
    for k in range(n):
        if state.tasks[b, s, k].num_missing == 0:
            _make_ready(b, s, k, state)
    _schedule_arrival(env, problem)


@compiled
def _complete(b, state):  # type: ignore[no-untyped-def]
    """The task that finishes first completes: its server is idle, its successors may be ready."""
    env, finish, queue = state.env[b], state.finish[b], state.queue[b]
    j = queue[0]
    pop_busy(queue, env.num_busy, finish)
    env.num_busy -= 1
    finish[j] = np.inf
    env.next_finish = finish[queue[0]] if env.num_busy > 0 else np.inf
    code = state.running[b, j]
    s, k = code >> TASK_BITS, code & 0xFFFF
    slot, task = state.slots[b, s], state.tasks[b, s, k]
    state.running[b, j] = FREE
    env.completed += 1
    env.in_system -= 1
    env.response_sum += env.clock - slot.arrival
    for i in range(task.first_successor, task.first_successor + task.num_successors):
        successor = state.successors[b, s, i]
        state.tasks[b, s, successor].num_missing -= 1
        if state.tasks[b, s, successor].num_missing == 0:
            _make_ready(b, s, successor, state)
    slot.num_completed += 1
    if slot.num_completed == slot.num_tasks:
        env.workflows_completed += 1
        env.makespan_sum += env.clock - slot.arrival
        slot.workflow = FREE
        state.free[b, env.num_free] = s
        env.num_free += 1


@compiled
def _some_idle_fits(memory, finish, servers):  # type: ignore[no-untyped-def]
    for j in range(len(servers)):
        if finish[j] == np.inf and servers[j].capacity > 0.0 and memory <= servers[j].memory:
            return True
    return False


@compiled
def _run(b, state, problem):  # type: ignore[no-untyped-def]
    """Let the clock run until a decision is wanted or the episode ends. Returns GO_ON or NEEDS_SLOTS."""
    env, p = state.env[b], problem.parameters[0]
    while True:
        if env.pending < 0 and env.next_arrival < np.inf:
            if env.num_free == 0:
                return NEEDS_SLOTS
            _draw_next(b, state, problem)
        if env.in_system == 0 and env.next_arrival == np.inf:
            env.target = env.clock  # the last task completed within a clock step: the episode ends here, not after it
        next_event = min(env.next_finish, env.next_arrival)
        if next_event <= env.target:
            _advance(env, next_event)
            if env.next_finish <= env.next_arrival:
                _complete(b, state)
            else:
                _arrive(b, state, problem)
            continue
        _advance(env, env.target)
        if env.clock >= p.horizon:
            env.end = AT_HORIZON
        elif env.in_system == 0 and env.next_arrival == np.inf:
            env.end = ALL_DONE
        elif env.decisions >= p.max_decisions:
            env.end = AT_MAX_DECISIONS
        if env.end != RUNNING:
            return GO_ON
        if env.num_ready == 0:
            env.target = min(p.horizon, env.clock + p.clock_step if p.idle_by_step else next_event)
            continue
        if p.feasible_only:
            code = state.ready[b, 0]
            memory = state.tasks[b, code >> TASK_BITS, code & 0xFFFF].memory
            if not _some_idle_fits(memory, state.finish[b], problem.servers):
                env.target = min(p.horizon, next_event)
                continue
        return GO_ON


@compiled
def _decide(b, j, state, problem):  # type: ignore[no-untyped-def]
    """Assign the current task to server j, or start a clock step where that is invalid. Returns the reward."""
    env, p, servers = state.env[b], problem.parameters[0], problem.servers
    code = state.ready[b, 0]
    s, k = code >> TASK_BITS, code & 0xFFFF
    task, server = state.tasks[b, s, k], servers[j]
    env.decisions += 1
    env.area = 0.0
    fits = server.capacity > 0.0 and task.memory <= server.memory
    if not fits or state.finish[b, j] < np.inf:
        if not fits:
            env.invalid_no_fit += 1
        elif _some_idle_fits(task.memory, state.finish[b], servers):
            env.invalid_busy_avoidable += 1
        else:
            env.invalid_busy_unavoidable += 1
        env.target = min(p.horizon, env.clock + p.clock_step)
        return p.invalid_reward
    pop_ready(state.ready[b], env.num_ready, state.slots[b], state.tasks[b])
    env.num_ready -= 1
    execution = task.compute / server.capacity
    finish = env.clock + execution
    task.host = j
    state.finish[b, j] = finish
    state.running[b, j] = code
    state.busy[b, j] += execution
    push_busy(state.queue[b], env.num_busy, state.finish[b], j)
    env.num_busy += 1
    env.next_finish = min(env.next_finish, finish)
    row = state.log[b, env.num_started]
    row.workflow, row.task, row.server = state.slots[b, s].workflow, k, j
    row.arrival, row.ready, row.start, row.finish = state.slots[b, s].arrival, task.ready, env.clock, finish
    env.num_started += 1
    delay = 0.0
    if task.first_predecessor >= 0:
        predecessor = state.tasks[b, s, task.first_predecessor]
        if predecessor.host != j:
            delay = predecessor.output / p.bandwidth + p.latency
    return assignment_reward(execution, delay, server.reward_power * execution, p)


@compiled
def _observe(b, state, problem):  # type: ignore[no-untyped-def]
    """Write the observation at a decision, or at the end of an episode, where no task is current."""
    env, p, row = state.env[b], problem.parameters[0], state.observation[b]
    host, delay = -1, 0.0
    if env.end == RUNNING:
        code = state.ready[b, 0]
        s, k = code >> TASK_BITS, code & 0xFFFF
        task, slot = state.tasks[b, s, k], state.slots[b, s]
        if task.first_predecessor >= 0:
            predecessor = state.tasks[b, s, task.first_predecessor]
            host, delay = predecessor.host, predecessor.output / p.bandwidth + p.latency
        write_task(row, task, slot.num_completed, slot.num_tasks, p)
    else:
        row[:5] = 0.0
    write_servers(row, problem.servers, state.finish[b], env.clock, host, delay)


# ---------------------------------------------------------------------- entry points


@compiled
def begin_batch(seeds, episodes, is_given, active, state, problem):  # type: ignore[no-untyped-def]
    """Empty each active environment; set the first arrival, of its (seed, episode) or of the given workload."""
    for b in range(len(state.env)):
        if active[b]:
            state.env[b].is_given = is_given
            _begin(b, seeds[b], episodes[b], state, problem)


@compiled
def _begin(b, seed, episode, state, problem):  # type: ignore[no-untyped-def]
    env = state.env[b]
    seed_generator(env.rng, seed, episode)
    env.clock = env.target = env.area = 0.0
    env.pending = FREE
    env.num_drawn = env.num_ready = env.num_busy = env.in_system = env.end = 0
    env.episode_return = env.response_sum = env.makespan_sum = 0.0
    env.decisions = env.invalid_no_fit = env.invalid_busy_avoidable = env.invalid_busy_unavoidable = 0
    env.arrived = env.completed = env.workflows_arrived = env.workflows_completed = env.num_started = 0
    env.next_finish = np.inf
    num_slots = state.slots.shape[1]
    env.num_free = num_slots
    for s in range(num_slots):
        state.slots[b, s].workflow = FREE
        state.free[b, s] = num_slots - 1 - s
    state.finish[b] = np.inf
    state.running[b] = FREE
    state.busy[b] = 0.0
    state.reward[b] = 0.0
    state.done[b] = False
    _schedule_arrival(env, problem)


@compiled
def step_batch(start, resume, actions, active, is_reset, state, problem):  # type: ignore[no-untyped-def]
    """Step (or, with `is_reset`, bring to its first decision) each active environment from `start` on.

    Returns (GO_ON, B), or what buffer environment b needs: the caller enlarges it and calls again with start = b,
    and with `resume` where the decision was applied already.
    """
    p = problem.parameters[0]
    for b in range(start, len(state.env)):
        env = state.env[b]
        if not active[b]:
            continue
        if not (resume and b == start):
            state.reward[b] = 0.0
            if env.end != RUNNING:
                continue
            if not is_reset:
                if env.num_started == state.log.shape[1]:
                    return NEEDS_LOG, b
                reward = _decide(b, actions[b], state, problem)
                state.reward[b] = 0.0 if p.reward == TASKS_IN_SYSTEM else reward
        if _run(b, state, problem) == NEEDS_SLOTS:
            return NEEDS_SLOTS, b
        if p.reward == TASKS_IN_SYSTEM and not is_reset:
            state.reward[b] = -env.area
        env.episode_return += state.reward[b]
        state.done[b] = env.end != RUNNING
        _observe(b, state, problem)
    return GO_ON, len(state.env)
