"""A Ray cluster as a backend: each server an actor, each task a call, each output an object that stays where it is."""

from __future__ import annotations

import heapq
import math
import os
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import ray
from ray.exceptions import ActorUnschedulableError, ObjectLostError, RayActorError, RayError

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.live.flows import Flow
from rllib_scale.live.ledger import Attempt, Ledger
from rllib_scale.live.servers import Call, Servers, alive
from rllib_scale.live.worker import Report
from rllib_scale.observation.backend import Answer
from rllib_scale.observation.snapshot import Snapshot

RESTARTS = 5
"""How often in a row a server whose node is there is started anew before it is given up."""
SERVER_GONE = (RayActorError, ActorUnschedulableError)
GRACE_S = 5.0
"""After so long a call that should end is ended with its server."""


class Work(Protocol):
    """What the tasks are."""

    def __call__(self, attempt: Attempt, inputs: list[Any]) -> Call:
        """The call of an attempt. `inputs`: references to the outputs of its predecessors, in their order."""


class Ended(NamedTuple):
    """A task that has ended for good, or a workflow that has failed, for a listener."""

    flow: Flow
    task: int  # -1: the workflow has failed
    output: Any  # a reference
    error: BaseException | None


class Output(NamedTuple):
    """What a task has left on the server where it ran."""

    reference: Any
    host: int
    life: int  # how often that server had been started anew


class WorkflowFailedError(Exception):
    """Why a workflow was given up, where no task of it says so."""


