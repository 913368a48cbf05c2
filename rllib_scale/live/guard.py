"""A rule that guards a policy on a live cluster: it takes over once the policy has fallen behind it.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.config.schedulers import HEURISTICS
from rllib_scale.errors import UserError
from rllib_scale.live.backend import RayBackend
from rllib_scale.live.flows import Flow
from rllib_scale.live.ledger import Attempt, Ledger
from rllib_scale.observation.backend import Answer, BackendBatch, run
from rllib_scale.observation.live_view import LiveView
from rllib_scale.observation.policy import Policy
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.policies.make import make_policy

LOG = logging.getLogger(__name__)
STEPS = 10
"""How often the two are compared in a window."""


class Guard(NamedTuple):
    """Which rule takes over, for good, and when."""

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


def play_guarded(
    policy: Policy,
    backend: RayBackend,
    env: EnvConfig,
    guard: Guard | None,
    say: Callable[[str], None] = LOG.warning,
) -> None:
    """Let a policy decide as `observation.backend.run` does, until its guard takes over, where it has one.

    Args:
        policy: was `reset` for one environment.
        backend: the cluster.
        env: the problem, before the policy has changed it.
        guard: who takes over, and when.
        say: receives a line when it does.
    """
    if guard is None:
        run(policy, backend, policy.problem(env))
        return
    rule, ledger = guard.rule(env), backend.ledger
    shadow = _Shadow(rule, rule.problem(env), guard, ledger)
    ledger.tell = shadow.told
    batch = BackendBatch(backend, policy.problem(env), policy.per_task)
    while not shadow.is_ahead(backend.now):
        if batch.done[0]:
            return
        policy.advance(batch)
    say(
        f"{rule.name} takes over from {policy.name} after {backend.now:.1f} s: {guard.window} workflows stayed "
        f"{shadow.ratio:.2f} times as long as they would have with it"
    )
    ledger.tell, ledger.env = (lambda what, about, now: None), rule.problem(env)
    writer = LiveView()
    writer(ledger.snapshot(backend.now))  # the shadow has counted these arrivals
    run(rule, backend, ledger.env, writer)


class _Shadow:
    """The cluster as it would be under the rule: a backend whose time runs up to that of the live one.

    Args:
        rule: decides in it.
        env: the problem as the rule plays it.
        guard: margin and window.
        live: ledger of the live cluster, which tells what happens there.
    """

    def __init__(self, rule: Policy, env: EnvConfig, guard: Guard, live: Ledger) -> None:
        self._rule, self._env, self._guard, self._live = rule, env, guard, live
        self._ledger, self._writer = Ledger(env, keeps_ended=False), LiveView()
        self._now, self._until = 0.0, 0.0
        self._looked = -guard.window, 0  # workflows that had arrived and had ended at the last step
        self._took: dict[tuple[int, int], float] = {}  # of tasks that have not ended here: times their estimate
        self._so_far: dict[tuple[int, int], float] = {}  # of those that really run
        self._recent: deque[float] = deque([1.0], maxlen=guard.window)
        self._random = np.random.default_rng(0)
        self._spent: deque[tuple[float, float]] = deque(maxlen=STEPS + 1)  # on both sides, step by step [s]
        self.ratio = 1.0  # of the stays in the last window
        rule.reset([(0, 0)])
        for flow in live.pending.values():
            self.told("expect", flow, 0.0)

    def is_ahead(self, now: float) -> bool:
        """Whether the policy has fallen behind; looked at once a step."""
        counts = self._live.num_arrived, self._live.num_ended
        if max(np.subtract(counts, self._looked)) < self._guard.window / STEPS:
            return False
        self._looked = counts
        self._advance(now)
        self._spent.append((self._live.spent_s(now), self._ledger.spent_s(now)))
        ours, theirs = np.subtract(self._spent[-1], self._spent[0])
        if len(self._spent) > STEPS and theirs > 0:
            self.ratio = float(ours / theirs)
        return self.ratio > 1 + self._guard.margin

    def told(self, what: str, about: Any, now: float) -> None:
        """See `Ledger.tell`."""
        if what == "expect":
            demands = (about.compute_gflop, about.memory_gb, about.output_gb, about.delay_s)
            self._ledger.expect(Flow(about.number, about.arrival_s, np.stack(demands, axis=1), about.edges))
        elif what == "end":
            self._learn(about, now)
        elif what == "drop":
            self._advance(now)
            if (flow := self._flow(about.number)) is not None:
                for attempt in self._ledger.drop(flow, now):
                    self._ledger.released(attempt)
        else:  # a server leaves or joins
            self._advance(now)
            getattr(self._ledger, what)(about, now)

    def _learn(self, attempt: Attempt, now: float) -> None:
        """How long a task took that has really ended."""
        flow, task = attempt.flow, attempt.task
        took = (1 + flow.attempts[task]) * _times(attempt, now)
        self._recent.append(took)
        here = self._flow(flow.number)
        if here is not None and not here.completed[task]:
            self._took[flow.number, task] = took

    def _flow(self, number: int) -> Flow | None:
        return self._ledger.flows.get(number, self._ledger.pending.get(number))

    def _end_s(self, attempt: Attempt) -> float:
        """When an attempt ends here, as far as that is known [s]."""
        name = attempt.flow.number, attempt.task
        if name not in self._took:
            self._took[name] = self._recent[self._random.integers(len(self._recent))]
        took, so_far = self._took[name], self._so_far.get(name, 0.0)
        if took <= so_far:  # it really runs longer than was thought
            took = 2 * so_far
        return attempt.start_s + (attempt.transfer_s + attempt.execution_s) * took

    def _advance(self, until: float) -> None:
        self._until = until
        self._so_far = {(a.flow.number, a.task): _times(a, until) for a in self._live.running()}
        run(self._rule, self, self._env, self._writer)
        self._now = until
        self._took = {name: took for name, took in self._took.items() if self._flow(name[0]) is not None}

    # ------------------------------------------------------------------ the protocol

    def wait(self) -> Snapshot | None:
        """See `Backend.wait`; None: the time of the live cluster is reached."""
        ledger = self._ledger
        ledger.close_round()
        if not ledger.runs and ledger.next_timer_s == np.inf:
            ledger.start_any(self._now)
        while True:
            ends = [(self._end_s(attempt), attempt) for attempt in ledger.running()]
            next_s = min([ledger.next_timer_s, *(end for end, _ in ends)])
            if next_s > self._until:
                return None
            self._now = max(self._now, float(next_s))
            for attempt in [attempt for end, attempt in ends if end <= self._now]:
                ledger.complete(attempt, self._now)
            ledger.ring(self._now)
            if ledger.waits:
                return ledger.snapshot(self._now)

    def snapshot(self) -> Snapshot:
        """See `Backend.snapshot`."""
        return self._ledger.snapshot(self._now)

    def apply(self, answer: Answer) -> str:
        """See `Backend.apply`."""
        return self._ledger.answer(*answer, self._now)[0]


def _times(attempt: Attempt, now: float) -> float:
    """How many times its estimate an attempt has taken by now."""
    return (now - attempt.start_s) / (attempt.transfer_s + attempt.execution_s)
