"""Workflows of Python callables on a live Ray cluster, placed by a scheduler: `with live.Cluster(...) as cluster`."""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import math
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import ray
from pydantic import Field
from ray.exceptions import ObjectLostError

from rllib_scale.clusters.session import ray_session
from rllib_scale.config import SCENARIOS, ClusterConfig, TierConfig
from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.config.cluster import MAX_PLACES, Label, label_bits
from rllib_scale.config.schedulers import HEURISTICS
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError, offered
from rllib_scale.live.backend import RayBackend
from rllib_scale.live.flows import Ended, Flow
from rllib_scale.live.functions import check_task, like, name_of
from rllib_scale.live.guard import Guard, play_guarded, rehearse_all
from rllib_scale.live.servers import Call, for_servers, nodes_as_servers
from rllib_scale.live.stats import LiveStats
from rllib_scale.live.worker import Packed
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.checks import no_server_text
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.model import TASK_DEMAND

LOG = logging.getLogger(__name__)
MAX_SENT_BYTES = 20_000
"""Functions up to this size travel with each call: to look one up in Ray's store takes longer."""
TRIES = 3
"""Times that a result is made again after its server died before it was fetched."""


class Demand(Model):
    """Declared demand of a task."""

    compute_gflop: Positive = 1.0  # for the estimate of its duration
    memory_gb: NonNegative = 0.0  # at most that of the largest server
    places: Annotated[int, Field(ge=1, le=MAX_PLACES)] = 1  # that it takes of the `max_concurrent` of its server
    labels: tuple[Label, ...] = ()  # that the server must have, all of them
    output_gb: NonNegative = 0.0  # size of what it returns
    timeout_s: Positive | None = None  # after so long on its server its workflow is given up, with a TimeoutError


