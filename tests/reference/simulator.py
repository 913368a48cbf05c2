"""The rules of docs/simulator.md in plain Python objects: clear and slow, and independent of the compiled engine.

It shares nothing with the engine but its inputs: a `Workload`, an `EnvConfig`, the changes of the cluster and the
errors of estimates. Time moves in one place, `ReferenceSimulator._advance`, from event to event of a heap.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

import numpy as np

from reference import accounts
from reference.parts import Attempt, Server, Task, build_servers, build_workflows
from rllib_scale.config import EnvConfig
from rllib_scale.workloads.model import Workload

OUTCOMES = ("started", "waits", "busy", "no_fit", "passed")
END, RELEASE, ARRIVAL, CHANGE = range(4)  # the order of events at one moment


class ReferenceSimulator:
    """One episode.

    Args:
        config: the problem.
        workload: every workflow that arrives.
        open_ended: more workflows may arrive after the last of `workload`, so an empty system is not yet the end
            (a generated workload without `arrivals_until_s`).
        changes: time, event and server of every change, in the order in which they happen.
        factors: (T,) demand as seen over that of the workload; all 1 where it is not given.
        slowdowns: (T,) true demand over that of the workload; all 1 where it is not given.
    """

    def __init__(
        self,
        config: EnvConfig,
        workload: Workload,
        open_ended: bool,
        changes: Sequence[tuple[float, str, int]] = (),
        factors: Sequence[float] | None = None,
        slowdowns: Sequence[float] | None = None,
    ):
        self.config = config
        self.open_ended = open_ended
        ones = [1.0] * workload.num_tasks
        self.workflows = build_workflows(
            workload, ones if factors is None else factors, ones if slowdowns is None else slowdowns
        )
        self.servers = build_servers(config.cluster)
        self.clock = 0.0
        self.done = False
        self.reward = 0.0
        self.elapsed = 0.0
        self.outcome: str | None = None
        self.ready: list[Task] = []  # waiting: ready and not running
        self.offered: list[Task] = []
        self.attempts: list[Attempt] = []
        self.decisions = 0
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.invalid = {"no_fit": 0, "busy_avoidable": 0, "busy_unavoidable": 0}
        self.forced = 0  # starts that no answer asked for
        self.handled = dict.fromkeys(("end", "release", "arrival", "join", "drain", "fail"), 0)
        self.episode_return = 0.0
        self.lost_s = 0.0
        self._left_out: set[Task] = set()  # of this round: answered, or without an open server
        self._task_seconds = 0.0  # integral over time of the number of tasks in the system
        self._events: list[tuple] = []  # moment, kind, numbers that order those of one kind, subject
        for workflow in self.workflows:
            heapq.heappush(self._events, (workflow.arrival_s, ARRIVAL, workflow.index, workflow))
        first: dict[int, str] = {}
        for k, (moment, event, server) in enumerate(changes):
            heapq.heappush(self._events, (moment, CHANGE, k, (event, self.servers[server])))
            first.setdefault(server, event)
        for server, event in first.items():
            self.servers[server].there = event != "join"
        self._handle_events(until=0.0)
        self._run_to_next_decision()

    # ------------------------------------------------------------------ what there is

    @property
    def running(self) -> list[Attempt]:
        return [attempt for attempt in self.places() if attempt is not None]

    def places(self) -> list[Attempt | None]:
        """What runs on each place."""
        return [attempt for server in self.servers for attempt in server.places]

    @property
    def arrived_tasks(self) -> list[Task]:
        return [task for workflow in self.workflows if workflow.arrived for task in workflow.tasks]

    @property
    def tasks_in_system(self) -> int:
        return sum(not task.completed for task in self.arrived_tasks)

    def feasible_servers(self, task: Task) -> list[Server]:
        """Those that are open for the task and not reserved."""
        return [server for server in self.servers if server.open_for(task) and not server.reserved]

    def waiting(self) -> list[Task]:
        """The waiting tasks in order."""
        return sorted(self.ready, key=self._priority)

    def _priority(self, task: Task) -> tuple[float, ...]:
        decision = self.config.decision
        order, ties = decision.level1, decision.ties
        whole = self.config.information.workflows == "whole"
        compute = task.compute_gflop * task.factor
        key = 0.0
        if order == "longest-hop":
            key = task.hop if whole else 0
        elif order == "most-descendants":
            key = task.descendants if whole else 1
        elif order == "descendants-per-work":
            key = (task.descendants if whole else 1) / compute
        elif order == "shortest-task":
            key = -compute
        else:
            ties = order
        if ties == "first-ready":
            return (-key, task.ready_s, task.workflow.index, task.index)
        return (-key, task.workflow.index, task.index)

    # ------------------------------------------------------------------ answers

    @property
    def _reserves(self) -> bool:
        return self.config.decision.on_busy == "reserve"

    @property
    def _limit(self) -> float:
        return self.config.episode.max_decisions or math.inf

    def step(self, action: int) -> None:
        """Answer with one flat action; one that cannot be raises ValueError and changes nothing."""
        self.reward = self.elapsed = 0.0
        if self.done:
            return
        answered = self._parse(action)
        clock, task_seconds = self.clock, self._task_seconds
        self.decisions += 1
        if answered:
            paper_reward = self._answer(*answered)
        else:
            self._left_out.update(self.offered)
            self.outcome, paper_reward = "passed", 0.0
        self.counts[self.outcome] += 1
        self._go_on()
        self._account(clock, task_seconds, paper_reward)

    def _parse(self, action: int) -> tuple[Task, Server] | None:
        """The candidate and the server it goes to; None: a pass."""
        n = len(self.servers)
        passes = self.config.decision.offered * n
        if not 0 <= action <= passes:
            raise ValueError(f"no action {action}")
        if action < passes:
            if action // n >= len(self.offered):
                raise ValueError(f"action {action} answers for a candidate that is not offered")
            return self.offered[action // n], self.servers[action % n]
        return None

    def _answer(self, task: Task, server: Server) -> float:
        """Answer (task, server); sets the outcome and returns the paper's reward."""
        if server in self.feasible_servers(task):
            self.outcome = "started"
            return self._start(task, server)
        self._left_out.add(task)
        if self._reserves and server.fits(task):
            self.outcome = "waits"
            server.reserve(task)
            return 0.0
        if server.fits(task):
            self.outcome = "busy"
            self.invalid["busy_avoidable" if self.feasible_servers(task) else "busy_unavoidable"] += 1
        else:
            self.outcome = "no_fit"
            self.invalid["no_fit"] += 1
        return self.config.reward.invalid_reward

    def dispatch(self, answers: Iterable[tuple[int, int, int]]) -> None:
        """Answer for these (workflow, task, server), and close the round.

        Each answer is asked for when those before it have been played. Then time
        passes to the next event after which a task waits, whatever the mask.
        """
        self.reward = self.elapsed = 0.0
        if self.done:
            return
        clock, task_seconds = self.clock, self._task_seconds
        paper_reward = 0.0
        for workflow, index, server in answers:
            if self.decisions >= self._limit:
                break
            self.decisions += 1
            task = self.workflows[workflow].tasks[index]
            paper_reward += self._answer(task, self.servers[server])
            if self.outcome not in ("started", "waits"):
                raise ValueError(f"refused: {self.outcome}")
            self.counts[self.outcome] += 1
        if self.decisions < self._limit:
            self._end_round(keep_going=self._reserves)
            if self.ready:
                self._advance(self._next_event())
        self._run_to_next_decision(dispatching=True)
        self._account(clock, task_seconds, paper_reward)

    def _account(self, clock: float, task_seconds: float, paper_reward: float) -> None:
        self.elapsed = self.clock - clock
        if self.config.reward.name == "paper":
            self.reward = paper_reward
        elif self.decisions:
            self.reward = task_seconds - self._task_seconds
        self.episode_return += self.reward

    # ------------------------------------------------------------------ attempts

    def transfer_s(self, task: Task, server: Server) -> float:
        """Time to move the task's inputs to the server."""
        return sum(self.moved_s(task, source) for source in self.sources_of(task) if source.server is not server)

    def moved_s(self, task: Task, source: Task) -> float:
        """Time to move what a task needs of a predecessor to another server."""
        return task.needs_gb[source] / self.config.cluster.bandwidth_gb_s + self.config.cluster.latency_s

    def sources_of(self, task: Task) -> list[Task]:
        """The predecessors whose output is moved."""
        sources = sorted(task.predecessors, key=lambda source: source.index)
        if self.config.communication.predecessors == "first":
            if self.config.communication.first == "largest-output":
                sources.sort(key=lambda source: -task.needs_gb[source])  # stable: ties stay by index
            sources = sources[:1]
        return [source for source in sources if source.has_work]

    def _start(self, task: Task, server: Server) -> float:
        """Start the task on the lowest free place of the server; returns the paper's reward of that."""
        transfer, others = self.transfer_s(task, server), server.in_use
        moved = transfer if self.config.communication.mode == "transfer" else 0.0
        execution = server.execution_s(task.compute_gflop, others)
        expected = self.clock + (moved + server.execution_s(task.compute_gflop * task.factor, others))
        place = server.places.index(None)
        attempt = Attempt(task, server, place, task.ready_s, self.clock, moved, execution, expected)
        server.places[place] = attempt
        for history in (server.history, task.attempts, self.attempts):
            history.append(attempt)
        self.ready.remove(task)
        heapq.heappush(self._events, (attempt.finish_s, END, server.index, place, len(self.attempts), attempt))
        weights = self.config.reward
        power = server.busy_power_w
        if weights.energy_power == "above-idle":
            power -= server.idle_power_w
        energy = power / len(server.places) * task.places * attempt.taken_s
        return (
            weights.time_weight * math.exp(-attempt.taken_s / weights.time_scale_s)
            - weights.communication_weight * transfer / weights.communication_scale_s
            - weights.energy_weight * energy / weights.energy_scale_j
        )

    def _fail(self, attempt: Attempt) -> None:
        task = attempt.task
        self.lost_s += attempt.busy_seconds(self.clock)
        self._end_attempt(attempt, "failed")
        self._wait(task)

    def _end_attempt(self, attempt: Attempt, outcome: str) -> None:
        attempt.outcome, attempt.end_s = outcome, self.clock
        attempt.server.places[attempt.place] = None
        attempt.server.leave_if_done(self.clock)

    def _wait(self, task: Task) -> None:
        task.ready_s = self.clock
        self.ready.append(task)

    # ------------------------------------------------------------------ rounds

    def offers(self) -> list[tuple[int, int]]:
        return [(task.workflow.index, task.index) for task in self.offered]

    def fit(self) -> np.ndarray:
        """(K, N): 0 closed, 1 fits but not now, 2 open and not reserved."""
        table = np.zeros((self.config.decision.offered, len(self.servers)), dtype=np.uint8)
        for k, task in enumerate(self.offered):
            for j, server in enumerate(self.servers):
                if server.fits(task):
                    table[k, j] = 2 if server in self.feasible_servers(task) else 1
        return table

    def available(self) -> np.ndarray:
        """(N,) virtual availability."""
        return np.array([server.available_s(self.clock) for server in self.servers])

    def _go_on(self) -> None:
        """What follows the answer that was just given, until the next one is wanted."""
        if self._reserves:
            if self.decisions < self._limit:
                if self._round_goes_on():
                    return
                self._end_round(keep_going=True)
                self._advance(self._next_event())
        elif self.outcome in ("busy", "no_fit"):
            self._advance(self.clock + self.config.episode.clock_step_s)
        elif self.outcome == "passed" and self.decisions < self._limit:
            self._end_round(keep_going=True)
            self._advance(self._next_event())
        self._run_to_next_decision()

    def _round_goes_on(self) -> bool:
        """Offer the next candidates of the round; whether there is anything left to decide."""
        self.offered = []
        for task in self.waiting():
            if len(self.offered) == self.config.decision.offered:
                break
            if task in self._left_out:
                continue
            if (
                self.config.episode.mask == "feasible" or self.config.decision.offer == "startable"
            ) and not self.feasible_servers(task):
                self._left_out.add(task)
                continue
            self.offered.append(task)
        usable = any(server.idle and not server.reserved for server in self.servers)
        return bool(self.offered) and usable

    def _end_round(self, keep_going: bool) -> None:
        """Forget the round; where nothing would ever happen again and `keep_going`, start the first task that can."""
        self._left_out.clear()
        for server in self.servers:
            server.reserved_s.clear()
        if not keep_going or self.running or self._next_event() < self.config.episode.horizon_s:
            return
        for task in self.waiting():
            for server in self.servers:
                if server.open_for(task):
                    self._start(task, server)
                    self.forced += 1
                    return

    def _wanted_in_steps(self) -> bool:
        """Whether `on_busy: step` asks for a decision now."""
        offered = self.waiting()[: self.config.decision.offered]
        masked = self.config.episode.mask == "feasible"
        return bool(offered) and (not masked or any(self.feasible_servers(task) for task in offered))

    def _wanted_in_rounds(self) -> bool:
        """Whether a round of `on_busy: reserve` begins now with something to decide."""
        if not self.ready or not any(server.idle for server in self.servers):
            return False
        return self._round_goes_on()

    def _run_to_next_decision(self, dispatching: bool = False) -> None:
        """Let time pass until a decision is possible or the episode is over."""
        episode = self.config.episode
        while True:
            self._handle_events(until=self.clock)
            self.offered = []
            if self.clock >= episode.horizon_s or self.decisions >= self._limit or self._drained():
                self._end_round(keep_going=False)
                self.done = True
                at_horizon = self.clock >= episode.horizon_s
                if not episode.horizon_is_terminal if at_horizon else not self._drained():
                    self.offered = self.waiting()[: self.config.decision.offered]
                return
            if dispatching:
                wanted = bool(self.ready)
            else:
                wanted = self._wanted_in_rounds() if self._reserves else self._wanted_in_steps()
            if wanted:
                if dispatching or not self._reserves:
                    self.offered = self.waiting()[: self.config.decision.offered]
                return
            if not self._reserves and not self.ready and episode.idle_advance == "clock-step":
                self._advance(self.clock + episode.clock_step_s)
                continue
            if self._reserves and not dispatching and self.ready:
                self._end_round(keep_going=True)
            self._advance(self._next_event())

    # ------------------------------------------------------------------ the clock

    def _drained(self) -> bool:
        return not self.open_ended and all(workflow.arrived for workflow in self.workflows) and not self.tasks_in_system

    def _next_event(self) -> float:
        """When the next event is, infinite where none is to come."""
        while self._events and self._stale(self._events[0]):
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else math.inf

    @staticmethod
    def _stale(event: tuple) -> bool:
        """The end of an attempt that something else has ended."""
        return event[1] == END and event[-1].end_s is not None

    def _advance(self, target: float) -> None:
        """Move the clock to `target`, to the horizon, or to the moment the system drains: whichever is first."""
        target = min(target, self.config.episode.horizon_s)
        while (moment := self._next_event()) <= target and not self._drained():
            self._move_clock(moment)
            self._handle_events(until=moment)
        if not self._drained():
            self._move_clock(target)

    def _move_clock(self, moment: float) -> None:
        self._task_seconds += (moment - self.clock) * self.tasks_in_system
        self.clock = moment

    def _handle_events(self, until: float) -> None:
        while self._next_event() <= until:
            moment, kind, *_, subject = heapq.heappop(self._events)
            if kind == CHANGE:
                self._change(*subject)
                self.handled[subject[0]] += 1
                continue
            self.handled[("end", "release", "arrival")[kind]] += 1
            if kind == RELEASE and subject.has_work:
                self._wait(subject)
                continue
            if kind == ARRIVAL:
                subject.arrived = True
                freed = [task for task in subject.tasks if not task.predecessors]
            elif kind == RELEASE:
                subject.completed, subject.ended_s = True, moment
                freed = [task for task in subject.successors if task.revealed]
            else:
                subject.task.completed = True
                self._end_attempt(subject, "finished")
                freed = [task for task in subject.task.successors if task.revealed]
            for task in freed:
                if task.delay_s > 0 or not task.has_work:
                    name = (task.workflow.index, task.index)
                    heapq.heappush(self._events, (moment + task.delay_s, RELEASE, *name, task))
                else:
                    self._wait(task)

    def _change(self, event: str, server: Server) -> None:
        if event == "join":
            server.draining = False
            if not server.there:
                server.arrive(self.clock)
        elif event == "drain":
            server.draining = server.there
            server.leave_if_done(self.clock)
        elif server.there:
            for attempt in server.running:
                self._fail(attempt)
            if server.there:  # one that drains has left with its last task
                server.leave(self.clock)

    # ------------------------------------------------------------------ what is seen and summed up

    def observation(self) -> np.ndarray:
        scales, task = self.config.observation, self.offered[0] if self.offered else None
        whole = self.config.information.workflows == "whole"
        values = []
        for each in self.offered:
            workflow = each.workflow
            values += [
                each.compute_gflop * each.factor / scales.task_compute_max_gflop,
                each.memory_gb / scales.memory_max_gb,
                (len(each.successors) if whole else 0) / 5,
                workflow.num_completed / (len(workflow.tasks) if whole else workflow.num_revealed),
                each.output_gb / scales.output_unit_gb,
            ]
        values += [0.0] * 5 * (self.config.decision.offered - len(self.offered))
        for server in self.servers:
            if not server.takes_tasks:
                values += [0.0] * 5
                continue
            values += [
                server.compute_gflops / scales.server_compute_max_gflops,
                server.memory_gb / scales.memory_max_gb,
                (server.free_s(self.clock) - self.clock) / scales.time_unit_s,
                server.power_w,
                0.0 if task is None else self.transfer_s(task, server) / scales.delay_unit_s,
            ]
        return np.array(values, dtype=np.float32)

    def schedule(self) -> list[accounts.ScheduleRow]:
        """Every attempt in order of start, see `accounts.ScheduleRow`."""
        return [accounts.schedule_row(attempt) for attempt in self.attempts]

    def metrics(self) -> dict[str, float | int]:
        return accounts.metrics(self)
