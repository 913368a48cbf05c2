"""The state machine of the simulator: compiled functions over flat arrays, one row an environment.

Memory is sized by what is live. A workflow holds a slot from the moment it is the next to arrive until its last
task completes; one log row is kept per started task. Where a buffer is full, a kernel stops in a consistent state
and says so, the caller enlarges the buffer, and the same call goes on.

Types: a task is addressed by its code, slot << 16 | index.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from rllib_scale.simulator.compiled import compiled
from rllib_scale.simulator.observation import write_servers, write_task
from rllib_scale.simulator.reward import TASKS_IN_SYSTEM, assignment_reward
from rllib_scale.simulator.workload import draw_gap, draw_workflow, seed_generator

PARAMETERS = np.dtype(
    [
        ("horizon", "f8"),  # s
        ("arrivals_until", "f8"),  # s; inf: workflows arrive as long as the episode lasts
        ("clock_step", "f8"),  # s
        ("idle_by_step", "i8"),
        ("feasible_only", "i8"),
        ("max_decisions", "i8"),
        ("bandwidth", "f8"),  # GB/s
        ("latency", "f8"),  # s
        ("reward", "i8"),
        ("time_weight", "f8"),
        ("time_scale", "f8"),
        ("communication_weight", "f8"),
        ("communication_scale", "f8"),
        ("energy_weight", "f8"),
        ("energy_scale", "f8"),
        ("invalid_reward", "f8"),
        ("task_compute_max", "f8"),
        ("server_compute_max", "f8"),
        ("memory_max", "f8"),
    ]
)
ENV = np.dtype(
    [
        ("rng", "u8", (4,)),
        ("clock", "f8"),
        ("target", "f8"),  # where the clock step under way ends
        ("next_arrival", "f8"),  # inf: no workflow arrives any more
        ("next_finish", "f8"),  # inf: no task is running
        ("is_given", "i8"),  # plays the given workload instead of drawing one
        ("pending", "i8"),  # slot of the workflow that arrives next; -1: not drawn yet
        ("num_drawn", "i8"),  # workflows drawn or read so far
        ("num_free", "i8"),
        ("num_ready", "i8"),
        ("num_busy", "i8"),
        ("in_system", "i8"),  # arrived, uncompleted tasks
        ("area", "f8"),  # integral of in_system over time since the last decision
        ("end", "i8"),  # RUNNING, or why the episode ended
        ("episode_return", "f8"),
        ("decisions", "i8"),
        ("invalid_no_fit", "i8"),
        ("invalid_busy_avoidable", "i8"),
        ("invalid_busy_unavoidable", "i8"),
        ("arrived", "i8"),
        ("completed", "i8"),
        ("workflows_arrived", "i8"),
        ("workflows_completed", "i8"),
        ("response_sum", "f8"),
        ("makespan_sum", "f8"),
        ("num_started", "i8"),  # rows of the log
    ]
)
SLOT = np.dtype(
    [
        ("workflow", "i8"),  # -1: free
        ("arrival", "f8"),
        ("num_tasks", "i8"),
        ("num_completed", "i8"),
    ]
)
TASK = np.dtype(
    [
        ("compute", "f8"),  # GFLOP
        ("memory", "f8"),  # GB
        ("output", "f8"),  # GB
        ("ready", "f8"),  # s
        ("hop", "i4"),  # edges on the longest path to a sink
        ("num_successors", "i4"),
        ("first_successor", "i4"),  # position in the slot's row of successors
        ("num_missing", "i4"),  # predecessors not yet completed
        ("first_predecessor", "i4"),  # lowest index; -1: none
        ("host", "i4"),  # server it was assigned to; -1: none
    ]
)
LOG = np.dtype(
    [
        ("workflow", "i8"),
        ("task", "i8"),
        ("server", "i8"),
        ("arrival", "f8"),
        ("ready", "f8"),
        ("start", "f8"),
        ("finish", "f8"),
    ]
)

RUNNING, AT_HORIZON, ALL_DONE, AT_MAX_DECISIONS = range(4)
GO_ON, NEEDS_SLOTS, NEEDS_LOG = range(3)
FREE = -1
TASK_BITS = 16


class State(NamedTuple):
    """All arrays of a batch. B environments, N server slots, S workflow slots, K tasks and E edges a workflow."""

    env: np.ndarray  # (B,) ENV
    slots: np.ndarray  # (B, S) SLOT
    tasks: np.ndarray  # (B, S, K) TASK
    successors: np.ndarray  # (B, S, E) int32 task indices
    free: np.ndarray  # (B, S) int64 stack of free slots
    ready: np.ndarray  # (B, S * K) int64 heap of task codes
    finish: np.ndarray  # (B, N) float64 s; inf: idle
    running: np.ndarray  # (B, N) int64 task code; -1: idle
    queue: np.ndarray  # (B, N) int64 heap of the busy servers, by finish
    busy: np.ndarray  # (B, N) float64 s of all tasks started
    log: np.ndarray  # (B, L) LOG
    observation: np.ndarray  # (B, 5 + 5N) float32
    reward: np.ndarray  # (B,) float64
    done: np.ndarray  # (B,) bool


class Problem(NamedTuple):
    """What does not change during a run: parameters, servers and, where one is given, the workload to play."""

    parameters: np.ndarray  # (1,) PARAMETERS
    workload: np.ndarray  # (1,) workload.PARAMETERS
    servers: np.ndarray  # (N,) cluster.SERVER
    given_arrival: np.ndarray  # (W,) s
    given_tasks: np.ndarray  # (T,) workload.TASK_DEMAND
    given_task_offsets: np.ndarray  # (W + 1,)
    given_edges: np.ndarray  # (E, 2)
    given_edge_offsets: np.ndarray  # (W + 1,)
    edge_scratch: np.ndarray  # (E, 2) int64
    order_scratch: np.ndarray  # (K,) int64


# ---------------------------------------------------------------------- the ready tasks, a binary heap


@compiled
def _before(slots, tasks, a, b):  # type: ignore[no-untyped-def]
    """Level 1 [SCALE, sec. 4.1]: longest hop count first; ties by ready time, workflow, task."""
    slot_a, slot_b = a >> TASK_BITS, b >> TASK_BITS
    task_a, task_b = a & 0xFFFF, b & 0xFFFF
    x, y = tasks[slot_a, task_a], tasks[slot_b, task_b]
    if x.hop != y.hop:
        return x.hop > y.hop
    if x.ready != y.ready:
        return x.ready < y.ready
    if slot_a != slot_b:
        return slots[slot_a].workflow < slots[slot_b].workflow
    return task_a < task_b


@compiled
def _push(heap, size, slots, tasks, code):  # type: ignore[no-untyped-def]
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _before(slots, tasks, code, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = code


@compiled
def _pop(heap, size, slots, tasks):  # type: ignore[no-untyped-def]
    """Take the first of `size` codes off the heap."""
    last = heap[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _before(slots, tasks, heap[child + 1], heap[child]):
            child += 1
        if not _before(slots, tasks, heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last


# ---------------------------------------------------------------------- the busy servers, a binary heap


@compiled
def _finishes_before(finish, i, j):  # type: ignore[no-untyped-def]
    return finish[i] < finish[j] or (finish[i] == finish[j] and i < j)


@compiled
def _enqueue(queue, size, finish, server):  # type: ignore[no-untyped-def]
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _finishes_before(finish, server, queue[parent]):
            break
        queue[at] = queue[parent]
        at = parent
    queue[at] = server


@compiled
def _dequeue(queue, size, finish):  # type: ignore[no-untyped-def]
    """Take the first of `size` servers off the heap."""
    last = queue[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _finishes_before(finish, queue[child + 1], queue[child]):
            child += 1
        if not _finishes_before(finish, queue[child], last):
            break
        queue[at] = queue[child]
        at = child
    queue[at] = last


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
    _push(state.ready[b], env.num_ready, state.slots[b], state.tasks[b], (s << TASK_BITS) | k)
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
    _dequeue(queue, env.num_busy, finish)
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
    _pop(state.ready[b], env.num_ready, state.slots[b], state.tasks[b])
    env.num_ready -= 1
    execution = task.compute / server.capacity
    finish = env.clock + execution
    task.host = j
    state.finish[b, j] = finish
    state.running[b, j] = code
    state.busy[b, j] += execution
    _enqueue(state.queue[b], env.num_busy, state.finish[b], j)
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
    return assignment_reward(execution, delay, server.busy_power * execution, p)


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


@partial(compiled, allocates=True)
def summarise(b, state, problem, tier, num_tiers):  # type: ignore[no-untyped-def]
    """Metrics of environment b as it stands; see metrics.py for the order. `tier` (N,), -1 in an empty slot."""
    env, servers = state.env[b], problem.servers
    count = 0
    responses = np.empty(env.num_started)
    for i in range(env.num_started):
        if state.log[b, i].finish <= env.clock:
            responses[count] = state.log[b, i].finish - state.log[b, i].arrival
            count += 1
    responses = np.sort(responses[:count])
    censored = env.response_sum
    for s in range(state.slots.shape[1]):
        slot = state.slots[b, s]
        if slot.workflow >= 0 and s != env.pending:
            censored += (slot.num_tasks - slot.num_completed) * (env.clock - slot.arrival)
    tier_busy, tier_count = np.zeros(num_tiers), np.zeros(num_tiers)
    energy = 0.0
    for j in range(len(servers)):
        if tier[j] < 0:
            continue
        busy = state.busy[b, j]
        if state.finish[b, j] < np.inf:
            busy -= state.finish[b, j] - env.clock
        tier_busy[tier[j]] += busy
        tier_count[tier[j]] += 1
        energy += servers[j].idle_power * env.clock + (servers[j].busy_power - servers[j].idle_power) * busy
    floats = np.empty(7 + num_tiers)
    floats[0] = env.response_sum / env.completed if env.completed > 0 else math.nan
    floats[1] = _percentile(responses, 0.5)
    floats[2] = _percentile(responses, 0.95)
    floats[3] = censored / env.arrived if env.arrived > 0 else math.nan
    floats[4] = env.makespan_sum / env.workflows_completed if env.workflows_completed > 0 else math.nan
    floats[5] = energy
    floats[6] = tier_busy.sum() / (tier_count.sum() * env.clock) if env.clock > 0 else 0.0
    for t in range(num_tiers):
        floats[7 + t] = tier_busy[t] / (tier_count[t] * env.clock) if env.clock > 0 else 0.0
    return floats


@compiled
def _percentile(values, q):  # type: ignore[no-untyped-def]
    """Linear interpolation between order statistics of a sorted array; NaN of none."""
    if len(values) == 0:
        return math.nan
    position = q * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (position - low) * (values[high] - values[low])
