"""A scheduler, which names servers task by task, as a dispatcher: it decides from snapshots alone, on any backend."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import CLOSED, OPEN
from rllib_scale.observation.observe import fit_of, observe, opened, transfer_s
from rllib_scale.observation.snapshot import RUNNING, Snapshot
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
        self._slowdown = [tier.slowdown for tier in env.cluster.tiers for _ in range(tier.count)]
        self.reset([(0, 0)])

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Dispatcher.reset`; each environment has a scheduler of its own, with its state and draws."""
        super().reset(seeds)
        self._schedulers = [copy.copy(self.scheduler) for _ in seeds]
        for scheduler, seed in zip(self._schedulers, seeds, strict=True):
            scheduler.reset([seed])

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """See `Dispatcher.dispatch`; with `on_busy: reserve` also servers to wait for."""
        decision, filtered = self.env.decision, self.env.offers_startable
        reserves, preempts = decision.on_busy == "reserve", decision.preemption != "none"
        scheduler, now, aside, answers = self._schedulers[snapshot.index], snapshot, np.zeros(0, np.int64), []
        if not opened(now).any() and not (preempts and len(now.running)):
            return np.zeros((0, 3), dtype=np.int64)
        while True:
            if reserves and filtered:  # left out where no server is open for it
                rooms = now.free_memory_gb[opened(now)]
                aside = np.union1d(aside, np.flatnonzero(now.ready["memory_gb"] > rooms.max(initial=-1.0)))
            shown = np.setdiff1d(np.arange(len(now.ready)), aside)[: decision.offered]
            now = replace(now, candidates=shown)
            fit = fit_of(now, self.env)
            is_open = (fit == OPEN).any() if filtered else opened(now).any() or (reserves and preempts)
            if not len(shown) or not is_open:
                break
            j = int(scheduler(observe(now, self.env)[None], fit[None])[0])
            task, how = now.ready[shown[0]], fit[0, j]
            if how == OPEN:
                now = self._started(now, int(shown[0]), j)
                aside = aside[aside != shown[0]]
                aside -= aside > shown[0]
            elif not reserves:
                break
            else:
                aside = np.append(aside, shown[0])
                if how == CLOSED:
                    continue
                now = self._reserved(now, int(shown[0]), j)
            answers.append((task["workflow"], task["task"], j))
        return np.array(answers, dtype=np.int64).reshape(-1, 3)

    def _execution_s(self, now: Snapshot, at: int, j: int, others: int) -> float:
        """Of a waiting task on server j, beside so many others, as it is seen."""
        execution = now.ready["compute_gflop"][at] / now.capacity_gflops[j]
        return float(execution * (1.0 + self._slowdown[j] * others))

    def _started(self, now: Snapshot, at: int, j: int) -> Snapshot:
        """The state after a waiting task has started on server j."""
        task, seconds = now.ready[at], self._execution_s(now, at, j, int(now.num_running[j]))
        if self.env.communication.mode == "transfer":
            seconds += float(transfer_s(now, at, self.env)[j])
        begun = np.array([(task["workflow"], task["task"], j, now.clock_s + seconds)], dtype=RUNNING)
        running = np.sort(np.append(now.running, begun), order=("server", "workflow", "task"))
        there = running[running["server"] == j]
        memory = sum(_memory(now, *names) for names in there[["workflow", "task"]].tolist())
        next_end = there["expected_end_s"].min()
        free_at = now.clock_s if len(there) < now.max_concurrent[j] else next_end
        return replace(
            now,
            running=running,
            num_running=_with(now.num_running, j, len(there)),
            free_memory_gb=_with(now.free_memory_gb, j, max(0.0, now.memory_gb[j] - memory)),
            expected_end_s=_with(now.expected_end_s, j, next_end),
            available_at_s=_with(now.available_at_s, j, max(now.clock_s, free_at)),
            ready=np.delete(now.ready, at),
        )

    def _reserved(self, now: Snapshot, at: int, j: int) -> Snapshot:
        """The state after a waiting task was given server j to wait for, whose places share what waits for them."""
        places = int(now.max_concurrent[j])
        execution = self._execution_s(now, at, j, min(int(now.num_running[j]), places - 1))
        return replace(now, available_at_s=_with(now.available_at_s, j, now.available_at_s[j] + execution / places))


def _memory(now: Snapshot, workflow: int, task: int) -> float:
    """Of a running task [GB]."""
    live = now.workflow(workflow)
    return float(live.memory_gb[np.searchsorted(live.task, task)])


def _with(array: np.ndarray, j: int, value: float) -> np.ndarray:
    """The array, but for its entry j."""
    changed = array.copy()
    changed[j] = value
    return changed
