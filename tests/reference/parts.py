"""What the reference simulator is made of: workflows of tasks, servers, and attempts that join the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rllib_scale.config import ClusterConfig
from rllib_scale.workloads.model import Workload


@dataclass(eq=False)
class Task:
    workflow: Workflow
    index: int
    compute_gflop: float
    memory_gb: float
    output_gb: float
    delay_s: float = 0.0
    labels: frozenset[str] = frozenset()
    places: int = 1  # that it takes of a server
    factor: float = 1.0  # demand as seen over the true one
    predecessors: list[Task] = field(default_factory=list)
    needs_gb: dict[Task, float] = field(default_factory=dict)  # of each predecessor
    successors: list[Task] = field(default_factory=list)
    ready_s: float | None = None
    completed: bool = False
    ended_s: float | None = None  # of a task without work
    attempts: list[Attempt] = field(default_factory=list)

    @cached_property
    def hop(self) -> int:
        """Edges on the longest path to a sink; asked for once the whole workflow is built."""
        return max((1 + successor.hop for successor in self.successors), default=0)

    @cached_property
    def descendants(self) -> int:
        """Tasks that follow it, by any path, and itself."""
        seen, found = {self}, [self]
        while found:
            new = [task for task in found.pop().successors if task not in seen]
            seen.update(new)
            found += new
        return len(seen)

    @property
    def revealed(self) -> bool:
        """Whether nothing is missing any more but its delay."""
        return self.workflow.arrived and all(task.completed for task in self.predecessors)

    @property
    def server(self) -> Server | None:
        """That of its last attempt."""
        return self.attempts[-1].server if self.attempts else None

    @property
    def runs(self) -> bool:
        return bool(self.attempts) and self.attempts[-1].outcome == "running"

    @property
    def finish_s(self) -> float | None:
        """When its last attempt ends, known to the reference from its start on."""
        return self.attempts[-1].finish_s if self.attempts else self.ended_s

    @property
    def has_work(self) -> bool:
        return self.compute_gflop > 0


@dataclass(eq=False)
class Workflow:
    index: int
    arrival_s: float
    tasks: list[Task] = field(default_factory=list)
    arrived: bool = False

    @property
    def num_completed(self) -> int:
        return sum(task.completed for task in self.tasks)

    @property
    def num_revealed(self) -> int:
        return sum(task.revealed for task in self.tasks)


@dataclass(eq=False)
class Attempt:
    """One execution of a task on a server, from its start to its end, whatever ends it."""

    task: Task
    server: Server
    place: int  # of the server's, from 0
    ready_s: float
    start_s: float
    transfer_s: float  # of the time on the server, so 0 where a transfer takes none
    execution_s: float
    expected_s: float  # when schedulers expect the end
    outcome: str = "running"
    end_s: float | None = None

    @property
    def taken_s(self) -> float:
        """How long the place is taken where nothing comes between."""
        return self.transfer_s + self.execution_s

    @property
    def finish_s(self) -> float:
        return self.start_s + self.taken_s

    def done_gflop(self, now: float) -> float:
        """True demand executed until now, before its end."""
        executed = max(0.0, now - self.start_s - self.transfer_s)
        demand = self.task.compute_gflop
        return min(demand, executed * demand / self.execution_s) if self.execution_s else 0.0

    def busy_seconds(self, until: float) -> float:
        """Of all places that it takes."""
        return ((min(self.finish_s, until) if self.end_s is None else self.end_s) - self.start_s) * self.task.places

    @property
    def work_gflop(self) -> float | None:
        """True demand executed until its end."""
        if self.end_s is None:
            return None
        return self.task.compute_gflop if self.outcome == "finished" else self.done_gflop(self.end_s)


def has_room(space_gb: float, memory_gb: float) -> bool:
    """Whether a task fits in a space, up to a byte: what is free is a difference of sums, which are rounded."""
    return memory_gb <= space_gb + 1e-9


@dataclass(eq=False)
class Server:
    """A row of the action space: a server, or, with no place and never there, an empty one."""

    index: int
    tier: str = ""
    compute_gflops: float = 0.0
    memory_gb: float = 0.0
    idle_power_w: float = 0.0
    busy_power_w: float = 0.0
    slowdown: float = 0.0
    labels: frozenset[str] = frozenset()
    places: list[Attempt | None] = field(default_factory=list)  # an attempt of several stands at one, see `in_use`
    history: list[Attempt] = field(default_factory=list)
    reserved_s: list[float] = field(default_factory=list)  # what each task that waits for it in this round adds
    there: bool = True
    draining: bool = False
    there_since_s: float = 0.0
    earlier_s: float = 0.0  # for which it was there until it left last

    @property
    def running(self) -> list[Attempt]:
        """By place."""
        return [attempt for attempt in self.places if attempt is not None]

    @property
    def in_use(self) -> int:
        """Places that its attempts take."""
        return sum(attempt.task.places for attempt in self.running)

    @property
    def takes_tasks(self) -> bool:
        return self.there and not self.draining

    @property
    def idle(self) -> bool:
        """Whether it takes tasks and has a free place."""
        return self.takes_tasks and self.in_use < len(self.places)

    @property
    def reserved(self) -> bool:
        return sum(self.reserved_s) > 0

    @property
    def free_gb(self) -> float:
        return max(0.0, self.memory_gb - sum(attempt.task.memory_gb for attempt in self.running))

    @property
    def expected_end_s(self) -> float:
        """When schedulers expect the next of its tasks to end."""
        return min((attempt.expected_s for attempt in self.running), default=float("inf"))

    @property
    def power_w(self) -> float:
        """Drawn now."""
        share = self.in_use / len(self.places)
        return self.idle_power_w + share * (self.busy_power_w - self.idle_power_w)

    def fits(self, task: Task) -> bool:
        return self.takes_tasks and self._holds(task, self.memory_gb, len(self.places))

    def open_for(self, task: Task) -> bool:
        """Whether it could start there if nothing was reserved."""
        return self.idle and self._holds(task, self.free_gb, len(self.places) - self.in_use)

    def _holds(self, task: Task, space_gb: float, places: int) -> bool:
        return has_room(space_gb, task.memory_gb) and task.places <= places and task.labels <= self.labels

    def execution_s(self, demand_gflop: float, others: int) -> float:
        """Of a task that starts beside others, which take so many places."""
        return demand_gflop / self.compute_gflops * (1 + self.slowdown * others)

    def reserve(self, task: Task) -> None:
        """Let a task wait for it: as if all its places worked on that task, beside at least those that run now."""
        others = min(self.in_use, len(self.places) - task.places)
        execution = self.execution_s(task.compute_gflop * task.factor, others)
        self.reserved_s.append(execution * task.places / len(self.places))

    def free_s(self, now: float) -> float:
        """When a place is expected to be free."""
        return now if self.idle else max(now, self.expected_end_s)

    def available_s(self, now: float) -> float:
        """Virtual availability."""
        return self.free_s(now) + sum(self.reserved_s) if self.takes_tasks else float("inf")

    def arrive(self, now: float) -> None:
        self.there, self.there_since_s = True, now

    def leave_if_done(self, now: float) -> None:
        """One that drains leaves when it runs nothing any more."""
        if self.draining and not self.running:
            self.leave(now)

    def leave(self, now: float) -> None:
        self.earlier_s += now - self.there_since_s
        self.there = self.draining = False

    def there_seconds(self, until: float) -> float:
        return self.earlier_s + (until - self.there_since_s if self.there else 0.0)

    def busy_seconds(self, until: float) -> float:
        """Of all its places."""
        return sum(attempt.busy_seconds(until) for attempt in self.history)


def build_workflows(workload: Workload, factors: Sequence[float], slowdowns: Sequence[float]) -> list[Workflow]:
    workflows = []
    delays = getattr(workload, "delay_s", [0.0] * workload.num_tasks)
    for w in range(len(workload.arrival_s)):
        workflow = Workflow(w, float(workload.arrival_s[w]))
        for index, k in enumerate(range(int(workload.task_offsets[w]), int(workload.task_offsets[w + 1]))):
            columns = (workload.compute_gflop, workload.memory_gb, workload.output_gb, delays)
            labels = frozenset(n for bit, n in enumerate(workload.label_names) if int(workload.labels[k]) & 2**bit)
            needs = (float(column[k]) for column in columns)
            task = Task(workflow, index, *needs, labels, int(workload.places[k]), float(factors[k]))
            task.compute_gflop, task.factor = task.compute_gflop * slowdowns[k], task.factor / slowdowns[k]
            workflow.tasks.append(task)
        for edge in range(int(workload.edge_offsets[w]), int(workload.edge_offsets[w + 1])):
            before, after = (workflow.tasks[k] for k in workload.edges[edge])
            before.successors.append(after)
            after.predecessors.append(before)
            after.needs_gb[before] = float(workload.moved_gb[edge])
        workflows.append(workflow)
    return workflows


def build_servers(cluster: ClusterConfig) -> list[Server]:
    """Tier by tier, then the empty ones."""
    servers: list[Server] = []
    for tier in cluster.tiers:
        for _ in range(tier.count):
            hardware = (tier.compute_gflops, tier.memory_gb, tier.idle_power_w, tier.busy_power_w, tier.slowdown)
            places, labels = [None] * tier.max_concurrent, frozenset(tier.labels)
            servers.append(Server(len(servers), tier.name, *hardware, labels, places))
    return servers + [Server(len(servers) + k, there=False) for k in range(cluster.empty_slots)]
