"""The arrays that a batch of environments lives in.

An environment holds the whole workload of its episode, drawn or given when the episode begins (load.py): a record for
each workflow and a row for each task, numbered in the order of arrival. One log row is kept per attempt to run a task.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np

from rllib_scale.simulator.cluster import SERVER
from rllib_scale.simulator.reward import REWARD_PARAMETERS
from rllib_scale.workloads.generators import PARAMETERS as WORKLOAD
from rllib_scale.workloads.model import TASK_DEMAND

PARAMETERS = np.dtype(
    [
        ("horizon", "f8"),  # s
        ("arrivals_until", "f8"),  # s; inf: workflows arrive as long as the episode lasts
        ("clock_step", "f8"),  # s
        ("idle_by_step", "i8"),
        ("feasible_only", "i8"),
        ("max_decisions", "i8"),
        ("horizon_is_terminal", "i8"),
        ("reserve", "i8"),  # a task may wait for a busy server; 0: an invalid answer costs clock_step
        ("peek", "i8"),  # the one candidate stays in the heap: step, one at a time
        ("order", "i8"),
        ("ties_by_arrival", "i8"),
        ("transfer", "i8"),  # whether moving input takes server time
        ("from_all", "i8"),  # input of all predecessors is moved
        ("largest_first", "i8"),  # the first predecessor is the one of the largest output
        ("revealed", "i8"),
        ("labels", "i8"),  # whether servers have labels; without any, no task has
        ("several", "i8"),  # whether some server has several places; without, every task takes one
        ("estimates", "i8"),  # whether demands are seen with an error, or are not those of the workload
        ("estimate_mean", "f8"),  # of the logarithm
        ("estimate_std", "f8"),
        ("straggler_share", "f8"),  # 0: none
        ("straggler_factor", "f8"),
        ("changes", "i8"),  # whether servers come and go
        ("failure_rate", "f8"),  # 1/s, of one server
        ("departure_rate", "f8"),  # 1/s
        ("repair", "f8"),  # mean, s; inf: stays away
        ("notice", "f8"),  # s
        ("return_after", "f8"),  # mean, s; inf: stays away
        ("bandwidth", "f8"),  # GB/s
        ("latency", "f8"),  # s
        ("reward", "i8"),
        *((name, "f8") for name in REWARD_PARAMETERS),
        ("feature_set", "i8"),
        ("task_compute_max", "f8"),
        ("memory_max", "f8"),
        ("per_output_unit", "f8"),
        ("per_delay_unit", "f8"),
        ("per_time_unit", "f8"),
    ]
)
ENV = np.dtype(
    [
        ("clock", "f8"),
        ("target", "f8"),  # where the clock step under way ends
        ("num_workflows", "i8"),  # of the episode
        ("has_delays", "i8"),  # whether tasks have release delays
        ("per_edge", "i8"),  # whether an edge moves anything else than all output of its predecessor
        ("after", "f8"),  # s, first arrival beyond the episode; inf: none
        ("next_arrival", "f8"),  # inf: no workflow arrives any more
        ("next_finish", "f8"),  # inf: no task is running
        ("next_release", "f8"),  # inf: no release delay is running
        ("next_change", "f8"),  # inf: no server comes or goes any more
        ("num_ready", "i8"),  # tasks in the heap of waiting ones
        ("num_offered", "i8"),  # candidates
        ("num_aside", "i8"),  # deferred: waiting tasks that are not offered again in this round
        ("num_released", "i8"),  # tasks whose release delay runs
        ("num_reserved", "i8"),  # servers that a task waits for
        ("in_round", "i8"),
        ("num_busy", "i8"),  # places that run a task
        ("num_open", "i8"),  # servers on which some task could start
        ("change_at", "i8"),  # next of the scheduled changes
        ("in_system", "i8"),  # arrived, uncompleted tasks
        ("area", "f8"),  # integral of in_system over time since the last decision
        ("decided", "f8"),  # s, when the last decision was taken
        ("end", "i8"),  # RUNNING, or why the episode ended
        ("episode_return", "f8"),
        ("decisions", "i8"),
        ("invalid_no_fit", "i8"),
        ("invalid_busy_avoidable", "i8"),
        ("invalid_busy_unavoidable", "i8"),
        ("waits", "i8"),
        ("passed", "i8"),
        ("failed_attempts", "i8"),
        ("lost", "f8"),  # s of places that did no lasting work
        ("arrived", "i8"),
        ("completed", "i8"),
        ("workflows_arrived", "i8"),
        ("first_live", "i8"),  # all workflows before it have completed
        ("workflows_completed", "i8"),
        ("response_sum", "f8"),
        ("makespan_sum", "f8"),
        ("num_started", "i8"),  # rows of the log
        ("outside", "i8"),  # whether its events come from outside: when a task ends is unknown until it does
        ("next_number", "i8"),  # of the workflow that arrives next
        ("given_up", "i8"),  # unfinished tasks of workflows that were given up
        ("given_up_arrivals", "f8"),  # s, sum of their arrivals
    ]
)
WORKFLOW = np.dtype(
    [
        ("arrival", "f8"),  # s
        ("number", "i8"),  # by which schedulers know it, in order of arrival; of an episode its row here
        ("first_task", "i8"),  # its task rows are adjacent
        ("num_tasks", "i8"),
        ("num_seen", "i8"),  # tasks that schedulers know of
        ("num_completed", "i8"),
    ]
)
TASK = np.dtype(  # one cache line: in large clusters what is looked at between two decisions is tasks
    [
        ("left", "f8"),  # GFLOP that an attempt has to do
        ("memory", "f8"),  # GB
        ("output", "f8"),  # GB
        ("ready", "f8"),  # s
        ("rank", "f8"),  # key of the order, largest first
        ("workflow", "i4"),
        ("num_successors", "i4"),
        ("num_missing", "i4"),  # predecessors not yet completed, or whose output is lost
        ("place", "i4"),  # it was assigned to; NONE, or NOWHERE
        ("first_successor", "i4"),  # position among the edges, which hold task rows
        ("first_predecessor", "i4"),  # task row; -1: none
    ]
)
DETAIL = np.dtype(
    [
        ("compute", "f8"),  # GFLOP
        ("delay", "f8"),  # s, from the end of its predecessors until it is ready
        ("error", "f8"),  # demand as schedulers see it over the true one
        ("labels", "i8"),  # that it needs of a server, see workloads.fitting
        ("places", "i8"),  # that it takes of a server
        ("input", "f8"),  # GB that it needs of its first predecessor
        ("hop", "i4"),  # edges on the longest path to a sink
        ("descendants", "i4"),  # itself included, as schedulers see it
        ("followers", "i4"),  # the same in truth
        ("level", "i4"),  # tasks on the longest path to it, itself included; 0: it ended before its workflow came
        ("seen", "i4"),  # where workflows are revealed: it was so many-th of its workflow's tasks to be seen
        ("num_predecessors", "i4"),
        ("predecessors", "i4"),  # position among the edges, where input comes from more than one
    ]
)
PRESENCE = np.dtype(
    [
        ("status", "i8"),
        ("away", "f8"),  # s, all absences that have ended
        ("left", "f8"),  # s, when the present one began
        ("next", "f8"),  # s, its next change at random; inf: none
        ("phase", "i8"),  # what that is
        ("rng", "u8", (4,)),
    ]
)
LOG = np.dtype(
    [
        ("workflow", "i8"),
        ("task", "i8"),
        ("server", "i8"),
        ("outcome", "i8"),
        ("arrival", "f8"),
        ("ready", "f8"),
        ("start", "f8"),
        ("finish", "f8"),  # when it ended, or will
        ("transfer", "f8"),  # s before the execution
        ("work", "f8"),  # GFLOP that it does, or did
    ]
)
CHANGE = np.dtype([("time", "f8"), ("event", "i8"), ("server", "i8")])

RUNNING, AT_HORIZON, ALL_DONE, AT_MAX_DECISIONS = range(4)
STEPS, ROUNDS, DISPATCHED = range(3)
"""Events that wake the scheduler: a candidate, a server for it; or any task that waits."""
UP, DRAINING, AWAY = range(3)
TO_END, FAILED = range(2)
"""States of an attempt: it runs or ran to its end, or its server failed."""
NONE = -1
"""No task row, no log row, or no place."""
NOWHERE = -2
"""Place of a task without work that has ended."""
FAR = 1e300
"""Finish [s] of an attempt whose end is reported from outside."""


class State(NamedTuple):
    """All arrays of a batch, each with its dimensions, its type, and what it holds at first where that is not 0.

    B environments, N servers, P places of servers, W workflows, T tasks, E edges, K candidates, L log rows, X columns
    of an observation. A server that runs several tasks at once has as many places, which share its memory and stand
    side by side. Edges, queues and stacks hold task rows.
    """

    env: Annotated[np.ndarray, "B", ENV]
    workflows: Annotated[np.ndarray, "BW", WORKFLOW]  # in order of arrival
    tasks: Annotated[np.ndarray, "BT", TASK]
    details: Annotated[np.ndarray, "BT", DETAIL]  # of the same tasks: what is seldom read
    edges: Annotated[np.ndarray, "BE", "i8"]  # successors of each task, then, where needed, predecessors
    moved: Annotated[np.ndarray, "BE", "f8"]  # GB of each of these predecessors that its successor needs
    ready: Annotated[np.ndarray, "BT", "i8"]  # heap of those that wait
    offered: Annotated[np.ndarray, "BK", "i8"]  # in order
    aside: Annotated[np.ndarray, "BT", "i8"]
    released: Annotated[np.ndarray, "BT", "i8"]  # heap, by the end of their delay
    presence: Annotated[np.ndarray, "BN", PRESENCE]
    free_places: Annotated[np.ndarray, "BN", "i8"]
    free: Annotated[np.ndarray, "BN", "f8"]  # GB
    next_end: Annotated[np.ndarray, "BN", "f8", np.inf]  # s, when the next of its tasks is expected to end
    power: Annotated[np.ndarray, "BN", "f4"]  # W, drawn now
    room: Annotated[np.ndarray, "BN", "f8", -1.0]  # GB that a task may need to start now; -1: none can
    limit: Annotated[np.ndarray, "BN", "f8", -1.0]  # GB that one may need to start ever; -1: away, or drains
    extra: Annotated[np.ndarray, "BN", "f8"]  # s by which tasks that wait for it in this round put it off
    reserved: Annotated[np.ndarray, "BN", "i8"]  # stack of servers
    busy: Annotated[np.ndarray, "BN", "f8"]  # s of all attempts, for each place that they take
    finish: Annotated[np.ndarray, "BP", "f8", np.inf]  # s; inf: runs nothing
    expected: Annotated[np.ndarray, "BP", "f8", np.inf]  # s, when schedulers expect it; inf: runs nothing
    running: Annotated[np.ndarray, "BP", "i8", NONE]  # task row; -1: none
    attempt: Annotated[np.ndarray, "BP", "i8"]  # log row
    queue: Annotated[np.ndarray, "BP", "i8"]  # heap of the busy places, by finish
    log: Annotated[np.ndarray, "BL", LOG]
    observation: Annotated[np.ndarray, "BX", "f4"]
    fit: Annotated[np.ndarray, "BKN", "u1"]  # of each candidate: observation.masks.CLOSED, BUSY or OPEN
    outcome: Annotated[np.ndarray, "B", "i8"]  # of the last answer: observation.answers.OUTCOMES
    elapsed: Annotated[np.ndarray, "B", "f8"]  # s from the last decision to this one
    reward: Annotated[np.ndarray, "B", "f8"]
    done: Annotated[np.ndarray, "B", "?", True]


class Problem(NamedTuple):
    """Constants of a run: parameters and servers; and scratch for the largest workflow."""

    parameters: Annotated[np.ndarray, "1", PARAMETERS]
    workload: Annotated[np.ndarray, "1", WORKLOAD]
    servers: Annotated[np.ndarray, "N", SERVER]
    static_columns: Annotated[np.ndarray, "S", "i8"]  # of features that do not change while it is there
    static: Annotated[np.ndarray, "NS", "f8"]  # their values
    server_of: Annotated[np.ndarray, "P", "i8"]  # of each place
    at_random: Annotated[np.ndarray, "N", "?"]  # changes at random
    starts_away: Annotated[np.ndarray, "N", "?"]
    changes: Annotated[np.ndarray, "C", CHANGE]  # scheduled
    rng: Annotated[np.ndarray, "34", "u8"]  # generators of workloads, of the errors of estimates, and of stragglers
    demand: Annotated[np.ndarray, "T", TASK_DEMAND]
    edges: Annotated[np.ndarray, "E2", "i8"]
    moved: Annotated[np.ndarray, "E", "f8"]  # GB, of each of these edges
    tables: Annotated[np.ndarray, "5T", "i8"]  # of the DAG; see load.py
    successors: Annotated[np.ndarray, "E", "i8"]
    reached: Annotated[np.ndarray, "T", "u8"]  # 0 between calls


@cache
def arrays_in(layout: type[NamedTuple]) -> dict[str, tuple[str, np.dtype[Any], Any]]:
    """Dimensions, type and initial value of each array of State or Problem, in their order."""
    hints = get_type_hints(layout, include_extras=True)
    found = {name: (*hint.__metadata__, 0) for name, hint in hints.items()}
    return {name: (dimensions, np.dtype(kind), first) for name, (dimensions, kind, first, *_) in found.items()}
