"""What a live cluster is doing, by the rules of docs/simulator.md: which tasks wait, run, or may start.

The ledger knows neither Ray nor a clock: its caller reports what happened, and when. The simulator has rules of its
own, in compiled code; the tests drive this one through the same workloads and compare every snapshot.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.live.flows import Flow
from rllib_scale.observation.answers import PASS
from rllib_scale.observation.snapshot import AWAY, INPUT, READY, RUNNING, UP, Snapshot
from rllib_scale.simulator.cluster import build_servers, tier_names
from rllib_scale.simulator.record import SCHEDULE
from rllib_scale.workloads.fitting import fits

RELEASE, ARRIVAL = range(2)
"""Kinds of timers, in the order in which they ring at one time."""


class Attempt(NamedTuple):
    """A task on a server, from its start on."""

    number: int  # in order of start
    flow: Flow
    task: int
    server: int
    memory_gb: float
    ready_s: float
    start_s: float
    transfer_s: float  # for which its place is taken before the execution
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
    memory_gb: float
    ready_s: float
    flow: Flow
    shown: tuple[Any, ...]  # READY
    inputs: list[tuple[int, float]]  # server and transfer of each input


class Ledger:
    """The state of a live cluster.

    When a workflow is given up, its running tasks are stopped. Until such a task has ended, it keeps its place and its
    memory, and counts among the running tasks of its server.

    Args:
        env: the problem: cluster, decisions and communication.
        keeps_ended: keep a record of ended attempts, for `schedule`. A long-lived cluster keeps none.
    """

    def __init__(self, env: EnvConfig, keeps_ended: bool = True) -> None:
        self.env, self.num_servers, self.keeps_ended = env, env.cluster.num_servers, keeps_ended
        self.servers, self.tier = build_servers(env.cluster, env.reward), tier_names(env.cluster)
        self.there = np.arange(len(self.servers)) < self.num_servers
        self.away_s = np.zeros(len(self.servers))
        self.places: list[list[Attempt | None]] = [[None] * n for n in self.servers["max_concurrent"].tolist()]
        self.stopping: set[int] = set()  # numbers of attempts
        self.flows: dict[int, Flow] = {}  # that have arrived and are not complete
        self.pending: dict[int, Flow] = {}  # that are still to arrive
        self.num_arrived = 0
        self.log: dict[int, tuple[Any, ...]] = {}  # SCHEDULE of each attempt
        self.num_started = 0
        self.num_ended, self.stayed_s = 0, 0.0  # workflows that have ended, and how long all of these were there
        self.tell: Callable[[str, Any, float], None] = lambda what, about, now: None  # a guard, what happens
        self.counts: Counter[str] = Counter()  # of outcomes of answers
        self._waiting: dict[tuple[int, int], _Waiting] = {}  # by workflow and task
        self._timers: list[tuple[float, int, int, int]] = []  # time, kind, workflow, task
        self._reserving: set[tuple[int, int]] = set()  # tasks that wait for a server in this round
        self._extra = np.zeros(len(self.servers))  # of this round: how much later a server is available
        self._num_running = np.zeros(len(self.servers), dtype=np.int64)
        self._free = self.servers["memory"].copy()
        self._next_end = np.full(len(self.servers), np.inf)

    # ------------------------------------------------------------------ what happens

    def expect(self, flow: Flow) -> None:
        """A workflow will arrive at its time."""
        self.pending[flow.number] = flow
        heapq.heappush(self._timers, (flow.arrival_s, ARRIVAL, flow.number, -1))
        self.tell("expect", flow, flow.arrival_s)

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
        self.flows[flow.number] = flow
        self.num_arrived += 1
        for task in np.flatnonzero(~flow.completed).tolist():
            self._release(flow, task, now)

    def _release(self, flow: Flow, task: int, now: float) -> None:
        """Where nothing is missing any more but the release delay."""
        if flow.missing[task]:
            return
        if flow.delay_s[task] > 0:
            heapq.heappush(self._timers, (now + float(flow.delay_s[task]), RELEASE, flow.number, task))
        else:
            self._make_ready(flow, task, now)

    def _make_ready(self, flow: Flow, task: int, now: float) -> None:
        decision, cluster = self.env.decision, self.env.cluster
        key, since = -flow.rank(task, decision.level1), 0.0 if decision.ties_by_arrival else now
        sources = flow.moved_for(task, self.env.communication)
        moved = [(at, flow.output_gb[at] / cluster.bandwidth_gb_s + cluster.latency_s) for at in sources]
        inputs = [(int(flow.server[at]), float(seconds)) for at, seconds in moved]
        compute, memory, output = (float(of[task]) for of in (flow.compute_gflop, flow.memory_gb, flow.output_gb))
        shown = (flow.number, task, compute, memory, output, flow.hop[task], flow.arrival_s, now)
        waiting = _Waiting(key, since, flow.number, task, memory, now, flow, shown, inputs)
        self._waiting[flow.number, task] = waiting

    def complete(self, attempt: Attempt, now: float) -> None:
        """A task has ended."""
        self._clear(attempt)
        self._record(attempt, "finished", now)
        flow = attempt.flow
        flow.completed[attempt.task] = True
        for after in flow.successors[attempt.task]:
            if flow.server[after] < 0:
                flow.missing[after] -= 1
                self._release(flow, after, now)
        if flow.done:
            del self.flows[flow.number]
            self._count_ended(flow, now)
        self.tell("end", attempt, now)

    def fail(self, attempt: Attempt, now: float) -> None:
        """An attempt came to nothing: the task waits anew."""
        self._clear(attempt)
        self._record(attempt, "failed", now)
        self._take_back(attempt.flow, attempt.task, now)

    def lose(self, flow: Flow, task: int, now: float) -> None:
        """The output of a task that had ended is gone: it is to be run again, and tasks that need it wait for it."""
        flow.completed[task] = False
        after = [after for after in flow.successors[task] if flow.server[after] < 0]
        for each in after:
            flow.missing[each] += 1
        self._withdraw(flow, after)
        self._take_back(flow, task, now)

    def _take_back(self, flow: Flow, task: int, now: float) -> None:
        """The task is to be run again, perhaps after some before it."""
        flow.server[task] = -1
        flow.missing[task] = int((~flow.completed[flow.predecessors[task]]).sum())
        if not flow.missing[task]:
            self._make_ready(flow, task, now)

    def _withdraw(self, flow: Flow, tasks: Sequence[int]) -> None:
        """These tasks wait no longer, where they did."""
        for task in tasks:
            self._waiting.pop((flow.number, task), None)
        self._timers = [t for t in self._timers if t[2] != flow.number or t[3] not in tasks]
        heapq.heapify(self._timers)

    def drop(self, flow: Flow, now: float) -> list[Attempt]:
        """A workflow is given up. Returns its running tasks, which are to be stopped, and reported as `released`."""
        if self.pending.pop(flow.number, None) is not None:
            self.num_arrived += 1
        self.flows.pop(flow.number, None)
        self._withdraw(flow, range(-1, len(flow)))  # its arrival, too
        runs = [attempt for attempt in self.running() if attempt.flow is flow]
        for attempt in runs:
            self._record(attempt, "failed", now)
        self.stopping.update(attempt.number for attempt in runs)
        self._count_ended(flow, now)
        self.tell("drop", flow, now)
        return runs

    def released(self, attempt: Attempt) -> None:
        """A task that was stopped has ended."""
        self.stopping.discard(attempt.number)
        self._clear(attempt)

    def leave(self, server: int, now: float) -> None:
        """A server is gone; what ran on it waits anew."""
        if self.there[server]:
            self.there[server] = False
            self.away_s[server] -= now  # until it joins
            self.tell("leave", server, now)
        for attempt in self._on(server):
            if attempt.number in self.stopping:
                self.released(attempt)
            else:
                self.fail(attempt, now)

    def join(self, server: int, now: float) -> None:
        """A server is there again, empty."""
        if not self.there[server]:
            self.there[server] = True
            self.away_s[server] += now
            self.tell("join", server, now)

    # ------------------------------------------------------------------ accounts

    def _count_ended(self, flow: Flow, now: float) -> None:
        self.num_ended += 1
        self.stayed_s += max(0.0, now - flow.arrival_s)

    def spent_s(self, now: float) -> float:
        """Time that workflows have been there, those under way included [s]."""
        return self.stayed_s + sum(now - flow.arrival_s for flow in self.flows.values())

    def _on(self, server: int) -> list[Attempt]:
        """What runs there, by place."""
        return [attempt for attempt in self.places[server] if attempt is not None]

    def _clear(self, attempt: Attempt) -> None:
        """The place of an attempt is free."""
        places = self.places[attempt.server]
        places[places.index(attempt)] = None
        self._count(attempt.server)

    def _count(self, server: int) -> None:
        """What runs on a server is another."""
        runs = self._on(server)
        used = _total(attempt.memory_gb for attempt in runs)
        self._num_running[server] = len(runs)
        self._free[server] = max(0.0, self.servers["memory"][server] - used)
        self._next_end[server] = min((attempt.expected_end_s for attempt in runs), default=np.inf)

    def _record(self, attempt: Attempt, outcome: str = "running", until: float = np.nan) -> None:
        """Write an attempt down, as SCHEDULE has it."""
        if not self.keeps_ended:
            return
        flow = attempt.flow
        share = 1.0 if outcome == "finished" else (until - attempt.start_s - attempt.transfer_s) / attempt.execution_s
        work = flow.compute_gflop[attempt.task] * min(max(share, 0.0), 1.0)  # NaN while it runs
        names = (flow.number, attempt.task, attempt.server, self.tier[attempt.server])
        times = (flow.arrival_s, attempt.ready_s, attempt.start_s, until)
        self.log[attempt.number] = (*names, *times, outcome, attempt.transfer_s, work)

    # ------------------------------------------------------------------ answers

    def answer(self, workflow: int, task: int, server: int, now: float) -> tuple[str, Attempt | None]:
        """Carry out an answer: one of `observation.answers.OUTCOMES`, and what started, where something did.

        Raises:
            ValueError: no such task waits, or it waits for a server in this round already, or a stop is asked for.
        """
        waiting, started = self._waiting.get((workflow, task)), None
        if waiting is None or (workflow, task) in self._reserving or not PASS <= server < len(self.servers):
            raise ValueError(f"workflow {workflow}, task {task} cannot start on server {server}")
        if server == PASS:
            outcome = "passed"
        elif not self.there[server] or not fits(waiting.memory_gb, self.servers["memory"][server]):
            outcome = "no_fit"
        elif self._extra[server] == 0.0 and self._is_open(waiting.memory_gb)[server]:
            outcome, started = "started", self._start(waiting, server, now)
        elif self.env.decision.on_busy == "reserve":
            outcome = "waits"
            self._reserving.add((workflow, task))
            self._extra[server] += self._execution_s(waiting, server) / self.servers["max_concurrent"][server]
        else:
            outcome = "busy"
        self.counts[outcome] += 1
        return outcome, started

    def _is_open(self, memory_gb: float) -> np.ndarray:
        """(N,) bool: a task that needs so much could start there, but for reservations."""
        is_open: np.ndarray = self.there & (self._num_running < self.servers["max_concurrent"])
        return is_open & fits(memory_gb, self._free)

    def _execution_s(self, waiting: _Waiting, server: int) -> float:
        at = self.servers[server]
        others = min(self._num_running[server], at["max_concurrent"] - 1)
        return float(waiting.flow.compute_gflop[waiting.task] / at["capacity"] * (1.0 + at["slowdown"] * others))

    def _start(self, waiting: _Waiting, server: int, now: float) -> Attempt:
        flow, task, transfer = waiting.flow, waiting.task, 0.0
        if self.env.communication.mode == "transfer":
            transfer = _total(seconds for source, seconds in waiting.inputs if source != server)
        execution = self._execution_s(waiting, server)
        timing = (waiting.ready_s, now, transfer, execution)
        attempt = Attempt(self.num_started, flow, task, server, waiting.memory_gb, *timing)
        self.num_started += 1
        del self._waiting[flow.number, task]
        flow.server[task] = server
        places = self.places[server]
        places[places.index(None)] = attempt
        self._count(server)
        self._record(attempt)
        return attempt

    def close_round(self) -> None:
        """The reservations of this round end."""
        self._extra[:] = 0.0
        self._reserving.clear()

    def start_any(self, now: float) -> Attempt | None:
        """The guarantee of progress: the first waiting task that has an open server starts on the first such server."""
        for waiting in sorted(self._waiting.values()):
            for server in np.flatnonzero(self._is_open(waiting.memory_gb))[:1].tolist():
                return self._start(waiting, server, now)
        return None

    # ------------------------------------------------------------------ what is to be seen

    @property
    def waits(self) -> bool:
        """Whether a task waits."""
        return bool(self._waiting)

    @property
    def runs(self) -> bool:
        """Whether a task runs, or is being stopped."""
        return bool(self._num_running.any())

    def running(self) -> list[Attempt]:
        """What runs and is not being stopped, by server and place."""
        return [a for server in range(self.num_servers) for a in self._on(server) if a.number not in self.stopping]

    def is_running(self, attempt: Attempt) -> bool:
        """Whether an attempt runs and is not being stopped."""
        return attempt.number not in self.stopping and attempt in self.places[attempt.server]

    def hopeless(self, servers: list[int]) -> tuple[Flow, int] | None:
        """A waiting task that none of these servers could ever hold, and its workflow."""
        largest = self.servers["memory"][servers].max(initial=-1.0)
        return next(((w.flow, w.task) for w in self._waiting.values() if not fits(w.memory_gb, largest)), None)

    def away_until(self, end_s: float) -> np.ndarray:
        """(N,) for how long each server was not there [s]."""
        return np.where(self.there, self.away_s, self.away_s + end_s)

    def snapshot(self, now: float) -> Snapshot:
        """The state as schedulers see it."""
        waiting, places = sorted(self._waiting.values()), self.servers["max_concurrent"]
        free_at = np.where(self._num_running < places, now, np.maximum(now, self._next_end))
        inputs = [(at, *moved) for at, each in enumerate(waiting) for moved in each.inputs]
        runs = sorted(self.running(), key=lambda attempt: (attempt.server, attempt.flow.number, attempt.task))
        return Snapshot(
            index=0,
            clock_s=now,
            num_arrived=self.num_arrived,
            capacity_gflops=self.servers["capacity"],
            memory_gb=self.servers["memory"],
            free_memory_gb=np.where(self.there, self._free, 0.0),
            max_concurrent=places,
            properties=self.servers,
            num_running=self._num_running.copy(),
            status=np.where(self.there, UP, AWAY),
            expected_end_s=self._next_end.copy(),
            available_at_s=np.where(self.there, free_at + self._extra, np.inf),
            running=np.array([(a.flow.number, a.task, a.server, a.expected_end_s) for a in runs], dtype=RUNNING),
            ready=np.array([each.shown for each in waiting], dtype=READY),
            inputs=np.array(inputs, dtype=INPUT),
            candidates=np.arange(min(len(waiting), self.env.decision.offered)),
            workflows={number: flow.seen for number, flow in self.flows.items()},
            bandwidth_gb_s=self.env.cluster.bandwidth_gb_s,
            latency_s=self.env.cluster.latency_s,
        )

    def schedule(self) -> np.ndarray:
        """Every attempt so far, SCHEDULE, in order of start; a time that is not known yet is NaN."""
        return np.array(list(self.log.values()), dtype=SCHEDULE)


def _total(values: Iterable[float]) -> float:
    """The sum, added up one after the other as in compiled code; from Python 3.12 on `sum` rounds otherwise."""
    return reduce(add, values, 0.0)
