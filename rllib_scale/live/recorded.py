"""A live run in the simulator with the durations that it had: whether the same decisions come out of both.

Every time of a live run is a multiple of `backend.TICKS`, so that its events fall together in the simulator, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.live.execute import LiveRun
from rllib_scale.live.flows import Flow, reordered
from rllib_scale.observation.backend import Answer
from rllib_scale.observation.snapshot import LiveWorkflow, Snapshot
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.simulator.cluster import build_servers
from rllib_scale.workloads.model import Workload


def recorded_workload(run: LiveRun) -> Workload:
    """The workload with the arrivals, delays and durations of a live run.

    Raises:
        ValueError: an attempt failed, or a task did not end.
    """
    given, schedule = run.workload, run.schedule
    row = given.task_offsets[schedule["workflow"]] + schedule["task"]
    if (schedule["outcome"] != "finished").any() or len(np.unique(row)) < given.num_tasks:
        raise ValueError("a run is recorded where every task ended at its first attempt")
    capacity = build_servers(run.env.cluster, run.env.reward)["capacity"][schedule["server"]]
    took = schedule["finish_s"] - schedule["start_s"]
    compute, delay, finish = np.empty(len(row)), np.empty(len(row)), np.empty(len(row))
    compute[row], finish[row] = _inverse(took, capacity), schedule["finish_s"]
    owner = np.repeat(np.arange(given.num_workflows), np.diff(given.task_offsets))
    last = run.noticed_s[owner]
    offset = np.repeat(given.task_offsets[:-1], np.diff(given.edge_offsets))
    before, after = (given.edges + offset[:, None]).T
    np.maximum.at(last, after, finish[before])
    delay[row] = schedule["ready_s"] - last[row]
    return replace(given, arrival_s=run.noticed_s, compute_gflop=compute, delay_s=delay)


def _inverse(took: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """What, divided by the capacity, is the time taken; to the bit where there is such a number."""
    product = took * capacity
    for near in (np.nextafter(product, 0.0), np.nextafter(product, np.inf)):
        product = np.where((product / capacity != took) & (near / capacity == took), near, product)
    return product


class RecordedBackend:
    """The simulator with a run's durations, shown as schedulers saw it then: with the demands that were declared.

    Args:
        run: a live run.
        seed: as for `SimulatedBackend`.
    """

    def __init__(self, run: LiveRun, seed: int = 0) -> None:
        env = run.env
        tiers = tuple(tier.model_copy(update={"slot_slowdown": 0.0}) for tier in env.cluster.tiers)
        exact = env.model_copy(
            update={
                "cluster": env.cluster.model_copy(update={"tiers": tiers}),
                "communication": env.communication.model_copy(update={"mode": "reward"}),
                "episode": env.episode.model_copy(update={"horizon_s": 1e9, "max_decisions": None}),
            }
        )
        self._env: EnvConfig = env
        self._slowdown = build_servers(env.cluster, env.reward)["slowdown"]
        self._flows = [Flow.of(run.workload, number) for number in range(run.workload.num_workflows)]
        self._expected = np.full(env.cluster.num_slots, np.inf)
        self._now: Snapshot | None = None
        self._busy: set[int] = set()
        self.simulated = SimulatedBackend(exact, seed, 0, recorded_workload(run))

    def wait(self) -> Snapshot | None:
        """See `Backend.wait`."""
        snapshot = self.simulated.wait()
        self._now = None if snapshot is None else self._as_seen(snapshot)
        return self._now

    def _as_seen(self, now: Snapshot) -> Snapshot:
        busy = now.running[:, 0] >= 0
        self._busy = set(np.flatnonzero(busy).tolist())
        self._expected[~busy] = np.inf
        ready, order = now.ready.copy(), self._env.decision.level1
        names = list(zip(ready["workflow"].tolist(), ready["task"].tolist(), strict=True))
        ready["compute_gflop"] = [self._flows[w].compute_gflop[t] for w, t in names]
        available = np.where(busy, np.maximum(now.clock_s, self._expected), now.available_at_s)
        seen = replace(
            now,
            ready=ready,
            expected_end_s=self._expected.copy(),
            available_at_s=available,
            workflows=_Declared(now.workflows, self._flows),
        )
        return reordered(seen, self._env.decision, lambda workflow, task: self._flows[workflow].rank(task, order))

    def apply(self, answer: Answer) -> str:
        """See `Backend.apply`."""
        outcome = self.simulated.apply(answer)
        if outcome == "started" and self._now is not None:
            now, row = self._now, answer.row
            flow = self._flows[answer.workflow]
            others = sum(now.host[other] == now.host[row] for other in self._busy)
            seconds = flow.compute_gflop[answer.task] / now.capacity_gflops[row] * (1 + self._slowdown[row] * others)
            if self._env.communication.mode == "transfer":
                names = now.ready[["workflow", "task"]].tolist()
                seconds += now.transfer_s[names.index((answer.workflow, answer.task)), row]
            self._expected[row] = now.clock_s + seconds
            self._busy.add(row)
        return outcome


class _Declared(Mapping[int, LiveWorkflow]):
    """Workflows with the demands that were declared, not those that were recorded."""

    def __init__(self, recorded: Mapping[int, LiveWorkflow], flows: list[Flow]) -> None:
        self._recorded, self._flows = recorded, flows

    def __len__(self) -> int:
        return len(self._recorded)

    def __iter__(self) -> Iterator[int]:
        return iter(self._recorded)

    def __getitem__(self, number: int) -> LiveWorkflow:
        flow = self._flows[number]
        return replace(self._recorded[number], compute_gflop=flow.compute_gflop, delay_s=flow.delay_s)
