"""What happens in one environment as its clock runs: workflows arrive, tasks complete, others become ready.

Compiled functions over the arrays of `state.py`. Where a buffer is full, they stop in a consistent state and say so.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import internal, rare
from rllib_scale.simulator.attempts import leave_if_done, make_ready, rank, share_memory
from rllib_scale.simulator.blocks import give_edges, give_tasks, size_class, take_edges, take_tasks
from rllib_scale.simulator.changes import change
from rllib_scale.simulator.heaps import pop_released, push_released, remove_busy
from rllib_scale.simulator.state import FREE, GO_ON, NEEDS_EDGES, NEEDS_SLOTS, NEEDS_TASKS
from rllib_scale.workloads.generators import draw_arrival, draw_workflow
from rllib_scale.workloads.random_numbers import lognormal, uniform

# ---------------------------------------------------------------------- workflows


@internal
def _link(first, n, e, at, state_tasks, arena, problem):  # type: ignore[no-untyped-def]
    """Derive successors, predecessors and hop counts, as rank, of a workflow from its edges; their block is at `at`."""
    p, edges, order = problem.parameters[0], problem.edge_scratch, problem.order_scratch[0]
    tasks = state_tasks[first : first + n]
    for k in range(n):
        tasks[k].num_successors = 0
        tasks[k].num_missing = 0
        tasks[k].first_predecessor = -1
        tasks[k].rank = 0.0
        tasks[k].host = -1
    for i in range(e):
        tasks[edges[i, 0]].num_successors += 1
        task = tasks[edges[i, 1]]
        task.num_missing += 1
        before = task.first_predecessor
        row = first + edges[i, 0]
        if before < 0:
            task.first_predecessor = row
        elif p.largest_first:
            larger = state_tasks[row].output - state_tasks[before].output
            if larger > 0.0 or (larger == 0.0 and row < before):
                task.first_predecessor = row
        elif row < before:
            task.first_predecessor = row
    top = at
    for k in range(n):
        tasks[k].first_successor = top
        top += tasks[k].num_successors
        order[k] = tasks[k].first_successor
    for i in range(e):
        arena[order[edges[i, 0]]] = first + edges[i, 1]
        order[edges[i, 0]] += 1
    # Topological order by Kahn's algorithm; num_missing is counted down and restored.
    head, tail = 0, 0
    for k in range(n):
        if tasks[k].num_missing == 0:
            order[tail] = first + k
            tail += 1
    while head < tail:
        task = state_tasks[order[head]]
        head += 1
        for i in range(task.first_successor, task.first_successor + task.num_successors):
            state_tasks[arena[i]].num_missing -= 1
            if state_tasks[arena[i]].num_missing == 0:
                order[tail] = arena[i]
                tail += 1
    for i in range(e):
        tasks[edges[i, 1]].num_missing += 1
    for position in range(n - 1, -1, -1):
        task = state_tasks[order[position]]
        for i in range(task.first_successor, task.first_successor + task.num_successors):
            task.rank = max(task.rank, state_tasks[arena[i]].rank + 1.0)


@rare
def _add_details(b, first, n, e, at, demand, state, problem):  # type: ignore[no-untyped-def]
    """What tasks have beyond the paper's: delays, estimates, stragglers, keys of other orders, all predecessors."""
    env, p, edges, details = state.env[b], problem.parameters[0], problem.edge_scratch, state.details[b]
    top = at + e
    for k in range(n):
        task, detail = state.tasks[b, first + k], details[first + k]
        detail.compute, detail.delay, detail.error, detail.spent = demand[k].compute, demand[k].delay, 1.0, 0.0
        if p.estimates:
            detail.error = lognormal(env.seen_rng, p.estimate_mean, p.estimate_std)
        if p.straggler_share > 0.0 and uniform(env.straggler_rng) < p.straggler_share:
            task.left *= p.straggler_factor
            detail.compute = task.left
            detail.error /= p.straggler_factor  # what is seen stays as it would be
        detail.hop, detail.descendants = int(task.rank), 0
        detail.predecessors, detail.num_predecessors = top, 0
        top += task.num_missing * p.from_all
    if p.from_all:
        for i in range(e):
            detail = details[first + edges[i, 1]]
            state.edges[b, detail.predecessors + detail.num_predecessors] = first + edges[i, 0]
            detail.num_predecessors += 1
    if p.descendants:
        count_descendants(first, n, state.tasks[b], state.edges[b], problem.order_scratch, details.descendants)
    for k in range(n):
        task, detail = state.tasks[b, first + k], details[first + k]
        if p.revealed:
            detail.hop, detail.descendants = 0, 1
        task.rank = rank(task, detail, p.order)


