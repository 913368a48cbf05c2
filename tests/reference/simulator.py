"""The MDP of [SCALE, sec. 3 and 4.1] in plain Python objects: clear and slow, and independent of the compiled engine.

It shares nothing with the engine but its inputs: a `Workload` and an `EnvConfig`. Time moves in one place,
`ReferenceSimulator._advance`, from event to event of a heap.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.workloads.model import Workload


@dataclass(eq=False)
class Task:
    workflow: Workflow
    index: int
    compute_gflop: float
    memory_gb: float
    output_gb: float
    predecessors: list[Task] = field(default_factory=list)
    successors: list[Task] = field(default_factory=list)
    ready_s: float | None = None
    start_s: float | None = None
    finish_s: float | None = None  # known from the start on; the task is complete once `completed` is set
    completed: bool = False
    server: Server | None = None

    @cached_property
    def hop(self) -> int:
        """Edges on the longest path to a sink; asked for once the whole workflow is built."""
        return max((1 + successor.hop for successor in self.successors), default=0)

    @property
    def first_predecessor(self) -> Task | None:
        return min(self.predecessors, key=lambda task: task.index, default=None)


@dataclass(eq=False)
class Workflow:
    index: int
    arrival_s: float
    tasks: list[Task] = field(default_factory=list)
    arrived: bool = False

    @property
    def num_completed(self) -> int:
        return sum(task.completed for task in self.tasks)


@dataclass(eq=False)
class Server:
    index: int
    tier: str
    compute_gflops: float
    memory_gb: float
    idle_power_w: float
    busy_power_w: float
    task: Task | None = None
    history: list[Task] = field(default_factory=list)

    def fits(self, task: Task) -> bool:
        return task.memory_gb <= self.memory_gb

    def busy_seconds(self, until: float) -> float:
        return sum(min(task.finish_s, until) - task.start_s for task in self.history)


class EmptySlot:
    """A place in the action space with no server in it."""


def build_workflows(workload: Workload) -> list[Workflow]:
    workflows = []
    for w in range(len(workload.arrival_s)):
        workflow = Workflow(w, float(workload.arrival_s[w]))
        for index, row in enumerate(range(int(workload.task_offsets[w]), int(workload.task_offsets[w + 1]))):
            demands = (workload.compute_gflop[row], workload.memory_gb[row], workload.output_gb[row])
            workflow.tasks.append(Task(workflow, index, *map(float, demands)))
        for before, after in workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]]:
            workflow.tasks[before].successors.append(workflow.tasks[after])
            workflow.tasks[after].predecessors.append(workflow.tasks[before])
        workflows.append(workflow)
    return workflows


class ReferenceSimulator:
    """One episode.

    Args:
        config: the problem.
        workload: every workflow that arrives.
        open_ended: more workflows may arrive after the last of `workload`, so an empty system is not yet the end
            (a generated workload without `arrivals_until_s`).
    """

    def __init__(self, config: EnvConfig, workload: Workload, open_ended: bool):
        self.config = config
        self.open_ended = open_ended
        self.workflows = build_workflows(workload)
        self.slots: list[Server | EmptySlot] = []
        for tier in config.cluster.tiers:
            for _ in range(tier.count):
                capacities = (tier.compute_gflops, tier.memory_gb, tier.idle_power_w, tier.busy_power_w)
                self.slots.append(Server(len(self.slots), tier.name, *capacities))
        self.slots += [EmptySlot() for _ in range(config.cluster.empty_slots)]
        self.clock = 0.0
        self.done = False
        self.reward = 0.0
        self.current: Task | None = None
        self.started: list[Task] = []
        self.ready: list[Task] = []
        self.decisions = 0
        self.invalid = {"no_fit": 0, "busy_avoidable": 0, "busy_unavoidable": 0}
        self.episode_return = 0.0
        self._task_seconds = 0.0  # integral over time of the number of tasks in the system
        self._order = itertools.count()
        self._events: list[tuple[float, int, Workflow | Task]] = []
        for workflow in self.workflows:
            self._schedule_event(workflow.arrival_s, workflow)
        self._run_to_next_decision()

    # ------------------------------------------------------------------ what there is

    @property
    def servers(self) -> list[Server]:
        return [slot for slot in self.slots if isinstance(slot, Server)]

    @property
    def arrived_tasks(self) -> list[Task]:
        return [task for workflow in self.workflows if workflow.arrived for task in workflow.tasks]

    @property
    def tasks_in_system(self) -> int:
        return sum(not task.completed for task in self.arrived_tasks)

    def feasible_servers(self, task: Task) -> list[Server]:
        return [server for server in self.servers if server.task is None and server.fits(task)]

    # ------------------------------------------------------------------ a decision

    def step(self, action: int) -> None:
        self.reward = 0.0
        if self.done:
            return
        self.decisions += 1
        task_seconds_before = self._task_seconds
        cause = self._invalid_cause(action)
        if cause is None:
            paper_reward = self._start(self.current, self.slots[action])
        else:
            self.invalid[cause] += 1
            paper_reward = self.config.reward.invalid_reward
            self._advance(self.clock + self.config.episode.clock_step_s)
        self._run_to_next_decision()
        if self.config.reward.name == "paper":
            self.reward = paper_reward
        else:
            self.reward = task_seconds_before - self._task_seconds
        self.episode_return += self.reward

    def dispatch(self, starts: list[tuple[int, int, int]]) -> None:
        """Start these (workflow, task, server); then let time pass to the next event with a task ready.

        Where the config's mask is "none": with "feasible" it would run on while the current task fits no idle server.
        """
        self.reward = 0.0
        if self.done:
            return
        limit, task_seconds_before = self.config.episode.max_decisions or math.inf, self._task_seconds
        paper_reward = 0.0
        for workflow, task, server in starts[: max(0, min(len(starts), limit - self.decisions))]:
            self.decisions += 1
            paper_reward += self._start(self.workflows[workflow].tasks[task], self.slots[server])
        if self.ready and self.decisions < limit:
            self._advance(self._events[0][0] if self._events else math.inf)
        self._run_to_next_decision()
        if self.config.reward.name == "paper":
            self.reward = paper_reward
        elif self.decisions:
            self.reward = task_seconds_before - self._task_seconds
        self.episode_return += self.reward

    def _invalid_cause(self, action: int) -> str | None:
        slot = self.slots[action]
        if isinstance(slot, EmptySlot) or not slot.fits(self.current):
            return "no_fit"
        if slot.task is None:
            return None
        return "busy_avoidable" if self.feasible_servers(self.current) else "busy_unavoidable"

    def _start(self, task: Task, server: Server) -> float:
        """Start the task on the server; returns the paper's reward of that."""
        duration = task.compute_gflop / server.compute_gflops
        task.start_s, task.finish_s, task.server = self.clock, self.clock + duration, server
        server.task = task
        server.history.append(task)
        self.started.append(task)
        self.ready.remove(task)
        self._schedule_event(task.finish_s, task)
        weights = self.config.reward
        power = server.busy_power_w
        if weights.energy_power == "above-idle":
            power -= server.idle_power_w
        energy = power * duration
        return (
            weights.time_weight * math.exp(-duration / weights.time_scale_s)
            - weights.communication_weight * self.delay(task, server) / weights.communication_scale_s
            - weights.energy_weight * energy / weights.energy_scale_j
        )

    def delay(self, task: Task, server: Server) -> float:
        """Communication delay from the server of the first predecessor."""
        source = task.first_predecessor
        if source is None or source.server is server:
            return 0.0
        return source.output_gb / self.config.cluster.bandwidth_gb_s + self.config.cluster.latency_s

    # ------------------------------------------------------------------ the clock

    def _run_to_next_decision(self) -> None:
        """Let time pass until a decision is possible or the episode is over."""
        episode = self.config.episode
        while True:
            self._handle_events(until=self.clock)
            cut = self.clock >= episode.horizon_s or self.decisions == episode.max_decisions
            if cut or self._drained():
                self.done, self.current = True, None
                return
            self.current = min(self.ready, key=self._priority, default=None)
            if self.current is None and episode.idle_advance == "clock-step":
                self._advance(self.clock + episode.clock_step_s)
            elif self.current is None or (episode.mask == "feasible" and not self.feasible_servers(self.current)):
                self._advance(self._events[0][0] if self._events else math.inf)
            else:
                return

    @staticmethod
    def _priority(task: Task) -> tuple[int, float, int, int]:
        return (-task.hop, task.ready_s, task.workflow.index, task.index)

    def _drained(self) -> bool:
        return not self.open_ended and all(workflow.arrived for workflow in self.workflows) and not self.tasks_in_system

    def _advance(self, target: float) -> None:
        """Move the clock to `target`, to the horizon, or to the moment the system drains: whichever is first."""
        target = min(target, self.config.episode.horizon_s)
        while self._events and self._events[0][0] <= target and not self._drained():
            moment = self._events[0][0]
            self._move_clock(moment)
            self._handle_events(until=moment)
        if not self._drained():
            self._move_clock(target)

    def _move_clock(self, moment: float) -> None:
        self._task_seconds += (moment - self.clock) * self.tasks_in_system
        self.clock = moment

    def _schedule_event(self, moment: float, subject: Workflow | Task) -> None:
        heapq.heappush(self._events, (moment, next(self._order), subject))

    def _handle_events(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            moment, _, subject = heapq.heappop(self._events)
            if isinstance(subject, Workflow):
                subject.arrived = True
                freed = [task for task in subject.tasks if not task.predecessors]
            else:
                subject.completed = True
                subject.server.task = None
                freed = [t for t in subject.successors if all(before.completed for before in t.predecessors)]
            for task in freed:
                task.ready_s = moment
                self.ready.append(task)

    # ------------------------------------------------------------------ what is seen

    def observation(self) -> np.ndarray:
        scales, task = self.config.observation, self.current
        values = [0.0] * 5
        if task is not None:
            values = [
                task.compute_gflop / scales.task_compute_max_gflop,
                task.memory_gb / scales.memory_max_gb,
                len(task.successors) / 5,
                task.workflow.num_completed / len(task.workflow.tasks),
                task.output_gb,
            ]
        for slot in self.slots:
            if isinstance(slot, EmptySlot):
                values += [0.0] * 5
                continue
            values += [
                slot.compute_gflops / scales.server_compute_max_gflops,
                slot.memory_gb / scales.memory_max_gb,
                0.0 if slot.task is None else slot.task.finish_s - self.clock,
                slot.idle_power_w if slot.task is None else slot.busy_power_w,
                0.0 if task is None else self.delay(task, slot),
            ]
        return np.array(values, dtype=np.float32)

    def schedule(self) -> list[tuple[int, int, int, str, float, float, float, float]]:
        """Workflow, task, server, tier, arrival, ready, start, finish of every started task, in order of start."""
        return [
            (
                task.workflow.index,
                task.index,
                task.server.index,
                task.server.tier,
                task.workflow.arrival_s,
                task.ready_s,
                task.start_s,
                task.finish_s if task.completed else math.nan,
            )
            for task in self.started
        ]

    def metrics(self) -> dict[str, float | int]:
        arrived = self.arrived_tasks
        responses = [task.finish_s - task.workflow.arrival_s for task in arrived if task.completed]
        censored = [(t.finish_s if t.completed else self.clock) - t.workflow.arrival_s for t in arrived]
        workflows = [workflow for workflow in self.workflows if workflow.arrived]
        complete = [workflow for workflow in workflows if workflow.num_completed == len(workflow.tasks)]
        makespans = [max(task.finish_s for task in w.tasks) - w.arrival_s for w in complete]
        busy = {server: server.busy_seconds(self.clock) for server in self.servers}
        metrics = {
            "arrived": len(arrived),
            "completed": len(responses),
            "unfinished": len(arrived) - len(responses),
            "response_mean_s": _mean(responses),
            "response_median_s": statistics.median(responses) if responses else math.nan,
            "response_p95_s": float(np.percentile(responses, 95)) if responses else math.nan,
            "response_censored_s": _mean(censored),
            "makespan_mean_s": _mean(makespans),
            "workflows_arrived": len(workflows),
            "workflows_completed": len(complete),
            "episode_return": self.episode_return,
            "decisions": self.decisions,
            "duration_s": self.clock,
            "energy_j": sum(
                s.idle_power_w * self.clock + (s.busy_power_w - s.idle_power_w) * busy[s] for s in self.servers
            ),
            "utilisation": self._share(busy, self.servers),
        }
        metrics |= {f"invalid_{cause}": count for cause, count in self.invalid.items()}
        for tier in self.config.cluster.tiers:
            metrics[f"utilisation_{tier.name}"] = self._share(busy, [s for s in self.servers if s.tier == tier.name])
        return metrics

    def _share(self, busy: dict[Server, float], servers: list[Server]) -> float:
        if self.clock == 0:
            return 0.0
        return sum(busy[server] for server in servers) / (len(servers) * self.clock)


def _mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else math.nan
