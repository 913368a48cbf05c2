"""A router with a guard, whose rule routes the same requests in virtual time; see `live.guard`.

The shadow is a second router with its own sessions: the context of a call is where the rule would have had the call
before it. Places that other handles use are taken in both. Each round advances it to the real time; this takes as long
as the rule's decisions on the few events of a round.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from rllib_scale.live.comparison import Comparison, Durations, is_same
from rllib_scale.live.requests import Demand, GuardSettings, LastCall, Replica, RouterSettings
from rllib_scale.live.routing import Routing
from rllib_scale.observation.policy import Policy
from rllib_scale.simulator.outside_state import Attempt

LOG = logging.getLogger(__name__)


class GuardedRouting(Routing):
    """`Routing` with the guard that its settings name, if any.

    Args:
        settings: settings of the router.
        say: receives a line when the guard takes over.

    Raises:
        UserError: see `policy_of`; also for the guard.
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
            self._shadow.expect(self.clock(), "arrive", self._known[key].number, demand, since_s)

    def leave(self, key: Hashable, how: str = "answered") -> None:
        """See `Routing.leave`."""
        if self._shadow is not None and key in self._known:
            self._shadow.learn(self._known[key].number, self._running(), how, self.clock())
        super().leave(key, how)

    def restore(self, last: LastCall, at_s: float) -> None:
        """See `Routing.restore`."""
        super().restore(last, at_s)
        if self._shadow is not None:
            self._shadow.expect(self.clock(), "restore", last, at_s)

    def start(self, key: Hashable, replica: str, start_s: float) -> None:
        """See `Routing.start`."""
        super().start(key, replica, start_s)
        if self._shadow is not None:
            self._shadow.expect(self.clock(), "start", self._known[key].number, replica, start_s)

    def lost(self, replica: str) -> None:
        """See `Routing.lost`."""
        super().lost(replica)
        if self._shadow is not None:
            self._shadow.expect(self.clock(), "lost", replica)

    def round(self, replicas: Sequence[Replica], queued: Mapping[str, int]) -> list[tuple[Hashable, str]]:
        """See `Routing.round`."""
        found = super().round(replicas, queued)
        if self._shadow is not None:
            self._shadow.expect(self.decided_s, "decide", self._replicas, self._taken)
            self._shadow.advance(self.clock(), self._running())
            self._compare(self._shadow)
        return found

    def _compare(self, shadow: _Shadow) -> None:
        """Let the guard take over, with what it has learned, if requests stay longer than with it."""
        ended = self.left.total()
        if not shadow.comparison.is_due(len(self._known) + ended, ended) or self._engine is None:
            return
        is_behind, self.guard_ratio = (
            shadow.comparison.is_behind(self.spent_s(), shadow.spent_s()),
            shadow.comparison.ratio,
        )
        if is_behind:
            self._say(shadow.comparison.said(shadow.rule, self._policy, self.clock(), "requests"))
            self._shadow, self.guard, self._policy = None, "took over", shadow.rule
            self._engine.change_problem(self._problem())


class _Shadow(Routing):
    """The requests as the guard's rule would route them; named by their numbers in the real router."""

    def __init__(self, settings: RouterSettings, guard: GuardSettings) -> None:
        self._now = 0.0
        super().__init__(settings.model_copy(update={"scheduler": guard.scheduler, "guard": None}))
        self.comparison, self._durations = Comparison(guard.margin, guard.window), Durations(guard.window)
        self._events: deque[tuple[float, str, tuple[Any, ...]]] = deque()  # that are to happen here, in order

    @property
    def rule(self) -> Policy:
        """The scheduler that decides here."""
        return self._policy

    def clock(self) -> float:
        """Up to where it is played [s]."""
        return self._now

    def expect(self, at_s: float, what: str, *about: Any) -> None:
        """Something has happened to the real router: a method of this one, and its arguments."""
        self._events.append((at_s, what, about))

    def learn(self, number: int, running: Sequence[Attempt], how: str, now_s: float) -> None:
        """A request has really left: an answered one ends here when its time has come, any other leaves here, too."""
        for attempt in running:
            if attempt.workflow == number:
                self._durations.learn(number, attempt, now_s, "ended" if how == "answered" else "cut")
                if how == "answered":
                    self.expect(now_s, "end", number, attempt)
        if how != "answered":
            self.expect(now_s, "leave", number, how)

    def end(self, number: int, real: Attempt) -> None:
        """A request was really answered; so it is here, if it began here at the same time."""
        for attempt in self._running():
            if self._keys.get(attempt.workflow) == number and is_same(attempt, real):
                self.leave(number)

    def advance(self, until_s: float, running: Sequence[Attempt]) -> None:
        """Let the rule decide up to that time; `running`: what really runs."""
        self._durations.look({attempt.workflow: attempt for attempt in running}, until_s)
        ends = self._ends()
        while True:
            next_s = min([self._events[0][0] if self._events else np.inf, *(end for end, _ in ends)])
            if next_s > until_s:
                break
            self._now = max(self._now, next_s)
            over, has_started = [name for end, name in ends if end <= self._now and name in self._known], False
            ends = [each for each in ends if each[0] > self._now]
            for name in over:
                self.leave(name)
            if over:  # in reality a round followed each end; of those that are the same it is among the events
                has_started |= self.decide(self._replicas, self._taken)
            while self._events and self._events[0][0] <= self._now:
                _, what, about = self._events.popleft()
                has_started |= bool(getattr(self, what)(*about))
            if has_started:  # what left by an event is still among the ends, and is left out above
                ends = self._ends()
        self._now = max(self._now, until_s)
        self._durations.keep(self._known.__contains__)

    def _ends(self) -> list[tuple[float, Hashable]]:
        """When each request that runs here leaves, as far as that is known, and its number."""
        own = [(self._keys[each.workflow], each) for each in self._running() if each.workflow in self._keys]
        return [(self._durations.end_s(name, attempt), name) for name, attempt in own]

    def decide(self, replicas: list[Replica], taken: Mapping[str, int]) -> bool:
        """A round with replicas, each with its number of requests of other handles; returns whether any starts."""
        return bool(self._decide(replicas, taken))
