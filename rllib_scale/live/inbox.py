"""Events for a live cluster, from other threads, Ray and the clock, kept for the thread that plays."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

Event = Callable[[], None]
"""Work for the thread that waits."""


class Inbox:
    """Events in the order in which they came. One thread collects them; `put` and Ray's reports may come from any."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._calls: set[Future[Any]] = set()  # whose end Ray reports
        self.deadlines: dict[Hashable, tuple[float, Event]] = {}  # what it is about -> monotonic time, what then

    @property
    def is_empty(self) -> bool:
        """Whether everything that came has been collected."""
        return self._events.empty()

    def put(self, event: Event) -> None:
        """Have something done."""
        self._events.put(event)

    def after(self, key: Hashable, seconds: float, event: Event) -> None:
        """Schedule an item after a number of seconds of the wall clock, unless `forget` comes first."""
        self.deadlines[key] = (time.monotonic() + seconds, event)

    def forget(self, key: Hashable) -> None:
        """Cancel the scheduled item of this key."""
        self.deadlines.pop(key, None)

    def watch(self, reference: Any, then: Callable[[Future[Any]], None]) -> None:
        """Have something done in a thread of Ray's once a call has ended."""

        def ended(future: Future[Any]) -> None:
            then(future)
            self._calls.discard(future)

        future = reference.future()
        self._calls.add(future)
        future.add_done_callback(ended)

    def collect(self, until: float) -> list[Event]:
        """Wait until something has come or is due, or until a monotonic time; returns what has come, in order."""
        events: list[Event] = []
        until = min([until, *(when for when, _ in self.deadlines.values())])
        with suppress(queue.Empty):
            # With a limit: a thread that waits without one takes no Ctrl-C.
            events.append(self._events.get(timeout=min(max(0.0, until - time.monotonic()), 3600.0)))
            while True:
                events.append(self._events.get_nowait())
        now = time.monotonic()
        for key in [key for key, (when, _) in self.deadlines.items() if when <= now]:
            self.deadlines.pop(key)[1]()
        return events

    def await_calls(self, seconds: float) -> None:
        """Wait until Ray has reported the end of every call, so that it calls nothing later on; no longer than that."""
        limit = time.monotonic() + seconds
        while self._calls and time.monotonic() < limit:
            time.sleep(0.01)