@rare
def count_descendants(first, n, tasks, arena, scratch, counts):  # type: ignore[no-untyped-def]
    """Write to the `counts` of its task rows how many tasks of a workflow follow each: one search from each."""
    seen, stack = scratch[0], scratch[1]
    for k in range(n):
        seen[k] = -1
    for k in range(n):
        stack[0], height, count = first + k, 1, 0
        seen[k] = k
        while height > 0:
            height -= 1
            task = tasks[stack[height]]
            count += 1
            for i in range(task.first_successor, task.first_successor + task.num_successors):
                if seen[arena[i] - first] != k:
                    seen[arena[i] - first] = k
                    stack[height] = arena[i]
                    height += 1
        counts[first + k] = count


@internal
def _draw_next(b, state, problem):  # type: ignore[no-untyped-def]
    """Put the next workflow into a free slot, where one arrives at all; its arrival time is known already.

    Returns GO_ON, or which buffer is full; nothing was drawn then.
    """
    env, p, edges = state.env[b], problem.parameters[0], problem.edge_scratch
    if env.num_free == 0:
        return NEEDS_SLOTS
    w, g = env.num_drawn, env.given
    if g >= 0:
        first_given, first_edge = problem.given_task_offsets[g, w], problem.given_edge_offsets[g, w]
        n, e = problem.given_task_offsets[g, w + 1] - first_given, problem.given_edge_offsets[g, w + 1] - first_edge
    else:
        first_given, first_edge = 0, 0
        n, e = problem.workload[0].max_tasks, len(edges)
    task_class, edge_class = p.task_class, p.edge_class
    if g >= 0:
        task_class, edge_class = size_class(n), size_class(e * (1 + p.from_all))
    first = take_tasks(env, state.blocks[b], state.tasks[b], task_class)
    if first < 0:
        return NEEDS_TASKS
    at = take_edges(env, state.blocks[b], state.edges[b], edge_class)
    if at < 0:
        give_tasks(state.blocks[b], state.tasks[b], first, task_class)
        return NEEDS_EDGES
    env.num_free -= 1
    s = state.free[b, env.num_free]
    slot, tasks = state.slots[b, s], state.tasks[b, first : first + n]
    demand = problem.demand_scratch
    if g >= 0:
        demand = problem.given_tasks[g, first_given : first_given + n]
        for i in range(e):
            edges[i, 0] = problem.given_edges[g, first_edge + i, 0]
            edges[i, 1] = problem.given_edges[g, first_edge + i, 1]
    else:
        n, e = draw_workflow(env.rng, problem.workload[0], demand, edges)
    for k in range(n):
        task = tasks[k]
        task.left, task.memory, task.output, task.slot = demand[k].compute, demand[k].memory, demand[k].output, s
    _link(first, n, e, at, state.tasks[b], state.edges[b], problem)
    if not p.plain:
        _add_details(b, first, n, e, at, demand, state, problem)
    slot.workflow = w
    slot.arrival = env.next_arrival
    slot.num_tasks = n
    slot.num_seen = 0 if p.revealed else n
    slot.num_completed = 0
    slot.first_task, slot.task_class = first, task_class
    slot.first_edge, slot.edge_class = at, edge_class
    env.num_drawn += 1
    env.pending = s
    return GO_ON


@internal
def schedule_arrival(env, problem):  # type: ignore[no-untyped-def]
    """Set the time of the next arrival; inf where no workflow arrives any more."""
    if env.given >= 0:
        w = env.num_drawn
        env.next_arrival = problem.given_arrival[env.given, w] if w < problem.given_count[env.given] else np.inf
        return
    env.next_arrival = draw_arrival(env.rng, problem.workload[0], env.num_drawn == 0, env.clock)
    if env.next_arrival > problem.parameters[0].arrivals_until:
        env.next_arrival = np.inf


# ---------------------------------------------------------------------- events


@internal
def advance(env, time):  # type: ignore[no-untyped-def]
    """Let time pass in which nothing happens."""
    env.area += env.in_system * (time - env.clock)
    env.clock = time


