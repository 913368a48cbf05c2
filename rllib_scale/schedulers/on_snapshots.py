"""A scheduler, which names servers task by task, as a dispatcher: it decides from snapshots alone, on any backend."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import CLOSED, OPEN
from rllib_scale.observation.observe import fit_of, observe, opened, transfer_s
from rllib_scale.observation.snapshot import BUSY, Snapshot
from rllib_scale.schedulers.base import Scheduler
from rllib_scale.schedulers.dispatcher import Dispatcher


class OnSnapshots(Dispatcher):
    """Plays a rule or a trained policy in rounds: at each event its tasks are shown one after another.

    What the answers of a round change is worked out here, so that a backend is asked once an event. The schedule is
    that of `Engine.step` with `on_busy: reserve`, and with `on_busy: step` where no decision is invalid (a named order
    under `mask: feasible`), but for `max_decisions` and `idle_advance: clock-step`, which are not looked at. Where
    decisions are invalid it is another: there each costs `clock_step_s`, here the first task waits for the next event,
    and those behind it with it, for outside of a simulation nobody stops the clock.

    Args:
        scheduler: a rule or a trained policy; it is shown the features it was made for.
        env: the problem: its decisions, mask and communication; of its cluster powers and slowdowns.
    """

    def __init__(self, scheduler: Scheduler, env: EnvConfig) -> None:
        self.name, self.description = scheduler.name, scheduler.description
        self.scheduler = scheduler
        self.env = scheduler.problem(env)
        self._slowdown = [t.slot_slowdown for t in env.cluster.tiers for _ in range(t.count * t.slots)]
        self.reset([(0, 0)])

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Dispatcher.reset`; each environment has a scheduler of its own, with its state and draws."""
        super().reset(seeds)
        self._schedulers = [copy.copy(self.scheduler) for _ in seeds]
        for scheduler, seed in zip(self._schedulers, seeds, strict=True):
            scheduler.reset([seed])

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """See `Dispatcher.dispatch`; with `on_busy: reserve` also rows to wait for."""
        decision, filtered = self.env.decision, self.env.offers_startable
        reserves, preempts = decision.on_busy == "reserve", decision.preemption != "none"
        scheduler, now, aside, answers = self._schedulers[snapshot.index], snapshot, np.zeros(0, np.int64), []
        if not opened(now).any() and not (preempts and (now.running >= 0).any()):
            return np.zeros((0, 3), dtype=np.int64)
        while True:
            if reserves and filtered:  # left out where no row is open for it
                rooms = now.free_memory_gb[opened(now)]
                aside = np.union1d(aside, np.flatnonzero(now.ready["memory_gb"] > rooms.max(initial=-1.0)))
            shown = np.setdiff1d(np.arange(len(now.ready)), aside)[: decision.offered]
            now = replace(now, candidates=shown)
            fit = fit_of(now, self.env)
            is_open = (fit == OPEN).any() if filtered else opened(now).any() or (reserves and preempts)
            if not len(shown) or not is_open:
                break
            row = int(scheduler(observe(now, self.env)[None], fit[None])[0])
            task, how = now.ready[shown[0]], fit[0, row]
            if how == OPEN:
                now = self._started(now, int(shown[0]), row)
                aside = aside[aside != shown[0]]
                aside -= aside > shown[0]
            elif not reserves:
                break
            else:
                aside = np.append(aside, shown[0])
                if how == CLOSED:
                    continue
                now = self._reserved(now, int(shown[0]), row)
            answers.append((task["workflow"], task["task"], row))
        return np.array(answers, dtype=np.int64).reshape(-1, 3)

    def _execution_s(self, now: Snapshot, at: int, row: int) -> float:
        """Of a waiting task on a row, as it is seen."""
        others = int(((now.running[:, 0] >= 0) & (now.host == now.host[row])).sum()) - int(now.running[row, 0] >= 0)
        execution = now.ready["compute_gflop"][at] / now.capacity_gflops[row]
        return float(execution * (1.0 + self._slowdown[row] * others))

    def _started(self, now: Snapshot, at: int, row: int) -> Snapshot:
        """The state after a waiting task has started on a row."""
        task, seconds = now.ready[at], self._execution_s(now, at, row)
        if self.env.communication.mode == "transfer":
            seconds += float(transfer_s(now, at, self.env)[row])
        expected, available, status = now.expected_end_s.copy(), now.available_at_s.copy(), now.status.copy()
        running, free = now.running.copy(), now.free_memory_gb.copy()
        expected[row] = available[row] = now.clock_s + seconds
        status[row], running[row] = BUSY, (task["workflow"], task["task"])
        same = now.host == now.host[row]
        free[same] = max(0.0, now.memory_gb[row] - sum(self._memory(now, *names) for names in running[same].tolist()))
        return replace(
            now,
            expected_end_s=expected,
            available_at_s=available,
            status=status,
            running=running,
            free_memory_gb=free,
            ready=np.delete(now.ready, at),
        )

    def _memory(self, now: Snapshot, workflow: int, task: int) -> float:
        """Of a running task; 0 where none runs."""
        if workflow < 0:
            return 0.0
        live = now.workflow(workflow)
        return float(live.memory_gb[np.searchsorted(live.task, task)])

    def _reserved(self, now: Snapshot, at: int, row: int) -> Snapshot:
        """The state after a waiting task was given a row to wait for."""
        available = now.available_at_s.copy()
        available[row] += self._execution_s(now, at, row)
        return replace(now, available_at_s=available)
