"""A snapshot of a live cluster as a view: a batch of one environment."""

from __future__ import annotations

import numpy as np

from rllib_scale.observation.snapshot import BUSY, Snapshot
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
        inputs["host"], inputs["transfer_s"] = now.inputs["host"], now.inputs["transfer_s"]
        env = np.zeros(1, dtype=ENV)
        env["clock_s"], env["num_waiting"], env["num_inputs"] = now.clock_s, len(waiting), len(inputs)
        env["num_new"] = len(new)
        env["tasks_in_system"] = sum(int((~workflow.completed).sum()) for workflow in live.values())
        env["work_in_system_gflop"] = sum(float(w.compute_gflop[~w.completed].sum()) for w in live.values())
        there, num_hosts = now.status <= BUSY, int(now.host.max(initial=0)) + 1
        wait = np.where(there, now.available_at_s - now.clock_s, np.inf)
        free, next_end = np.zeros(num_hosts), np.full(num_hosts, np.inf)
        free[now.host[there]] = now.free_memory_gb[there]
        np.minimum.at(next_end, now.host[there], now.expected_end_s[there] - now.clock_s)
        return View(
            env=env,
            waiting=waiting[None],
            inputs=inputs[None],
            new=np.array([[(w.arrival_s, w.compute_gflop.sum()) for w in new]], dtype=NEW).reshape(1, -1),
            capacity=now.capacity_gflops,
            host=now.host,
            limit=np.where(there, now.memory_gb, -1.0)[None],
            wait=wait[None],
            is_open=(now.idle & (wait == 0.0))[None],
            free=free[None],
            next_end=np.maximum(next_end, 0.0)[None],
        )
