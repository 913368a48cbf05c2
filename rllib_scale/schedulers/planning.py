"""HEFT and CPOP online: each workflow is planned as a whole at its arrival, then carried out."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.config.schedulers import check_planned
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.list_scheduling import Planner, Timelines, cpop, heft
from rllib_scale.workloads.fitting import fits

TASK_BITS = 24
"""Bits for a task's index in its number in the timelines: workflow << TASK_BITS | task."""


class _Plans:
    """Plans in one environment."""

    def __init__(self, planner: Planner, moves_take_time: bool, snapshot: Snapshot) -> None:
        self.planner, self.moves_take_time = planner, moves_take_time
        self.capacity, self.memory = snapshot.capacity_gflops, snapshot.memory_gb
        self.places, self.offered = snapshot.max_concurrent, snapshot.properties["labels"]
        self.timelines = Timelines(len(self.capacity))
        self.planned: set[int] = set()  # numbers of the tasks on the timelines
        self.num_workflows = 0

    def _execution_s(
        self, compute: np.ndarray, memory: np.ndarray, places: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        """(T, P) of tasks [GFLOP, GB, 1, bits]; inf where one does not fit, 0 of one without work."""
        has_room = fits(memory[:, None], places[:, None], labels[:, None], self.memory, self.places, self.offered)
        has_room &= self.capacity > 0
        execution = np.full(has_room.shape, np.inf)
        np.divide(compute[:, None], self.capacity, out=execution, where=has_room)
        execution[compute == 0] = 0.0
        return execution

    def update(self, snapshot: Snapshot) -> None:
        """Plan the workflows that have arrived, and forget those that were given up."""
        self.timelines.lines.free_at[:] = snapshot.free_at_s
        for number in range(self.num_workflows, snapshot.num_arrived):
            if number in snapshot.workflows:  # a live one may have been given up since
                workflow, first = snapshot.workflow(number), number << TASK_BITS
                needs = workflow.memory_gb, workflow.places, workflow.labels
                execution = self._execution_s(workflow.compute_gflop, *needs)
                follows = np.isin(workflow.task, workflow.edges[:, 1])
                release = workflow.delay_s + np.where(follows, 0.0, workflow.arrival_s)
                self.planner(
                    execution,
                    workflow.edges,
                    workflow.transfer_s if self.moves_take_time else None,
                    timelines=self.timelines,
                    first_number=first,
                    release_s=release,
                    moved_on_server=self.moves_take_time,
                )
                self.planned.update((first + np.flatnonzero(workflow.compute_gflop)).tolist())
        self.num_workflows = snapshot.num_arrived
        lines, live = self.timelines.lines, list(snapshot.workflows)
        while len(gone := np.flatnonzero((lines.used > 0) & ~np.isin(lines.number[:, 0] >> TASK_BITS, live))):
            self._drop(gone)

    def due(self, snapshot: Snapshot) -> np.ndarray:
        """Tasks that start now: (K, 3) workflow, task, server.

        First tasks whose attempt failed or whose output was lost, each on the idle server that is done first; then the
        ready tasks that are the next of their server, which is idle.
        """
        ready, lines, idle = snapshot.ready, self.timelines.lines, snapshot.idle.copy()
        # Tasks are named by one number, as on the timelines.
        numbers = ready["workflow"] << TASK_BITS | ready["task"]
        starts = []
        for k in [k for k, number in enumerate(numbers.tolist()) if number not in self.planned]:
            columns = (ready[name][k : k + 1] for name in ("compute_gflop", "memory_gb", "places", "labels"))
            taken = self._execution_s(*columns)[0] + (snapshot.transfer_s[k] if self.moves_take_time else 0.0)
            j = int(np.where(idle, taken, np.inf).argmin())
            if idle[j] and taken[j] < np.inf:
                starts.append((k, j))
                idle[j] = False
        able = np.flatnonzero(idle & (lines.used > 0))
        _, due, at = np.intersect1d(numbers, lines.number[able, 0], assume_unique=True, return_indices=True)
        self._drop(able[at])
        task, server = np.array([*starts, *zip(due, able[at], strict=True)], dtype=np.int64).reshape(-1, 2).T
        return np.stack([ready["workflow"][task], ready["task"][task], server], axis=1)

    def _drop(self, servers: np.ndarray) -> None:
        """Take the next task off the timelines of these servers."""
        numbers = self.timelines.lines.number[servers, 0].tolist()
        self.planned.difference_update(numbers)
        self.timelines.drop_next(servers)


class PlanningDispatcher(Dispatcher):
    """Plans each workflow at its arrival into the timelines of the servers, and starts tasks as planned.

    A workflow is planned as soon as it has arrived, in order of arrival. Its tasks may take any time in which a server
    neither runs a task nor is planned to run one of an earlier workflow, gaps included; earlier plans do not move.
    A plan counts communication where it takes server time (`communication.mode: transfer`), as the simulator does. So
    with exact demands every task starts at its planned time (with `idle_advance: clock-step`, at the next look at or
    after it).
    A task starts when it is ready and its server is idle and has nothing planned before it. On a live cluster a task
    that is to be run again starts ahead of all plans, and a workflow that is given up is planned no more.
    """

    planner: Planner
    _moves_take_time = False

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`: what is planned is a whole workflow, on servers that stay, one task on each."""
        check_planned(self.name, env)
        self._moves_take_time = env.communication.mode == "transfer"
        return env

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self._plans: list[_Plans | None] = [None] * len(seeds)

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """See `Dispatcher.dispatch`."""
        plans = self._plans[snapshot.index] or _Plans(type(self).planner, self._moves_take_time, snapshot)
        self._plans[snapshot.index] = plans
        plans.update(snapshot)
        return plans.due(snapshot)


class HEFT(PlanningDispatcher):
    """Heterogeneous Earliest Finish Time (Topcuoglu et al. 2002), workflow by workflow."""

    name = "heft"
    description = "plans each workflow at its arrival by HEFT; does not use the level-1 rule or the mask"
    planner = staticmethod(heft)


class CPOP(PlanningDispatcher):
    """Critical Path on a Processor (Topcuoglu et al. 2002), workflow by workflow.

    The server of a critical path is chosen with what is planned on it (see `cpop`). Chosen by execution time alone, as
    for a single workflow, it would be the same large server every time, and its queue would grow without end.
    """

    name = "cpop"
    description = "plans each workflow at its arrival by CPOP; does not use the level-1 rule or the mask"
    planner = staticmethod(cpop)