class RayBackend:
    """A live cluster, played as any `Backend` is.

    The clock stands still while a round is answered, as it does in the simulator; what happens meanwhile is found at
    the next `wait`. One thread waits and applies; `submit`, `give_up` and `close` may be called from any.

    A server that dies leaves; its tasks wait anew, and it joins again once it is started on its node, if that is there.
    An input that was lost with it is made again by the task that made it. A task that raises is run again up to
    `retries` times; then its workflow is given up, and nothing else with it.

    Args:
        env: the problem. Its workload plays no part; servers come and go as they do, whatever `changes` says.
        work: what the tasks are.
        time_scale: seconds that one second of the problem takes.
        retries: of a task that raises.
        nodes: Ray nodes to use; None: all.
        listener: called with every task that has ended and every workflow that has failed, by the thread that waits.
        accepts: whether workflows may come at any time, until `close`; else the end is when all that came have ended.
        horizon_s: end of the episode [s]; inf: when all is done.

    Raises:
        UserError: the problem has something that a live cluster has not.
    """

    def __init__(
        self,
        env: EnvConfig,
        work: Work,
        time_scale: float = 1.0,
        retries: int = 3,
        nodes: list[str] | None = None,
        listener: Callable[[Ended], None] | None = None,
        accepts: bool = False,
        horizon_s: float = math.inf,
    ) -> None:
        check_live(env)
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of outputs nobody asks for; reports tell of them
        self.ledger, self.work, self.time_scale, self.retries = Ledger(env), work, time_scale, retries
        self.horizon_s, self.now = horizon_s, 0.0
        self.overheads_s: list[float] = []  # of each ended attempt, beyond the time that its call took [s]
        self.failed: dict[int, BaseException] = {}  # workflows that were given up, and why
        self.outputs: dict[tuple[int, int], Output] = {}
        self._listener, self._accepts = listener, accepts
        self._events: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._deadlines: list[tuple[float, int, Callable[[], bool]]] = []  # monotonic time, number, what then
        self._num_deadlines = 0
        self._calls: dict[int, tuple[int, Any, Call, float]] = {}  # attempt -> row, output, call, when the round began
        self._stopping: dict[int, int] = {}  # attempt -> row
        self._opened = 0.0
        self._tries = [0] * self.ledger.num_hosts
        self._lives = [0] * self.ledger.num_hosts
        self._coming: set[int] = set()  # servers that are being started
        self.servers = Servers(env.cluster, nodes)
        self._await_servers()
        self._start = time.monotonic()

    def _await_servers(self) -> None:
        try:
            ray.get([self.servers.ready(host) for host in range(self.ledger.num_hosts)])
        except RayError as error:
            raise UserError(f"a server could not be started on its Ray node: {str(error).splitlines()[0]}") from None

    # ------------------------------------------------------------------ the protocol

    def wait(self) -> Snapshot | None:
        """See `Backend.wait`."""
        ledger = self.ledger
        ledger.close_round()
        if not ledger.runs and not self._coming and ledger.next_timer_s == math.inf:
            started = ledger.start_any(self.now)
            if started is not None:
                self._call(started)
        while self._accepts or ledger.flows or ledger.pending or not self._events.empty():
            events = self._collect()
            self._opened = time.monotonic()
            self.now = min(self.clock(), self.horizon_s)
            if self.now >= self.horizon_s:
                return None
            happened = [event() for event in events]
            if ledger.ring(self.now) or any(happened):
                self._give_up_what_is_hopeless()
                if ledger.waits:
                    return ledger.snapshot(self.now)
        return None

    def apply(self, answer: Answer) -> str:
        """See `Backend.apply`; a running task cannot be stopped for another."""
        outcome, started = self.ledger.answer(*answer, self.now)
        if started is not None:
            self._call(started)
        return outcome

    # ------------------------------------------------------------------ from other threads

    def clock(self) -> float:
        """Time since the start [s of the problem]."""
        return (time.monotonic() - self._start) / self.time_scale

    def submit(self, flow: Flow) -> None:
        """A workflow is to be played; its number is that of no other one."""

        def expect() -> bool:
            self.ledger.expect(flow)
            return False

        self._events.put(expect)

    def give_up(self, flow: Flow, error: BaseException) -> None:
        """Stop a workflow, if it has not ended."""
        self._events.put(lambda: self._drop(flow, error))

    def close(self) -> None:
        """End as soon as all workflows that came have ended."""

        def no_more() -> bool:
            self._accepts = False
            return False

        self._events.put(no_more)

    def shut_down(self) -> None:
        """End all servers."""
        self.servers.close()

    # ------------------------------------------------------------------ events

    def _collect(self) -> list[Callable[[], bool]]:
        """Wait until something has happened or is due; returns what, in order."""
        events: list[Callable[[], bool]] = []
        due = min(self.ledger.next_timer_s, self.horizon_s)
        until = self._start + due * self.time_scale if due < math.inf else math.inf
        if self._deadlines:
            until = min(until, self._deadlines[0][0])
        try:
            # With a limit: a thread that waits without one takes no Ctrl-C.
            timeout = min(max(0.0, until - time.monotonic()), 3600.0)
            events.append(self._events.get(timeout=timeout))
        except queue.Empty:
            pass
        while not self._events.empty():
            events.append(self._events.get_nowait())
        while self._deadlines and self._deadlines[0][0] <= time.monotonic():
            events.append(heapq.heappop(self._deadlines)[2])
        return events

    def after(self, seconds: float, what: Callable[[], bool]) -> None:
        """Have something happen after so many seconds of the wall clock."""
        self._num_deadlines += 1
        heapq.heappush(self._deadlines, (time.monotonic() + seconds, self._num_deadlines, what))

    def _call(self, attempt: Attempt) -> None:
        flow, host = attempt.flow, int(self.ledger.host[attempt.row])
        inputs = [self.outputs[flow.number, before].reference for before in flow.predecessors[attempt.task]]
        life = self._lives[host]

        def ended(future: Future[Report]) -> None:
            at = time.monotonic()
            self._events.put(lambda: self._ended(attempt, host, life, future, at))

        try:
            call = self.work(attempt, inputs)
            report, output = self.servers.run(host, attempt.number, call)
        except Exception as error:  # the actor is known to be dead, or the call cannot be packed
            failed: Future[Report] = Future()
            failed.set_exception(error)
            self._calls[attempt.number] = (attempt.row, None, Call(None), self._opened)
            ended(failed)
            return
        self._calls[attempt.number] = (attempt.row, output, call, self._opened)
        report.future().add_done_callback(ended)
        if call.timeout_s is not None:
            self.after(call.timeout_s, lambda: self._too_long(attempt, call.timeout_s))

    def _too_long(self, attempt: Attempt, timeout_s: float | None) -> bool:
        if attempt.number not in self._calls:
            return False
        what = f"workflow {attempt.flow.number}, task {attempt.task}"
        return self._drop(attempt.flow, TimeoutError(f"{what} did not end within {timeout_s:g} s"))

    def _ended(self, attempt: Attempt, host: int, life: int, future: Future[Report], at: float) -> bool:
        if attempt.number in self._stopping:
            self.ledger.released(self._stopping.pop(attempt.number))
            self._calls.pop(attempt.number, None)
            return True
        if attempt.number not in self._calls:
            return False  # it ran on a server that is gone
        error = future.exception()
        if error is not None:
            return self._broken(attempt, host, life, error)
        row, output, call, began = self._calls.pop(attempt.number)
        report = future.result()
        if report.error is not None:
            return self._raised(attempt, report.error)
        took = report.seconds if call.seconds is None else call.seconds
        self.overheads_s.append(at - began - took)
        self._tries[host] = 0
        flow = self.ledger.complete(row, self.now)
        self.outputs[flow.number, attempt.task] = Output(output, host, life)
        self._tell(Ended(flow, attempt.task, output, None))
        self._forget(flow, attempt.task)
        return True

    def _tell(self, ended: Ended) -> None:
        if self._listener is not None:
            self._listener(ended)

    def _forget(self, flow: Flow, task: int) -> None:
        """Let go of the outputs that nobody needs any more."""
        if flow.done:
            for at in range(len(flow)):
                self.outputs.pop((flow.number, at), None)
            return
        for before in flow.predecessors[task]:
            if all(flow.completed[after] for after in flow.successors[before]):
                self.outputs.pop((flow.number, before), None)

    def _raised(self, attempt: Attempt, error: BaseException) -> bool:
        """A task raised: it waits anew, or its workflow is given up."""
        flow = attempt.flow
        self.ledger.fail(attempt.row, self.now)
        self._count_failure(flow, attempt.task, error)
        return True

    def _count_failure(self, flow: Flow, task: int, error: BaseException) -> None:
        flow.attempts[task] += 1
        if flow.attempts[task] > self.retries:
            self._drop(flow, error)

    def _broken(self, attempt: Attempt, host: int, life: int, error: BaseException) -> bool:
        """A call came to no end: an input was lost, or its server is gone."""
        if isinstance(error, SERVER_GONE):
            if life == self._lives[host]:
                self._server_died(host)
            return True
        self._calls.pop(attempt.number)
        if not isinstance(error, ObjectLostError):  # it could not be unpacked, say
            return self._raised(attempt, error)
        self.ledger.fail(attempt.row, self.now)
        nodes = set(alive())
        for at, node in enumerate(self.servers.node):
            if self.ledger.there[at] and node not in nodes:
                self._server_died(at)
        lost = [at for at in attempt.flow.predecessors[attempt.task] if not self._is_there(attempt.flow, at)]
        for before in lost:
            self._make_again(attempt.flow, before)
        if not lost:
            self._count_failure(attempt.flow, attempt.task, error)
        return True

    def _is_there(self, flow: Flow, task: int) -> bool:
        """Whether the server that made an output has been there ever since."""
        made = self.outputs.get((flow.number, task))
        return made is not None and made.life == self._lives[made.host]

    def _make_again(self, flow: Flow, task: int) -> None:
        """Run a task again whose output is lost, and before it those whose outputs it needs and that are gone, too."""
        if flow.completed[task]:
            self.outputs.pop((flow.number, task), None)
            self.ledger.lose(flow, task, self.now)
            for before in flow.predecessors[task]:
                if not self._is_there(flow, before):
                    self._make_again(flow, before)

    # ------------------------------------------------------------------ servers

    def _server_died(self, host: int) -> None:
        """What ran on it waits anew; it is started again."""
        self._lives[host] += 1
        for attempt in self.ledger.leave(host, self.now):
            self._calls.pop(attempt.number, None)
        first, end = self.ledger.first_row[host], self.ledger.first_row[host + 1]
        for number, row in list(self._stopping.items()):
            if first <= row < end:
                del self._stopping[number]
        self._start_anew(host)

    def _start_anew(self, host: int) -> bool:
        self._tries[host] += 1
        self._coming.discard(host)
        if self._tries[host] > RESTARTS or not self.servers.start_anew(host):
            return True
        self._coming.add(host)
        life = self._lives[host]

        def answered(future: Future[Report]) -> None:
            self._events.put(lambda: self._is_back(host, life, future.exception()))

        self.servers.ready(host).future().add_done_callback(answered)
        return True

    def _is_back(self, host: int, life: int, error: BaseException | None) -> bool:
        if life != self._lives[host]:
            return False
        if error is not None:  # perhaps the node is going, too, and Ray does not know it yet
            self.after(1.0, lambda: self._start_anew(host))
            return False
        self._coming.discard(host)
        self.ledger.join(host, self.now)
        return True

    # ------------------------------------------------------------------ giving up

    def _drop(self, flow: Flow, error: BaseException) -> bool:
        """Give a workflow up: stop what runs of it, and tell."""
        number = flow.number
        if number in self.failed or (number not in self.ledger.flows and number not in self.ledger.pending):
            return False
        runs = {a.row: a for a in self.ledger.running if a is not None and a.flow is flow}
        for row in self.ledger.drop(flow, self.now):
            self._calls.pop(runs[row].number, None)
            self.stop(runs[row])
        self.failed[number] = error
        for task in range(len(flow)):
            self.outputs.pop((number, task), None)
        self._tell(Ended(flow, -1, None, error))
        return True

    def stop(self, attempt: Attempt) -> None:
        """End a call whose row is held until it has ended; in the end with its server."""
        host = int(self.ledger.host[attempt.row])
        life = self._lives[host]
        self._stopping[attempt.number] = attempt.row
        self.servers.stop(host, attempt.number)

        def still_there() -> bool:
            if attempt.number in self._stopping and life == self._lives[host]:
                self.servers.kill(host)
                self._server_died(host)
                return True
            return False

        self.after(GRACE_S, still_there)

    def _give_up_what_is_hopeless(self) -> None:
        """Workflows with a task that no server is left for."""
        left = [h for h in range(self.ledger.num_hosts) if self.ledger.there[h] or h in self._coming]
        while (task := self.ledger.hopeless(left)) is not None:
            flow = self.ledger.flows[task[0]]
            need = f"workflow {task[0]}, task {task[1]} needs {flow.memory_gb[task[1]]:g} GB"
            self._drop(flow, WorkflowFailedError(f"{need}, and no server that has them is left"))


def check_live(env: EnvConfig) -> None:
    """Refuse a problem that has something which a live cluster has not.

    Raises:
        UserError: naming the setting.
    """
    for setting, is_set, valid in (
        ("cluster.changes", not env.cluster.changes.none, "none: servers come and go as their Ray nodes do"),
        ("decision.preemption", env.decision.preemption != "none", "none"),
        ("information.workflows", env.information.workflows != "whole", "whole"),
        ("information.estimate_error", env.information.estimate_error != 0, "0"),
        ("information.straggler_share", env.information.straggles, "0"),
    ):
        if is_set:
            raise UserError(f"{setting}: is nothing that a live cluster plays; valid: {valid}")
