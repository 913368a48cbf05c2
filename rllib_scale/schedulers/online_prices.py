"""The prices of the servers that are present for the workload that has been seen, as a line in the load.

All is relative: time to the execution of a mean task on a mean place, speed and capacity to their means, descendants to
theirs. So in other units of time, work or memory the numbers are the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import internal
from rllib_scale.schedulers.duals import CLOSE_TO_FULL, Program, most_load, room_for, solve
from rllib_scale.schedulers.estimates import RING, followers_of
from rllib_scale.workloads.fitting import fits

MOST_CLASSES = 24
"""Servers of further classes count with the class of the nearest speed, the first one of several."""
PRIOR_TASKS = 10
"""Tasks that the sample begins with: MEAN_DESCENDANTS in the mean, memory from half of what was seen to 1.75 of it."""
MEAN_DESCENDANTS = 2.4
BINS, PER_DOUBLING = 40, 3
"""Kinds of tasks by descendants: a third of a doubling each."""
LOADS, LEAST_LOAD, LOAD_STEP = 9, 0.3, 0.1
"""Loads at which prices are solved for."""
DISCOUNT = 0.8
"""A class at whose price tasks are indifferent had better be taken when it is idle: waits keep them away otherwise."""
GROWTH, MOST_TASKS = 1.6, 160
"""Prices are solved for again after this factor in the number of tasks, or this many more."""

CLASS = np.dtype(
    [
        ("capacity", "f8"),  # GFLOPS of each task
        ("memory", "f8"),  # GB
        ("labels", "i8"),
        ("max_concurrent", "i8"),
        ("servers", "i8"),
        ("places", "f8"),  # tasks that they run at once, as far as their memory allows
    ]
)
MEANS = np.dtype(
    [
        ("solved_at", "i8"),  # tasks that had been sampled when the prices were solved for
        ("num_classes", "i8"),
        ("servers", "i8"),  # that take tasks
        ("places", "f8"),
        ("capacity", "f8"),  # GFLOPS of all places
        ("slowest", "f8"),  # GFLOPS
        ("fastest", "f8"),
        ("common", "f8"),  # GFLOPS of the slowest that a task of the mean memory fits
        ("compute", "f8"),  # GFLOP of a task
        ("memory", "f8"),  # GB of a task
        ("descendants", "f8"),  # of a task, itself included
        ("tau", "f8"),  # s, execution of a mean task on a mean place
        ("stay", "f8"),  # phi: time of a workflow in an empty system, in STAY_UNIT tau; at least 1
    ]
)
STAY_UNIT = 4.0


class Prices(NamedTuple):
    """Prices in each environment of a batch."""

    means: np.ndarray  # (B,) MEANS
    classes: np.ndarray  # (B, MOST_CLASSES) CLASS
    curves: np.ndarray  # (B, MOST_CLASSES, LOADS) price of a second above that of the slowest class
    limit: np.ndarray  # (B, N) GB of each server when it was sorted
    of: np.ndarray  # (B, N) class of each server; -1: it takes no task
    used: np.ndarray  # (B, MOST_CLASSES, 2) share of the places of each class: average, and since the last event
    program: Program  # scratch
    kinds: np.ndarray  # (BINS, 1 + MOST_CLASSES, 3) scratch
    sets: np.ndarray  # (1 + MOST_CLASSES,) int64 scratch: sets of classes that kinds fit, as bits; 0: none
    at_load: np.ndarray  # (MOST_CLASSES,) scratch


def no_prices(num_envs: int, num_servers: int) -> Prices:
    """Those of a batch before anything has arrived."""
    return Prices(
        np.zeros(num_envs, dtype=MEANS),
        np.zeros((num_envs, MOST_CLASSES), dtype=CLASS),
        np.zeros((num_envs, MOST_CLASSES, LOADS)),
        np.full((num_envs, num_servers), -2.0),
        np.full((num_envs, num_servers), -1),
        np.zeros((num_envs, MOST_CLASSES, 2)),
        room_for(BINS * (1 + MOST_CLASSES), MOST_CLASSES),
        np.zeros((BINS, 1 + MOST_CLASSES, 3)),
        np.zeros(1 + MOST_CLASSES, dtype=np.int64),
        np.zeros(MOST_CLASSES),
    )


@internal
def update_prices(b, view, estimates, prices):  # type: ignore[no-untyped-def]
    """Solve again where servers have come or gone, or enough tasks have been seen since."""
    means, sampled, has_changed = prices.means[b], estimates.counts[b].sampled, False
    for j in range(view.limit.shape[1]):
        if view.limit[b, j] != prices.limit[b, j]:
            has_changed = True
            prices.limit[b, j] = view.limit[b, j]
    if has_changed:
        _sort_servers(b, view, prices)
    # Often while little is known, later after every MOST_TASKS tasks.
    due = min(math.ceil(GROWTH * means.solved_at), means.solved_at + MOST_TASKS)
    if sampled > 0 and means.num_classes > 0 and (has_changed or sampled >= due):
        means.solved_at = sampled
        _take_means(b, view.env[b].is_revealed, estimates, prices)
        _solve_line(b, estimates, prices)


@internal
def _sort_servers(b, view, prices):  # type: ignore[no-untyped-def]
    """Sort the servers that take tasks by speed, memory, labels and places; a class inherits its servers' use."""
    classes, count = prices.classes[b], 0
    prices.means[b].servers = 0
    used, carried = prices.used[b], prices.kinds[0]  # sums of both columns of `used` over servers, and how many
    carried[:] = 0.0
    for j in range(view.limit.shape[1]):
        was = prices.of[b, j]
        prices.of[b, j] = -1
        if view.limit[b, j] < 0.0 or view.properties[j].max_concurrent == 0:
            continue
        k = 0
        while k < count and not (
            classes[k].capacity == view.capacity[j]
            and classes[k].memory == view.limit[b, j]
            and classes[k].labels == view.properties[j].labels
            and classes[k].max_concurrent == view.properties[j].max_concurrent
        ):
            k += 1
        # Beyond MOST_CLASSES a server joins the class of the nearest speed.
        if k == count and count == MOST_CLASSES:
            k = 0
            for i in range(count):
                if abs(classes[i].capacity - view.capacity[j]) < abs(classes[k].capacity - view.capacity[j]):
                    k = i
        elif k == count:
            count += 1
            classes[k].capacity, classes[k].memory = view.capacity[j], view.limit[b, j]
            classes[k].labels = view.properties[j].labels
            classes[k].max_concurrent, classes[k].servers = view.properties[j].max_concurrent, 0
        classes[k].servers += 1
        prices.means[b].servers += 1
        prices.of[b, j] = k
        # Places and classes are renumbered: the averages of use go with the servers.
        if was >= 0:
            carried[k, 0] += used[was, 0]
            carried[k, 1] += used[was, 1]
            carried[k, 2] += 1.0
    for k in range(count):
        used[k, 0], used[k, 1] = carried[k, 0] / max(1.0, carried[k, 2]), carried[k, 1] / max(1.0, carried[k, 2])
    prices.means[b].num_classes = count


