"""A rule that guards a policy on a live cluster or in a router: it takes over once the policy has fallen behind it.

The rule plays a shadow of the cluster in virtual time. The same workflows arrive there, the same servers come and go,
and each task takes as many times its estimate (demand / speed, and transfer) as it took in reality, or, while that is
not known, as one of the last tasks took; an attempt that failed counts as long as the one that did not. Both sides sum
up the time that workflows spend in the system, those under way up to now, so that a policy that starves some falls
behind, too. Over one stretch of time the ratio of the sums is that of the mean stays.

The shadow takes as much time of the deciding process, about, as the rule's own decisions would; it keeps only what is
under way.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.config.schedulers import HEURISTICS
from rllib_scale.errors import UserError
from rllib_scale.live.flows import Flow, ended_alone
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.event_engine import Attempt, EventEngine

if TYPE_CHECKING:  # a router has no Ray
    from rllib_scale.live.backend import RayBackend

LOG = logging.getLogger(__name__)
STEPS = 10
"""How often the two are compared in a window."""


class Guard(NamedTuple):
    """Which rule takes over, for good, and when; see `live.routing.GuardSettings` for that of a router."""

    scheduler: str | Path | Policy = "fastest-idle"
    margin: float = 0.1  # once workflows stay longer by more than this share than they would with it
    window: int = 50  # over so many workflows that arrive, or that end

    def rule(self, env: EnvConfig) -> Policy:
        """What takes over.

        Raises:
            UserError: there is none, it does not fit the servers or plans ahead, or a number is out of range.
        """
        if not self.margin >= 0 or self.window < STEPS:
            raise UserError(f"guard: margin {self.margin:g}, window {self.window}; valid: from 0, from {STEPS}")
        given = self.scheduler
        found = make_policy(str(given), env, key="guard") if isinstance(given, str | Path) else given
        known = HEURISTICS.get(found.name.partition(":")[0], found)
        if known.plans:
            raise UserError(f"guard {found.name}: plans ahead, and cannot take over what is under way; choose another")
        found.problem(env)
        return found


class Comparison:
    """Whether a policy has fallen behind the rule of its guard.

    Args:
        margin: by which share workflows may stay longer.
        window: so many arrive or end between the two times that are compared.

    Attributes:
        ratio: of the stays in the last window, the policy's over the rule's.
    """

    def __init__(self, margin: float, window: int) -> None:
        self._margin, self._window = margin, window
        self._looked = -window, 0  # workflows that had arrived and had ended at the last step
        self._spent: deque[tuple[float, float]] = deque(maxlen=STEPS + 1)  # on both sides, step by step [s]
        self.ratio = 1.0

    def is_due(self, arrived: int, ended: int) -> bool:
        """Whether a step is to be taken, by the workflows that have arrived and ended with the policy."""
        if max(arrived - self._looked[0], ended - self._looked[1]) < self._window / STEPS:
            return False
        self._looked = arrived, ended
        return True

    def is_behind(self, ours_s: float, theirs_s: float) -> bool:
        """Take a step; the arguments are the time that workflows have been there, by the policy and by the rule [s]."""
        self._spent.append((ours_s, theirs_s))
        ours, theirs = np.subtract(self._spent[-1], self._spent[0])
        if len(self._spent) > STEPS and theirs > 0:
            self.ratio = float(ours / theirs)
        return self.ratio > 1 + self._margin

    def said(self, rule: Policy, policy: Policy, now_s: float, what: str = "workflows") -> str:
        """The line for a log."""
        return (
            f"{rule.name} takes over from {policy.name} after {now_s:.1f} s: {self._window} {what} stayed "
            f"{self.ratio:.2f} times as long as they would have with it"
        )


class Durations:
    """How long what really runs takes, by its name, in times of its estimate; for a shadow of it.

    What has not really ended takes as many times its estimate as one of the last that have, or twice as long as it has
    really taken by now.
    """

    def __init__(self, window: int) -> None:
        self._took: dict[Hashable, float] = {}
        self._recent: deque[float] = deque([1.0], maxlen=window)
        self._random = np.random.default_rng(0)
        self.so_far: dict[Hashable, float] = {}  # of what really runs

    def learn(self, name: Hashable, times: float, is_needed: bool) -> None:
        """It has really ended; `is_needed`: not yet in the shadow."""
        self._recent.append(times)
        if is_needed:
            self._took[name] = times

    def end_s(self, name: Hashable, attempt: Attempt) -> float:
        """When an attempt of the shadow ends, as far as that is known [s]."""
        if name not in self._took:
            self._took[name] = self._recent[self._random.integers(len(self._recent))]
        took, so_far = self._took[name], self.so_far.get(name, 0.0)
        if took <= so_far:  # it really runs longer than was thought
            took = 2 * so_far
        return attempt.start_s + attempt.expected_s * took

    def keep(self, is_there: Callable[[Any], bool]) -> None:
        """Forget all but these names."""
        self._took = {name: took for name, took in self._took.items() if is_there(name)}


def play_guarded(
    policy: Policy,
    backend: RayBackend,
    env: EnvConfig,
    guard: Guard | None,
    say: Callable[[str], None] = LOG.warning,
) -> None:
    """Let a policy decide as `EventEngine.play` does, until its guard takes over, where it has one.

    Args:
        policy: was `reset` for one environment.
        backend: the cluster.
        env: the problem, before the policy has changed it.
        guard: who takes over, and when.
        say: receives a line when it does.
    """
    engine = backend.engine
    if guard is None:
        engine.play(policy, backend.more)
        return
    rule = guard.rule(env)
    shadow = _Shadow(rule, rule.problem(env), guard, backend)
    backend.tell, backend.guard = shadow.told, "watching"
    engine.begin(policy.per_task, backend.more)
    while not shadow.is_ahead(backend.now):
        if engine.done[0]:
            return
        policy.advance(engine)
    say(shadow.comparison.said(rule, policy, backend.now))
    backend.tell, backend.guard = (lambda what, about, now: None), "took over"
    engine.change_problem(rule.problem(env))
    engine.play(rule, backend.more)  # it knows what it has learned in the shadow


class _Shadow:
    """The cluster as it would be under the rule: an engine whose time runs up to that of the live one.

    Args:
        rule: decides in it.
        env: the problem as the rule plays it.
        guard: margin and window.
        live: the cluster, which tells what happens there.
    """

    def __init__(self, rule: Policy, env: EnvConfig, guard: Guard, live: RayBackend) -> None:
        self._rule, self._live = rule, live
        self.comparison, self._durations = Comparison(guard.margin, guard.window), Durations(guard.window)
        self._engine, self._until = EventEngine(env, keeps_ended=False), 0.0
        self._flows: dict[int, Flow] = {}  # that have not ended here
        self._pending: deque[Flow] = deque()  # of those, which are to arrive, in order
        rule.reset([(0, 0)])
        for _, number in sorted(live.pending):
            self.told("expect", live.flows[number], 0.0)

    def is_ahead(self, now: float) -> bool:
        """Whether the policy has fallen behind; looked at once a step."""
        live = self._live.engine
        if not self.comparison.is_due(live.next_number, live.num_ended):
            return False
        self._advance(now)
        return self.comparison.is_behind(live.spent_s(), self._engine.spent_s())

    def told(self, what: str, about: Any, now: float) -> None:
        """See `RayBackend.tell`."""
        if what == "expect":
            self._flows[about.number] = about
            self._pending.append(about)
        elif what == "end":
            flow, attempt = about
            self._learn(flow, attempt, now)
        elif what == "drop":
            self._advance(now)
            if self._flows.pop(about.number, None) is not None and self._engine.is_under_way(about.number):
                for attempt in self._engine.give_up(about.number):
                    self._engine.stopped(attempt)
            self._pending = deque(flow for flow in self._pending if flow is not about)
        else:  # a server leaves or joins
            self._advance(now)
            getattr(self._engine, what)(about)

    def _learn(self, flow: Flow, attempt: Attempt, now: float) -> None:
        """How long a task took that has really ended."""
        name, took = (attempt.workflow, attempt.task), (1 + flow.attempts[attempt.task]) * times_of(attempt, now)
        has_ended = self._engine.is_under_way(flow.number) and self._engine.has_ended(*name)
        self._durations.learn(name, took, flow.number in self._flows and not has_ended)

    def _advance(self, until: float) -> None:
        """Let the rule decide up to that time."""
        self._until = until
        self._durations.so_far = {(a.workflow, a.task): times_of(a, until) for a in self._live.engine.running()}
        self._engine.play(self._rule, self._more)
        self._engine.advance(until)
        for number in ended_alone(self._flows, self._engine):
            del self._flows[number]
        self._durations.keep(lambda name: name[0] in self._flows)

    def _more(self) -> bool:
        """See `EventEngine.begin`; False: the time of the live cluster is reached."""
        engine = self._engine
        arrival_s = self._pending[0].arrival_s if self._pending else np.inf
        if not engine.attempts and min(engine.next_release_s, arrival_s) == np.inf:
            engine.start_any()
        ends = [(self._durations.end_s((each.workflow, each.task), each), each) for each in engine.running()]
        next_s = min([engine.next_release_s, arrival_s, *(end for end, _ in ends)])
        if next_s > self._until:
            return False
        engine.advance(next_s)
        for end, attempt in ends:
            if end <= engine.now:
                engine.ended(attempt)
                if not engine.is_under_way(attempt.workflow):
                    del self._flows[attempt.workflow]
        while self._pending and self._pending[0].arrival_s <= engine.now:
            flow = self._pending.popleft()
            engine.arrive(flow.number, flow.arrival_s, flow.demands, flow.edges, flow.edge_gb)
        return True


def times_of(attempt: Attempt, now: float) -> float:
    """How many times its estimate an attempt has taken by now."""
    return (now - attempt.start_s) / attempt.expected_s
