"""What happens in one environment as its clock runs: workflows arrive, tasks complete, successors become ready.

Compiled functions over the arrays of `state.py`. Where a buffer is full, they stop in a consistent state and say so.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled
from rllib_scale.simulator.heaps import pop_busy, push_ready
from rllib_scale.simulator.state import (
    ALL_DONE,
    AT_HORIZON,
    AT_MAX_DECISIONS,
    FREE,
    GO_ON,
    NEEDS_SLOTS,
    RUNNING,
    TASK_BITS,
)
from rllib_scale.workloads.generators import draw_gap, draw_workflow

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
def schedule_arrival(env, problem):  # type: ignore[no-untyped-def]
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
    schedule_arrival(env, problem)


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
def some_idle_fits(memory, finish, servers):  # type: ignore[no-untyped-def]
    """Whether some idle server has that much memory."""
    for j in range(len(servers)):
        if finish[j] == np.inf and servers[j].capacity > 0.0 and memory <= servers[j].memory:
            return True
    return False


@compiled
def run(b, state, problem, feasible_only):  # type: ignore[no-untyped-def]
    """Let the clock run until a decision is wanted or the episode ends. Returns GO_ON or NEEDS_SLOTS.

    A decision is wanted where a task is ready; with `feasible_only`, where an idle server fits the current one.
    """
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
        if feasible_only:
            code = state.ready[b, 0]
            memory = state.tasks[b, code >> TASK_BITS, code & 0xFFFF].memory
            if not some_idle_fits(memory, state.finish[b], problem.servers):
                env.target = min(p.horizon, next_event)
                continue
        return GO_ON