@internal
def _take_means(b, is_revealed, estimates, prices):  # type: ignore[no-untyped-def]
    """Means of the sample, and what the servers can do with tasks like these."""
    means, of, ring = prices.means[b], estimates.counts[b], estimates.ring[b]
    count = min(RING, of.sampled)
    means.compute = means.memory = means.descendants = 0.0
    for i in range(count):
        if is_revealed:
            # As it is estimated today, not as on the task's arrival.
            ring[i].descendants = followers_of(ring[i].seen, estimates.followers[b])
        means.compute += ring[i].compute / count
        means.memory += ring[i].memory / count
        means.descendants += ring[i].descendants / count
    places, speeds = 0.0, 0.0
    means.places = means.capacity = means.fastest = 0.0
    means.slowest = means.common = np.inf
    for k in range(means.num_classes):
        server = prices.classes[b, k]
        server.places = server.servers * _places_of(server, ring, count)
        places += server.servers * server.max_concurrent
        speeds += server.servers * server.max_concurrent * server.capacity
        means.places += server.places
        means.capacity += server.places * server.capacity
        means.slowest, means.fastest = min(means.slowest, server.capacity), max(means.fastest, server.capacity)
        if fits(means.memory, 1, 0, server.memory, 1, 0):
            means.common = min(means.common, server.capacity)
    # No server has the memory for a mean task.
    means.common = means.slowest if means.common == np.inf else means.common
    # Mean demand over the mean speed of a place.
    means.tau = means.compute * places / speeds
    if of.tasks > 0.0:
        # Mean length of the longest path, in tasks, of a task's workflow, times what each takes without a queue.
        unloaded = of.paths / of.tasks * (means.tau + of.delay / of.delays)
        means.stay = max(1.0, unloaded / (STAY_UNIT * means.tau))
    else:
        means.stay = 1.0


@internal
def _places_of(server, ring, count):  # type: ignore[no-untyped-def]
    """Tasks that a server of a class runs at once: what the mean memory of those that fit leaves of its places."""
    if server.max_concurrent == 1:
        return 1.0
    memory, work = 0.0, 0.0
    for i in range(count):
        task = ring[i]
        if fits(task.memory, task.places, task.labels, server.memory, server.max_concurrent, server.labels):
            # Tasks weighed by their work: long ones hold the memory longer.
            memory += task.compute * task.memory
            work += task.compute
    if memory == 0.0:
        return float(server.max_concurrent)
    return max(1.0, min(float(server.max_concurrent), server.memory * work / memory))


