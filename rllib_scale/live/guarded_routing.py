"""A router with a guard: beside it the guard's rule routes the same requests in virtual time; see `live.guard`.

The shadow is a router of its own, with its own sessions: a call is where the rule would have had the call before it.
Places that other handles use are taken in both. It is brought up to the real time with each round, whose events are
few; a round takes as much longer as the rule's own decisions on them would.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rllib_scale.live.guard import Comparison, Durations, times_of
from rllib_scale.live.routing import Demand, GuardSettings, Replica, RouterSettings, Routing
from rllib_scale.observation.policy import Policy
from rllib_scale.simulator.event_engine import Attempt

LOG = logging.getLogger(__name__)


class GuardedRouting(Routing):
    """What Serve's router asks: `Routing`, with the guard that its settings name, if any.

    Args:
        settings: of the router.
        say: receives a line when the guard takes over.

    Raises:
        UserError: as `policy_of`, for the guard too.
    """

    def __init__(self, settings: RouterSettings, say: Callable[[str], None] = LOG.warning) -> None:
        super().__init__(settings)
        self._shadow: _Shadow | None = None
        self._say = say
        if settings.guard is not None:
            self._shadow, self.guard = _Shadow(settings, settings.guard), "watching"

    def arrive(self, key: Hashable, demand: Demand, since_s: float) -> None:
        """See `Routing.arrive`."""
        super().arrive(key, demand, since_s)
        if self._shadow is not None:
            self._shadow.expect(_Expected(self.clock(), self._known[key].number, demand, since_s))

    def leave(self, key: Hashable, how: str = "answered") -> None:
        """See `Routing.leave`."""
        if self._shadow is not None and key in self._known:
            number = self._known[key].number
            if how == "answered":
                self._shadow.learn(number, self._running(), self.clock())
            else:
                self._shadow.forget(number, how, self.clock())
        super().leave(key, how)

    def lost(self, replica: str) -> None:
        """See `Routing.lost`."""
        super().lost(replica)
        if self._shadow is not None:
            self._shadow.advance(self.clock(), self._running())
            self._shadow.lost(replica)

    def round(self, replicas: Sequence[Replica], queued: Mapping[str, int]) -> list[tuple[Hashable, str]]:
        """See `Routing.round`."""
        found = super().round(replicas, queued)
        if self._shadow is not None:
            self._shadow.advance(self.clock(), self._running())
            self._shadow.follow(self._replicas, self._taken)
            self._compare(self._shadow)
        return found

    def _running(self) -> list[Attempt]:
        return [] if self._engine is None else self._engine.running()

    def _compare(self, shadow: _Shadow) -> None:
        """Let the guard take over, with what it has learned, if requests stay longer than with it."""
        ended = self.left.total()
        if not shadow.comparison.is_due(len(self._known) + ended, ended) or self._engine is None:
            return
        if shadow.comparison.is_behind(self.spent_s(), shadow.spent_s()):
            self._say(shadow.comparison.said(shadow.rule, self._policy, self.clock(), "requests"))
            self._shadow, self.guard, self._policy = None, "took over", shadow.rule
            self._engine.change_problem(self._problem())


class _Expected(NamedTuple):
    """A request that has not come yet to the shadow."""

    at_s: float  # when it is known
    number: int
    demand: Demand
    since_s: float  # when it came


class _Shadow(Routing):
    """The requests as the guard's rule would route them; named by their numbers in the real router."""

    def __init__(self, settings: RouterSettings, guard: GuardSettings) -> None:
        self._now = 0.0
        super().__init__(settings.model_copy(update={"scheduler": guard.scheduler, "guard": None}))
        self.comparison, self._durations = Comparison(guard.margin, guard.window), Durations(guard.window)
        self._pending: deque[_Expected] = deque()

    @property
    def rule(self) -> Policy:
        """What decides here."""
        return self._policy

    def clock(self) -> float:
        """Up to where it is played [s]."""
        return self._now

    def expect(self, request: _Expected) -> None:
        """A request has come."""
        self._pending.append(request)

    def learn(self, number: int, running: Sequence[Attempt], now_s: float) -> None:
        """A request was really answered."""
        for attempt in running:
            if attempt.workflow == number:
                is_needed = number in self._known or any(number == each.number for each in self._pending)
                self._durations.learn(number, times_of(attempt, now_s), is_needed)

    def forget(self, number: int, how: str, now_s: float) -> None:
        """A request was really given up, perhaps before a round that it could have started in."""
        self._pending = deque(request for request in self._pending if request.number != number)
        self.advance(now_s, ())
        self.leave(number, how)

    def follow(self, replicas: list[Replica], taken: Mapping[str, int]) -> None:
        """These replicas are there from now on, each with so many requests of others."""
        if replicas != self._replicas or taken != self._taken:
            self._start(replicas, taken)

    def advance(self, until_s: float, running: Sequence[Attempt]) -> None:
        """Let the rule decide up to that time; `running`: what really runs."""
        if running:
            self._durations.so_far = {attempt.workflow: times_of(attempt, until_s) for attempt in running}
        while True:
            attempts = self._engine.running() if self._engine is not None else []
            own = [each for each in attempts if each.workflow in self._keys]
            ends = [(self._durations.end_s(self._keys[each.workflow], each), each) for each in own]
            next_s = min([self._pending[0].at_s if self._pending else np.inf, *(end for end, _ in ends)])
            if next_s > until_s:
                break
            self._now = max(self._now, next_s)
            for end, attempt in ends:
                if end <= self._now:
                    self.leave(self._keys[attempt.workflow])
            while self._pending and self._pending[0].at_s <= self._now:
                request = self._pending.popleft()
                self.arrive(request.number, request.demand, request.since_s)
            self._start(self._replicas, self._taken)
        self._now = max(self._now, until_s)
        self._durations.keep(self._known.__contains__)

    def _start(self, replicas: list[Replica], taken: Mapping[str, int]) -> None:
        for number, replica in self._decide(replicas, taken):
            if (session := self._known[number].demand.session) is not None:
                self.ran(session, replica)
