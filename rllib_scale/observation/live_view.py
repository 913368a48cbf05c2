"""A snapshot of a live cluster as a view: a batch of one environment."""

from __future__ import annotations

import numpy as np

from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.observation.starting import servers_of
from rllib_scale.observation.view import ENV, INPUT, NEW, WAITING, View
from rllib_scale.workloads.dag import descendants

SHARED_NAMES = ("workflow", "task", "compute_gflop", "memory_gb", "arrival_s", "ready_s", "hop")
"""Columns that READY and WAITING have in common."""


class LiveView:
    """Writes the view of one cluster, and keeps an account of the workflows under way.

    Descendants of tasks are counted when their workflow is first seen; a task that was not seen then has one.
    """

    def __init__(self) -> None:
        self._descendants: dict[int, np.ndarray] = {}

    def __call__(self, now: Snapshot) -> View:
        """The view of a snapshot; call it for every state in which the policy is asked."""
        live = {number: now.workflow(number) for number in now.workflows}
        new = [workflow for number, workflow in live.items() if number not in self._descendants]
        self._descendants = {number: counts for number, counts in self._descendants.items() if number in live}
        self._descendants |= {w.index: descendants(len(w.task), w.edges) for w in new}
        waiting = np.zeros(len(now.ready), dtype=WAITING)
        for name in SHARED_NAMES:
            waiting[name] = now.ready[name]
        names = zip(now.ready["workflow"].tolist(), now.ready["task"].tolist(), strict=True)
        counted = ((self._descendants[workflow], task) for workflow, task in names)
        waiting["descendants"] = [of[task] if task < len(of) else 1 for of, task in counted]
        waiting["num_inputs"] = np.bincount(now.inputs["task"], minlength=len(waiting))
        waiting["first_input"] = np.cumsum(waiting["num_inputs"]) - waiting["num_inputs"]
        inputs = np.zeros(len(now.inputs), dtype=INPUT)
        inputs["server"], inputs["transfer_s"] = now.inputs["server"], now.inputs["transfer_s"]
        env = np.zeros(1, dtype=ENV)
        env["clock_s"], env["num_waiting"], env["num_inputs"] = now.clock_s, len(waiting), len(inputs)
        env["num_new"] = len(new)
        env["tasks_in_system"] = sum(int((~workflow.completed).sum()) for workflow in live.values())
        env["work_in_system_gflop"] = sum(float(w.compute_gflop[~w.completed].sum()) for w in live.values())
        new_work = np.array([[(w.arrival_s, w.compute_gflop.sum()) for w in new]], dtype=NEW).reshape(1, -1)
        capacity, max_concurrent, *changing = servers_of(now)
        batch = (env, waiting[None], inputs[None], new_work, capacity, max_concurrent)
        return View(*batch, *(array[None] for array in changing))