@internal
def _add_kind(compute, memory, places, labels, descendants, b, prices):  # type: ignore[no-untyped-def]
    found, level, classes = 0, 0, prices.means[b].num_classes
    for k in range(classes):
        server = prices.classes[b, k]
        if fits(memory, places, labels, server.memory, server.max_concurrent, server.labels):
            found |= 1 << k
        else:
            level += 1
    if found == 0:
        return  # it fits no server that is present
    # Where sets of classes are found: without labels there is one of each number of classes, in its place at once.
    for _ in range(len(prices.sets)):
        if prices.sets[level] in (0, found):
            break
        level = (level + 1) % len(prices.sets)
    if prices.sets[level] not in (0, found):
        return  # more sets than classes: it counts for nothing
    prices.sets[level] = found
    # Tasks are one kind if they have as many descendants, to a third of a doubling, and fit the same classes.
    at = min(BINS - 1, max(0, int(PER_DOUBLING * math.log2(max(1.0, descendants)))))
    kind = prices.kinds[at, level]
    kind[0] += compute * places  # of the capacity, which counts places
    kind[1] += compute * descendants


@internal
def _fill_program(b, estimates, prices):  # type: ignore[no-untyped-def]
    """The linear program of the sample; returns how many kinds of tasks it has."""
    means, program, kinds, ring = prices.means[b], prices.program, prices.kinds, estimates.ring[b]
    kinds[:], prices.sets[:] = 0.0, 0
    count = min(RING, estimates.counts[b].sampled)
    for i in range(count):
        _add_kind(ring[i].compute, ring[i].memory, ring[i].places, ring[i].labels, ring[i].descendants, b, prices)
    # The prior's tasks spread like generic ones, around a mean half-way, in logarithm, between theirs and that seen.
    unit = math.sqrt(means.descendants / MEAN_DESCENDANTS)
    for i in range(PRIOR_TASKS):
        followers = max(1.0, unit * (1.0, 1.0, 2.0, 3.0, 5.0)[i % 5])
        _add_kind(means.compute, means.memory * (0.5 + 1.25 * i / (PRIOR_TASKS - 1)), 1, 0, followers, b, prices)
    work, weight, found = 0.0, 0.0, 0
    for at in range(BINS):
        for level in range(len(prices.sets)):
            if kinds[at, level, 0] > 0.0:
                work += kinds[at, level, 0]
                weight += kinds[at, level, 1]
                program.work[found] = kinds[at, level, 0]
                program.weight[found] = kinds[at, level, 1] / kinds[at, level, 0]
                program.fits[found] = prices.sets[level]
                found += 1
    for t in range(found):
        # Weights are 1 and shares add up to 1, by work: prices are then relative to a mean task on a mean place.
        program.weight[t] *= work / weight
        program.work[t] /= work
    for k in range(means.num_classes):
        server = prices.classes[b, k]
        program.speed[k] = server.capacity * means.tau / means.compute
        program.capacity[k] = server.places * server.capacity / means.capacity
        program.price[k] = 0.0
    if found > 0:
        means.descendants = weight / work
    return found


@internal
def _solve_line(b, estimates, prices):  # type: ignore[no-untyped-def]
    """Solve at each load, and fit a line to the price of each class above that of the slowest."""
    means, program, at_load = prices.means[b], prices.program, prices.at_load
    kinds, classes = _fill_program(b, estimates, prices), means.num_classes
    prices.curves[b] = 0.0
    if kinds == 0 or means.slowest == means.fastest:
        return
    # Prices grow without limit where the work only just fits.
    most = CLOSE_TO_FULL * most_load(kinds, classes, program)
    for i in range(LOADS):
        # Each load starts from the prices of the one before: a few iterations are enough.
        solve(min(most, LEAST_LOAD + i * LOAD_STEP), kinds, classes, program)
        slowest, share = 0.0, 0.0
        for k in range(classes):
            # From a unit of work to a second; only differences to the slowest class matter for a choice.
            at_load[k] = program.price[k] * program.speed[k]
            if prices.classes[b, k].capacity == means.slowest:
                slowest += program.capacity[k] * at_load[k]
                share += program.capacity[k]
        for k in range(classes):
            prices.curves[b, k, i] = DISCOUNT * (at_load[k] - slowest / share)


@internal
def price_at(load, curve):  # type: ignore[no-untyped-def]
    """The price of a second above that of the slowest class: 0 at load 0, linear between the loads that were solved."""
    at = min(LOADS - 1.0, (load - LEAST_LOAD) / LOAD_STEP)
    if at < 0.0:
        return curve[0] * max(0.0, load) / LEAST_LOAD
    below = min(LOADS - 2, int(at))
    return curve[below] + (at - below) * (curve[below + 1] - curve[below])
