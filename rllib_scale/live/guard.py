"""A rule that guards a policy on a live cluster or in a router: it takes over once the policy has fallen behind it.

The rule plays a shadow of the cluster in virtual time. Events of the cluster occur there, too, at the same times and in
the same order: workflows arrive and are given up, servers come and go, outputs are lost. The ratio of duration to
estimate (demand / speed, and transfer) of each attempt is that of the real attempt, and it fails if that failed; while
this is not known, the ratio is that of one of the last tasks. An attempt that starts like the real one ends with it, so
that a shadow of the same rule is identical. Both sides sum the time that workflows spend in the system, current ones up
to now, so that a policy that starves some also falls behind. Over one stretch of time the ratio of the sums is that of
the mean stays.

The shadow takes about as much time of the deciding process as the rule's decisions would; it keeps current work only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.config.schedulers import HEURISTICS
from rllib_scale.errors import UserError
from rllib_scale.live.comparison import OVER, STEPS, Comparison, Durations, is_same
from rllib_scale.live.flows import Flow, ended_alone
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.simulator.rehearsal import rehearse

if TYPE_CHECKING:  # a router has no Ray
    from rllib_scale.live.backend import RayBackend

LOG = logging.getLogger(__name__)


class Guard(NamedTuple):
    """The rule that takes over for good, and when; see `live.requests.GuardSettings` for that of a router."""

    scheduler: str | Path | Policy = "fastest-idle"
    margin: float = 0.1  # once workflows stay longer by more than this share than they would with it
    window: int = 50  # number of arrivals, or of ends, in a comparison

    def rule(self, env: EnvConfig) -> Policy:
        """The rule as a player.

        Raises:
            UserError: it does not exist, does not fit the servers or plans ahead; or a number is out of range.
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


def rehearse_all(policy: Policy, env: EnvConfig, guard: Guard | None) -> Guard | None:
    """Rehearse all who may decide before the clock of a cluster starts; returns the guard with its rule made.

    Args:
        policy: has to be `reset` afterwards.
        env: the problem, before the policy has changed it.
        guard: of the policy.
    """
    rehearse(policy, policy.problem(env))
    if guard is None:
        return None
    rule = guard.rule(env)
    rehearse(rule, rule.problem(env))
    return guard._replace(scheduler=rule)


def play_guarded(
    policy: Policy,
    backend: RayBackend,
    env: EnvConfig,
    guard: Guard | None,
    say: Callable[[str], None] = LOG.warning,
    seed: int = 0,
) -> str:
    """Let a policy decide as `EventEngine.play` does, until its guard takes over, where it has one.

    Args:
        policy: was `reset` for one environment.
        backend: the cluster.
        env: the problem, before the policy has changed it.
        guard: who takes over, and when.
        say: receives a line when it does.
        seed: seed of the rule's draws.

    Returns:
        The same line, or one that says how much the guard has seen; empty without one.
    """
    engine = backend.engine
    if guard is None:
        engine.play(policy, backend.more)
        return ""
    rule = guard.rule(env)
    shadow = _Shadow(rule, rule.problem(env), guard, backend, seed)
    comparison = backend.comparison = shadow.comparison
    backend.tell, backend.guard = shadow.told, "watching"
    engine.begin(policy.per_task, backend.more)
    while not shadow.is_ahead(backend.now):
        if engine.done[0]:
            return comparison.seen(rule, policy, engine.next_number)
        policy.advance(engine)
    line = comparison.said(rule, policy, backend.now)
    say(line)
    backend.tell, backend.guard = (lambda what, about, now: None), "took over"
    engine.change_problem(rule.problem(env))
    engine.play(rule, backend.more)  # it knows what it has learned in the shadow
    return line


