"""Rolling search: at each event many ways to go on are played to the end in thought, and the best one is begun.

An expensive yardstick: it knows whole workflows and the demands of all their tasks, but not what will arrive.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import compiled
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.schedulers.reserving import VisitingDispatcher, by_key, class_prices, price_key
from rllib_scale.schedulers.visiting import LEAST_COST, Rows, count_descendants, first_successors

VARIED = 3
"""Numbers of the rule that a sample varies beside the tasks' urgency: kappa, the prices, the penalty."""


class Tasks(NamedTuple):
    """The unfinished tasks of all workflows in a snapshot. Shapes: T tasks, E edges between them."""

    position: dict[tuple[int, int], int]  # of a workflow's task
    compute_gflop: np.ndarray  # (T,)
    memory_gb: np.ndarray  # (T,)
    delay_s: np.ndarray  # (T,)
    arrival_s: np.ndarray  # (T,) of its workflow
    descendants: np.ndarray  # (T,) float64, itself included
    missing: np.ndarray  # (T,) predecessors that are not completed
    edges: np.ndarray  # (E, 2) by predecessor


class RollingSearch(VisitingDispatcher):
    """Samples variations of `price`, plays each on until all known tasks are done, and takes the least sum of finishes.

    A sample multiplies the urgency of each task, and kappa, prices and penalty, by lognormal numbers; the first one is
    `price` itself. In the look-ahead every row has the memory of its server to itself, transfers take no time, tasks
    whose release delay runs begin it now, and nothing arrives.
    """

    name = "rolling-search"
    description = "price with sampled variations, each played on in thought at every event: slow, a yardstick"

    def decide(self, snapshot: Snapshot, descendants: np.ndarray) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        p, tasks, rows = self.parameters, _tasks(snapshot), Rows(snapshot)
        ready = snapshot.ready
        names = zip(ready["workflow"].tolist(), ready["task"].tolist(), strict=True)
        waiting = np.array([tasks.position[name] for name in names], dtype=np.int64)
        running = np.full(len(rows.capacity), -1)
        for row in np.flatnonzero(snapshot.running[:, 0] >= 0).tolist():
            running[row] = tasks.position[tuple(snapshot.running[row].tolist())]
        ends = np.maximum(0.0, snapshot.expected_end_s - snapshot.clock_s)
        draws = self.generators[snapshot.index].normal(size=(p.samples, VARIED + len(tasks.missing)))
        draws[0] = 0.0
        factors = np.exp(p.spread * draws)
        best = 0
        if p.samples > 1:
            state = (waiting, ends, running, rows.capacity, rows.limit, snapshot.clock_s)
            graph = (tasks.missing, first_successors(len(tasks.missing), tasks.edges), tasks.edges)
            demand = (tasks.compute_gflop, tasks.memory_gb, tasks.delay_s, tasks.arrival_s, tasks.descendants)
            prices = class_prices(p.prices, rows.capacity)
            rule = (p.a, p.b, p.age, p.alpha, p.kappa, prices, p.penalty)
            best = int(np.argmin(_look_ahead(factors, *rule, *demand, *graph, *state)))
        kappa, price, penalty = factors[best, :VARIED]
        urgency, descendants = factors[best, VARIED + waiting], tasks.descendants[waiting]
        return rows.visit(
            snapshot,
            by_key(price_key(p, snapshot, descendants, urgency), snapshot),
            LEAST_COST,
            p.kappa * kappa,
            urgency * descendants**p.alpha,
            price * class_prices(p.prices, rows.capacity),
            p.penalty * penalty,
        )


def _tasks(snapshot: Snapshot) -> Tasks:
    position: dict[tuple[int, int], int] = {}
    columns: list[list[np.ndarray]] = [[] for _ in range(6)]
    edges = [np.zeros((0, 2), dtype=np.int64)]
    for workflow in snapshot.workflows.values():
        left = np.flatnonzero(~workflow.completed)
        at = np.full(len(workflow.task), -1)
        at[left] = len(position) + np.arange(len(left))
        between = workflow.edges[~workflow.completed[workflow.edges[:, 0]]]
        missing = np.bincount(between[:, 1], minlength=len(workflow.task))
        position |= {(workflow.index, int(workflow.task[k])): int(at[k]) for k in left}
        edges.append(at[between])
        descendants = count_descendants(len(workflow.task), workflow.edges).astype(np.float64)
        arrival = np.full(len(at), workflow.arrival_s)
        of = (workflow.compute_gflop, workflow.memory_gb, workflow.delay_s, arrival, descendants, missing)
        for column, values in zip(columns, of, strict=True):
            column.append(values[left])
    every = [np.concatenate(column) for column in columns]
    return Tasks(position, every[0], every[1], every[2], every[3], every[4], every[5], np.concatenate(edges))


