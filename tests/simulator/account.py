"""A literal account of one cluster whose events come from outside: lists and loops, and no code of the simulator."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from rllib_scale.config import EnvConfig

MISSING, DELAYED, WAITS, RUNS, STOPS, ENDED = "missing", "delayed", "waits", "runs", "stops", "ended"


class NotPossibleError(Exception):
    """The event cannot have happened."""


@dataclass(eq=False)
class Task:
    compute: float
    memory: float
    output: float
    delay: float
    places: int
    labels: int
    before: dict[int, float] = field(default_factory=dict)  # predecessor -> GB that it needs of it
    after: list[int] = field(default_factory=list)
    status: str = MISSING
    ready_s: float = 0.0
    due_s: float = math.inf
    server: int = -1
    came_ended: bool = False
    hop: int = 0


@dataclass(eq=False)
class Flow:
    number: int
    arrival_s: float
    tasks: list[Task]


@dataclass(eq=False)
class Server:
    capacity: float
    memory: float
    places: int
    labels: int
    slowdown: float
    is_there: bool = True


class Account:
    """What has happened to the servers of a problem, and what must follow from it."""

    def __init__(self, env: EnvConfig) -> None:
        self.env, self.now = env, 0.0
        self.servers = [
            Server(t.compute_gflops, t.memory_gb, t.max_concurrent, bits, t.slowdown)
            for t, bits in zip(env.cluster.tiers, env.cluster.labels_of_tiers, strict=True)
            for _ in range(t.count)
        ]
        self.flows: dict[int, Flow] = {}  # under way
        self.held: dict[tuple[int, int], tuple[Any, Task]] = {}  # what has a place
        self.next_number = self.num_ended = self.num_started = 0
        self.stayed_s = 0.0
        self.passed_over: set[tuple[int, int]] = set()  # in this round
        self.reserved: set[int] = set()

    # ---------------------------------------------------------------- what follows

    def task(self, number: int, at: int) -> Task:
        if number not in self.flows or not 0 <= at < len(self.flows[number].tasks):
            raise NotPossibleError
        return self.flows[number].tasks[at]

    def _of(self, status: str) -> list[tuple[Flow, int, Task]]:
        return [(f, k, t) for f in self.flows.values() for k, t in enumerate(f.tasks) if t.status == status]

    def _may_begin(self, flow: Flow, task: Task) -> bool:
        return all(flow.tasks[k].status == ENDED for k in task.before)

    def _wait(self, task: Task) -> None:
        task.status, task.ready_s = WAITS, self.now

    def _release(self, flow: Flow) -> None:
        for task in flow.tasks:
            if task.status == MISSING and self._may_begin(flow, task):
                if task.delay == 0 and task.compute > 0:
                    self._wait(task)
                else:
                    task.status, task.due_s = DELAYED, self.now + task.delay

    def _settle(self) -> None:
        """What is due now: delays end, and tasks without work with them."""
        while due := [(f, t) for f, _, t in self._of(DELAYED) if t.due_s <= self.now]:
            flow, task = due[0]
            task.due_s = math.inf
            if task.compute > 0:
                self._wait(task)
            else:
                self._end(flow, task)

    def _end(self, flow: Flow, task: Task) -> None:
        task.status = ENDED
        self._release(flow)
        if all(each.status == ENDED for each in flow.tasks):
            self._over(flow)

    def _over(self, flow: Flow) -> None:
        self.num_ended += 1
        self.stayed_s += self.now - flow.arrival_s
        del self.flows[flow.number]

    def on(self, server: int) -> list[Task]:
        return [task for _, task in self.held.values() if task.server == server]

    def free(self, server: int) -> tuple[float, int]:
        of, tasks = self.servers[server], self.on(server)
        return of.memory - sum(t.memory for t in tasks), of.places - sum(t.places for t in tasks)

    def fits(self, task: Task, server: int, is_now: bool) -> bool:
        of = self.servers[server]
        memory, places = self.free(server) if is_now else (of.memory, of.places)
        has_labels = all(of.labels >> k & 1 for k in range(task.labels.bit_length()) if task.labels >> k & 1)
        return of.is_there and has_labels and task.memory <= memory + 1e-9 and task.places <= places

    def transfer_s(self, flow: Flow, task: Task, server: int) -> float:
        cluster, total = self.env.cluster, 0.0
        sources = sorted(task.before)
        for k in sources if self.env.communication.predecessors == "all" else sources[:1]:
            source = flow.tasks[k]
            if source.server >= 0 and source.server != server:
                total += task.before[k] / cluster.bandwidth_gb_s + cluster.latency_s
        return total if self.env.communication.mode == "transfer" else 0.0

    def lasts_s(self, flow: Flow, task: Task, server: int) -> float:
        """From the start of a task on a server to its expected end, just before it starts."""
        of = self.servers[server]
        beside = of.places - self.free(server)[1]
        return self.transfer_s(flow, task, server) + task.compute / of.capacity * (1 + of.slowdown * beside)

    # ---------------------------------------------------------------- events

    def advance(self, now: float) -> None:
        if not math.isfinite(now):
            raise NotPossibleError
        self.now = max(self.now, now)
        self._settle()

    def arrive(
        self,
        number: int,
        arrival_s: float,
        demands: list[tuple],
        edges: list[tuple],
        moved: list[float] | None,
        home: int,
    ) -> None:
        is_number = self.next_number <= number < 2**62
        is_time = math.isfinite(arrival_s) and arrival_s <= self.now
        counts = [*range(len(demands))]
        are_edges = sorted(set(edges)) == edges and all(a in counts and b in counts for a, b in edges)
        are_demands = all(0 <= x < math.inf for d in demands for x in d[:4]) and all(
            d[4] >= 1 and d[5] >= 0 for d in demands
        )
        are_moved = moved is None or (len(moved) == len(edges) and all(0 <= gb < math.inf for gb in moved))
        is_home = home == -1 or (home in range(len(self.servers)) and not any(b == 0 for _, b in edges))
        if not (is_number and is_time and are_edges and are_demands and are_moved and is_home):
            raise NotPossibleError
        if len(demands) < (1 if home == -1 else 2):
            raise NotPossibleError
        tasks = [Task(*demand) for demand in demands]
        for i, (a, b) in enumerate(edges):
            tasks[b].before[a] = tasks[a].output if moved is None else moved[i]
            tasks[a].after.append(b)
        for _ in tasks:  # the longest path has no more edges than there are tasks; a cycle goes on growing
            for task in tasks:
                task.hop = max([0, *(1 + tasks[k].hop for k in task.after)])
        if any(task.hop >= len(tasks) for task in tasks):
            raise NotPossibleError
        self.next_number = number + 1
        flow = self.flows[number] = Flow(number, arrival_s, tasks)
        if home >= 0:
            tasks[0].status, tasks[0].server, tasks[0].came_ended = ENDED, home, True
        self._release(flow)
        self._settle()

    def _attempt(self, attempt: Any, status: str) -> tuple[tuple[int, int], Task]:
        key = attempt.workflow, attempt.task
        if key not in self.held or self.held[key][0] is not attempt or self.held[key][1].status != status:
            raise NotPossibleError
        return key, self.held[key][1]

    def ended(self, attempt: Any) -> None:
        key, task = self._attempt(attempt, RUNS)
        del self.held[key]
        self._end(self.flows[key[0]], task)
        self._settle()

    def failed(self, attempt: Any) -> None:
        key, task = self._attempt(attempt, RUNS)
        del self.held[key]
        self._again(key[0], task)

    def _again(self, number: int, task: Task) -> None:
        task.server = -1
        if self._may_begin(self.flows[number], task):
            self._wait(task)
        else:
            task.status = MISSING

    def stopped(self, attempt: Any) -> None:
        del self.held[self._attempt(attempt, STOPS)[0]]

    def lost(self, number: int, at: int) -> None:
        task = self.task(number, at)
        if task.status != ENDED or task.came_ended or task.compute == 0:
            raise NotPossibleError
        self._again(number, task)
        for k in task.after:
            after = self.flows[number].tasks[k]
            if after.status in (WAITS, DELAYED):
                after.status, after.due_s = MISSING, math.inf

    def give_up(self, number: int) -> set[tuple[int, int]]:
        if number not in self.flows:
            raise NotPossibleError
        self._over(self.flows[number])
        runs = {key for key in self.held if key[0] == number}
        for key in runs:
            self.held[key][1].status = STOPS
        return runs

    def join(self, server: int) -> None:
        if server not in range(len(self.servers)) or self.servers[server].is_there:
            raise NotPossibleError
        self.servers[server].is_there = True

    def leave(self, server: int) -> None:
        if server not in range(len(self.servers)) or not self.servers[server].is_there:
            raise NotPossibleError
        self.servers[server].is_there = False
        for key, (_, task) in list(self.held.items()):
            if task.server == server:
                del self.held[key]
                if task.status == RUNS:
                    self._again(key[0], task)

    # ---------------------------------------------------------------- answers

    def resume(self, number: int, at: int, server: int, since_s: float) -> bool:
        task = self.task(number, at)
        is_time = math.isfinite(since_s) and since_s <= self.now
        if task.status != WAITS or server not in range(len(self.servers)) or not is_time:
            raise NotPossibleError
        return self.fits(task, server, is_now=True)

    def answer(self, number: int, at: int, server: int) -> str:
        """What comes of it; a task that `started` is to be told by `start`."""
        task = self.task(number, at)
        is_server = server in range(-1, len(self.servers))
        if task.status != WAITS or (number, at) in self.passed_over or not is_server:
            raise NotPossibleError
        if server == -1:
            return "passed"
        if self.fits(task, server, is_now=True) and server not in self.reserved:
            return "started"
        if not self.fits(task, server, is_now=False):
            return "no_fit"
        if self.env.decision.on_busy == "step":
            return "busy"
        self.passed_over.add((number, at))
        self.reserved.add(server)
        return "waits"

    def start(self, attempt: Any, is_resumed: bool = False) -> None:
        key = attempt.workflow, attempt.task
        task = self.task(*key)
        task.status, task.server = RUNS, attempt.server
        self.held[key] = attempt, task
        self.num_started += not is_resumed

    def end_round(self) -> None:
        self.passed_over.clear()
        self.reserved.clear()

    def any_start(self) -> tuple[int, int, int] | None:
        """The first task that can start where nothing runs, and the first server that it can start on."""
        order = sorted(self._of(WAITS), key=lambda each: (-each[2].hop, each[2].ready_s, each[0].number, each[1]))
        for flow, at, task in order if not self.held else ():
            for server in range(len(self.servers)):
                if self.fits(task, server, is_now=True):
                    return flow.number, at, server
        return None
