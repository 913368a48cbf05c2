"""Routing of the requests of all handles of a deployment with one state. It knows no Ray.

A handle registers with a report of its requests and sessions, then sends numbered messages of events. If a message is
missing or the handle is not registered, it must register again, and its new report replaces the former one. So messages
that are lost, repeated or out of order cannot corrupt the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from rllib_scale.live.guarded_routing import GuardedRouting
from rllib_scale.live.holding import HoldingRouter, check_used, is_for_replicas
from rllib_scale.live.requests import Call, LastCall, Replica, RouterSettings
from rllib_scale.live.stats import LiveStats

REPORTS_S = 1.0
"""A restarted state waits this long for the reports of the other handles before it decides."""
SILENT_S = 10.0
"""A handle that has sent nothing for this long is dead; its requests are dropped."""


class Report(NamedTuple):
    """State of a handle."""

    replicas: list[Replica]
    calls: list[Call]
    sessions: list[LastCall]
    is_restart: bool  # whether the handle was registered before, so that other handles may report, too
    fallbacks: int = 0  # requests that the handle has routed by itself so far


class Decision(NamedTuple):
    """On a request: it starts on a replica, or fails."""

    number: int
    replica: str | None
    error: Exception | None = None


class _Handle:
    """A registered handle."""

    def __init__(self, report: Report, now_s: float) -> None:
        self.report: Report | None = report  # None: merged into the state
        self.at_s = self.heard_s = now_s
        self.messages = 0
        self.events: list[tuple[float, tuple[Any, ...]]] = []  # not yet applied
        self.calls = set[int]()
        self.decisions: list[Decision] = []  # not yet delivered


def routing_of(settings: RouterSettings) -> GuardedRouting | HoldingRouter:
    """The routing of a scheduler.

    Raises:
        UserError: a setting does not fit the scheduler.
    """
    check_used(settings, settings)
    return HoldingRouter(settings) if is_for_replicas(settings) else GuardedRouting(settings)


class SharedRouting:
    """Routes the requests of all registered handles.

    Args:
        settings: of the router.

    Raises:
        UserError: as `routing_of`.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self._routing = routing_of(settings)
        self._handles: dict[str, _Handle] = {}
        self._replicas: list[Replica] = []
        self._first_s = self._opens_s = math.inf  # of the first report; from when on it decides
        self._fallbacks: dict[str, int] = {}  # of each handle that was ever registered

    # ------------------------------------------------------------------ messages of handles

    def register(self, handle: str, report: Report) -> None:
        """Replace all that is known of a handle by its report."""
        now = self._routing.clock()
        self.remove(handle, "again")
        self._handles[handle] = _Handle(report, now)
        self._fallbacks[handle] = report.fallbacks
        self._first_s = min(self._first_s, now)
        self._opens_s = self._first_s + REPORTS_S if report.is_restart else min(self._opens_s, now)

    def receive(self, handle: str, number: int, events: Iterable[tuple[Any, ...]]) -> bool:
        """Apply the events of a message; returns False if the handle must register again.

        Args:
            handle: that sent it.
            number: of the message, since the report.
            events: each a name in `_EVENTS` and its arguments.
        """
        sender = self._handles.get(handle)
        if sender is None or number > sender.messages:
            return False
        now = sender.heard_s = self._routing.clock()
        if number == sender.messages:  # a repeated message is ignored
            sender.messages += 1
            sender.events += [(now, event) for event in events]
            self._apply()
        return True

    def is_registered(self, handle: str) -> bool:
        """Whether a handle is known; notes that it is alive."""
        sender = self._handles.get(handle)
        if sender is not None:
            sender.heard_s = self._routing.clock()
        return sender is not None

    def pop_decisions(self, handle: str) -> list[Decision]:
        """Decisions on a handle's requests that it has not received yet."""
        receiver = self._handles.get(handle)
        if receiver is None:
            return []
        found, receiver.decisions = receiver.decisions, []
        return found

    def remove(self, handle: str, how: str = "dropped") -> None:
        """Remove a handle, if it is registered, and its requests; `how`: see `Routing.leave`."""
        removed = self._handles.pop(handle, None)
        if removed is not None:
            for number in removed.calls:
                self._routing.leave((handle, number), how)

    def remove_dead(self) -> None:
        """Remove the handles that have been silent for SILENT_S."""
        now = self._routing.clock()
        for name in [name for name, handle in self._handles.items() if now - handle.heard_s > SILENT_S]:
            self.remove(name)

    # ------------------------------------------------------------------ decisions

    @property
    def num_handles(self) -> int:
        """Registered handles."""
        return len(self._handles)

    @property
    def has_waiting(self) -> bool:
        """Whether requests wait, or reports have not been merged yet."""
        return self._routing.waiting > 0 or any(handle.report is not None for handle in self._handles.values())

    def others_on(self) -> set[str]:
        """See `Routing.others_on`."""
        return self._routing.others_on()

    def stats(self) -> LiveStats:
        """See `Routing.stats`."""
        return self._routing.stats()._replace(fallbacks=sum(self._fallbacks.values()))

    def decide(self, queued: Mapping[str, int]) -> set[str]:
        """A round of decisions; returns the handles with decisions to receive.

        Args:
            queued: requests that each replica is known to have, those of handles that are not registered included.
        """
        if not self._apply():
            return set()
        try:
            for key, replica in self._routing.round(self._replicas, queued):
                self._deliver(key, replica)
            for key, wrong in self._routing.too_large():
                self._deliver(key, None, wrong)
        except Exception as error:  # otherwise lost: each waiting request fails with it
            for key in [(name, number) for name, handle in self._handles.items() for number in handle.calls]:
                if self._routing.replica_of(key) is None:
                    self._deliver(key, None, error)
        return {name for name, handle in self._handles.items() if handle.decisions}

    def _deliver(self, key: Any, replica: str | None, error: Exception | None = None) -> None:
        name, number = key
        self._handles[name].decisions.append(Decision(number, replica, error))
        if replica is None:
            self._handles[name].calls.discard(number)
            self._routing.leave(key, "dropped")

    def _apply(self) -> bool:
        """Apply reports and events in order; returns False while the state still waits for reports."""
        if self._routing.clock() < self._opens_s:
            return False
        self._merge_reports()
        for name, handle in self._handles.items():
            for at_s, (event, *arguments) in handle.events:
                self._EVENTS[event](self, name, at_s, *arguments)
            handle.events.clear()
        return True

    def _merge_reports(self) -> None:
        """Apply new reports: first the latest record of each session, then requests in order of arrival."""
        new = [(name, handle, handle.report) for name, handle in self._handles.items() if handle.report is not None]
        if not new:
            return
        sessions, calls = list[tuple[float, LastCall]](), list[tuple[float, str, float, Call]]()
        for name, handle, report in new:
            self._replicas = report.replicas or self._replicas
            sessions += [(handle.at_s - last.silent_s, last) for last in report.sessions]
            calls += [(handle.at_s - call.age_s, name, handle.at_s, call) for call in report.calls]
            handle.report = None
        latest = {last.session: (at_s, last) for at_s, last in sorted(sessions, key=lambda each: each[0])}
        for at_s, last in sorted(latest.values(), key=lambda each: each[0]):
            self._routing.restore(last, at_s)
        for _, name, at_s, call in sorted(calls, key=lambda each: each[0]):
            self._arrive(name, at_s, call)

    def _arrive(self, name: str, at_s: float, call: Call) -> None:
        key = (name, call.number)
        self._handles[name].calls.add(call.number)
        self._routing.arrive(key, call.demand, at_s - call.age_s)
        if call.replica is not None:
            self._routing.start(key, call.replica, at_s - call.runs_s)

    def _leave(self, name: str, at_s: float, number: int, how: str) -> None:
        self._handles[name].calls.discard(number)
        self._routing.leave((name, number), how)

    def _lost(self, name: str, at_s: float, replica: str) -> None:
        self._routing.lost(replica)

    def _reject(self, name: str, at_s: float) -> None:
        self._routing.left["rejected"] += 1

    def _set_replicas(self, name: str, at_s: float, replicas: list[Replica]) -> None:
        self._replicas = replicas

    _EVENTS: ClassVar[Mapping[str, Callable[..., None]]] = {
        "arrive": _arrive,
        "leave": _leave,
        "lost": _lost,
        "reject": _reject,
        "replicas": _set_replicas,
    }
