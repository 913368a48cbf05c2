"""Routing of a handle's requests: by the actor of its deployment, or by itself while that does not answer.

After `fallback_after_s` without an answer, a handle routes its own requests: by the same scheduler, or the rule of its
guard, from its own requests and sessions and the queue lengths that Serve reports. Meanwhile Ray restarts the actor.
Once it is ready the handle registers with a report of all that it knows, and the actor decides again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError

from rllib_scale.live.requests import Call, Demand, LastCall, Replica, RouterSettings, check_arrival
from rllib_scale.live.router_actor import LOOK_AGAIN_S, WAIT_S, router_actor
from rllib_scale.live.routing import SESSIONS
from rllib_scale.live.shared_routing import Decision, Report, SharedRouting
from rllib_scale.live.stats import LiveStats, remember, total

LOG = logging.getLogger(__name__)
START_S = 30.0
"""A handle waits this long for an actor to start and load its code, before it routes by itself."""
NEW_ACTOR_S = 1.0
"""Pause before another actor is started in place of a dead one."""
STATS_S = 2.0
"""Limit of a request for the actor's statistics."""


@dataclass
class _Request:
    """A request that waits or runs; times are of `RouterClient.clock`."""

    number: int
    demand: Demand
    since_s: float
    replica: str | None = None
    start_s: float = 0.0


