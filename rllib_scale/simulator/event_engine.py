"""The engine of a live cluster or a router: a batch of one environment whose events come from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.compiled import Direct
from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import OUTCOMES, STARTED
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.observation.policy import Answering, Policy
from rllib_scale.observation.view import View
from rllib_scale.simulator import outside
from rllib_scale.simulator.arrays import build_problem, with_room_for
from rllib_scale.simulator.buffers import allocate, keep_running, keep_unfinished, with_log, with_room
from rllib_scale.simulator.changes import FAIL, JOIN
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.state import NOWHERE, UP, Problem
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.model import TASK_DEMAND

_begin, _row_of, _order_anew = Direct(outside.begin_outside), Direct(outside.row_of), Direct(outside.order_anew)
_advance_to, _arrive, _ended, _failed = map(
    Direct, (outside.advance_to, outside.arrive_now, outside.ended, outside.failed)
)
_lost, _give_up, _stopped, _change = map(
    Direct, (outside.lost, outside.give_up, outside.stopped, outside.change_server)
)
_begin_round, _step_in_round, _end_round = map(Direct, (outside.begin_round, outside.step_in_round, outside.end_round))


class Attempt(NamedTuple):
    """A task on a server, from its start on."""

    number: int  # in order of start
    workflow: int
    task: int
    server: int
    place: int
    output_gb: float
    ready_s: float
    start_s: float
    transfer_s: float  # for which its place is taken before the execution
    expected_end_s: float

    @property
    def expected_s(self) -> float:
        """How long it should take, transfer included [s]."""
        return self.expected_end_s - self.start_s


class EventEngine(Engine):
    """One cluster whose events are told, each with its time: by Ray, by the requests of a router, or by a replay.

    Between two rounds: `advance`, `arrive`, `ended`, `failed`, `lost`, `give_up`, `stopped`, `join`, `leave`. In a
    round: `step`, `dispatch` or `answer`. `play` alternates both. What takes how long in truth is not known here, so no
    policy can see it.

    Args:
        config: the problem; horizon, number of decisions, workload and changes play no part.
        on_start: called with each attempt that starts.
        keeps_ended: keep what has ended, for `metrics` and `schedule`. A long-lived cluster keeps none of it, and its
            memory is that of what is under way.
    """

    def __init__(
        self, config: EnvConfig, on_start: Callable[[Attempt], None] = lambda attempt: None, keeps_ended: bool = True
    ) -> None:
        super().__init__(config)
        self.keeps_ended, self.on_start = keeps_ended, on_start
        self.attempts: dict[int, Attempt] = {}  # by place: what runs, or is stopping
        self.stopping: set[int] = set()  # places
        self.num_started = self.num_ended = 0  # attempts; workflows
        self.stayed_s = 0.0  # of workflows that have ended, from their arrival [s]
        self.outcomes = np.zeros(len(OUTCOMES), dtype=np.int64)  # how often each came of an answer
        self.waited_s = 0.0  # of attempts, from ready to their start [s]
        self.rounds, self.deciding_s = 0, 0.0  # in which somebody was asked, and how long they took [s, wall clock]
        self.counted = 0  # number of the workflow that the next view shows first as new
        self._tasks_used = self._edges_used = 0
        self._more: Callable[[], bool] = lambda: False
        self._per_task = True
        self._asked_at: float | None = None  # when the round began, on the wall clock
        self._use(self._state, self._from_outside(self._problem_now))
        _begin(self._table)

    @staticmethod
    def _from_outside(problem: Problem) -> Problem:
        """No limit ends it, and servers may go."""
        row = problem.parameters[0]
        row["horizon"], row["max_decisions"], row["changes"] = np.inf, 2**62, 1
        return problem

    # ------------------------------------------------------------------ what happens

    @property
    def now(self) -> float:
        """The clock [s]."""
        return float(self._state.env["clock"][0])

    @property
    def next_release_s(self) -> float:
        """When the next release delay ends [s]; inf: none runs."""
        return float(self._state.env["next_release"][0])

    def advance(self, now_s: float) -> bool:
        """Let the clock run to that time, if it is later; returns whether a release delay has ended."""
        return bool(self._tell(_advance_to, float(now_s)))

    def arrive(
        self,
        number: int,
        arrival_s: float,
        demands: np.ndarray,
        edges: np.ndarray,
        edge_gb: np.ndarray | None = None,
        home: int = -1,
    ) -> None:
        """A workflow of T tasks arrives.

        Args:
            number: above those of all that came before.
            arrival_s: now, or before [s].
            demands: (T,) TASK_DEMAND of each task.
            edges: (E, 2) predecessor and successor, sorted; acyclic.
            edge_gb: (E,) what the successor needs of the predecessor [GB]; None: all of its output.
            home: server on which its first task has ended before it came, as the call before a request; -1: none has.
        """
        self._make_workflow_room(len(demands), len(edges))
        demand = np.ascontiguousarray(demands)
        edges = np.ascontiguousarray(edges, dtype=np.int64).reshape(-1, 2)
        at = self._tasks_used, self._edges_used
        moved = np.ascontiguousarray(demand["output"][edges[:, 0]] if edge_gb is None else edge_gb, dtype=float)
        arrived = int(number), float(arrival_s), int(home), *at, demand, edges, moved
        self._edges_used = int(self._tell(_arrive, *arrived))
        self._tasks_used += len(demand)

    def ended(self, attempt: Attempt) -> None:
        """A task has ended."""
        self._tell(_ended, attempt.place)
        del self.attempts[attempt.place]

    def _tell(self, what: Callable[..., Any], *about: Any) -> Any:
        """Tell compiled code what happened, and count the workflows that ended by it."""
        env = self._state.env[0]
        # Differences: the engine's own sums begin anew when a router's replicas change, these go on.
        before, sum_s = int(env["workflows_completed"]), float(env["makespan_sum"])
        result = what(*about, self._table)
        self.num_ended += int(env["workflows_completed"]) - before
        self.stayed_s += float(env["makespan_sum"]) - sum_s
        return result

    def failed(self, attempt: Attempt) -> None:
        """An attempt came to nothing: its task waits anew."""
        _failed(attempt.place, self._table)
        del self.attempts[attempt.place]

    def lost(self, workflow: int, task: int) -> None:
        """The output of a task that had ended is gone: it is to be run again, and tasks that need it wait for it."""
        _lost(self._row(workflow, task), self._table)

    def give_up(self, workflow: int) -> list[Attempt]:
        """Nothing of a workflow waits any more. What runs of it is returned, to be stopped, and told by `stopped`."""
        _end_round(False, self._table)
        row = _row_of(int(workflow), 0, self._table)
        w = int(self._state.tasks["workflow"][0, row])
        self.num_ended += 1
        self.stayed_s += self.now - float(self._state.workflows["arrival"][0, w])
        _give_up(w, self._table)
        runs = [attempt for attempt in self.running() if attempt.workflow == workflow]
        self.stopping.update(attempt.place for attempt in runs)
        return runs

    def stopped(self, attempt: Attempt) -> None:
        """What was given up has stopped: its place is free."""
        _stopped(attempt.place, self._table)
        self.stopping.discard(attempt.place)
        del self.attempts[attempt.place]

    def join(self, server: int) -> None:
        """A server is there again, empty."""
        _change(int(server), JOIN, self._table)

    def leave(self, server: int) -> None:
        """A server is gone; what ran on it waits anew."""
        _change(int(server), FAIL, self._table)
        for place in [place for place, attempt in self.attempts.items() if attempt.server == server]:
            del self.attempts[place]
            self.stopping.discard(place)

    def resume(self, workflow: int, task: int, server: int, since_s: float) -> Attempt | None:
        """A task of a workflow that has just come has been running since then; None: there is no room for it."""
        clock, on_start = self._state.env["clock"], self.on_start
        # The clock is set back for this one start: its expected end follows from when it really began.
        now, clock[0] = float(clock[0]), since_s
        found: list[Attempt] = []
        self.on_start = found.append
        _end_round(False, self._table)
        self.answer(0, workflow, task, server)
        clock[0], self.on_start = now, on_start
        return found[0] if found else None

    def go_on_counting(self, former: EventEngine) -> None:
        """What was counted until now is what that engine has counted, whose cluster this one goes on with."""
        for name in ("num_started", "num_ended", "stayed_s", "waited_s", "rounds", "deciding_s", "outcomes"):
            setattr(self, name, getattr(former, name))

    # ------------------------------------------------------------------ rounds

    def play(self, policy: Policy, more: Callable[[], bool]) -> None:
        """Let a policy decide until there is nothing more to come; it was `reset` for one environment.

        Args:
            policy: decides.
            more: see `begin`.
        """
        self.begin(policy.per_task, more)
        while not self.done[0]:
            policy.advance(self)

    def begin(self, per_task: bool, more: Callable[[], bool]) -> None:
        """Run to the first decision.

        Args:
            per_task: whether the policy decides for the task on offer.
            more: waits until something has happened, and tells it; False: nothing will any more.
        """
        self._per_task, self._more = per_task, more
        self._state.done[0] = False
        self._next_round()

    def step(self, actions: Any, active: Any = None, begin: Any = None) -> None:
        """See `Engine.step`; where no answer is wanted any more, it waits for what happens next."""
        if not self.answerable(np.asarray(actions, dtype=np.int64))[0]:
            raise ValueError(f"environment 0: {actions[0]} is no answer that can be given now")
        before = self._begin_answer()
        is_wanted = _step_in_round(int(actions[0]), self._table)
        self.outcomes[self._state.outcome[0]] += 1
        self._tell_of_starts(before)
        if not is_wanted:
            self._next_round()

    def decide(self, rule: Answering) -> None:
        """See `Batch.decide`: the rest of the round in compiled code; then it waits for what happens next."""
        before = self._begin_answer(int(self._state.free_places.sum()))
        rule.answer_round(self.num_waiting, self._state.fit.shape[1:], self.outcomes, self._table)
        self._tell_of_starts(before)
        self._next_round()

    def dispatch(self, starts: np.ndarray, active: Any = None) -> None:
        """See `Engine.dispatch`; then it waits for what happens next."""
        for b, workflow, task, server in np.asarray(starts, dtype=np.int64).reshape(-1, 4).tolist():
            try:
                self.answer(b, workflow, task, server)
            except ValueError:
                raise ValueError(f"workflow {workflow}, task {task} cannot start on server {server}") from None
        self._next_round()

    def answer(self, b: int, workflow: int, task: int, server: int) -> int:
        """See `Engine.answer`."""
        before = self._begin_answer()
        outcome = super().answer(b, workflow, task, server)
        self.outcomes[outcome] += 1
        self._tell_of_starts(before)
        return outcome

    def start_any(self) -> None:
        """Where nothing runs, the first task that can start does so on the first server that is open for it."""
        before = self._begin_answer()
        _end_round(True, self._table)
        self.outcomes[STARTED] += 1
        self._tell_of_starts(before)

    def _begin_answer(self, starts: int = 1) -> int:
        self._fit_is_known = False
        self._make_log_room(starts)
        return int(self._state.env["num_started"][0])

    def _tell_of_starts(self, before: int) -> None:
        """Tell of the attempts that have started since the log had so many rows."""
        for row in self._state.log[0, before : self._state.env["num_started"][0]]:
            at = self._row(int(row["workflow"]), int(row["task"]))
            place, start, transfer = int(self._state.tasks["place"][0, at]), float(row["start"]), float(row["transfer"])
            attempt = self.attempts[place] = Attempt(
                number=self.num_started,
                workflow=int(row["workflow"]),
                task=int(row["task"]),
                server=int(row["server"]),
                place=place,
                output_gb=float(self._state.tasks["output"][0, at]),
                ready_s=float(row["ready"]),
                start_s=start,
                transfer_s=transfer,
                expected_end_s=float(self._state.expected[0, place]),
            )
            self.num_started += 1
            self.waited_s += start - attempt.ready_s
            self.on_start(attempt)

    def _next_round(self) -> None:
        """Wait until something is to be decided."""
        _end_round(False, self._table)
        self._fit_is_known = False
        if self._asked_at is not None:
            self.rounds += 1
            self.deciding_s += time.perf_counter() - self._asked_at
            self._asked_at = None
        while self._more():
            if _begin_round(self._per_task, self._table):
                self._asked_at = time.perf_counter()
                return
        self._state.done[0] = True

    # ------------------------------------------------------------------ what there is

    def view(self) -> View:
        """See `Engine.view`."""
        self.counted = int(self._state.env["next_number"][0])
        return super().view()

    @property
    def num_waiting(self) -> int:
        """Tasks that wait."""
        env = self._state.env[0]
        return int(
            env["num_ready"] + env["num_aside"] + (0 if self._problem_now.parameters[0]["peek"] else env["num_offered"])
        )

    @property
    def next_number(self) -> int:
        """Above the numbers of all workflows that have arrived."""
        return int(self._state.env["next_number"][0])

    def running(self) -> list[Attempt]:
        """What runs and is not being stopped, by place."""
        return [self.attempts[place] for place in sorted(self.attempts) if place not in self.stopping]

    def is_running(self, attempt: Attempt) -> bool:
        """Whether an attempt runs and is not being stopped."""
        return self.attempts.get(attempt.place) is attempt and attempt.place not in self.stopping

    def is_stopping(self, attempt: Attempt) -> bool:
        """Whether an attempt is being stopped."""
        return self.attempts.get(attempt.place) is attempt and attempt.place in self.stopping

    def is_under_way(self, workflow: int) -> bool:
        """Whether a workflow has arrived and has not ended."""
        row = _row_of(int(workflow), 0, self._table)
        if row < 0:
            return False
        of = self._state.workflows[0, self._state.tasks["workflow"][0, row]]
        return bool(of["num_completed"] < of["num_tasks"])

    def has_ended(self, workflow: int, task: int) -> bool:
        """Whether a task of a workflow under way has ended."""
        row = self._row(workflow, task)
        place = self._state.tasks["place"][0, row]
        return bool(place == NOWHERE or (place >= 0 and self._state.running[0, place] != row))

    def is_there(self, server: int) -> bool:
        """Whether a server is there."""
        return bool(self._state.presence["status"][0, server] == UP)

    @property
    def num_there(self) -> int:
        """Servers that are there."""
        there = self._state.presence["status"][0] == UP
        return int((there & (self._servers["max_concurrent"][: len(there)] > 0)).sum())

    def spent_s(self) -> float:
        """Time that workflows have been there, those under way included [s]."""
        workflows = self._state.workflows[0, : self._state.env["workflows_arrived"][0]]
        live = workflows[workflows["num_completed"] < workflows["num_tasks"]]
        return self.stayed_s + float((self.now - live["arrival"]).sum())

    def hopeless(self, left: list[int]) -> tuple[int, int] | None:
        """Workflow and task of one that waits between two rounds and fits none of these servers; None: all fit some."""
        rows = self._state.ready[0, : self._state.env["num_ready"][0]]
        details, servers = self._state.details[0, rows, None], self._servers[left]
        needs = self._state.tasks["memory"][0, rows, None], details["places"], details["labels"]
        lost = rows[~fits(*needs, servers["memory"], servers["max_concurrent"], servers["labels"]).any(axis=1)]
        if not len(lost):
            return None
        workflow = self._state.workflows[0, self._state.tasks["workflow"][0, lost[0]]]
        return int(workflow["number"]), int(lost[0] - workflow["first_task"])

    def _row(self, workflow: Any, task: Any = None) -> Any:
        """Row of a task; see `Engine._row` for what it is with an array."""
        if not isinstance(task, int):
            return super()._row(workflow, task)
        return int(_row_of(int(workflow), task, self._table))

    # ------------------------------------------------------------------ who decides, and room

    def change_problem(self, config: EnvConfig) -> None:
        """Another policy decides from now on: decisions, order and observation are those of its problem."""
        _end_round(False, self._table)
        fresh = self._from_outside(build_problem(config, self._servers))
        arrays = allocate(config, 1, fresh)
        # Only what has the shape of a decision changes; what waits and runs stays in its arrays.
        kept = {name: getattr(arrays, name) for name in ("offered", "observation", "fit")}
        self.config, self.candidates = config, config.decision.offered
        self.features = FEATURE_SETS[config.observation.feature_set]
        self._use(self._state._replace(**kept), self._problem_now._replace(parameters=fresh.parameters))
        _order_anew(self._table)
        self._writer = None
        self.view()  # what has arrived is known to whoever takes over

    def _make_workflow_room(self, tasks: int, edges: int) -> None:
        """Room for a workflow of so many tasks and edges; what has ended is forgotten before arrays grow."""
        # An edge stands once with its predecessor, and again with its successor where input comes from all.
        per_edge = 1 + int(self._problem_now.parameters[0]["from_all"])
        state, problem = self._state, with_room_for(self._problem_now, tasks, edges)
        if not self._has_room(tasks, per_edge * edges):
            times = 1
            if not self.keeps_ended:
                _end_round(False, self._table)
                kept, self._tasks_used, self._edges_used = keep_unfinished(state, per_edge)
                if self._writer is not None:
                    self._writer.keep(kept)
                times = 2  # else what has ended would soon have to be forgotten again
            workflows, rows, links = (times * need for need in self._needs(tasks, per_edge * edges))
            state = with_room(state, problem, workflows, rows, -(-links // per_edge))
        if state is not self._state or problem is not self._problem_now:
            self._use(state, problem)

    def _needs(self, tasks: int, links: int) -> tuple[int, int, int]:
        """Workflows, task rows and edge positions in use with another workflow."""
        return 1 + int(self._state.env["num_workflows"][0]), self._tasks_used + tasks, self._edges_used + links

    def _has_room(self, tasks: int, links: int) -> bool:
        s = self._state
        have = s.workflows.shape[1], s.tasks.shape[1], s.edges.shape[1]
        return all(need <= room for need, room in zip(self._needs(tasks, links), have, strict=True))

    def _make_log_room(self, attempts: int) -> None:
        """See `Engine._make_log_room`; what has ended is forgotten before the log grows."""
        needs = int(self._state.env["num_started"][0]) + attempts
        if needs > self._state.log.shape[1] and not self.keeps_ended:
            keep_running(self._state)
            needs = 2 * (int(self._state.env["num_started"][0]) + attempts)
        if needs > self._state.log.shape[1]:
            self._use(with_log(self._state, needs), self._problem_now)


def compile_ahead(config: EnvConfig) -> None:
    """Tell a throw-away engine all that may happen, once: tasks of a cluster would wait for what is compiled then."""
    started: list[Attempt] = []
    engine, asks = EventEngine(config, started.append), iter([True])
    engine.arrive(0, 0.0, np.array([(1.0, 0.0, 0.0, 0.0, 1, 0)] * 2, dtype=TASK_DEMAND), np.array([(0, 1)]))
    engine.begin(True, lambda: next(asks, False))
    engine.step([0])
    engine.view()
    for told in (engine.failed, engine.ended):
        told(started[-1])
        if not engine.has_ended(0, 0):
            engine.answer(0, 0, 0, 0)
    engine.lost(0, 0)
    engine.start_any()
    engine.change_problem(config)
    engine.stopped(*engine.give_up(0))
    engine.leave(0)
    engine.join(0)
    engine.metrics()
