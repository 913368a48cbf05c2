"""The state of one cluster whose events come from outside: what there is, what can be told of it, and its room."""

from __future__ import annotations

import math
from operator import index
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.compiled import Direct
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.simulator import outside, outside_rounds
from rllib_scale.simulator.arrays import with_room_for
from rllib_scale.simulator.buffers import keep_running, keep_unfinished, with_log, with_room
from rllib_scale.simulator.engine import MAX_NUMBER, Engine
from rllib_scale.simulator.state import NONE, NOWHERE, UP, Problem
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.model import TASK_DEMAND

_row_of, _end_round, _is_waiting, _wrong_in = map(
    Direct, (outside.row_of, outside_rounds.end_round, outside.is_waiting, outside.wrong_in)
)
_NO_GB = np.zeros(0)
_WRONG = {
    outside.NO_TASK: "it has no task that is to run",
    outside.DEMAND: "task {0}: {1}: demands must be finite and at least 0, places at least 1",
    outside.EDGE: "edge {2}: edges must be between its tasks, sorted, each once",
    outside.EDGE_GB: "edge {2}: what it moves must be finite and at least 0 GB",
    outside.CYCLE: "its edges have a cycle",
    outside.BEFORE_FIRST: "edge {2}: a task whose home is known follows none",
}


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
        """Expected duration, transfer included [s]."""
        return self.expected_end_s - self.start_s


def check_information(env: EnvConfig) -> None:
    """Refuse a problem with something that no event from outside says.

    Raises:
        UserError: naming the setting.
    """
    for setting, is_set, valid in (
        ("information.workflows", env.information.workflows != "whole", "whole"),
        ("information.estimate_error", env.information.estimate_error != 0, "0"),
        ("information.straggler_share", env.information.straggles, "0"),
    ):
        if is_set:
            raise UserError(f"{setting}: is not supported on a live cluster or by a router; valid: {valid}")


