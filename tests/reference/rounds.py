"""Rounds with reservations in plain code, from snapshots: what the compiled rounds of a batch are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.parts import has_room
from rllib_scale.config.schedulers import PriceParameters
from rllib_scale.observation.snapshot import UP, Snapshot
from rllib_scale.schedulers.context import (
    ANY_SIZE,
    AVERAGE_S,
    LIMIT,
    LOAD_S,
    LOAD_UNIT,
    PLAIN,
    PRIOR_LOAD,
    PRIOR_S,
    Floats,
    interpolation,
    speeds_of,
)
from rllib_scale.schedulers.context_price import ContextPrice
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.dual_price import DualPrice
from rllib_scale.schedulers.reserving import class_prices
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, FASTEST_OPEN, LEAST_COST


class PlainRounds(Dispatcher):
    """A rule that decides from views, decided in plain code from the snapshots of each environment."""

    def __init__(self, rule: Any) -> None:
        self.rule, self.name, self.parameters = rule, rule.name, rule.parameters

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        super().reset(seeds)
        self.counts: list[dict[int, list[int]]] = [{} for _ in seeds]
        self.observed = [Observed(getattr(self.rule, "sizes", ANY_SIZE)) for _ in seeds]
        self.account: list[list[tuple[float, Floats, Floats]]] = [[] for _ in seeds]

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        ready, p = snapshot.ready, self.parameters
        descendants = self._descendants(snapshot)
        if self.name.startswith("non-blocking"):
            order = named_order(p.order, snapshot, descendants)
            return Servers(snapshot).visit(snapshot, order, FASTEST_OPEN)
        if self.name.startswith("reserve"):
            order = named_order(p.order, snapshot, descendants)
            return Servers(snapshot).visit(snapshot, order, EARLIEST_FINISH, p.waiting)
        if isinstance(self.rule, ContextPrice):
            a, power, age, alpha, kappa, *prices, penalty = self._theta(snapshot)
            p = PriceParameters.model_construct(a=a, b=power, age=age, alpha=alpha, kappa=kappa, penalty=penalty)
            costs = server_prices(np.array(prices), self.rule.speeds, snapshot.capacity_gflops)
        elif isinstance(self.rule, DualPrice):
            costs = self.rule.server_prices(snapshot.capacity_gflops)
        else:
            costs = class_prices(p.prices, snapshot.capacity_gflops)
        urgent = descendants**p.a * (ready["compute_gflop"] / 10) ** p.b
        order = by_key(urgent + p.age * (snapshot.clock_s - ready["arrival_s"]) / 10, snapshot)
        weight = descendants**p.alpha
        return Servers(snapshot).visit(snapshot, order, LEAST_COST, p.kappa, weight, costs, p.penalty)

    def _theta(self, snapshot: Snapshot) -> Floats:
        b, weights = snapshot.index, self.rule.weights
        context = self.observed[b].context(snapshot, self.rule.speeds)
        theta = link((weights[b] if weights.ndim == 3 else weights) @ np.concatenate([[1.0], context]))
        self.account[b].append((snapshot.clock_s, context, theta))
        return theta

    def _descendants(self, snapshot: Snapshot) -> Floats:
        """(R,) of the waiting tasks, each counted at the arrival of its workflow, as far as it was seen then."""
        counts = self.counts[snapshot.index]
        for number in snapshot.workflows:
            if number not in counts:
                workflow = snapshot.workflow(number)
                after: list[set[int]] = [{k} for k in range(len(workflow.task))]
                for _ in after:
                    for i, j in workflow.edges.tolist():
                        after[i] |= after[j]
                counts[number] = [len(found) for found in after]
        names = zip(snapshot.ready["workflow"].tolist(), snapshot.ready["task"].tolist(), strict=True)
        return np.array([counts[w][k] if k < len(counts[w]) else 1 for w, k in names], dtype=np.float64)


class Servers:
    """The servers of a snapshot as a round changes them. Shapes: N servers, R tasks that wait."""

    def __init__(self, snapshot: Snapshot) -> None:
        there = snapshot.status == UP
        self.capacity = snapshot.capacity_gflops
        self.places = snapshot.max_concurrent
        self.limit = np.where(there, snapshot.memory_gb, -1.0)
        """(N,) GB that a task may need; -1: none can start there any more."""
        self.wait = np.where(there, snapshot.available_at_s - snapshot.clock_s, np.inf)
        """(N,) s until a place is free, tasks that wait for it in this round included."""
        self.is_open = snapshot.idle & (self.wait == 0.0)
        """(N,) bool: has a free place and is not reserved."""
        self.free_places = snapshot.max_concurrent - snapshot.num_running
        """(N,)."""
        self.labels = snapshot.properties["labels"]
        """(N,) sets of labels, as bits."""
        self.free = snapshot.free_memory_gb.copy()
        """(N,) GB."""
        self.next_end = np.maximum(snapshot.expected_end_s - snapshot.clock_s, 0.0)
        """(N,) s until the next of its tasks ends; inf: it runs none."""

    def can_start(self, j: int, task: np.void) -> bool:
        """Whether a task could start there now."""
        return bool(self.is_open[j] and self.has_free(j, task) and self.has_labels(j, task))

    def has_free(self, j: int, task: np.void) -> bool:
        """Whether it has the memory and the places for a task now."""
        return bool(has_room(self.free[j], task["memory_gb"]) and task["places"] <= self.free_places[j])

    def has_labels(self, j: int, task: np.void) -> bool:
        """Whether it has all labels that the task needs."""
        return bool(self.labels[j] & task["labels"] == task["labels"])

    def ahead(self, j: int, task: np.void) -> float:
        """s until the task could start there: until something ends, where memory or places are missing."""
        lacks_room = self.is_open[j] and not self.has_free(j, task)
        return float(self.next_end[j] if lacks_room and self.next_end[j] < np.inf else self.wait[j])

    def take(self, j: int, task: np.void, lasts: float) -> bool:
        """Let a task start there, or wait for it; says whether it starts."""
        if self.can_start(j, task):
            self.free[j] -= task["memory_gb"]
            self.free_places[j] -= task["places"]
            self.next_end[j] = min(self.next_end[j], lasts)
            if self.free_places[j] == 0:
                self.is_open[j], self.wait[j] = False, self.next_end[j]
            return True
        self.wait[j] = self.ahead(j, task) + lasts * task["places"] / self.places[j]
        self.is_open[j] = False
        return False

    def visit(
        self,
        snapshot: Snapshot,
        order: np.ndarray,
        rule: int,
        waiting: float = 1.0,
        weight: np.ndarray | None = None,
        price: np.ndarray | None = None,
        penalty: float = 0.0,
    ) -> np.ndarray:
        """(K, 3) workflow, task and server of what starts, of tasks that are visited in that order."""
        ready, started = snapshot.ready, []
        for i in order.tolist():
            if not self.is_open.any():
                break
            task, costs = ready[i], []
            lasts_open, best_open = np.inf, -1
            for j in range(len(self.capacity)):
                fits = has_room(self.limit[j], task["memory_gb"]) and task["places"] <= self.places[j]
                if not (fits and self.has_labels(j, task)):
                    costs.append(np.inf)
                    continue
                can_start, ahead = self.can_start(j, task), self.ahead(j, task)
                lasts = snapshot.transfer_s[i, j] + task["compute_gflop"] / self.capacity[j]
                if rule == FASTEST_OPEN:
                    costs.append(-self.capacity[j] if can_start else np.inf)
                elif rule == EARLIEST_FINISH:
                    costs.append(ahead + lasts)
                    if can_start and lasts < lasts_open:
                        lasts_open, best_open = lasts, j
                else:
                    cost = (1.0 if weight is None else weight[i]) * (waiting * ahead + lasts)
                    cost += (0.0 if price is None else price[j]) * lasts
                    costs.append(cost if can_start else cost + penalty)
            best = int(np.argmin(costs))
            if best_open >= 0 and waiting * costs[best] >= lasts_open:
                best = best_open
            if costs[best] == np.inf:
                continue
            if self.take(best, task, snapshot.transfer_s[i, best] + task["compute_gflop"] / self.capacity[best]):
                started.append((task["workflow"], task["task"], best))
        return np.array(started, dtype=np.int64).reshape(-1, 3)


def named_order(name: str, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
    """(R,) rows of `Snapshot.ready` in an order of config.NamedOrder."""
    ready = snapshot.ready
    if name == "first-arrival":
        return np.lexsort((ready["task"], ready["workflow"]))
    keys = {
        "longest-hop": ready["hop"],
        "first-ready": np.zeros(len(ready)),
        "most-descendants": descendants,
        "shortest-task": -ready["compute_gflop"],
        "descendants-per-work": descendants / ready["compute_gflop"],
    }
    return by_key(keys[name], snapshot)


def by_key(key: np.ndarray, snapshot: Snapshot) -> np.ndarray:
    """(R,) rows of `Snapshot.ready`, the largest key (R,) first; ties by the time they became ready, workflow, task."""
    ready = snapshot.ready
    return np.lexsort((ready["task"], ready["workflow"], ready["ready_s"], -key))


class Observed:
    """What a `ContextPrice` remembers of one environment: averages of load, queue and work.

    Args:
        sizes: as for `ContextPrice`.
    """

    def __init__(self, sizes: tuple[float, float] = ANY_SIZE) -> None:
        self._sizes = sizes
        self._arrived = 0
        self._work_s = np.zeros(2)  # arrived work over capacity, decayed
        self._mean = np.zeros(2)  # tasks that wait over places; work in the system over capacity [s]
        self._held = np.zeros(2)
        self._clock_s = 0.0
        self._entries: Floats | None = None

    def context(self, snapshot: Snapshot, speeds: Floats) -> Floats:
        """(9 + K,) the context for the classes `speeds` (K,); of an event, what it was when first asked for in it."""
        if self._entries is not None and snapshot.clock_s == self._clock_s:
            return self._entries
        of_places = np.where(snapshot.status == UP, snapshot.max_concurrent, 0)
        places = max(1, int(of_places.sum()))
        capacity = float((snapshot.capacity_gflops * of_places).sum()) or np.inf
        live = [snapshot.workflow(number) for number in snapshot.workflows]
        work_s = sum(float(w.compute_gflop[~w.completed].sum()) for w in live) / capacity
        tasks = sum(int((~w.completed).sum()) for w in live) / places
        queue = len(snapshot.ready) / places

        now, decay = snapshot.clock_s, np.array(LOAD_S)
        self._work_s *= np.exp(-(now - self._clock_s) / decay)
        for workflow in live:
            if workflow.index >= self._arrived:
                self._work_s += workflow.compute_gflop.sum() / capacity * np.exp(-(now - workflow.arrival_s) / decay)
        self._arrived = snapshot.num_arrived
        load = (self._work_s + PRIOR_LOAD * PRIOR_S) / (decay * -np.expm1(-now / decay) + PRIOR_S)

        keeps = np.exp(-(now - self._clock_s) / AVERAGE_S)
        self._mean = keeps * self._mean + (1.0 - keeps) * self._held
        self._held, self._clock_s = np.array([queue, work_s]), now
        entries = (
            np.log2(np.clip(places, *self._sizes) / 16) / 3,
            *(load - PRIOR_LOAD) / LOAD_UNIT,
            2.0 * np.log1p(queue) - 0.6,
            np.log1p(float(snapshot.ready["compute_gflop"].sum()) / capacity) - 0.7,
            np.log1p(work_s) - 2.0,
            *(2.0 * idle_shares(snapshot, speeds) - 0.6),
            2.0 * np.log1p(self._mean[0]) - 0.6,
            np.log1p(self._mean[1]) - 2.0,
            1.5 * np.log1p(tasks) - 1.5,
        )
        self._entries = np.clip(np.array(entries), -LIMIT, LIMIT)
        return self._entries


def idle_shares(snapshot: Snapshot, speeds: Floats) -> Floats:
    """(K,) share of the places of each class that are free; between the classes of the cluster, where it has others."""
    there, own = snapshot.status == UP, speeds_of(snapshot.capacity_gflops)
    free = np.where(snapshot.idle, snapshot.max_concurrent - snapshot.num_running, 0)
    of_each = [there & (snapshot.capacity_gflops == speed) for speed in own]
    shares = np.array([free[of].sum() / max(1, snapshot.max_concurrent[of].sum()) for of in of_each])
    return np.asarray(interpolation(speeds, own) @ shares)


def server_prices(prices: Floats, speeds: Floats, capacity: Floats) -> Floats:
    """(N,) price of a second on each server, from those (K - 1,) of the classes `speeds` (K,).

    On a cluster of other classes a price stands where the speed, relative to the slowest server, puts it: linear in the
    logarithm between two classes, the last price beyond the fastest.
    """
    own = speeds_of(capacity)
    each = interpolation(own, speeds) @ np.concatenate([[0.0], prices])
    return np.where(capacity > 0, each[np.minimum(np.searchsorted(own, capacity), len(own) - 1)], 0.0)


def link(linear: Floats) -> Floats:
    """Theta (..., 5 + K) from W [1, context]."""
    theta = np.logaddexp(0.0, linear)
    theta[..., : len(PLAIN)] = linear[..., : len(PLAIN)]
    return theta
