"""HEFT and CPOP online: each workflow is planned as a whole at its arrival, then carried out."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.observation.snapshot import LiveWorkflow, Snapshot
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.list_scheduling import Planner, Timelines, cpop, heft

TASK_BITS = 24
"""Of a task's number in the timelines: its workflow's << TASK_BITS | its own."""


class _Plans:
    """What is planned in one environment."""

    def __init__(self, planner: Planner, snapshot: Snapshot) -> None:
        self.planner = planner
        self.capacity, self.memory = snapshot.capacity_gflops, snapshot.memory_gb
        self.timelines = Timelines(len(self.capacity))
        self.num_workflows = 0

    def add(self, workflow: LiveWorkflow) -> None:
        """Plan a workflow that has just arrived."""
        fits = (workflow.memory_gb[:, None] <= self.memory) & (self.capacity > 0)
        execution = np.full(fits.shape, np.inf)
        np.divide(workflow.compute_gflop[:, None], self.capacity, out=execution, where=fits)
        self.planner(execution, workflow.edges, timelines=self.timelines, first_number=workflow.index << TASK_BITS)

    def due(self, snapshot: Snapshot) -> np.ndarray:
        """Ready tasks that are the next of their server, which is idle: (K, 3) workflow, task, server."""
        ready, lines = snapshot.ready, self.timelines.lines
        numbers = ready["workflow"] << TASK_BITS | ready["task"]
        able = np.flatnonzero(snapshot.idle & (lines.used > 0))
        _, due, at = np.intersect1d(numbers, lines.number[able, 0], assume_unique=True, return_indices=True)
        server = able[at]
        self.timelines.drop_next(server)
        return np.stack([ready["workflow"][due], ready["task"][due], server], axis=1)


class PlanningDispatcher(Dispatcher):
    """Plans each workflow at its arrival into the timelines of the servers, and starts tasks as planned.

    A workflow is planned as soon as it has arrived, in order of arrival. Its tasks may take any time in which a server
    neither runs a task nor is planned to run one of an earlier workflow, gaps included; earlier plans do not move.
    Execution times are exact and communication delays no task in this simulator, so the planner counts no communication
    and every task starts at its planned time (with `idle_advance: clock-step`, at the next look at or after it).
    A task starts when it is ready and its server is idle and has nothing planned before it.
    """

    planner: Planner

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`: what is planned is a whole workflow, on servers that stay, one task on each."""
        for setting, is_set, valid in (
            ("information.workflows", env.information.workflows == "revealed", "whole"),
            ("cluster.changes", not env.cluster.changes.none, "none"),
            ("cluster.tiers.max_concurrent", any(tier.max_concurrent > 1 for tier in env.cluster.tiers), "1"),
        ):
            if is_set:
                raise UserError(f"{self.name} plans workflows as a whole: {setting} is set; valid for it: {valid}")
        return env

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self._plans: list[_Plans | None] = [None] * len(seeds)

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """See `Dispatcher.dispatch`."""
        plans = self._plans[snapshot.index] or _Plans(type(self).planner, snapshot)
        self._plans[snapshot.index] = plans
        plans.timelines.lines.free_at[:] = snapshot.free_at_s
        for workflow in range(plans.num_workflows, snapshot.num_arrived):
            if workflow in snapshot.workflows:  # a live one may have been given up since
                plans.add(snapshot.workflow(workflow))
        plans.num_workflows = snapshot.num_arrived
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