class TaskFuture:
    """A task of a cluster and its future result, made by `Cluster.task`. It runs once it is asked for.

    Tasks that are asked for together, with all that they need, are one workflow.
    """

    def __init__(
        self, cluster: Cluster, function: Any, demand: Demand, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        self._cluster, self.function, self.demand = cluster, function, demand
        self.arguments, self.keywords = arguments, keywords
        self.needs = list(dict.fromkeys(v for v in (*arguments, *keywords.values()) if isinstance(v, TaskFuture)))
        self.workflow: list[TaskFuture] | None = None  # with which it was asked for, or given up
        self.flow: Flow | None = None  # once it was sent
        self.given: dict[TaskFuture, Any] = {}  # results of other workflows, as they were when it was sent
        self.ended: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def submit(self) -> TaskFuture:
        """Have it run, with all that it needs; returns itself."""
        self._cluster.submit(self)
        return self

    def done(self) -> bool:
        """Whether it has ended, with or without a result."""
        return self.ended.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result of the function; asks for the task first if needed.

        Raises:
            TimeoutError: it has not ended after `timeout` seconds; it continues.
            concurrent.futures.CancelledError: it was cancelled.
            BaseException: the exception of the function, or of a task that it needs.
        """
        for _ in range(TRIES - 1):
            self.submit()
            try:
                return ray.get(self.ended.result(timeout))
            except ObjectLostError:  # the server on which it was has died since
                self._cluster.forget(self)
        self.submit()
        return ray.get(self.ended.result(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Its exception; None if it succeeded. Raises like `result` if it did not end."""
        self.submit()
        return self.ended.exception(timeout)

    def cancel(self) -> bool:
        """Give up its workflow with all tasks that have not ended. False: it had ended.

        A running call is interrupted between two lines of Python; after five seconds its server is restarted.
        """
        return self._cluster.cancel(self)


class Cluster:
    """A live cluster, on which a scheduler places tasks. A context manager: the end of the block waits for all tasks.

    Args:
        scheduler: a heuristic's name, the folder of an exported policy, `zoo:NAME`, or a scheduler.
        address: address of a Ray cluster; None: the Ray that this process is connected to, else a local one.
        tiers: servers, as actors dealt out to the nodes; None: each Ray node is a server, as Ray describes it.
        retries: retries of a task that raises, before its workflow is given up.
        num_cpus: CPUs of a local Ray.
        guard: a rule that takes over, with a line in the log, once the scheduler has fallen behind; see `Guard`.

    Raises:
        UserError: the scheduler does not exist, or does not fit the servers.
    """

    def __init__(
        self,
        scheduler: str | Path | Policy = "fastest-idle",
        address: str | None = None,
        tiers: Iterable[TierConfig] | None = None,
        retries: int = 0,
        num_cpus: int | None = None,
        guard: str | Path | Policy | Guard | None = None,
    ) -> None:
        self._address, self._retries, self._num_cpus = address, retries, num_cpus
        self._env, self._by_nodes = SCENARIOS["steady-0.7"][0], tiers is None
        self._policy = make_policy(str(scheduler), self._env) if isinstance(scheduler, str | Path) else scheduler
        self._guard = guard if isinstance(guard, Guard | None) else Guard(guard)
        if tiers is not None:
            self._env = for_servers(self._env, ClusterConfig(tiers=tuple(tiers)))
            self._policy.problem(self._env)  # refused before anything starts
        for policy in (self._policy, *([] if self._guard is None else [self._guard.rule(self._env)])):
            known = HEURISTICS.get(policy.name.partition(":")[0])
            if known is not None and known.knows:
                valid = offered(name for name, spec in HEURISTICS.items() if not spec.knows)
                raise UserError(f"{policy.name}: knows {known.knows} in advance, and functions do not; valid: {valid}")
        self._lock = threading.RLock()
        self._open: list[list[TaskFuture]] = []  # tasks of each workflow under way
        self._sent: dict[int, list[TaskFuture]] = {}  # those that the backend has, by number
        self._failure: BaseException | None = _not_running()

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Cluster:
        with ExitStack() as stack:  # end what has begun if the rest fails
            stack.enter_context(ray_session(self._address, self._num_cpus))
            nodes = None
            if self._by_nodes:
                self._env, nodes = nodes_as_servers(self._env)
            self._problem = self._policy.problem(self._env)
            self._guard = rehearse_all(self._policy, self._env, self._guard)
            self._policy.reset([(0, 0)])
            self.backend = RayBackend(
                self._problem, self._call, retries=self._retries, nodes=nodes, listener=self._told, accepts=True
            )
            stack.callback(self.backend.shut_down)
            self._stack = stack.pop_all()
        self._numbers, self._failure = itertools.count(), None
        self._thread = threading.Thread(target=self._run, name="rllib-scale-live", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            while workflows := self._under_way():
                if kind is not None:
                    for futures in workflows:
                        self.cancel(futures[-1])
                concurrent.futures.wait([future.ended for futures in workflows for future in futures])
            self.backend.close()
            self._thread.join()

    def _under_way(self) -> list[list[TaskFuture]]:
        """The tasks of each workflow that has not ended; without any no other one may come."""
        with self._lock:
            if not self._open:
                self._failure = _not_running()
            return list(self._open)

    def _run(self) -> None:
        """The loop of the thread that decides."""
        try:
            line = play_guarded(self._policy, self.backend, self._env, self._guard)
            if (seen := self.backend.comparison) is not None and self.backend.guard == "watching":
                LOG.log(logging.WARNING if math.isnan(seen.ratio) else logging.INFO, line)
        except BaseException as error:  # errors in this thread are otherwise lost
            with self._lock:
                self._failure = error
                for futures in list(self._open):
                    self._fail(futures, error)

    # ------------------------------------------------------------------ tasks

    def task(self, function: Callable[..., Any], **demand: Any) -> Callable[..., TaskFuture]:
        """Declare the demand of a function; calling the result with arguments gives a future.

        Args:
            function: runs on a server. Futures among its arguments are results of other tasks.
            demand: fields of `Demand`.

        Raises:
            UserError: the demand is not valid; the function is async, a generator or not callable; or the cluster does
                not run.
        """
        if self._failure is not None:
            raise self._failure
        name = name_of(function)
        check_task(function, name)
        needs, cluster = build_model(Demand, demand, f"task {name}"), self._problem.cluster
        bits = label_bits(needs.labels, cluster.label_names)
        if not any(
            fits(needs.memory_gb, needs.places, bits, tier.memory_gb, tier.max_concurrent, offered)
            for tier, offered in zip(cluster.tiers, cluster.labels_of_tiers, strict=True)
        ):
            why = no_server_text(needs.memory_gb, needs.places, needs.labels, cluster)
            raise UserError(f"task {name}: fits no server: {why}")
        packed = _packed(function)

        def make(*arguments: Any, **keywords: Any) -> TaskFuture:
            for key, value in (*enumerate(arguments), *keywords.items()):
                inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
                if any(isinstance(part, TaskFuture) for part in inside):
                    raise UserError(
                        f"task {name}: argument {key} contains a future; pass the future itself as an argument"
                    )
            return TaskFuture(self, packed, needs, arguments, keywords)

        return make

    def node(self, function: Callable[..., Any], **demand: Any) -> Callable[..., Any]:
        """A plain callable that runs the function on the cluster and waits: a node of a LangGraph, say.

        It has the name and the signature of the function. `config` arrives without callbacks and LangGraph's own keys.

        Args:
            function: of the state. The server has a copy of it, and of what it is bound to, as they are now.
            demand: that of `task`.

        Raises:
            UserError: as `task`; or it needs the running graph: `writer`, `store`, `runtime`, `interrupt`.
        """
        make = self.task(function, **demand)
        return like(function, lambda *arguments, **keywords: make(*arguments, **keywords).result())

    def stats(self) -> LiveStats:
        """Its current state: waiting and running tasks, ended ones, their waits, and the scheduler that decides."""
        return self.backend.stats()

    def gather(self, *futures: TaskFuture, timeout: float | None = None) -> list[Any]:
        """The results of several tasks, which run as one workflow; raises as `TaskFuture.result`, the first one's."""
        self.submit(*futures)
        references = [future.ended.result(timeout) for future in futures]
        try:
            return ray.get(references)  # one call: each costs more than a small result
        except ObjectLostError:
            return [future.result(timeout) for future in futures]

    # ------------------------------------------------------------------ what futures ask for

    def submit(self, *futures: TaskFuture) -> None:
        """Run tasks as one workflow, with all tasks that they need and that have not been asked for yet.

        Raises:
            UserError: a task is of another cluster.
        """
        if all(future.workflow is not None for future in futures):
            return  # and so has all that they need
        with self._lock:
            new = [future for future in _in_order(futures) if future.workflow is None]
            if any(future._cluster is not self for future in new):
                raise UserError("live.Cluster: it needs a task of another cluster; ask for that there first: submit()")
            for future in new:
                future.workflow = new
            if new:
                self._open.append(new)
                self._send(new)

    def _send(self, futures: list[TaskFuture]) -> None:
        """Hand a workflow to the backend, now or once what it needs of others has ended."""
        with self._lock:
            if futures not in self._open:
                return  # it was given up meanwhile
            if self._failure is not None:
                self._fail(futures, self._failure)
                return
            for needed in [needed for future in futures for needed in future.needs if needed.workflow is not futures]:
                if not needed.done():
                    needed.ended.add_done_callback(lambda _: self._send(futures))
                    return
                if (error := needed.ended.exception()) is not None:
                    self._fail(futures, error)
                    return
            inside = {future: at for at, future in enumerate(futures)}
            edges = sorted((inside[n], at) for at, future in enumerate(futures) for n in future.needs if n in inside)
            names, needs = self._problem.cluster.label_names, [future.demand for future in futures]
            whole = [(f.places, label_bits(f.labels, names)) for f in needs]
            demands = [(f.compute_gflop, f.memory_gb, f.output_gb, 0.0, *w) for f, w in zip(needs, whole, strict=True)]
            pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
            number = next(self._numbers)  # in the order in which they arrive
            flow = Flow(number, self.backend.clock(), np.array(demands, dtype=TASK_DEMAND), pairs)
            for future in futures:
                future.flow = flow
                # Their current state: the thread that waits for a lost one makes it again.
                future.given = {n: n.ended.result() for n in future.needs if n not in inside}
            self._sent[number] = futures
            self.backend.submit(flow)

    def _call(self, attempt: Attempt, inputs: list[Any]) -> Call:
        """The call of a task: see `backend.Work`."""
        futures, sources = self._sent[attempt.workflow], self.backend.flows[attempt.workflow].sources
        future = futures[attempt.task]
        references = future.given | dict(zip((futures[at] for at in sources[attempt.task]), inputs, strict=True))

        def filled(value: Any) -> Any:
            return references[value] if isinstance(value, TaskFuture) else value

        arguments = tuple(filled(value) for value in future.arguments)
        keywords = {name: filled(value) for name, value in future.keywords.items()}
        return Call(future.function, arguments, keywords, timeout_s=future.demand.timeout_s)

    def _told(self, ended: Ended) -> None:
        """A task has ended, or a workflow has failed: see `RayBackend`."""
        with self._lock:
            futures = self._sent[ended.flow.number]
            if ended.task < 0 and ended.error is not None:
                del self._sent[ended.flow.number]
                self._fail(futures, ended.error)
                return
            if ended.is_last:
                del self._sent[ended.flow.number]
                self._open.remove(futures)
            if not futures[ended.task].ended.done():  # else it ran again for tasks that need it
                futures[ended.task].ended.set_result(ended.output)

    def _fail(self, futures: list[TaskFuture], error: BaseException) -> None:
        """A workflow is over: what of it has not ended ends with an error."""
        self._open = [others for others in self._open if others is not futures]
        for future in futures:
            if not future.ended.done():
                future.ended.set_exception(error)

    def cancel(self, future: TaskFuture) -> bool:
        """See `TaskFuture.cancel`."""
        with self._lock:
            if future.done():
                return False
            if future.flow is None:
                future.workflow = future.workflow or [future]
                self._fail(future.workflow, concurrent.futures.CancelledError())
                return True
        self.backend.give_up(future.flow, concurrent.futures.CancelledError())
        return True

    def forget(self, future: TaskFuture) -> None:
        """The result is lost, and maybe its inputs: make all of them again."""
        with self._lock:
            for lost in _in_order([future]):
                if lost.done():
                    lost.workflow, lost.flow, lost.ended = None, None, concurrent.futures.Future()


def _in_order(futures: Iterable[TaskFuture]) -> list[TaskFuture]:
    """The tasks and all that they need, each after what it needs."""
    needs: dict[TaskFuture, list[TaskFuture]] = {}
    found = list(futures)
    for future in found:  # and those that are found on the way
        if future not in needs:
            needs[future] = future.needs
            found += future.needs
    return list(TopologicalSorter(needs).static_order())


def _packed(function: Callable[..., Any]) -> Any:
    """A packed function, packed once for all calls; a large one is put into Ray's store."""
    content = ray.cloudpickle.dumps(function)
    return Packed(content) if len(content) <= MAX_SENT_BYTES else ray.put(function)


def _not_running() -> UserError:
    return UserError("live.Cluster: it does not run; tasks are made and asked for inside of its `with` block")
