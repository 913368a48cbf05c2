"""A Ray cluster as a backend: each server an actor, each task a call, each output an object that stays where it is."""

from __future__ import annotations

import heapq
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, ObjectLostError, RayActorError, RayError

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.live.comparison import Comparison
from rllib_scale.live.flows import Ended, Flow, Output, ended_alone
from rllib_scale.live.inbox import Event, Inbox
from rllib_scale.live.servers import Call, Servers, alive, check_live
from rllib_scale.live.stats import Exporter, LiveStats, stats_of
from rllib_scale.live.worker import Report
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt

RESTARTS = 5
"""Restarts in a row of a server on a live node, and deaths of such servers under one task, before it is given up: the
task may be what ends them."""
SERVER_GONE = (RayActorError, ActorUnschedulableError)
Work = Callable[[Attempt, list[Any]], Call]
"""Makes the call of an attempt from references to the outputs of its predecessors, in their order."""
GRACE_S = 5.0
"""After so long a call that should end is ended with its server."""


class RayBackend:
    """A live cluster: it sends events to an engine and carries out its starts.

    The clock stops while a round is answered, as in the simulator; the next `more` finds the events of this time. One
    thread plays; any thread may call `submit`, `give_up` and `close`.

    A server that dies leaves; its tasks wait again, and it rejoins after a restart on its node, if that is alive. A
    lost input is made again by the task that made it. A task that raises is retried up to `retries` times; then its
    workflow is given up, and no other one.

    Args:
        env: the problem. Its workload and `changes` are ignored.
        work: makes the calls of tasks.
        time_scale: seconds of the wall clock per second of the problem.
        retries: retries of a task that raises.
        nodes: Ray nodes to use; None: all.
        listener: called with every task that has ended and every workflow that has failed, by the thread that waits.
        accepts: whether workflows may come at any time, until `close`; else the run ends with the workflows. Such a
            backend may live long, and keeps nothing of ended workflows.
        horizon_s: end of the episode [s]; inf: when all is done.

    Raises:
        UserError: the problem has a property that a live cluster does not have.
    """

    def __init__(
        self,
        env: EnvConfig,
        work: Work,
        time_scale: float = 1.0,
        retries: int = 3,
        nodes: list[str] | None = None,
        listener: Callable[[Ended], None] = lambda ended: None,
        accepts: bool = False,
        horizon_s: float = math.inf,
    ) -> None:
        check_live(env)
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of outputs that no task reads; reports show them
        self.engine, self.work = EventEngine(env, self._call, keeps_ended=not accepts), work
        self.flows: dict[int, Flow] = {}  # scheduled or under way
        self._may_end_alone: dict[int, Flow] = {}  # those that may end without an attempt
        self.pending: list[tuple[float, int]] = []  # heap of those to arrive: when, number
        self.guard = "none"  # of stats.GUARDS
        self.comparison: Comparison | None = None  # of the guard
        self.num_ended = self.num_dropped = 0  # tasks
        self._exporter, self._has_news = Exporter("cluster"), True
        self.tell: Callable[[str, Any, float], None] = lambda what, about, now: None  # a guard, what happens
        self.time_scale, self.retries = time_scale, retries
        self.horizon_s = horizon_s
        self.overheads_s: list[float] = []  # of each ended attempt, beyond the time that its call took [s]
        self.failed: dict[int, BaseException] = {}  # workflows that were given up, and why
        self.outputs: dict[tuple[int, int], Output] = {}
        self._listener, self._accepts = listener, accepts
        self.inbox = Inbox()
        self._opened = 0.0  # when the round began
        self._tries, self._lives = [0] * env.cluster.num_servers, [0] * env.cluster.num_servers
        self._coming: set[int] = set()  # servers that are being started
        self._gone: set[int] = set()  # servers that are not there
        self.servers = Servers(env.cluster, nodes)
        try:
            ray.get([self.servers.ready(server) for server in range(env.cluster.num_servers)])
        except RayError as error:
            raise UserError(f"a server could not be started on its Ray node: {str(error).splitlines()[0]}") from None
        self._start = time.monotonic()

    # ------------------------------------------------------------------ the engine

    @property
    def now(self) -> float:
        """Time of the engine, since the start [s of the problem]."""
        return self.engine.now

    def more(self) -> bool:
        """Wait for events and send them to the engine; False: there will be no more."""
        engine = self.engine
        if not engine.attempts and not self._coming and self._next_timer_s == math.inf:
            engine.start_any()
        while self._accepts or self.flows or not self.inbox.is_empty:
            events = self._collect()
            self._opened = time.monotonic()
            now = min(self.clock(), self.horizon_s)
            is_due = engine.advance(now)
            if now >= self.horizon_s:
                return False
            for event in events:
                event()
            is_due |= self._arrive()
            for number in ended_alone(self._may_end_alone, engine) if is_due or events else ():
                self._forget(number)
            if is_due or events:
                self._has_news = True
                self._give_up_what_is_hopeless()
                self.tell("round", None, now)
                return True
        return False

    @property
    def _next_timer_s(self) -> float:
        return min(self.engine.next_release_s, self.pending[0][0] if self.pending else math.inf)

    def expect(self, flow: Flow) -> None:
        """A workflow will arrive at its time; by the thread that plays."""
        self.flows[flow.number] = flow
        if flow.may_end_alone:
            self._may_end_alone[flow.number] = flow
        heapq.heappush(self.pending, (flow.arrival_s, flow.number))

    def _forget(self, number: int) -> Flow | None:
        """A workflow has ended, or is given up; None: it had before."""
        self._may_end_alone.pop(number, None)
        return self.flows.pop(number, None)

    def _arrive(self) -> bool:
        """Let due workflows arrive; returns whether any did."""
        before = len(self.pending)
        while self.pending and self.pending[0][0] <= self.now:
            flow = self.flows[heapq.heappop(self.pending)[1]]
            self.engine.arrive(flow.number, flow.arrival_s, flow.demands, flow.edges, flow.edge_gb)
            self.tell("arrive", flow, self.now)
        return len(self.pending) < before

    # ------------------------------------------------------------------ from other threads

    def stats(self) -> LiveStats:
        """Current numbers of tasks and their times."""
        engine, ratio = self.engine, math.nan if self.comparison is None else self.comparison.ratio
        counted = {"ended": self.num_ended, "dropped": self.num_dropped, "rejected": 0}
        now = {"servers": engine.num_there, "waiting": engine.num_waiting, "running": len(engine.attempts)}
        return stats_of(engine, self.guard, ratio, **now, **counted)

    def clock(self) -> float:
        """Time since the start [s of the problem]."""
        return (time.monotonic() - self._start) / self.time_scale

    def submit(self, flow: Flow) -> None:
        """Add a workflow with a new number."""
        self.inbox.put(partial(self.expect, flow))

    def give_up(self, flow: Flow, error: BaseException) -> None:
        """Stop a workflow, if it has not ended."""
        self.inbox.put(partial(self._drop, flow, error))

    def close(self) -> None:
        """End as soon as all workflows that came have ended."""
        self.inbox.put(partial(setattr, self, "_accepts", False))

    def shut_down(self) -> None:
        """End all servers, and wait until Ray has reported the end of every call, so that it calls nothing later on."""
        self.servers.close()
        self.inbox.await_calls(GRACE_S)

    # ------------------------------------------------------------------ events

    def _collect(self) -> list[Event]:
        """Wait until something has happened or is due; returns the events in order."""
        if self._has_news and time.monotonic() >= self._exporter.due_s:
            self._exporter.show(self.stats())
            self._has_news = False
        until = self._start + min(self._next_timer_s, self.horizon_s) * self.time_scale
        return self.inbox.collect(min(until, self._exporter.due_s) if self._has_news else until)

    def _call(self, attempt: Attempt) -> None:
        flow, life, began = self.flows[attempt.workflow], self._lives[attempt.server], self._opened
        inputs = [self.outputs[flow.number, before].reference for before in flow.sources[attempt.task]]
        call: Call = Call(None)
        output: Any = None

        def ended(future: Future[Report]) -> None:
            result = Output(output, attempt.server, life)
            self.inbox.put(partial(self._ended, attempt, result, future, time.monotonic() - began, call.seconds))

        try:
            call = self.work(attempt, inputs)
            report, output = self.servers.run(attempt.server, attempt.number, call)
        except Exception as error:  # the actor is known to be dead, or the call cannot be packed
            failed: Future[Report] = Future()
            failed.set_exception(error)
            ended(failed)
            return
        self.inbox.watch(report, ended)
        if call.timeout_s is not None:
            what = f"workflow {attempt.workflow}, task {attempt.task} did not end within {call.timeout_s:g} s"
            self.inbox.after(attempt, call.timeout_s, partial(self._too_long, attempt, TimeoutError(what)))

    def _too_long(self, attempt: Attempt, error: TimeoutError) -> None:
        if self.engine.is_running(attempt):
            self.give_up(self.flows[attempt.workflow], error)

    def _ended(
        self, attempt: Attempt, output: Output, future: Future[Report], took: float, should: float | None
    ) -> None:
        """A call has ended after a number of seconds, of which it should have slept `should`."""
        engine = self.engine
        self.inbox.forget(attempt)
        if engine.is_stopping(attempt):
            engine.stopped(attempt)
            self.tell("stopped", attempt, self.now)
            return
        if not engine.is_running(attempt):
            return  # it ran on a server that is gone
        flow = self.flows[attempt.workflow]
        error = future.exception()
        if error is not None:
            self._broken(attempt, error)
            return
        report = future.result()
        if report.error is not None:
            self._failed(attempt)
            self._count_failure(attempt, report.error)
            return
        if engine.keeps_ended:
            self.overheads_s.append(took - (report.seconds if should is None else should))
        self._tries[attempt.server] = 0
        engine.ended(attempt)
        self.num_ended += 1
        is_last = not engine.is_under_way(flow.number)
        if is_last:
            self._forget(flow.number)
        self.tell("ended", attempt, self.now)
        self.outputs[flow.number, attempt.task] = output
        for at in (attempt.task, *flow.sources[attempt.task]):
            if is_last or all(engine.has_ended(flow.number, after) for after in flow.readers[at]):
                self.outputs.pop((flow.number, at), None)  # no longer needed
        self._listener(Ended(flow, attempt.task, is_last, output.reference, None))  # last: it frees others

    def _failed(self, attempt: Attempt) -> None:
        self.engine.failed(attempt)
        self.tell("failed", attempt, self.now)

    def _count_failure(self, attempt: Attempt, error: BaseException) -> None:
        """A task failed by itself: after its last retry its workflow is given up."""
        flow = self.flows[attempt.workflow]
        flow.attempts[attempt.task] += 1
        if flow.attempts[attempt.task] > self.retries:
            self._drop(flow, error)

    def _broken(self, attempt: Attempt, error: BaseException) -> None:
        """A call came to no end: its server is gone, an input was lost, or it could not be unpacked, say."""
        if isinstance(error, SERVER_GONE):
            self._server_died(attempt.server)
            return
        self._failed(attempt)
        flow, lost = self.flows[attempt.workflow], []
        if isinstance(error, ObjectLostError):
            nodes = alive()
            for server, node in enumerate(self.servers.node):
                if self.engine.is_there(server) and node not in nodes:
                    self._server_died(server)
            lost = [at for at in flow.sources[attempt.task] if not self._is_there(flow, at)]
            if flow.number not in self.flows:
                return  # given up with one of these servers
        for before in lost:
            self._make_again(flow, before)
        if not lost:
            self._count_failure(attempt, error)

    def _is_there(self, flow: Flow, task: int) -> bool:
        """Whether the server that made an output has lived since then."""
        made = self.outputs.get((flow.number, task))
        return made is not None and made.life == self._lives[made.server]

    def _make_again(self, flow: Flow, task: int) -> None:
        """Run a task again whose output is lost, and before it those whose outputs it needs and that are gone, too."""
        if self.engine.has_ended(flow.number, task):
            self.outputs.pop((flow.number, task), None)
            self.engine.lost(flow.number, task)
            self.tell("lost", (flow, task), self.now)
            for before in flow.sources[task]:
                if not self._is_there(flow, before):
                    self._make_again(flow, before)

    # ------------------------------------------------------------------ servers

    def _server_died(self, server: int) -> None:
        """Its tasks wait again; restart it."""
        self._lives[server] += 1
        self._gone.add(server)
        ran: list[Attempt] = []
        for attempt in [each for each in self.engine.attempts.values() if each.server == server]:
            if self.engine.is_stopping(attempt):
                self.tell("stopped", attempt, self.now)
            else:
                ran.append(attempt)
        self.engine.leave(server)
        self.tell("leave", server, self.now)
        self._start_anew(server)
        for attempt in ran if server in self._coming else ():
            self._count_death(attempt)

    def _count_death(self, attempt: Attempt) -> None:
        """A server died that ran a task, and its node did not."""
        if (flow := self.flows.get(attempt.workflow)) is not None:
            flow.deaths[attempt.task] += 1
            if flow.deaths[attempt.task] >= RESTARTS:
                what = f"workflow {flow.number}, task {attempt.task}: {RESTARTS} servers have died while they ran it"
                self._drop(flow, RuntimeError(what))

    def _start_anew(self, server: int) -> None:
        self._tries[server] += 1
        self._coming.discard(server)
        if self._tries[server] <= RESTARTS and self.servers.start_anew(server):
            self._coming.add(server)
            self.inbox.watch(
                self.servers.ready(server), lambda future: self.inbox.put(partial(self._is_back, server, future))
            )

    def _is_back(self, server: int, future: Future[Report]) -> None:
        if future.exception() is not None:  # perhaps the node is going, too, and Ray does not know it yet
            self.inbox.after(server, 1.0, partial(self.inbox.put, partial(self._start_anew, server)))
            return
        self._coming.discard(server)
        self._gone.discard(server)
        self.engine.join(server)
        self.tell("join", server, self.now)

    # ------------------------------------------------------------------ giving up

    def _drop(self, flow: Flow, error: BaseException) -> None:
        """Give up a workflow that has not ended: stop its calls, and tell the engine."""
        if self._forget(flow.number) is None:
            return
        is_under_way = self.engine.is_under_way(flow.number)
        ended = [self.engine.has_ended(flow.number, task) for task in range(len(flow))] if is_under_way else []
        self.num_dropped += len(flow) - sum(ended)
        runs = self.engine.give_up(flow.number) if is_under_way else []
        self.pending = [each for each in self.pending if each[1] != flow.number]
        heapq.heapify(self.pending)
        if is_under_way:
            self.tell("give_up", (flow, runs), self.now)
        for attempt in runs:
            self.servers.stop(attempt.server, attempt.number)
            self.inbox.after(attempt, GRACE_S, partial(self.inbox.put, partial(self._kill, attempt)))
        if self.engine.keeps_ended:
            self.failed[flow.number] = error
        for task in range(len(flow)):
            self.outputs.pop((flow.number, task), None)
        self._listener(Ended(flow, -1, True, None, error))

    def _kill(self, attempt: Attempt) -> None:
        """A call that should have ended is ended with its server."""
        if self.engine.is_stopping(attempt):
            self.servers.kill(attempt.server)
            self._server_died(attempt.server)

    def _give_up_what_is_hopeless(self) -> None:
        """Give up workflows with a task that no remaining server can run."""
        if not self._gone:
            return  # all tasks were accepted for the servers that there were
        left = [s for s in range(len(self._tries)) if self.engine.is_there(s) or s in self._coming]
        while (found := self.engine.hopeless(left)) is not None:
            flow, task = self.flows[found[0]], found[1]
            need = f"workflow {flow.number}, task {task} needs {flow.demands['memory'][task]:g} GB"
            error = RuntimeError(f"{need}, and no server with its labels, places and memory is left")
            self._drop(flow, error)
