"""Where decisions come from and go to: a simulated cluster or a live one, and either as a batch of one."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import CLOSED, OPEN
from rllib_scale.observation.live_view import LiveView
from rllib_scale.observation.observe import fit_of, observe, opened
from rllib_scale.observation.policy import Policy
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.observation.view import View
from rllib_scale.workloads.fitting import fits


class Answer(NamedTuple):
    """What is to become of a task that waits, or of a task that runs."""

    workflow: int
    task: int  # index in the workflow
    server: int  # on which it starts, or which it waits for; PASS or STOP of observation.answers


class Backend(Protocol):
    """A cluster that is scheduled in decision rounds: wait until a task waits, answer for some tasks, wait again."""

    def wait(self) -> Snapshot | None:
        """End the round, if one is open, and let time pass until a task waits; None: nothing will any more."""

    def snapshot(self) -> Snapshot:
        """The state now, within a round."""

    def apply(self, answer: Answer) -> str:
        """Carry out an answer now; what comes of it is one of observation.answers.OUTCOMES.

        An answer that cannot be carried out (`busy`, `no_fit`) changes nothing.

        Raises:
            ValueError: no such task waits; or, where it is to be stopped, runs.
        """


class BackendBatch:
    """A backend as a batch of one environment; see `observation.policy.Batch`.

    A policy that decides task by task is offered the tasks of a round one after another. The schedule is that of
    `Engine.step` with `on_busy: reserve`, and with `on_busy: step` where no decision is invalid (a named order under
    `mask: feasible`), but for `max_decisions` and `idle_advance: clock-step`, which are not looked at. Where decisions
    are invalid it is another: there each costs `clock_step_s`, here the first task waits for the next event, and those
    behind it with it, for outside of a simulation nobody stops the clock.

    Args:
        backend: the cluster.
        env: the problem as the policy plays it: its decisions, mask, observation and communication.
        per_task: whether the policy decides task by task.
        writer: of the view; one that is given keeps its account over several batches of the same policy.
    """

    def __init__(self, backend: Backend, env: EnvConfig, per_task: bool, writer: LiveView | None = None) -> None:
        self._backend, self._env, self._per_task = backend, env, per_task
        self._writer = writer or LiveView(env.information.workflows == "revealed")
        self._answered: set[tuple[int, int]] = set()  # in this round, and waits still
        self._now: Snapshot
        self.done, self.fit = np.zeros(1, dtype=bool), np.zeros((1, 0, 0), dtype=np.uint8)
        self._end_round()

    @property
    def observation(self) -> np.ndarray:
        """(1, W)."""
        return observe(self._now, self._env)[None]

    def view(self) -> View:
        """See `Batch.view`."""
        return self._writer(self._now)

    def snapshot(self, b: int = 0) -> Snapshot:
        """See `Batch.snapshot`."""
        return self._now

    def step(self, actions: np.ndarray) -> None:
        """See `Batch.step`."""
        server, reserves = int(actions[0]), self._env.decision.on_busy == "reserve"
        how, task = self.fit[0, 0, server], self._now.ready[self._now.candidates[0]]
        name = int(task["workflow"]), int(task["task"])
        if how == OPEN or (how != CLOSED and reserves):
            self._backend.apply(Answer(*name, server))
        elif not reserves:
            self._end_round()
            return
        if how != OPEN:
            self._answered.add(name)
        if not self._offer(self._backend.snapshot()):
            self._end_round()

    def dispatch(self, starts: np.ndarray) -> None:
        """See `Batch.dispatch`."""
        for answer in starts[:, 1:].tolist():
            self._backend.apply(Answer(*answer))
        self._end_round()

    def _end_round(self) -> None:
        """Let time pass until something can be decided."""
        self._answered.clear()
        while (now := self._backend.wait()) is not None:
            self._now = now
            if not self._per_task or self._offer(now):
                return
        self.done[0] = True

    def _offer(self, now: Snapshot) -> bool:
        """Offer the first tasks of the round that are left; whether a decision can change anything."""
        decision, filtered, is_open = self._env.decision, self._env.offers_startable, opened(now)
        reserves = decision.on_busy == "reserve"
        left = np.array([name not in self._answered for name in now.ready[["workflow", "task"]].tolist()], dtype=bool)
        if reserves and filtered:  # left out where no server is open for it
            left &= fits(now.ready["memory_gb"], now.free_memory_gb[is_open].max(initial=-1.0))
        self._now = replace(now, candidates=np.flatnonzero(left)[: decision.offered])
        self.fit = fit_of(self._now, self._env)[None]
        if not left.any():
            return False
        if filtered:
            return bool((self.fit == OPEN).any())
        return bool(is_open.any()) or (reserves and decision.preemption != "none" and len(now.running) > 0)


def run(policy: Policy, backend: Backend, env: EnvConfig, writer: LiveView | None = None) -> None:
    """Let a policy decide on a backend until nothing waits any more; it was `reset` for one environment.

    Args:
        policy: decides.
        backend: the cluster.
        env: the problem as the policy plays it (`Policy.problem`).
        writer: as for `BackendBatch`.
    """
    batch = BackendBatch(backend, env, policy.per_task, writer)
    while not batch.done[0]:
        policy.advance(batch)