@internal
def _release(b, row, state, p):  # type: ignore[no-untyped-def]
    """All predecessors of a task have ended: it is ready after its delay."""
    env, task = state.env[b], state.tasks[b, row]
    if p.revealed:
        state.slots[b, task.slot].num_seen += 1
    delay = state.details[b, row].delay if p.delays else 0.0
    if delay == 0.0:
        make_ready(b, row, state, p)
        return
    task.ready = env.clock + delay
    push_released(state.released[b], env.num_released, state.slots[b], state.tasks[b], row)
    env.num_released += 1
    env.next_release = min(env.next_release, task.ready)


@rare
def _end_delay(b, state, p):  # type: ignore[no-untyped-def]
    """The release delay that ends first has ended."""
    env, released = state.env[b], state.released[b]
    row = released[0]
    pop_released(released, env.num_released, state.slots[b], state.tasks[b])
    env.num_released -= 1
    env.next_release = state.tasks[b, released[0]].ready if env.num_released > 0 else np.inf
    make_ready(b, row, state, p)


@internal
def _arrive(b, state, problem):  # type: ignore[no-untyped-def]
    """The pending workflow arrives: its roots are released, and the time of the next arrival is set."""
    env = state.env[b]
    slot = state.slots[b, env.pending]
    env.pending = FREE
    env.arrived += slot.num_tasks
    env.in_system += slot.num_tasks
    env.workflows_arrived += 1
    for row in range(slot.first_task, slot.first_task + slot.num_tasks):
        if state.tasks[b, row].num_missing == 0:
            _release(b, row, state, problem.parameters[0])
    schedule_arrival(env, problem)


@internal
def _complete(b, state, problem):  # type: ignore[no-untyped-def]
    """The task that finishes first completes: its row is idle, its successors may be ready."""
    env, finish, queue = state.env[b], state.finish[b], state.queue[b]
    j = queue[0]
    remove_busy(queue, env.num_busy, finish, 0)
    env.num_busy -= 1
    finish[j] = state.expected[b, j] = np.inf
    env.next_finish = finish[queue[0]] if env.num_busy > 0 else np.inf
    row = state.running[b, j]
    task = state.tasks[b, row]
    slot = state.slots[b, task.slot]
    state.running[b, j] = FREE
    if problem.parameters[0].simple:
        state.room[b, j] = state.limit[b, j]
        env.num_open += 1
    else:
        h = problem.servers[j].host
        state.hosts[b, h].running -= 1
        share_memory(b, h, state, problem)
        leave_if_done(b, h, state)
    env.completed += 1
    env.in_system -= 1
    env.response_sum += env.clock - slot.arrival
    for i in range(task.first_successor, task.first_successor + task.num_successors):
        successor = state.tasks[b, state.edges[b, i]]
        successor.num_missing -= 1
        if successor.num_missing == 0:
            _release(b, state.edges[b, i], state, problem.parameters[0])
    slot.num_completed += 1
    if slot.num_completed == slot.num_tasks:
        env.workflows_completed += 1
        env.makespan_sum += env.clock - slot.arrival
        give_tasks(state.blocks[b], state.tasks[b], slot.first_task, slot.task_class)
        give_edges(state.blocks[b], state.edges[b], slot.first_edge, slot.edge_class)
        slot.workflow = FREE
        state.free[b, env.num_free] = task.slot
        env.num_free += 1


@internal
def next_event(env):  # type: ignore[no-untyped-def]
    """When something happens next; inf: never."""
    return min(min(env.next_finish, env.next_arrival), min(env.next_release, env.next_change))


@internal
def run_to_target(b, state, problem):  # type: ignore[no-untyped-def]
    """Let everything happen until `env.target`, where the clock then stands. Returns GO_ON or which buffer is full.

    At one moment tasks complete first, then release delays end, then workflows arrive, then servers change.
    """
    env = state.env[b]
    while True:
        if env.pending < 0 and env.next_arrival < np.inf:
            need = _draw_next(b, state, problem)
            if need != GO_ON:
                return need
        if env.in_system == 0 and env.next_arrival == np.inf:
            env.target = env.clock  # the last task completed within a clock step: the episode ends here, not after it
        other = min(env.next_release, env.next_change)
        time = min(min(env.next_finish, env.next_arrival), other)
        if time > env.target:
            advance(env, env.target)
            return GO_ON
        advance(env, time)
        if env.next_finish <= time:
            _complete(b, state, problem)
        elif env.next_release <= time:
            _end_delay(b, state, problem.parameters[0])
        elif env.next_arrival <= time:
            _arrive(b, state, problem)
        else:
            change(b, state, problem)
