"""The actor with the routing state of a deployment, which all its handles ask.

`exchange` takes events and returns decisions; `wait` returns decisions that follow from the events of other handles.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from contextlib import suppress
from typing import Any

import ray

from rllib_scale.live.requests import RouterSettings
from rllib_scale.live.shared_routing import Decision, Report, SharedRouting
from rllib_scale.live.stats import Exporter, LiveStats

LOOK_AGAIN_S = 0.1
"""While requests wait there is a round at least this often, as sessions become inactive."""
WAIT_S = 2.0
"""`wait` returns after this time, with or without decisions."""
UNUSED_S = 60.0
"""The actor ends this long after its last handle."""


class RouterActor:
    """Routes the requests of all handles of a deployment.

    Args:
        name: of the deployment, a tag of its metrics.
        settings: of its router.
    """

    def __init__(self, name: str, settings: RouterSettings) -> None:
        self._routing, self._exporter = SharedRouting(settings), Exporter(name)
        self._has_decisions: dict[str, asyncio.Event] = {}
        self._used_s = time.monotonic()
        self._background: asyncio.Task[None] | None = None

    async def pid(self) -> int:
        """Process id; answered once the actor is ready."""
        return os.getpid()

    async def register(self, handle: str, report: Report) -> None:
        """See `SharedRouting.register`."""
        self._has_decisions[handle] = asyncio.Event()
        self._routing.register(handle, report)
        if self._background is None:
            self._background = asyncio.get_running_loop().create_task(self._run())
        self._decide()

    async def exchange(self, handle: str, number: int, events: list[tuple[Any, ...]]) -> list[Decision] | None:
        """Decisions after a message, see `SharedRouting.receive`; None: the handle must register again."""
        if not self._routing.receive(handle, number, events):
            return None
        self._decide(handle)
        return self._routing.pop_decisions(handle)

    async def wait(self, handle: str) -> list[Decision] | None:
        """The next decisions for a handle, or none after WAIT_S; None: the handle must register again."""
        if not self._routing.is_registered(handle):
            return None
        event = self._has_decisions[handle]
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), WAIT_S)
        if event is not self._has_decisions.get(handle) or not self._routing.is_registered(handle):
            return None
        event.clear()
        return self._routing.pop_decisions(handle)

    async def stats(self) -> LiveStats:
        """See `SharedRouting.stats`."""
        return self._routing.stats()

    def _decide(self, asking: str = "") -> None:
        """A round; `asking`: a handle that receives its decisions without `wait`."""
        for handle in self._routing.decide({}) - {asking}:
            self._has_decisions[handle].set()

    async def _run(self) -> None:
        """Rounds without events, dead handles, metrics, and the end of the actor."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            self._routing.remove_dead()
            if self._routing.has_waiting:
                self._decide()
            now = time.monotonic()
            if self._exporter.due_s <= now:
                self._exporter.show(self._routing.stats())
            if self._routing.num_handles:
                self._used_s = now
            elif now - self._used_s > UNUSED_S:
                ray.kill(ray.get_runtime_context().current_actor)


def router_actor(deployment: str, settings: RouterSettings) -> Any:
    """The actor of a deployment, started if it does not run. Other settings have another actor."""
    digest = hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:12]
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 10_000, "lifetime": "detached"}
    name = f"router {deployment} {digest}"
    made = ray.remote(RouterActor).options(name=name, namespace="rllib_scale", get_if_exists=True, **options)
    return made.remote(deployment, settings)
