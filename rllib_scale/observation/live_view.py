"""A snapshot of a live cluster as a view: a batch of one environment."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rllib_scale.observation.snapshot import LiveWorkflow, Snapshot
from rllib_scale.observation.starting import servers_of
from rllib_scale.observation.view import ENDED, ENV, INPUT, MOST_SEEN, NEW, WAITING, View
from rllib_scale.workloads.dag import hops_and_descendants

SHARED_NAMES = ("workflow", "task", "compute_gflop", "memory_gb", "arrival_s", "ready_s", "hop")
"""Columns that READY and WAITING have in common."""


@dataclass
class _Known:
    """A workflow under way: as it was seen last, and when its tasks were first seen."""

    workflow: LiveWorkflow
    descendants: np.ndarray  # (T,) of the tasks that were seen at its arrival
    order: dict[int, int] = field(default_factory=dict)  # task -> it was so many-th to be seen

    def number_tasks(self) -> None:
        """Continue `order` with the tasks that are seen for the first time."""
        if len(self.workflow.task) > len(self.order):
            for task in self.workflow.task.tolist():
                self.order.setdefault(task, len(self.order) + 1)

    def ended(self) -> np.ndarray:
        """(T,) ENDED, once it has completed."""
        hops, descendants = hops_and_descendants(len(self.workflow.task), self.workflow.edges)
        rows = np.zeros(len(hops), dtype=ENDED)
        rows["seen"], rows["descendants"] = [self.order[task] for task in self.workflow.task.tolist()], descendants
        rows[0]["num_tasks"], rows[0]["depth"] = len(hops), hops.max() + 1
        return rows


def _arrived(workflow: LiveWorkflow) -> tuple[float, float, int, int]:
    """NEW of a workflow; what had ended before it arrived, as the call before a request of Serve, is no work of it."""
    left = ~workflow.completed
    compute, hop = workflow.compute_gflop[left], workflow.hop[left]
    return workflow.arrival_s, float(compute.sum()), len(compute), int(hop.max(initial=0)) + 1


class LiveView:
    """Writes the view of one cluster, and keeps an account of the workflows under way.

    Descendants of tasks are counted when their workflow is first seen; a task that was not seen then has one.

    Args:
        is_revealed: whether a task is seen when its predecessors have ended.
    """

    def __init__(self, is_revealed: bool = False) -> None:
        self._is_revealed = is_revealed
        self._known: dict[int, _Known] = {}

    def __call__(self, now: Snapshot) -> View:
        """The view of a snapshot; call it for every state in which the policy is asked."""
        live = {number: now.workflow(number) for number in now.workflows}
        before, self._known = self._known, {}
        for number, workflow in live.items():
            tables = before.get(number) or _Known(workflow, hops_and_descendants(len(workflow.task), workflow.edges)[1])
            self._known[number], tables.workflow = tables, workflow
            if self._is_revealed:
                tables.number_tasks()
        new = [workflow for number, workflow in live.items() if number not in before]
        gone = [known for number, known in before.items() if number not in live] if self._is_revealed else []
        ended = np.concatenate([known.ended() for known in gone]) if gone else np.zeros(0, dtype=ENDED)
        waiting, inputs = self._waiting(now)
        env = np.zeros(1, dtype=ENV)
        env["clock_s"], env["num_waiting"], env["num_inputs"] = now.clock_s, len(waiting), len(inputs)
        env["num_new"], env["num_ended"], env["is_revealed"] = len(new), len(ended), self._is_revealed
        env["tasks_in_system"] = sum(int((~workflow.completed).sum()) for workflow in live.values())
        env["work_in_system_gflop"] = sum(float(w.compute_gflop[~w.completed].sum()) for w in live.values())
        arrived = [_arrived(workflow) for workflow in new]
        seen = [min(MOST_SEEN, len(w.task)) for w in live.values()] if self._is_revealed else []
        capacity, properties, *changing = servers_of(now)
        return View(
            env,
            waiting[None],
            inputs[None],
            np.array([arrived], dtype=NEW).reshape(1, -1),
            ended[None],
            np.bincount(np.array(seen, dtype=np.int64), minlength=1 + MOST_SEEN)[None],
            capacity,
            properties,
            *(array[None] for array in changing),
        )

    def _waiting(self, now: Snapshot) -> tuple[np.ndarray, np.ndarray]:
        """(R,) WAITING and (I,) INPUT."""
        waiting = np.zeros(len(now.ready), dtype=WAITING)
        for name in SHARED_NAMES:
            waiting[name] = now.ready[name]
        for row, task in zip(waiting, now.ready["task"].tolist(), strict=True):
            known = self._known[int(row["workflow"])]
            row["descendants"] = known.descendants[task] if task < len(known.descendants) else 1
            row["delay_s"] = known.workflow.delay_s[np.searchsorted(known.workflow.task, task)]
            row["seen"] = known.order.get(task, 0)
        waiting["num_inputs"] = np.bincount(now.inputs["task"], minlength=len(waiting))
        waiting["first_input"] = np.cumsum(waiting["num_inputs"]) - waiting["num_inputs"]
        inputs = np.zeros(len(now.inputs), dtype=INPUT)
        inputs["server"], inputs["transfer_s"] = now.inputs["server"], now.inputs["transfer_s"]
        return waiting, inputs
