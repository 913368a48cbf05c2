"""The two ways to play a batch of environments: a server for the current task of each, or any ready tasks at once.

Compiled functions over the arrays of `state.py`, one row an environment. Where a buffer is full, they stop in a
consistent state and say so, the caller enlarges the buffer, and the same call goes on.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled
from rllib_scale.observation.feature_sets import write_servers, write_task
from rllib_scale.simulator.events import run, schedule_arrival, some_idle_fits
from rllib_scale.simulator.heaps import push_busy, remove_ready
from rllib_scale.simulator.reward import TASKS_IN_SYSTEM, assignment_reward
from rllib_scale.simulator.state import FREE, GO_ON, NEEDS_LOG, NEEDS_SLOTS, REFUSED, RUNNING, TASK_BITS
from rllib_scale.workloads.generators import seed_generator

# ---------------------------------------------------------------------- one environment


@compiled
def _decide(b, j, state, problem):  # type: ignore[no-untyped-def]
    """Assign the current task to server j, or start a clock step where that is invalid. Returns the reward."""
    env, p, servers = state.env[b], problem.parameters[0], problem.servers
    code = state.ready[b, 0]
    task, server = state.tasks[b, code >> TASK_BITS, code & 0xFFFF], servers[j]
    env.decisions += 1
    env.area = 0.0
    fits = server.capacity > 0.0 and task.memory <= server.memory
    if not fits or state.finish[b, j] < np.inf:
        if not fits:
            env.invalid_no_fit += 1
        elif some_idle_fits(task.memory, state.finish[b], servers):
            env.invalid_busy_avoidable += 1
        else:
            env.invalid_busy_unavoidable += 1
        env.target = min(p.horizon, env.clock + p.clock_step)
        return p.invalid_reward
    return _start(b, 0, j, state, problem)


@compiled
def _start(b, at, j, state, problem):  # type: ignore[no-untyped-def]
    """Start the ready task at position `at` of the heap on the idle server j, which fits. Returns the reward."""
    env, p, server = state.env[b], problem.parameters[0], problem.servers[j]
    code = state.ready[b, at]
    s, k = code >> TASK_BITS, code & 0xFFFF
    task = state.tasks[b, s, k]
    remove_ready(state.ready[b], env.num_ready, state.slots[b], state.tasks[b], at)
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
def _begin(b, seed, episode, is_given, state, problem):  # type: ignore[no-untyped-def]
    """Empty the environment; set the first arrival, of its (seed, episode) or of the given workload."""
    env = state.env[b]
    env.is_given = is_given
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
    schedule_arrival(env, problem)


@compiled
def step_batch(start, resume, actions, active, begins, seeds, episodes, is_given, state, problem):  # type: ignore[no-untyped-def]
    """From `start` on: bring each environment of `begins` to its first decision, decide in each other of `active`.

    Returns (GO_ON, B), or (REFUSED, b) where an action is no server slot and nothing was done, or what buffer
    environment b needs: the caller enlarges it and calls again with start = b, and with `resume` where the decision was
    applied already.
    """
    p = problem.parameters[0]
    if start == 0 and not resume:
        for b in range(len(state.env)):
            if not (begins[b] or 0 <= actions[b] < len(problem.servers)):
                return REFUSED, b
    for b in range(start, len(state.env)):
        env = state.env[b]
        if not (active[b] or begins[b]):
            continue
        if not (resume and b == start):
            state.reward[b] = 0.0
            if begins[b]:
                _begin(b, seeds[b], episodes[b], is_given, state, problem)
            elif env.end != RUNNING:
                continue
            else:
                if env.num_started == state.log.shape[1]:
                    return NEEDS_LOG, b
                reward = _decide(b, actions[b], state, problem)
                state.reward[b] = 0.0 if p.reward == TASKS_IN_SYSTEM else reward
        if run(b, state, problem, p.feasible_only) == NEEDS_SLOTS:
            return NEEDS_SLOTS, b
        if p.reward == TASKS_IN_SYSTEM and not begins[b]:
            state.reward[b] = -env.area
        env.episode_return += state.reward[b]
        state.done[b] = env.end != RUNNING
        _observe(b, state, problem)
    return GO_ON, len(state.env)


@compiled
def _find_ready(b, workflow, task, state):  # type: ignore[no-untyped-def]
    """Position of a ready task in the heap; -1: it is not ready."""
    for at in range(state.env[b].num_ready):
        code = state.ready[b, at]
        if code & 0xFFFF == task and state.slots[b, code >> TASK_BITS].workflow == workflow:
            return at
    return -1


@compiled
def dispatch_batch(first, start, resume, starts, active, state, problem):  # type: ignore[no-untyped-def]
    """Start tasks, then bring each active environment to its next event with a ready task.

    `starts` (K, 4) holds environment, workflow, task, server; rows from `first` on are started, and environments from
    `start` on advanced. Returns (GO_ON, K, B), or what was missing, or REFUSED, with the row and the environment: the
    caller enlarges the buffer and calls again from there, with `resume` where the environment is under way already.
    """
    p, servers = problem.parameters[0], problem.servers
    for i in range(first, len(starts)):
        b, j = starts[i, 0], starts[i, 3]
        if not (0 <= b < len(state.env) and 0 <= j < len(servers)) or not active[b]:
            return REFUSED, i, start
        env = state.env[b]
        if env.decisions >= p.max_decisions:
            continue  # the limit cuts the episode right after its last decision
        at = _find_ready(b, starts[i, 1], starts[i, 2], state)
        if at < 0 or env.end != RUNNING or state.finish[b, j] < np.inf or servers[j].capacity == 0.0:
            return REFUSED, i, start
        code = state.ready[b, at]
        if state.tasks[b, code >> TASK_BITS, code & 0xFFFF].memory > servers[j].memory:
            return REFUSED, i, start
        if env.num_started == state.log.shape[1]:
            return NEEDS_LOG, i, start
        env.decisions += 1
        reward = _start(b, at, j, state, problem)
        if p.reward != TASKS_IN_SYSTEM:
            state.reward[b] += reward
            env.episode_return += reward
    for b in range(start, len(state.env)):
        env = state.env[b]
        if not active[b] or env.end != RUNNING:
            continue
        if not (resume and b == start):
            env.area = 0.0
            if env.num_ready > 0 and env.decisions < p.max_decisions:
                env.target = min(p.horizon, min(env.next_finish, env.next_arrival))
        if run(b, state, problem, False) == NEEDS_SLOTS:
            return NEEDS_SLOTS, len(starts), b
        if p.reward == TASKS_IN_SYSTEM and env.decisions > 0:
            state.reward[b] = -env.area
            env.episode_return -= env.area
        state.done[b] = env.end != RUNNING
        _observe(b, state, problem)
    return GO_ON, len(starts), len(state.env)