class OutsideState(Engine):
    """One cluster: what has arrived, waits and runs; see `event_engine.EventEngine` for what happens to it.

    Each event is checked here, before anything changes.
    """

    keeps_ended: bool

    def __init__(self, config: EnvConfig) -> None:
        check_information(config)
        super().__init__(config)
        self.attempts: dict[int, Attempt] = {}  # by place: what runs, or is stopping
        self.stopping: set[int] = set()  # places
        self.stayed_s = 0.0  # of workflows that have ended, from their arrival [s]
        self._tasks_used = self._edges_used = 0
        self._use(self._state, self._from_outside(self._problem_now))

    @staticmethod
    def _from_outside(problem: Problem) -> Problem:
        """No limit ends it, servers may go, and labels and places are not those of these servers alone."""
        row = problem.parameters[0]
        row["horizon"], row["max_decisions"] = np.inf, 2**62
        row["changes"] = row["labels"] = row["several"] = 1
        return problem

    # ------------------------------------------------------------------ what there is

    @property
    def now(self) -> float:
        """The clock [s]."""
        return float(self._state.env["clock"][0])

    @property
    def next_release_s(self) -> float:
        """When the next release delay ends [s]; inf: none runs."""
        return float(self._state.env["next_release"][0])

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
        """Running attempts that are not being stopped, by place."""
        return [self.attempts[place] for place in sorted(self.attempts) if place not in self.stopping]

    def is_running(self, attempt: Attempt) -> bool:
        """Whether an attempt runs and is not being stopped."""
        return self.attempts.get(attempt.place) is attempt and attempt.place not in self.stopping

    def is_stopping(self, attempt: Attempt) -> bool:
        """Whether an attempt is being stopped."""
        return self.attempts.get(attempt.place) is attempt and attempt.place in self.stopping

    def is_under_way(self, workflow: int) -> bool:
        """Whether a workflow has arrived and has not ended."""
        if not 0 <= workflow < MAX_NUMBER:
            return False
        row = _row_of(int(workflow), 0, self._table)
        if row < 0:
            return False
        of = self._state.workflows[0, self._state.tasks["workflow"][0, row]]
        return bool(of["num_completed"] < of["num_tasks"])

    def has_ended(self, workflow: int, task: int) -> bool:
        """Whether a task of a workflow under way has ended.

        Raises:
            ValueError: there is no such task.
        """
        row = self._checked_task(workflow, task)
        place = self._state.tasks["place"][0, row]
        return bool(place == NOWHERE or (place >= 0 and self._state.running[0, place] != row))

    def is_there(self, server: int) -> bool:
        """Whether a server is there.

        Raises:
            ValueError: there is none of that number.
        """
        return bool(self._state.presence["status"][0, self._checked_server(server)] == UP)

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

    # ------------------------------------------------------------------ what can be told

    def _checked_time(self, time_s: float, latest_s: float = math.inf) -> float:
        if not (math.isfinite(time_s) and time_s <= latest_s):
            until = f", at most {latest_s:g}, which is now" if latest_s < math.inf else ""
            raise ValueError(f"time {time_s} s: must be finite{until}")
        return float(time_s)

    def _checked_server(self, server: int, is_there: bool | None = None) -> int:
        """A server, and that it is there, or is not."""
        if not 0 <= index(server) < self.num_rows or not self._servers["max_concurrent"][server]:
            raise ValueError(f"server {server}: there is none of that number; valid: below {self.num_rows}")
        if is_there is not None and bool(self._state.presence["status"][0, server] == UP) != is_there:
            raise ValueError(f"server {server}: is {'not there' if is_there else 'there already'}")
        return index(server)

    def _checked_workflow(self, workflow: int) -> int:
        if not self.is_under_way(index(workflow)):
            raise ValueError(f"workflow {workflow}: is not under way")
        return index(workflow)

    def _checked_task(self, workflow: int, task: int) -> int:
        """Row of a task of a workflow under way."""
        self._checked_workflow(workflow)
        row = self._row(workflow, index(task)) if 0 <= index(task) < MAX_NUMBER else NONE
        if row < 0:
            raise ValueError(f"workflow {workflow}, task {task}: there is none of that number")
        return int(row)

    def _checked_waiting(self, workflow: int, task: int) -> tuple[int, int]:
        self._checked_task(workflow, task)
        if not _is_waiting(index(workflow), index(task), self._table):
            raise ValueError(f"workflow {workflow}, task {task}: does not wait")
        return index(workflow), index(task)

    def _checked_output(self, workflow: int, task: int) -> int:
        """Row of a task whose output is on one of the servers."""
        row = self._checked_task(workflow, task)
        place, came_ended = self._state.tasks["place"][0, row], self._state.details["level"][0, row] == 0
        if place < 0 or self._state.running[0, place] == row or came_ended:
            raise ValueError(f"workflow {workflow}, task {task}: has left no output here")
        return row

    def _checked_attempt(self, attempt: Attempt, is_stopping: bool = False) -> int:
        """Place of an attempt that runs, or is being stopped."""
        if not (self.is_stopping(attempt) if is_stopping else self.is_running(attempt)):
            what = f"attempt {attempt.number} (workflow {attempt.workflow}, task {attempt.task})"
            raise ValueError(f"{what}: {'is not being stopped' if is_stopping else 'does not run'}")
        return attempt.place

    def _checked_arrival(
        self,
        number: int,
        arrival_s: float,
        demands: np.ndarray,
        edges: np.ndarray,
        edge_gb: np.ndarray | None,
        home: int,
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """A workflow as compiled code takes it: its arrival, demands, edges, and what these move [GB]."""
        least = self.next_number
        if not least <= index(number) < MAX_NUMBER:
            raise ValueError(f"workflow {number}: numbers grow; valid: from {least}")
        arrival_s = self._checked_time(arrival_s, self.now)
        if home != NONE:
            self._checked_server(home)
        demand, links = np.ascontiguousarray(demands), np.ascontiguousarray(edges, dtype=np.int64).reshape(-1, 2)
        if demand.dtype != TASK_DEMAND or demand.ndim != 1:
            raise ValueError(f"workflow {number}: demands of dtype {demand.dtype}; valid: (T,) TASK_DEMAND")
        given = _NO_GB if edge_gb is None else np.ascontiguousarray(edge_gb, dtype=np.float64)
        if edge_gb is not None and given.shape != (len(links),):
            raise ValueError(f"workflow {number}: edge_gb of {given.shape}; valid: {len(links)} numbers")
        self._make_workflow_room(len(demand), len(links))
        found, at = _wrong_in(demand, links, given, int(home != NONE), self._table)
        if found != outside.FINE:
            of_task, of_edge = demand[at : at + 1].tolist(), links[at : at + 1].tolist()
            raise ValueError(f"workflow {number}: {_WRONG[found].format(at, *(of_task or ['']), *(of_edge or ['']))}")
        return arrival_s, demand, links, demand["output"][links[:, 0]] if edge_gb is None else given

    def _row(self, workflow: Any, task: Any = None) -> Any:
        """Row of a task; see `Engine._row` for what it is with an array."""
        if not isinstance(task, int):
            return super()._row(workflow, task)
        return int(_row_of(int(workflow), task, self._table))

    # ------------------------------------------------------------------ room

    def _make_workflow_room(self, tasks: int, edges: int) -> None:
        """Make room for a workflow of this size; what has ended is forgotten before arrays grow."""
        # An edge is stored with its predecessor, and again with its successor where input comes from all.
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