class RouterClient:
    """The requests of one handle, and the decisions on them.

    Args:
        deployment: its name.
        settings: of the router.
        loop: in which all of this runs.
        on_decisions: called when `round` has new decisions.

    Raises:
        UserError: the settings do not fit the scheduler.
    """

    def __init__(
        self,
        deployment: str,
        settings: RouterSettings,
        loop: asyncio.AbstractEventLoop,
        on_decisions: Callable[[], None],
    ) -> None:
        self._deployment, self._settings, self._loop = deployment, settings, loop
        self._on_decisions = on_decisions
        self._id = os.urandom(8).hex()
        self._requests: dict[Hashable, _Request] = {}
        self._keys: dict[int, Hashable] = {}  # by number
        self._numbers = count()
        self._sessions: OrderedDict[str, tuple[float, LastCall]] = OrderedDict()  # with the time of the last answer
        self._replicas: list[Replica] = []
        self._events: deque[tuple[float, tuple[Any, ...]]] = deque()  # not yet sent
        self._messages = 0  # since the last report
        self._decisions: deque[Decision] = deque()
        self._fallbacks = 0
        self._own: SharedRouting | None = SharedRouting(settings)  # of this handle alone; None: the actor decides
        self._actor: Any = None  # that it is registered with
        self._was_registered = False
        self._connecting: asyncio.Task[None] | None = None
        self._falling_back: asyncio.Task[None] | None = None
        self._due_s, self._reason = math.inf, "is starting"  # when and why it falls back
        self._has_events = asyncio.Event()
        self._has_replicas = True
        if settings.state == "deployment":
            self._own = None
            self.connect(True)
        else:
            self._own.register(self._id, self._report())
        remember(deployment, self, self._own)

    # ------------------------------------------------------------------ called by the router

    @staticmethod
    def clock() -> float:
        """Time [s]."""
        return time.monotonic()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return sum(request.replica is None for request in self._requests.values())

    @property
    def actor(self) -> Any:
        """The actor that decides, or None."""
        return self._actor

    @property
    def decides(self) -> bool:
        """Whether the handle routes by itself."""
        return self._own is not None

    def replica_of(self, key: Hashable) -> str | None:
        """The replica where a request runs; None: it waits, or is not known."""
        request = self._requests.get(key)
        return None if request is None else request.replica

    def others_on(self) -> set[str]:
        """See `Routing.others_on`; with the actor all requests are its own."""
        return set() if self._own is None else self._own.others_on()

    def arrive(self, key: Hashable, demand: Demand, since_s: float) -> None:
        """See `Routing.arrive`."""
        check_arrival(key, since_s, self._requests)
        request = self._requests[key] = _Request(next(self._numbers), demand, since_s)
        self._keys[request.number] = key
        self._send("arrive", self._call(request))

    def leave(self, key: Hashable, how: str = "answered") -> None:
        """See `Routing.leave`."""
        request = self._requests.pop(key, None)
        if request is None:
            return
        del self._keys[request.number]
        demand, session = request.demand, request.demand.session
        if session is not None and request.replica is not None:
            tokens = demand.prompt_tokens, demand.prefix, demand.prefix_tokens
            self._sessions[session] = self.clock(), LastCall(session, request.replica, 0.0, *tokens)
            self._sessions.move_to_end(session)
            if len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        self._send("leave", request.number, how)

    def reject(self) -> None:
        """Count a request whose demand is wrong."""
        self._send("reject")

    def lost(self, replica: str) -> None:
        """See `Routing.lost`."""
        for session in [session for session, (_, last) in self._sessions.items() if last.replica == replica]:
            del self._sessions[session]
        self._send("lost", replica)

    def connect(self, has_replicas: bool) -> None:
        """Stay registered with the actor while the deployment has replicas."""
        self._has_replicas = has_replicas
        is_connecting = self._connecting is not None and not self._connecting.done()
        if has_replicas and self._settings.state == "deployment" and not is_connecting:
            self._connecting = self._loop.create_task(self._connect())

    def round(
        self, replicas: Sequence[Replica], queued: Mapping[str, int]
    ) -> list[tuple[Hashable, str | None, Exception | None]]:
        """New decisions: on which replica each request starts, or None and an error.

        Args:
            replicas: all of them.
            queued: requests that each is known to have, those of other handles included.
        """
        if replicas != self._replicas:
            self._replicas = list(replicas)
            self._send("replicas", self._replicas)
        if self._own is not None:
            self._own.decide(queued)
            self._decisions += self._own.pop_decisions(self._id)
        found = []
        while self._decisions:
            number, replica, error = self._decisions.popleft()
            key = self._keys.get(number)
            if key is None:
                continue  # dropped in the meantime
            if replica is None:
                del self._requests[key], self._keys[number]
            else:
                self._requests[key].replica, self._requests[key].start_s = replica, self.clock()
                self._fallbacks += self._own is not None and self._settings.state == "deployment"
            found.append((key, replica, error))
        return found

    def stats(self) -> LiveStats:
        """Statistics of this handle alone."""
        if self._own is not None:
            return self._own.stats()._replace(fallbacks=self._fallbacks)
        waiting, zeros = self.waiting, dict.fromkeys(("started", "ended", "dropped", "rejected", "decisions"), 0)
        return LiveStats(
            servers=len(self._replicas),
            waiting=waiting,
            running=len(self._requests) - waiting,
            **zeros,
            rounds=0,
            wait_mean_s=math.nan,
            round_mean_s=math.nan,
            guard="none",
            fallbacks=self._fallbacks,
        )

    # ------------------------------------------------------------------ messages

    def _send(self, *event: Any) -> None:
        self._events.append((self.clock(), event))
        if self._own is None:
            self._has_events.set()
        else:
            self._own.receive(self._id, self._messages, self._message())
            self._messages += 1

    def _message(self) -> list[tuple[Any, ...]]:
        """All events that were not sent; ages of requests are of now."""
        found, now = [], self.clock()
        while self._events:
            at_s, event = self._events.popleft()
            if event[0] == "arrive":
                event = ("arrive", event[1]._replace(age_s=event[1].age_s + now - at_s))
            found.append(event)
        return found

    def _call(self, request: _Request) -> Call:
        now = self.clock()
        runs_s = 0.0 if request.replica is None else now - request.start_s
        return Call(request.number, request.demand, now - request.since_s, request.replica, runs_s)

    def _report(self) -> Report:
        """The state, which includes the events that were not sent."""
        self._events.clear()
        self._decisions.clear()
        self._messages, now = 0, self.clock()
        sessions = [last._replace(silent_s=now - at_s) for at_s, last in self._sessions.values()]
        calls = [self._call(request) for request in self._requests.values()]
        return Report(self._replicas, calls, sessions, self._was_registered, self._fallbacks)

    # ------------------------------------------------------------------ the actor

    async def _connect(self) -> None:
        """Be registered with the actor, whenever it answers."""
        self._fall_back_after(START_S)
        patience, cluster = self._settings.fallback_after_s, ray.get_runtime_context().gcs_address
        while self._has_replicas and ray.is_initialized() and ray.get_runtime_context().gcs_address == cluster:
            try:
                actor = await asyncio.to_thread(router_actor, self._deployment, self._settings)
                await _answer(START_S, actor.pid.remote())
                self._stop_falling_back()
                self._own = None
                await self._exchange_all(actor, patience)
                self._fall_back_after(patience)
            except TimeoutError:
                self._reason = "timeout"
                self._fall_back_after(0.0)
            except (RayError, ValueError) as error:
                self._reason = str(error)
                self._fall_back_after(patience)
                if isinstance(error, ActorDiedError):  # Ray does not restart it: it could not start, or was killed
                    await asyncio.sleep(NEW_ACTOR_S)
            self._actor = None
            await asyncio.sleep(LOOK_AGAIN_S)
        self._stop_falling_back()

    async def _exchange_all(self, actor: Any, patience: float) -> None:
        """Register, then exchange events and decisions, until the actor asks to register again.

        Raises:
            TimeoutError: it does not answer.
            RayError: it is gone.
        """
        await _answer(patience, actor.register.remote(self._id, self._report()))
        self._actor, self._was_registered = actor, True
        both = self._send_messages(actor, patience), self._receive(actor, patience)
        tasks = [self._loop.create_task(each) for each in both]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _send_messages(self, actor: Any, patience: float) -> None:
        """One message at a time; events that happen meanwhile are sent together in the next one."""
        while self._has_replicas:
            await self._has_events.wait()
            self._has_events.clear()
            if self._events:
                number, self._messages = self._messages, self._messages + 1
                asked = actor.exchange.remote(self._id, number, self._message())
                if not self._take(await _answer(patience, asked)):
                    return

    async def _receive(self, actor: Any, patience: float) -> None:
        while self._has_replicas and self._take(await _answer(WAIT_S + patience, actor.wait.remote(self._id))):
            pass

    def _take(self, decisions: list[Decision] | None) -> bool:
        """Keep decisions for `round`; returns False if the handle must register again."""
        if decisions:
            self._decisions += decisions
            self._on_decisions()
        return decisions is not None

    # ------------------------------------------------------------------ the fallback

    def _fall_back_after(self, seconds: float) -> None:
        """Route by itself after this time, unless the actor answers before."""
        due_s = self.clock() + seconds
        if self._own is None and (self._falling_back is None or due_s < self._due_s):
            self._stop_falling_back()
            self._due_s, self._falling_back = due_s, self._loop.create_task(self._fall_back(seconds))

    def _stop_falling_back(self) -> None:
        if self._falling_back is not None:
            self._falling_back.cancel()
            self._falling_back = None

    async def _fall_back(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        settings, guard = self._settings, self._settings.guard
        if guard is not None:
            settings = settings.model_copy(update={"scheduler": guard.scheduler, "guard": None})
        own = await asyncio.to_thread(SharedRouting, settings)
        own.register(self._id, self._report()._replace(is_restart=False))
        self._own, self._falling_back = own, None
        LOG.warning("%s: this handle routes by itself; the router's actor: %s", self._deployment, self._reason)
        self._on_decisions()


def stats_of(clients: Iterable[RouterClient], past: Iterable[LiveStats] = ()) -> LiveStats:
    """Statistics of the actor of these handles, of each handle without one, and of those that are gone."""
    clients = list(clients)
    found = [*(client.stats() for client in clients if client.actor is None), *past]
    for actor in {client.actor for client in clients if client.actor is not None}:
        try:
            found.append(ray.get(actor.stats.remote(), timeout=STATS_S))
        except RayError:
            found += [client.stats() for client in clients if client.actor == actor]
    return total(found)


async def _answer(seconds: float, asked: Any) -> Any:
    """The result of an actor's method.

    Raises:
        TimeoutError: there is no result within this time.
    """
    return await asyncio.wait_for(asyncio.wrap_future(asked.future()), seconds)
