"""Context and theta of `context-price` for all environments of a batch in one compiled call, from their `View`.

On a cluster of other classes of speed than the weights are for, a price is placed where the speed, over the slowest
server, puts it: linear in the logarithm between two classes, the last price beyond the fastest.
"""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal
from rllib_scale.schedulers.context import (
    AVERAGE_S,
    LIMIT,
    LOAD_S,
    LOAD_UNIT,
    PLAIN,
    PRIOR_LOAD,
    PRIOR_S,
)

FAST_S, SLOW_S = LOAD_S
NUM_PLAIN = len(PLAIN)
MEMORY = np.dtype(
    [
        ("clock_s", "f8"),  # of the last event; before the first one -1
        ("work_fast_s", "f8"),  # arrived work over capacity, decayed
        ("work_slow_s", "f8"),
        ("queue", "f8"),  # averages
        ("work_s", "f8"),
        ("held_queue", "f8"),  # as they stood at the event before
        ("held_work_s", "f8"),
        ("capacity", "f8"),  # GFLOPS at the last event
        ("is_changed", "i8"),  # the servers are others since then: what is kept in seconds is converted
    ]
)


@compiled
def write_theta(  # type: ignore[no-untyped-def]
    view, weights, sizes, of, idle, counts, to_ours, to_theirs, memory, context, theta, numbers, prices
):  # fmt: skip
    """Write the context (B, 9 + K), theta (B, 5 + K), NUMBERS (B, 9) and prices (B, N) of every environment.

    `sizes` (2,) limits of the places that `size` distinguishes; `of` (N,) class of each server, -1 of an empty row;
    `idle`, `counts` (M,) scratch; `to_ours` (K, M) and `to_theirs` (M, K) interpolate between the cluster's classes
    and those of the weights.
    """
    for b in range(len(view.env)):
        shown, kept, x = view.env[b], memory[b], context[b]
        if shown.clock_s == kept.clock_s:
            continue  # asked again in the same round: what was seen when it began holds
        num_classes, num_places, capacity = to_ours.shape[0], 0, 0.0
        # What is there: places, speed of all of them together, and by class its places and the free ones.
        idle[:] = 0.0
        counts[:] = 0.0
        for j in range(len(of)):
            if of[j] >= 0 and view.limit[b, j] >= 0.0:
                num_places += view.properties[j].max_concurrent
                capacity += view.capacity[j] * view.properties[j].max_concurrent
                counts[of[j]] += view.properties[j].max_concurrent
                if view.is_open[b, j]:
                    idle[of[j]] += view.free_places[b, j]
        places = float(max(1, num_places))
        capacity = capacity if capacity > 0.0 else np.inf
        ready = 0.0
        for i in range(shown.num_waiting):
            ready += view.waiting[b, i].compute_gflop * view.waiting[b, i].places
        queue, work = shown.num_waiting / places, shown.work_in_system_gflop / capacity

        now, passed = shown.clock_s, shown.clock_s - kept.clock_s
        ratio = convert_seconds(kept, capacity)
        kept.work_s *= ratio
        kept.held_work_s *= ratio
        # Offered load: arrived work in seconds of the whole cluster, in two exponential averages.
        kept.work_fast_s *= math.exp(-passed / FAST_S)
        kept.work_slow_s *= math.exp(-passed / SLOW_S)
        for i in range(shown.num_new):
            new = view.new[b, i]
            kept.work_fast_s += new.work_gflop / capacity * math.exp(-(now - new.arrival_s) / FAST_S)
            kept.work_slow_s += new.work_gflop / capacity * math.exp(-(now - new.arrival_s) / SLOW_S)
        # Averages over time of queue and work: each had its held value since the event before.
        keeps = math.exp(-passed / AVERAGE_S)
        kept.queue = keeps * kept.queue + (1.0 - keeps) * kept.held_queue
        kept.work_s = keeps * kept.work_s + (1.0 - keeps) * kept.held_work_s
        kept.held_queue, kept.held_work_s, kept.clock_s = queue, work, now

        # The entries in the order of `context_names`, by offsets and factors of the order of 1.
        x[0] = math.log2(min(max(places, sizes[0]), sizes[1]) / 16.0) / 3.0
        x[1] = (observed_load(kept.work_fast_s, now, FAST_S, PRIOR_S) - PRIOR_LOAD) / LOAD_UNIT
        x[2] = (observed_load(kept.work_slow_s, now, SLOW_S, PRIOR_S) - PRIOR_LOAD) / LOAD_UNIT
        x[3] = 2.0 * math.log1p(queue) - 0.6
        x[4] = math.log1p(ready / capacity) - 0.7
        x[5] = math.log1p(work) - 2.0
        for k in range(num_classes):
            share = 0.0
            for m in range(len(counts)):
                # Idle share of class k of the weights: a mean over the cluster's classes nearby.
                share += to_ours[k, m] * idle[m] / max(1.0, counts[m])
            x[6 + k] = 2.0 * share - 0.6
        x[6 + num_classes] = 2.0 * math.log1p(kept.queue) - 0.6
        x[7 + num_classes] = math.log1p(kept.work_s) - 2.0
        x[8 + num_classes] = 1.5 * math.log1p(shown.tasks_in_system / places) - 1.5
        for i in range(len(x)):
            x[i] = min(LIMIT, max(-LIMIT, x[i]))

        for r in range(theta.shape[1]):
            # theta = W [1, x], with a softplus for what cannot be negative.
            value = weights[b, r, 0]
            for i in range(len(x)):
                value += weights[b, r, 1 + i] * x[i]
            if r >= NUM_PLAIN:
                value = max(value, 0.0) + math.log1p(math.exp(-abs(value)))
            theta[b, r] = value
        for r in range(NUM_PLAIN + 1):
            numbers[b, r] = theta[b, r]
        # theta is a, b, age, alpha, kappa, prices, penalty; NUMBERS have no prices.
        numbers[b, NUM_PLAIN + 1] = theta[b, theta.shape[1] - 1]
        for m in range(len(counts)):
            idle[m] = 0.0  # now the price of each class
            for k in range(1, num_classes):
                idle[m] += to_theirs[m, k] * theta[b, NUM_PLAIN + k]
        for j in range(len(of)):
            prices[b, j] = idle[of[j]] if of[j] >= 0 else 0.0


@internal
def convert_seconds(kept, capacity):  # type: ignore[no-untyped-def]
    """Once the servers are others, express arrived work in seconds of this capacity [GFLOPS]; returns the factor."""
    ratio = 1.0
    if kept.is_changed and kept.capacity > 0.0 and capacity < np.inf:
        ratio = kept.capacity / capacity
        kept.work_fast_s *= ratio
        kept.work_slow_s *= ratio
    if capacity < np.inf:
        kept.is_changed, kept.capacity = 0, capacity
    return ratio


@internal
def observed_load(work_s, now, decay_s, prior_s):  # type: ignore[no-untyped-def]
    """The offered load up to `now` [s], of work over capacity that has decayed, and PRIOR_LOAD for `prior_s`."""
    return (work_s + PRIOR_LOAD * prior_s) / (-decay_s * math.expm1(-now / decay_s) + prior_s)


write = Direct(write_theta)
