"""The compiled writer of `View`: all environments of a batch in one call."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal, rare
from rllib_scale.observation import view as seen
from rllib_scale.observation.view import MOST_SEEN, View
from rllib_scale.simulator import state as layout
from rllib_scale.simulator.attempts import error_of, input_of, labels_of, places_of
from rllib_scale.simulator.events import is_live
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.rounds import available_at
from rllib_scale.simulator.state import RUNNING

LEFT = np.dtype([("completed", "i8"), ("seen", "i8"), ("work", "f8")])
"""Tasks of a workflow that have ended and that are seen; demand of those that have not ended [GFLOP]."""
COUNTED = np.dtype([("arrived", "i8"), ("first_live", "i8")])
"""Workflows that had arrived at the view before; all before `first_live` had completed."""


class ViewWriter:
    """Writes the view of one batch, and remembers of each workflow what it last counted.

    Args:
        state: of the batch; the writer is good as long as its arrays have those shapes.
        problem: of the batch.
        before: the writer before the arrays grew, whose counts are kept.
    """

    def __init__(self, state: layout.State, problem: layout.Problem, before: ViewWriter | None = None) -> None:
        (b, tasks), workflows = state.tasks.shape, state.workflows.shape[1]
        n = len(problem.servers)
        # A task has one input, from its first predecessor, or one for each edge.
        inputs = max(tasks, state.edges.shape[1]) if problem.parameters[0]["from_all"] else tasks
        self.shape = state.tasks.shape, state.workflows.shape, state.edges.shape
        self.view = View(
            env=np.zeros(b, dtype=seen.ENV),
            waiting=np.empty((b, tasks), dtype=seen.WAITING),
            inputs=np.empty((b, inputs), dtype=seen.INPUT),
            new=np.empty((b, workflows), dtype=seen.NEW),
            ended=np.empty((b, tasks if problem.parameters[0]["revealed"] else 1), dtype=seen.ENDED),
            unfinished=np.zeros((b, 1 + MOST_SEEN), dtype=np.int64),
            capacity=problem.servers["capacity"].copy(),
            properties=problem.servers,
            limit=np.empty((b, n)),
            wait=np.empty((b, n)),
            free_places=np.empty((b, n), dtype=np.int64),
            is_open=np.empty((b, n), dtype=np.bool_),
            free=np.empty((b, n)),
            next_end=np.empty((b, n)),
        )
        self._left = np.zeros((b, workflows), dtype=LEFT)
        self._counted = np.zeros(b, dtype=COUNTED)
        if before is not None:
            self._left[:, : before._left.shape[1]] = before._left
            self._counted = before._counted

    def fits(self, state: layout.State) -> bool:
        """Whether there is room for all that these arrays can hold."""
        return self.shape == (state.tasks.shape, state.workflows.shape, state.edges.shape)

    def keep(self, workflows: np.ndarray) -> None:
        """Keep only these workflows (K,) of the first environment, by their former rows."""
        written = workflows[workflows < self._left.shape[1]]  # others have come since, and are new
        self._left[0, : len(written)] = self._left[0, written]
        for name in ("arrived", "first_live"):
            # Rows below a number keep being below: of the kept ones as many as were.
            self._counted[name][0] = np.searchsorted(workflows, self._counted[name][0])

    def begin(self, which: np.ndarray) -> None:
        """Environments of `which` (B,) bool begin a new episode."""
        self._counted[which] = 0

    def __call__(self, table: np.ndarray) -> View:
        """The view as they are now; the same arrays each time. `table`: see handles.py."""
        _write(self.view, self._left, self._counted, table)
        return self.view


@compiled
def write_view(to, left, counted, table):  # type: ignore[no-untyped-def]
    """Write every environment to `to`, View.

    Kept from call to call: `left` (B, W) LEFT of each workflow, and `counted` (B,) COUNTED.
    """
    state, problem = state_of(table), problem_of(table)
    for b in range(len(state.env)):
        env, shown = state.env[b], to.env[b]
        shown.clock_s = env.clock
        shown.num_waiting = shown.num_inputs = shown.num_new = shown.num_ended = shown.tasks_in_system = 0
        shown.work_in_system_gflop, shown.is_revealed = 0.0, problem.parameters[0].revealed
        # An episode that has ended shows nothing that waits, and so is asked nothing.
        if env.end != RUNNING:
            continue
        _write_system(b, to, left, counted, state, problem)
        _write_servers(b, to, state)
        for i in range(env.num_ready):
            _write_waiting(b, state.ready[b, i], to, state, problem)
        for i in range(env.num_aside):
            _write_waiting(b, state.aside[b, i], to, state, problem)
        if not problem.parameters[0].peek:
            for i in range(env.num_offered):
                _write_waiting(b, state.offered[b, i], to, state, problem)


_write = Direct(write_view)


@internal
def _write_servers(b, to, state):  # type: ignore[no-untyped-def]
    clock = state.env[b].clock
    for j in range(to.limit.shape[1]):
        limit, free_places, next_end = state.limit[b, j], state.free_places[b, j], state.next_end[b, j]
        wait = available_at(b, j, state) - clock
        to.limit[b, j], to.wait[b, j], to.free_places[b, j] = limit, wait, free_places
        # Exact: where a place is free and nothing is put off, the wait is clock - clock.
        to.is_open[b, j] = free_places > 0 and wait == 0.0
        to.free[b, j] = state.free[b, j] if limit >= 0.0 else 0.0
        to.next_end[b, j] = max(0.0, next_end - clock) if limit >= 0.0 else np.inf


@internal
def _write_waiting(b, row, to, state, problem):  # type: ignore[no-untyped-def]
    p, task, shown = problem.parameters[0], state.tasks[b, row], to.env[b]
    workflow, out = state.workflows[b, task.workflow], to.waiting[b, shown.num_waiting]
    detail = state.details[b, row]
    shown.num_waiting += 1
    out.workflow, out.task = workflow.number, row - workflow.first_task
    out.compute_gflop, out.memory_gb = task.left * error_of(b, row, state, p), task.memory
    out.places, out.labels = places_of(b, row, state, p), labels_of(b, row, state, p)
    out.arrival_s, out.ready_s = workflow.arrival, task.ready
    out.hop, out.descendants = detail.hop, detail.descendants
    out.seen, out.delay_s = detail.seen, detail.delay
    out.first_input, out.num_inputs = shown.num_inputs, 0
    if p.from_all:
        _write_inputs(b, row, to, state, problem)
    elif task.first_predecessor >= 0:
        gb = input_of(b, row, state.tasks[b, task.first_predecessor], state)
        _write_input(b, task.first_predecessor, gb, out, to, state, problem)


@rare
def _write_inputs(b, row, to, state, problem):  # type: ignore[no-untyped-def]
    detail, out = state.details[b, row], to.waiting[b, to.env[b].num_waiting - 1]
    for i in range(detail.predecessors, detail.predecessors + detail.num_predecessors):
        _write_input(b, state.edges[b, i], state.moved[b, i], out, to, state, problem)


@internal
def _write_input(b, source, gb, out, to, state, problem):  # type: ignore[no-untyped-def]
    p, task, shown = problem.parameters[0], state.tasks[b, source], to.env[b]
    # A predecessor without work ran nowhere: nothing of it is moved.
    if task.place < 0:
        return
    moved = to.inputs[b, shown.num_inputs]
    moved.server, moved.transfer_s = problem.server_of[task.place], gb / p.bandwidth + p.latency
    shown.num_inputs += 1
    out.num_inputs += 1


@internal
def _write_system(b, to, left, counted, state, problem):  # type: ignore[no-untyped-def]
    """Tasks that have not ended; and the workflows that were not there before, or have completed since.

    A workflow is only looked at again when the number of its tasks that have ended, or are seen, has changed.
    """
    env, p, shown, before = state.env[b], problem.parameters[0], to.env[b], counted[b]
    to.unfinished[b] = 0
    for w in range(before.first_live if p.revealed else env.first_live, env.workflows_arrived):
        workflow, of = state.workflows[b, w], left[b, w]
        is_new = w >= before.arrived
        if not is_live(workflow):
            if p.revealed and (is_new or of.completed < workflow.num_completed):
                of.completed = workflow.num_completed
                _write_ended(b, workflow, to, state)
            continue
        if is_new or of.completed != workflow.num_completed or of.seen != workflow.num_seen:
            of.completed, of.seen = workflow.num_completed, workflow.num_seen
            work = _work_of(b, workflow, of, state, p)  # of a new one nothing has ended but what came with it
            if is_new:
                new = to.new[b, shown.num_new]
                new.arrival_s, new.work_gflop, new.num_tasks = workflow.arrival, work, of.seen - of.completed
                new.depth = _depth_of(b, workflow, state, p)
                shown.num_new += 1
        # Only counts of workflows under way are added up: their tasks are looked at where something has changed.
        shown.tasks_in_system += of.seen - of.completed
        shown.work_in_system_gflop += of.work
        to.unfinished[b, min(MOST_SEEN, of.seen)] += p.revealed
    # What is new, and what has ended, is since this view.
    before.arrived, before.first_live = env.workflows_arrived, env.first_live


@rare
def _write_ended(b, workflow, to, state):  # type: ignore[no-untyped-def]
    """A revealed workflow has completed: which of its tasks were seen when, and how many followed."""
    shown = to.env[b]
    for row in range(workflow.first_task, workflow.first_task + workflow.num_tasks):
        detail, out = state.details[b, row], to.ended[b, shown.num_ended]
        out.seen, out.descendants, out.num_tasks, out.depth = detail.seen, detail.followers, 0, 0
        first = to.ended[b, shown.num_ended - (row - workflow.first_task)]
        first.num_tasks, first.depth = workflow.num_tasks, max(first.depth, detail.level)
        shown.num_ended += 1


@internal
def _depth_of(b, workflow, state, p):  # type: ignore[no-untyped-def]
    """Tasks on the longest path of a workflow, as far as they are seen at its arrival."""
    depth = 1
    for row in range(workflow.first_task, workflow.first_task + workflow.num_tasks):
        if not p.revealed:
            depth = max(depth, state.details[b, row].level)
    return depth


@internal
def _work_of(b, workflow, of, state, p):  # type: ignore[no-untyped-def]
    """Write down the demand of the tasks of a workflow that are seen and have not ended, for each place [GFLOP]."""
    of.work = 0.0
    for row in range(workflow.first_task, workflow.first_task + workflow.num_tasks):
        task = state.tasks[b, row]
        if p.revealed and task.num_missing > 0:
            continue
        # A place is kept after the end: a task has ended where its place runs another, or none.
        if task.place < 0 or state.running[b, task.place] == row:
            detail = state.details[b, row]
            of.work += detail.compute * detail.error * detail.places
    return of.work