class _Shadow:
    """The cluster under the rule: an engine whose clock follows that of the live one.

    Args:
        rule: its scheduler.
        env: the problem as the rule plays it.
        guard: margin and window.
        live: the cluster, the source of events.
        seed: seed of the rule's draws.
    """

    def __init__(self, rule: Policy, env: EnvConfig, guard: Guard, live: RayBackend, seed: int) -> None:
        self._rule, self._live = rule, live
        self.comparison, self._durations = Comparison(guard.margin, guard.window), Durations(guard.window)
        self._engine, self._until = EventEngine(env, keeps_ended=False), 0.0
        self._flows: dict[int, Flow] = {}  # that have not ended here, or have not arrived yet
        self._events: deque[tuple[float, str, Any]] = deque()  # pending here, in order
        rule.reset([(seed, 0)])

    def is_ahead(self, now: float) -> bool:
        """Whether the policy has fallen behind, checked once a step."""
        live = self._live.engine
        if not self.comparison.is_due(live.next_number, live.num_ended):
            return False
        self._advance(now)
        return self.comparison.is_behind(live.spent_s(), self._engine.spent_s())

    def told(self, what: str, about: Any, now: float) -> None:
        """See `RayBackend.tell`."""
        if what in OVER:
            self._durations.learn((about.workflow, about.task), about, now, what)
        elif what == "arrive":
            self._flows[about.number] = about
        elif what == "give_up":
            for attempt in about[1]:
                self._durations.learn((attempt.workflow, attempt.task), attempt, now, "cut")
        self._events.append((now, what, about))

    def _advance(self, until: float) -> None:
        """Let the rule decide up to that time."""
        self._until = until
        self._durations.look({(a.workflow, a.task): a for a in self._live.engine.running()}, until)
        self._engine.play(self._rule, self._more)
        self._engine.advance(until)
        for number in ended_alone(self._flows, self._engine):
            del self._flows[number]
        self._durations.keep(lambda name: name[0] in self._flows)

    def _more(self) -> bool:
        """See `EventEngine.begin`; False: the time of the live cluster is reached."""
        engine = self._engine
        told_s = self._events[0][0] if self._events else np.inf
        if not engine.attempts and not self._live.pending and min(engine.next_release_s, told_s) == np.inf:
            engine.start_any()
        ends = [(self._durations.end_s((a.workflow, a.task), a), a) for a in engine.running()]
        next_s = min([engine.next_release_s, told_s, *(end for end, _ in ends)])
        if next_s > self._until:
            return False
        engine.advance(next_s)
        for end, attempt in ends:
            if end <= engine.now:
                self._end(attempt)
        while self._events and self._events[0][0] <= engine.now:
            _, what, about = self._events.popleft()
            self._happen(what, about)
        return True

    def _end(self, attempt: Attempt) -> None:
        """An attempt here is over, as the real one is or, for all that is known, would be."""
        if self._durations.is_over((attempt.workflow, attempt.task)) == "failed":
            self._engine.failed(attempt)
            return
        self._engine.ended(attempt)
        if not self._engine.is_under_way(attempt.workflow):
            del self._flows[attempt.workflow]

    def _happen(self, what: str, about: Any) -> None:
        """Apply events of the live cluster here; those of work that has ended here are ignored."""
        engine = self._engine
        if what == "arrive":
            engine.arrive(about.number, about.arrival_s, about.demands, about.edges, about.edge_gb)
        elif what == "give_up":
            flow, real = about
            if self._flows.pop(flow.number, None) is not None and engine.is_under_way(flow.number):
                stopping = {each.task for each in real}
                for attempt in engine.give_up(flow.number):
                    if attempt.task not in stopping:  # it does not run there, so no event will report its end
                        engine.stopped(attempt)
        elif what in (*OVER, "stopped"):
            for attempt in [*engine.attempts.values()]:
                if (attempt.workflow, attempt.task) != (about.workflow, about.task):
                    continue
                if what == "stopped" and engine.is_stopping(attempt):
                    engine.stopped(attempt)
                elif what != "stopped" and is_same(attempt, about):
                    self._end(attempt)
        elif what == "lost":
            flow, task = about
            if engine.is_under_way(flow.number) and engine.has_ended(flow.number, task):
                engine.lost(flow.number, task)
        elif what != "round":  # the rule is asked then, too; else a server leaves or joins
            getattr(engine, what)(about)