@partial(compiled, allocates=True)
def _look_ahead(  # type: ignore[no-untyped-def]
    factors, a, b, age, alpha, kappa, prices, penalty, compute, memory, delay, arrival, descendants, missing, first,
    edges, waiting, ends, running, capacity, limit, clock,
):  # fmt: skip
    """(S,) sum of the times from now at which tasks finish [s], of each sample of `factors` (S, VARIED + T)."""
    num_tasks, num_rows, total = len(compute), len(capacity), np.zeros(len(factors))
    key, weight, due, keys = np.empty(num_tasks), np.empty(num_tasks), np.empty(num_tasks), np.empty(num_tasks)
    ready, delayed = np.empty(num_tasks, dtype=np.int64), np.empty(num_tasks, dtype=np.int64)
    until, wait = np.empty(num_rows), np.empty(num_rows)
    is_active = np.zeros(num_tasks, dtype=np.bool_)
    is_active[waiting] = True
    is_active[running[running >= 0]] = True
    for s in range(len(factors)):
        for i in range(num_tasks):
            key[i] = factors[s, VARIED + i] * descendants[i] ** a * (compute[i] / 10.0) ** b
            weight[i] = factors[s, VARIED + i] * descendants[i] ** alpha
        left, on = missing.copy(), running.copy()
        until[:] = ends
        num_ready, num_delayed, now = len(waiting), 0, 0.0
        ready[:num_ready] = waiting
        for i in range(num_tasks):
            if missing[i] == 0 and not is_active[i]:  # its release delay runs
                delayed[num_delayed], due[i] = i, delay[i]
                num_delayed += 1
        while now < np.inf:
            num_open = 0
            for j in range(num_rows):
                wait[j] = 0.0 if until[j] == np.inf else until[j] - now
                num_open += int(until[j] == np.inf and limit[j] >= 0.0)
            if num_ready > 0 and num_open > 0:
                for q in range(num_ready):
                    keys[q] = -key[ready[q]] - age * (clock + now - arrival[ready[q]]) / 10.0
                for q in np.argsort(keys[:num_ready]):
                    i = ready[q]
                    j = _cheapest(
                        compute[i], memory[i], weight[i], factors[s], kappa, prices, penalty, capacity, limit, wait
                    )
                    if j >= 0 and wait[j] == 0.0:
                        until[j], on[j], ready[q] = now + compute[i] / capacity[j], i, -1
                        num_open -= 1
                    if num_open == 0:
                        break
                    if j >= 0:
                        wait[j] += compute[i] / capacity[j]
                num_ready = _without_gaps(ready, num_ready)
            now = until.min()
            for q in range(num_delayed):
                now = min(now, due[delayed[q]])
            for j in range(num_rows):
                if until[j] == now < np.inf:
                    until[j] = np.inf
                    total[s] += now
                    for e in range(first[on[j]], first[on[j] + 1]):
                        k = edges[e, 1]
                        left[k] -= 1
                        if left[k] == 0:
                            delayed[num_delayed], due[k] = k, now + delay[k]
                            num_delayed += 1
            for q in range(num_delayed):
                if due[delayed[q]] <= now:
                    ready[num_ready], delayed[q] = delayed[q], -1
                    num_ready += 1
            num_delayed = _without_gaps(delayed, num_delayed)
    return total


@compiled
def _cheapest(compute, memory, weight, factors, kappa, prices, penalty, capacity, limit, wait):  # type: ignore[no-untyped-def]
    """Row of the least cost for a task; -1: it fits none."""
    best, least = -1, np.inf
    for j in range(len(capacity)):
        if memory <= limit[j]:
            lasts = compute / capacity[j]
            cost = weight * (factors[0] * kappa * wait[j] + lasts) + factors[1] * prices[j] * lasts
            if wait[j] > 0.0:
                cost += factors[2] * penalty
            if cost < least:
                best, least = j, cost
    return best


@compiled
def _without_gaps(rows, count):  # type: ignore[no-untyped-def]
    """Move those of the first `count` that are not negative to the front; returns how many they are."""
    kept = 0
    for q in range(count):
        if rows[q] >= 0:
            rows[kept] = rows[q]
            kept += 1
    return kept
