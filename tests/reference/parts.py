"""What the reference simulator is made of: workflows of tasks, servers of rows, and attempts that join the two."""

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
    factor: float = 1.0  # demand as seen over the true one
    predecessors: list[Task] = field(default_factory=list)
    successors: list[Task] = field(default_factory=list)
    left_gflop: float = 0.0  # true demand that is still to be done
    ready_s: float | None = None
    completed: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    kept_s: float = 0.0  # executed by earlier attempts, and resumed from

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
    def server(self) -> Row | None:
        """The row of its last attempt."""
        return self.attempts[-1].row if self.attempts else None

    @property
    def finish_s(self) -> float | None:
        """When its last attempt ends, known to the reference from its start on."""
        return self.attempts[-1].finish_s if self.attempts else None


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
    """One execution of a task on a row, from its start to its end, whatever ends it."""

    task: Task
    row: Row
    ready_s: float
    start_s: float
    transfer_s: float  # of the time on the row, so 0 where a transfer takes none
    execution_s: float
    left_gflop: float  # of the task, when it started
    expected_s: float  # when schedulers expect the end
    outcome: str = "running"
    end_s: float | None = None

    @property
    def taken_s(self) -> float:
        """How long the row is taken where nothing comes between."""
        return self.transfer_s + self.execution_s

    @property
    def finish_s(self) -> float:
        return self.start_s + self.taken_s

    def done_gflop(self, now: float) -> float:
        """True demand executed until now, before its end."""
        executed = max(0.0, now - self.start_s - self.transfer_s)
        return min(self.left_gflop, executed * self.left_gflop / self.execution_s) if self.execution_s else 0.0

    def busy_seconds(self, until: float) -> float:
        return (min(self.finish_s, until) if self.end_s is None else self.end_s) - self.start_s

    @property
    def work_gflop(self) -> float | None:
        """True demand executed until its end."""
        if self.end_s is None:
            return None
        return self.left_gflop if self.outcome == "finished" else self.done_gflop(self.end_s)


@dataclass(eq=False)
class Host:
    """A server. Its rows share its memory and its place."""

    index: int
    tier: str
    memory_gb: float
    slowdown: float
    rows: list[Row] = field(default_factory=list)
    there: bool = True
    draining: bool = False
    there_since_s: float = 0.0
    earlier_s: float = 0.0  # for which it was there until it left last

    @property
    def takes_tasks(self) -> bool:
        return self.there and not self.draining

    @property
    def idle(self) -> bool:
        return all(row.attempt is None for row in self.rows)

    @property
    def free_gb(self) -> float:
        return self.memory_gb - sum(row.task.memory_gb for row in self.rows if row.task is not None)

    def arrive(self, now: float) -> None:
        self.there, self.there_since_s = True, now

    def leave(self, now: float) -> None:
        self.earlier_s += now - self.there_since_s
        self.there = self.draining = False

    def there_seconds(self, until: float) -> float:
        return self.earlier_s + (until - self.there_since_s if self.there else 0.0)


@dataclass(eq=False)
class Row:
    """A row of the action space: a slot of a server, or, without a host, an empty one."""

    index: int
    host: Host | None = None
    compute_gflops: float = 0.0
    idle_power_w: float = 0.0
    busy_power_w: float = 0.0
    attempt: Attempt | None = None
    history: list[Attempt] = field(default_factory=list)
    reserved_s: list[float] = field(default_factory=list)  # execution times of the tasks that wait for it in this round

    @property
    def task(self) -> Task | None:
        return None if self.attempt is None else self.attempt.task

    @property
    def takes_tasks(self) -> bool:
        return self.host is not None and self.host.takes_tasks

    @property
    def unused(self) -> bool:
        """Whether it is open for some memory."""
        return self.takes_tasks and self.attempt is None

    def fits(self, task: Task) -> bool:
        return self.takes_tasks and task.memory_gb <= self.host.memory_gb

    def open_for(self, task: Task) -> bool:
        return self.unused and task.memory_gb <= self.host.free_gb

    def slowed(self) -> float:
        """What the execution time of a task that starts now is multiplied by."""
        others = sum(row is not self and row.attempt is not None for row in self.host.rows)
        return 1 + self.host.slowdown * others

    def available_s(self, now: float) -> float:
        """Virtual availability."""
        if not self.takes_tasks:
            return float("inf")
        free = now if self.attempt is None else max(now, self.attempt.expected_s)
        return free + sum(self.reserved_s)


def build_workflows(workload: Workload, factors: Sequence[float], slowdowns: Sequence[float]) -> list[Workflow]:
    workflows = []
    delays = getattr(workload, "delay_s", [0.0] * workload.num_tasks)
    for w in range(len(workload.arrival_s)):
        workflow = Workflow(w, float(workload.arrival_s[w]))
        for index, k in enumerate(range(int(workload.task_offsets[w]), int(workload.task_offsets[w + 1]))):
            columns = (workload.compute_gflop, workload.memory_gb, workload.output_gb, delays, factors)
            task = Task(workflow, index, *(float(column[k]) for column in columns))
            task.compute_gflop, task.factor = task.compute_gflop * slowdowns[k], task.factor / slowdowns[k]
            task.left_gflop = task.compute_gflop
            workflow.tasks.append(task)
        for before, after in workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]]:
            workflow.tasks[before].successors.append(workflow.tasks[after])
            workflow.tasks[after].predecessors.append(workflow.tasks[before])
        workflows.append(workflow)
    return workflows


def build_rows(cluster: ClusterConfig) -> tuple[list[Host], list[Row]]:
    hosts: list[Host] = []
    rows: list[Row] = []
    for tier in cluster.tiers:
        for _ in range(tier.count):
            host = Host(len(hosts), tier.name, tier.memory_gb, tier.slot_slowdown)
            hosts.append(host)
            for _ in range(tier.slots):
                powers = (tier.idle_power_w / tier.slots, tier.busy_power_w / tier.slots)
                host.rows.append(Row(len(rows), host, tier.compute_gflops, *powers))
                rows.append(host.rows[-1])
    rows += [Row(len(rows) + k) for k in range(cluster.empty_slots)]
    return hosts, rows
