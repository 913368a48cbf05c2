"""What a live cluster is doing, by the rules of docs/simulator.md: which tasks wait, run, or may start.

The ledger knows neither Ray nor a clock: its caller reports what happened, and when. The simulator has rules of its
own, in compiled code; the tests drive this one through the same workloads and compare every snapshot.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.live.flows import Flow
from rllib_scale.observation.snapshot import AWAY, BUSY, DRAINING, IDLE, INPUT, READY, LiveWorkflow, Snapshot
from rllib_scale.simulator.cluster import build_servers, first_rows, tier_names
from rllib_scale.simulator.record import SCHEDULE

RELEASE, ARRIVAL = range(2)
"""Kinds of timers, in the order in which they ring at one time."""
NO_INPUTS: list[tuple[int, float]] = []


class Attempt(NamedTuple):
    """A task on a row, from its start on."""

    number: int  # in order of start
    flow: Flow
    task: int
    row: int
    ready_s: float
    start_s: float
    transfer_s: float  # for which the row is taken before the execution
    execution_s: float

    @property
    def expected_end_s(self) -> float:
        """When it should end [s]."""
        return self.start_s + (self.transfer_s + self.execution_s)


class _Waiting(NamedTuple):
    """A task that waits; sorted as level 1 sorts."""

    key: float  # less the rank
    since: float  # by which ties are broken
    workflow: int
    task: int
    ready_s: float
    inputs: list[tuple[int, float]]  # host and transfer of each input


class Ledger:
    """The state of a live cluster.

    Args:
        env: the problem: cluster, decisions and communication.
    """

    def __init__(self, env: EnvConfig) -> None:
        self.env = env
        rows = build_servers(env.cluster, env.reward)
        self.capacity, self.memory, self.host = rows["capacity"].copy(), rows["memory"].copy(), rows["host"].copy()
        self.tier = tier_names(env.cluster)
        self.first_row = first_rows(env.cluster)
        self._slowdown = rows["slowdown"]
        self.num_hosts = env.cluster.num_servers
        self.there = np.ones(self.num_hosts, dtype=bool)
        self.flows: dict[int, Flow] = {}  # that have arrived and are not complete
        self.pending: dict[int, Flow] = {}  # that are still to arrive
        self.running: list[Attempt | None] = [None] * len(rows)
        self.held: dict[int, float] = {}  # row -> memory of what is being stopped there
        self.num_arrived = 0
        self.log: dict[int, tuple[Any, ...]] = {}  # SCHEDULE of each attempt that has ended
        self.num_started = 0
        self.away_s = np.zeros(self.num_hosts)
        self.counts = {"decisions": 0, "waits": 0, "passed": 0, "invalid_no_fit": 0, "invalid_busy": 0}
        self._waiting: list[_Waiting] = []
        self._timers: list[tuple[float, int, int, int]] = []  # time, kind, workflow, task
        self._extra = np.zeros(len(rows))  # of this round: how much later a row is available for those that wait
        self._answered: set[tuple[int, int]] = set()  # in this round
        self._expected = np.full(len(rows), np.inf)
        self._names = np.full((len(rows), 2), -1, dtype=np.int64)
        self._used = np.zeros(len(rows))

    # ------------------------------------------------------------------ what happens

    def expect(self, flow: Flow) -> None:
        """A workflow will arrive at its time."""
        self.pending[flow.number] = flow
        heapq.heappush(self._timers, (flow.arrival_s, ARRIVAL, flow.number, -1))

    @property
    def next_timer_s(self) -> float:
        """When something is due [s]; inf: nothing is."""
        return self._timers[0][0] if self._timers else np.inf

    def ring(self, now: float) -> bool:
        """Carry out all that is due: release delays end, workflows arrive. Returns whether anything was."""
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[1:])
        for kind, workflow, task in sorted(due):
            if kind == ARRIVAL:
                self._arrive(self.pending.pop(workflow), now)
            elif workflow in self.flows:
                self._make_ready(self.flows[workflow], task, now)
        return bool(due)

    def _arrive(self, flow: Flow, now: float) -> None:
        flow.noticed_s = now
        self.flows[flow.number] = flow
        self.num_arrived += 1
        for task in range(len(flow)):
            if not flow.missing[task] and not flow.completed[task]:
                self._release(flow, task, now)

    def _release(self, flow: Flow, task: int, now: float) -> None:
        """Nothing is missing any more but the release delay."""
        if flow.delay_s[task] > 0:
            heapq.heappush(self._timers, (now + float(flow.delay_s[task]), RELEASE, flow.number, task))
        else:
            self._make_ready(flow, task, now)

    def _make_ready(self, flow: Flow, task: int, now: float) -> None:
        decision = self.env.decision
        key, since = -flow.rank(task, decision.level1), 0.0 if decision.ties_by_arrival else now
        insort(self._waiting, _Waiting(key, since, flow.number, task, now, self._inputs(flow, task)))

    def _inputs(self, flow: Flow, task: int) -> list[tuple[int, float]]:
        cluster, sources = self.env.cluster, flow.moved_for(task, self.env.communication)
        moved = ((at, flow.output_gb[at] / cluster.bandwidth_gb_s + cluster.latency_s) for at in sources)
        return [(int(self.host[flow.row[at]]), float(seconds)) for at, seconds in moved] or NO_INPUTS

    def complete(self, row: int, now: float) -> Flow:
        """The task on a row has ended; returns its workflow."""
        attempt = self._clear(row, now, "finished")
        flow, task = attempt.flow, attempt.task
        flow.completed[task] = True
        for after in flow.successors[task]:
            if flow.row[after] < 0:
                flow.missing[after] -= 1
                if not flow.missing[after]:
                    self._release(flow, after, now)
        if flow.done:
            del self.flows[flow.number]
        return flow

    def fail(self, row: int, now: float) -> Attempt:
        """The attempt on a row came to nothing: the task waits anew."""
        attempt = self._clear(row, now, "failed")
        flow, task = attempt.flow, attempt.task
        flow.row[task] = -1
        flow.missing[task] = int((~flow.completed[flow.predecessors[task]]).sum())  # some may be run again by now
        if not flow.missing[task]:
            self._make_ready(flow, task, now)
        return attempt

    def _clear(self, row: int, now: float, outcome: str) -> Attempt:
        attempt = self.running[row]
        assert attempt is not None, "the caller knows what runs"
        worked = max(0.0, now - attempt.start_s - attempt.transfer_s)
        share = 1.0 if outcome == "finished" else min(1.0, worked / attempt.execution_s)
        work = float(attempt.flow.compute_gflop[attempt.task]) * share
        self.log[attempt.number] = self.logged(attempt, now, outcome, work)
        self.running[row] = None
        self._expected[row], self._names[row], self._used[row] = np.inf, -1, 0.0
        return attempt

    def logged(
        self, attempt: Attempt, until: float = np.nan, outcome: str = "running", work: float = np.nan
    ) -> tuple[Any, ...]:
        """An attempt as SCHEDULE has it."""
        flow, row = attempt.flow, attempt.row
        times = (flow.arrival_s, attempt.ready_s, attempt.start_s, until)
        return (flow.number, attempt.task, row, self.tier[row], *times, outcome, attempt.transfer_s, work)

    def lose(self, flow: Flow, task: int, now: float) -> None:
        """The output of a task that had ended is gone: it is to be run again, and tasks that need it wait for it."""
        flow.completed[task], flow.row[task] = False, -1
        flow.missing[task] = int((~flow.completed[flow.predecessors[task]]).sum())
        for after in flow.successors[task]:
            if flow.row[after] < 0:
                flow.missing[after] += 1
                self._withdraw(flow.number, after)
        if not flow.missing[task]:
            self._make_ready(flow, task, now)

    def _withdraw(self, workflow: int, task: int) -> None:
        """The task waits no longer, where it did."""
        self._waiting = [w for w in self._waiting if (w.workflow, w.task) != (workflow, task)]
        self._timers = [t for t in self._timers if t[1:] != (RELEASE, workflow, task)]
        heapq.heapify(self._timers)

    def drop(self, flow: Flow, now: float) -> list[int]:
        """A workflow is given up. Returns the rows on which it runs: they are held until `released`."""
        if self.pending.pop(flow.number, None) is not None:
            self._timers = [t for t in self._timers if t[1:3] != (ARRIVAL, flow.number)]
            heapq.heapify(self._timers)
            self.num_arrived += 1
        self.flows.pop(flow.number, None)
        self._waiting = [w for w in self._waiting if w.workflow != flow.number]
        rows = [attempt.row for attempt in self.running if attempt is not None and attempt.flow is flow]
        for row in rows:
            memory = self._used[row]
            self._clear(row, now, "failed")
            self.held[row] = memory
        return rows

    def released(self, row: int) -> None:
        """What was stopped on a row has ended."""
        self.held.pop(row, None)

    def leave(self, host: int, now: float) -> list[Attempt]:
        """A server is gone; what ran on it waits anew. Returns those attempts."""
        if self.there[host]:
            self.there[host] = False
            self.away_s[host] -= now  # until it joins
        rows = range(self.first_row[host], self.first_row[host + 1])
        for row in rows:
            self.held.pop(row, None)
        return [self.fail(row, now) for row in rows if self.running[row] is not None]

    def join(self, host: int, now: float) -> None:
        """A server is there again, empty."""
        if not self.there[host]:
            self.there[host] = True
            self.away_s[host] += now

    def away_until(self, end_s: float) -> np.ndarray:
        """(H,) for how long each server was not there [s]."""
        return np.where(self.there, self.away_s, self.away_s + end_s)

    # ------------------------------------------------------------------ answers

    def answer(self, workflow: int, task: int, row: int, now: float) -> tuple[str, Attempt | None]:
        """Carry out an answer: one of `observation.answers.OUTCOMES`, and what started, where something did.

        Raises:
            ValueError: no such task waits, or it was answered for in this round, or a stop is asked for.
        """
        at = self._position(workflow, task)
        if task < 0 or at is None or (workflow, task) in self._answered or not -1 <= row < len(self.host):
            raise ValueError(f"there is no answer for workflow {workflow}, task {task}, row {row}")
        reserves = self.env.decision.on_busy == "reserve"
        self.counts["decisions"] += 1
        if row < 0:
            self.counts["passed"] += 1
            if reserves:
                self._answered.add((workflow, task))
            return "passed", None
        flow = self.flows[workflow]
        if not self._takes(row) or flow.memory_gb[task] > self.memory[row]:
            self.counts["invalid_no_fit"] += 1
            return "no_fit", None
        if self._extra[row] == 0.0 and self._is_open(row, float(flow.memory_gb[task])):
            return "started", self._start(at, row, now)
        if not reserves:
            self.counts["invalid_busy"] += 1
            return "busy", None
        self.counts["waits"] += 1
        self._answered.add((workflow, task))
        self._extra[row] += self._execution_s(flow, task, row)
        return "waits", None

    def _position(self, workflow: int, task: int) -> int | None:
        flow = self.flows.get(workflow)
        if flow is None or not 0 <= task < len(flow):
            return None
        key = -flow.rank(task, self.env.decision.level1)
        at = bisect_left(self._waiting, (key, -np.inf))
        while at < len(self._waiting) and self._waiting[at].key == key:
            if self._waiting[at][2:4] == (workflow, task):
                return at
            at += 1
        return None

    def _takes(self, row: int) -> bool:
        return self.host[row] >= 0 and bool(self.there[self.host[row]]) and row not in self.held

    def _is_open(self, row: int, memory: float) -> bool:
        return self._takes(row) and self.running[row] is None and memory <= self._free(int(self.host[row]))

    def _free(self, host: int) -> float:
        first, end = self.first_row[host], self.first_row[host + 1]
        used = sum(self._used[first:end].tolist()) + sum(self.held.get(row, 0.0) for row in range(first, end))
        return max(0.0, float(self.memory[first]) - used)

    def _execution_s(self, flow: Flow, task: int, row: int) -> float:
        seconds = float(flow.compute_gflop[task]) / float(self.capacity[row])
        if self._slowdown[row] > 0:
            first, end = self.first_row[self.host[row]], self.first_row[self.host[row] + 1]
            others = sum(self.running[at] is not None for at in range(first, end) if at != row)
            seconds *= 1.0 + float(self._slowdown[row]) * others
        return seconds

    def _start(self, at: int, row: int, now: float) -> Attempt:
        waiting = self._waiting.pop(at)
        flow, task = self.flows[waiting.workflow], waiting.task
        transfer = 0.0
        if self.env.communication.mode == "transfer":
            transfer = sum(seconds for host, seconds in waiting.inputs if host != self.host[row])
        execution = self._execution_s(flow, task, row)
        attempt = Attempt(self.num_started, flow, task, row, waiting.ready_s, now, transfer, execution)
        self.num_started += 1
        self.running[row], flow.row[task] = attempt, row
        self._expected[row], self._names[row] = attempt.expected_end_s, (flow.number, task)
        self._used[row] = flow.memory_gb[task]
        return attempt

    def close_round(self) -> None:
        """The reservations of this round end."""
        if self._answered:
            self._extra[:] = 0.0
            self._answered.clear()

    def start_any(self, now: float) -> Attempt | None:
        """The guarantee of progress: the first waiting task that has an open row starts on the first such row."""
        for at, waiting in enumerate(self._waiting):
            memory = float(self.flows[waiting.workflow].memory_gb[waiting.task])
            for row in range(len(self.host)):
                if self._is_open(row, memory):
                    return self._start(at, row, now)
        return None

    # ------------------------------------------------------------------ what is to be seen

    @property
    def waits(self) -> bool:
        """Whether a task waits."""
        return bool(self._waiting)

    @property
    def runs(self) -> bool:
        """Whether a task runs, or is being stopped."""
        return bool(self.held) or any(attempt is not None for attempt in self.running)

    def hopeless(self, hosts: list[int]) -> tuple[int, int] | None:
        """Workflow and task of the first waiting task that none of these servers could ever hold."""
        largest = max((float(self.memory[self.first_row[host]]) for host in hosts), default=-1.0)
        for waiting in self._waiting:
            if self.flows[waiting.workflow].memory_gb[waiting.task] > largest:
                return waiting.workflow, waiting.task
        return None

    def snapshot(self, now: float) -> Snapshot:
        """The state as schedulers see it."""
        owned = self.host >= 0
        takes = np.where(owned, self.there[self.host], False)
        away = ~takes
        for row in self.held:
            takes[row] = False
        busy = self._names[:, 0] >= 0
        used = np.bincount(self.host[owned], weights=self._used[owned], minlength=self.num_hosts)
        for row, memory in self.held.items():
            used[self.host[row]] += memory
        available = np.where(takes, np.where(busy, np.maximum(now, self._expected), now) + self._extra, np.inf)
        inputs = [(at, *moved) for at, waiting in enumerate(self._waiting) for moved in waiting.inputs]
        return Snapshot(
            index=0,
            clock_s=now,
            num_arrived=self.num_arrived,
            capacity_gflops=self.capacity,
            memory_gb=self.memory,
            free_memory_gb=np.where(away, 0.0, np.maximum(0.0, self.memory - used[self.host])),
            host=self.host,
            status=np.where(away, AWAY, np.where(~takes, DRAINING, np.where(busy, BUSY, IDLE))),
            expected_end_s=self._expected.copy(),
            available_at_s=available,
            running=self._names.copy(),
            ready=np.array([self._shown(waiting) for waiting in self._waiting], dtype=READY),
            inputs=np.array(inputs, dtype=INPUT),
            candidates=np.arange(min(len(self._waiting), self.env.decision.offered)),
            workflows=_Seen(self.flows),
            bandwidth_gb_s=self.env.cluster.bandwidth_gb_s,
            latency_s=self.env.cluster.latency_s,
        )

    def _shown(self, waiting: _Waiting) -> tuple[float, ...]:
        flow, task = self.flows[waiting.workflow], waiting.task
        demand = (flow.compute_gflop[task], flow.memory_gb[task], flow.output_gb[task])
        return (waiting.workflow, task, *demand, flow.hop[task], flow.noticed_s, waiting.ready_s)

    def schedule(self) -> np.ndarray:
        """Every attempt so far, SCHEDULE, in order of start; NaN is what is not known before it ends."""
        runs = {a.number: self.logged(a) for a in self.running if a is not None}
        every = self.log | runs
        return np.array([every[number] for number in sorted(every)], dtype=SCHEDULE)


class _Seen(Mapping[int, LiveWorkflow]):
    """The workflows under way, each shown when it is asked for."""

    def __init__(self, flows: dict[int, Flow]) -> None:
        self._flows = flows

    def __len__(self) -> int:
        return len(self._flows)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._flows))

    def __getitem__(self, number: int) -> LiveWorkflow:
        return self._flows[number].seen()
