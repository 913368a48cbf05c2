"""The workload of an episode, written into the arrays of an environment as a whole: drawn, or given."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled, internal, rare
from rllib_scale.simulator.attempts import rank
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.state import NONE
from rllib_scale.workloads.dag import count_descendants, count_hops, sort_by_predecessor
from rllib_scale.workloads.generators import draw_arrival, draw_workflow
from rllib_scale.workloads.random_numbers import ESTIMATES, STRAGGLERS, lognormal, seed_generator, seed_stream, uniform

WORKLOAD, ERRORS, LATE = range(3)
"""Generators among Problem.rng."""
DAG_TABLES = 5
FIRST, ORDER, HOPS, DESCENDANTS, MISSING = range(DAG_TABLES)
"""Tables of the DAG of a workflow among Problem.tables."""


@internal
def begin(b, seed, episode, state, problem):  # type: ignore[no-untyped-def]
    """Start with no workflow, and seed the generators."""
    env, p = state.env[b], problem.parameters[0]
    env.num_workflows = 0
    env.after = np.inf
    env.per_edge = 0
    env.has_delays = problem.workload[0].delays
    if p.estimates:
        seed_stream(problem.rng[ERRORS], seed, episode, ESTIMATES)
        seed_stream(problem.rng[LATE], seed, episode, STRAGGLERS)


@internal
def draw(b, seed, episode, state, problem):  # type: ignore[no-untyped-def]
    """Draw all synthetic workflows that arrive within the episode; False: the arrays of the state are too small."""
    env, p, w = state.env[b], problem.parameters[0], problem.workload[0]
    begin(b, seed, episode, state, problem)
    # Only (seed, episode) decides the workload: it is drawn whole, before the first decision.
    rng, until = problem.rng[WORKLOAD], min(p.horizon, p.arrivals_until)
    seed_generator(rng, seed, episode)
    clock, task, edge = draw_arrival(rng, w, True, 0.0), 0, 0
    while clock <= until:
        if env.num_workflows == state.workflows.shape[1]:
            return False
        if (
            # Room for the largest workflow that may come: nothing is half drawn.
            task + w.max_tasks > state.tasks.shape[1]
            or edge + len(problem.edges) * (1 + p.from_all) > state.edges.shape[1]
        ):
            return False
        n, e = draw_workflow(rng, w, problem.demand, problem.edges)
        for i in range(e):
            problem.moved[i] = problem.demand[problem.edges[i, 0]].output
        edge = add(b, clock, n, problem.demand, e, problem.edges, problem.moved, task, edge, state, problem)
        task += n
        clock = draw_arrival(rng, w, False, clock)
    # The first arrival beyond: the episode then does not end early, as if no work were to come.
    env.after = clock if clock <= p.arrivals_until else np.inf
    return True


@compiled
def load(b, seed, episode, arrival, first_task, demand, first_edge, edges, moved, table):  # type: ignore[no-untyped-def]
    """Load a given workload, for which the arrays of state and problem are large enough.

    Args:
        b: environment.
        seed: of the errors of estimates.
        episode: of these.
        arrival: (W,) s.
        first_task: (W + 1,) the tasks of workflow w are `demand` [first_task[w] : first_task[w + 1]].
        demand: (T,) generators.TASK_DEMAND.
        first_edge: (W + 1,) likewise of `edges`.
        edges: (E, 2) predecessor, successor, numbered within each workflow.
        moved: (E,) GB that the successor needs of the predecessor.
        table: of state and problem.
    """
    state, problem = state_of(table), problem_of(table)
    begin(b, seed, episode, state, problem)
    for k in range(len(demand)):
        if demand[k].delay > 0.0:
            state.env[b].has_delays = 1
    at = 0
    for w in range(len(arrival)):
        tasks, links = demand[first_task[w] : first_task[w + 1]], edges[first_edge[w] : first_edge[w + 1]]
        needed = moved[first_edge[w] : first_edge[w + 1]]
        for i in range(len(links)):
            if needed[i] != tasks[links[i, 0]].output:
                state.env[b].per_edge = 1
        at = add(b, arrival[w], len(tasks), tasks, len(links), links, needed, first_task[w], at, state, problem)


@internal
def add(b, arrival, n, demand, e, edges, moved, first, at, state, problem):  # type: ignore[no-untyped-def]
    """Add a workflow of n tasks and e edges that move `moved` (e,) GB; task rows from `first` on, edges from `at` on.

    Returns where the edges of the next one begin.
    """
    env, p, tables, successors = state.env[b], problem.parameters[0], problem.tables, problem.successors
    # Edges by predecessor, with their tasks in topological order: hops and descendants then take one pass each.
    sort_by_predecessor(n, e, edges, tables[FIRST], successors, tables[MISSING], tables[ORDER])
    count_hops(n, tables[FIRST], successors, tables[ORDER], tables[HOPS])
    count_descendants(n, tables[FIRST], successors, tables[ORDER], problem.reached, tables[DESCENDANTS])
    w = env.num_workflows
    env.num_workflows += 1
    workflow = state.workflows[b, w]
    workflow.number = w
    workflow.arrival, workflow.first_task, workflow.num_tasks = arrival, first, n
    workflow.num_seen, workflow.num_completed = 0 if p.revealed else n, 0
    for k in range(n):
        task, detail = state.tasks[b, first + k], state.details[b, first + k]
        task.left, task.memory, task.output = demand[k].compute, demand[k].memory, demand[k].output
        task.workflow, task.place = w, NONE
        # The edges of all workflows are in one array: a task knows where its successors begin.
        task.first_successor = at + tables[FIRST, k]
        task.num_successors = tables[FIRST, k + 1] - tables[FIRST, k]
        task.num_missing, task.first_predecessor = 0, NONE
        detail.compute, detail.delay, detail.error = demand[k].compute, demand[k].delay, 1.0
        detail.labels, detail.places = demand[k].labels, demand[k].places
        # Schedulers of revealed workflows see no followers; `followers` keeps the truth for when they have completed.
        detail.hop = 0 if p.revealed else tables[HOPS, k]
        detail.followers = tables[DESCENDANTS, k]
        detail.descendants = 1 if p.revealed else detail.followers
        detail.level, detail.seen, detail.input = 1, 0, 0.0
        detail.num_predecessors = 0
    count_levels(b, first, n, state, problem)
    for i in range(e):
        state.edges[b, at + i] = first + successors[i]
        task, row = state.tasks[b, first + edges[i, 1]], first + edges[i, 0]
        detail = state.details[b, first + edges[i, 1]]
        task.num_missing += 1
        # Its first predecessor: the lowest task row, or the one of the largest output.
        before = task.first_predecessor
        is_first = before < 0 or row < before
        if before >= 0 and p.largest_first:
            larger = moved[i] - detail.input
            is_first = larger > 0.0 or (larger == 0.0 and row < before)
        if is_first:
            task.first_predecessor, detail.input = row, moved[i]
    at += e
    if p.estimates:
        _misjudge(b, first, n, state, problem)
    if p.from_all:
        at = _add_predecessors(b, first, n, e, edges, moved, at, state)
    # Last: ranks are made of what is seen, the errors of estimates included.
    for k in range(n):
        state.tasks[b, first + k].rank = rank(state.tasks[b, first + k], state.details[b, first + k], p.order)
    return at


@internal
def count_levels(b, first, n, state, problem):  # type: ignore[no-untyped-def]
    """Raise the level of each task of the workflow that was added last to the longest path to it."""
    tables = problem.tables
    for i in range(n):  # in topological order
        k = tables[ORDER, i]
        for at in range(tables[FIRST, k], tables[FIRST, k + 1]):
            after = state.details[b, first + problem.successors[at]]
            after.level = max(after.level, state.details[b, first + k].level + 1)


@rare
def _misjudge(b, first, n, state, problem):  # type: ignore[no-untyped-def]
    """Draw the errors of estimates, and the stragglers."""
    p = problem.parameters[0]
    for row in range(first, first + n):
        task, detail = state.tasks[b, row], state.details[b, row]
        # A draw for every task, whether it straggles or not: the errors are the same with and without stragglers.
        detail.error = lognormal(problem.rng[ERRORS], p.estimate_mean, p.estimate_std)
        if p.straggler_share > 0.0 and uniform(problem.rng[LATE]) < p.straggler_share:
            task.left *= p.straggler_factor
            detail.compute = task.left
            detail.error /= p.straggler_factor  # what is seen stays as it would be


@rare
def _add_predecessors(b, first, n, e, edges, moved, at, state):  # type: ignore[no-untyped-def]
    """List all predecessors of each task, and what it needs of them, from position `at` on."""
    for row in range(first, first + n):
        # Counting sort: how many each has is known, so every list has its place.
        state.details[b, row].predecessors = at
        at += state.tasks[b, row].num_missing
    for i in range(e):
        detail = state.details[b, first + edges[i, 1]]
        state.edges[b, detail.predecessors + detail.num_predecessors] = first + edges[i, 0]
        state.moved[b, detail.predecessors + detail.num_predecessors] = moved[i]
        detail.num_predecessors += 1
    return at
