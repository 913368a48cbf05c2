"""Estimates of the workload that `adaptive-price` learns from arrivals, as any live cluster could.

A ring keeps the last tasks that became ready. Where workflows are revealed as they run, those that have completed say
how many tasks follow one that is the k-th of its workflow to be seen, and how many tasks a workflow with k seen ones
has. Older workflows count less and less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import internal
from rllib_scale.observation.view import MOST_SEEN

RING = 256
"""Tasks that are remembered."""
KEEPS = 1.0 - 1.0 / 100.0
"""Factor of a workflow's weight each time another is counted."""
PSEUDO_TASKS = 3.0
"""Weight of the prior of followers: FOLLOWER_DECAY^k tasks follow the k-th one."""
FOLLOWER_DECAY = 0.7
PRIOR_HIDDEN = 1.0
"""Unseen tasks of a workflow before any has completed."""

SAMPLE = np.dtype(
    [
        ("compute", "f8"),  # GFLOP
        ("memory", "f8"),  # GB
        ("places", "i8"),  # that it takes
        ("labels", "i8"),  # that it needs
        ("descendants", "f8"),  # itself included
        ("seen", "i8"),  # as WAITING
    ]
)
COUNTS = np.dtype(
    [
        ("sampled", "i8"),  # tasks until now
        ("tasks", "f8"),  # of workflows of which all are known, older ones less and less; sums with these weights:
        ("paths", "f8"),  # of tasks times those of the longest path
        ("delay", "f8"),  # of release delays of tasks [s]
        ("delays", "f8"),  # how many these were
    ]
)


class Estimates(NamedTuple):
    """Estimates of each environment of a batch."""

    counts: np.ndarray  # (B,) COUNTS
    ring: np.ndarray  # (B, RING) SAMPLE
    followers: np.ndarray  # (B, 1 + MOST_SEEN, 2) by seen: sum of followers, and how many tasks
    sizes: np.ndarray  # (B, 1 + MOST_SEEN, 2) by tasks of a workflow: sum of these, and how many workflows


def no_estimates(num_envs: int) -> Estimates:
    """Those of a batch before anything has arrived."""
    return Estimates(
        np.zeros(num_envs, dtype=COUNTS),
        np.zeros((num_envs, RING), dtype=SAMPLE),
        *np.zeros((2, num_envs, 1 + MOST_SEEN, 2)),
    )


@internal
def followers_of(seen, followers):  # type: ignore[no-untyped-def]
    """Number of tasks that follow the `seen`-th revealed task of a workflow, itself included."""
    k = min(MOST_SEEN, seen)
    prior = 1.0 + FOLLOWER_DECAY**k
    return (followers[k, 0] + PSEUDO_TASKS * prior) / (followers[k, 1] + PSEUDO_TASKS)


@internal
def hidden_of(seen, sizes):  # type: ignore[no-untyped-def]
    """Number of unseen tasks of a workflow of which `seen` have been revealed."""
    # Mean number of unseen tasks over completed workflows of at least this size, with one prior workflow.
    total, count = PRIOR_HIDDEN, 1.0
    for n in range(min(MOST_SEEN, seen), MOST_SEEN + 1):
        total += max(0.0, sizes[n, 0] - seen * sizes[n, 1])
        count += sizes[n, 1]
    return total / count


@internal
def observe(b, view, since_s, estimates):  # type: ignore[no-untyped-def]
    """Count what has completed, has arrived or has become ready after `since_s`.

    Returns the work of the tasks that have become ready [GFLOP].
    """
    shown, of = view.env[b], estimates.counts[b]
    for i in range(shown.num_ended):
        _count_ended(view.ended[b, i], of, estimates.followers[b], estimates.sizes[b])
    for i in range(shown.num_new):
        if not shown.is_revealed:
            _count_workflow(view.new[b, i].num_tasks, view.new[b, i].depth, of)
    ready = 0.0
    for i in range(shown.num_waiting):
        task = view.waiting[b, i]
        if task.ready_s <= since_s:
            continue
        ready += task.compute_gflop * task.places
        of.delay = KEEPS * of.delay + task.delay_s
        of.delays = KEEPS * of.delays + 1.0
        sample = estimates.ring[b, of.sampled % RING]
        of.sampled += 1
        sample.compute, sample.memory, sample.descendants = task.compute_gflop, task.memory_gb, task.descendants
        sample.places, sample.labels, sample.seen = task.places, task.labels, task.seen
    return ready


@internal
def _count_workflow(num_tasks, depth, of):  # type: ignore[no-untyped-def]
    of.tasks = KEEPS * of.tasks + num_tasks
    of.paths = KEEPS * of.paths + num_tasks * depth


@internal
def _count_ended(ended, of, followers, sizes):  # type: ignore[no-untyped-def]
    if ended.num_tasks > 0:
        _count_workflow(ended.num_tasks, ended.depth, of)
        for n in range(MOST_SEEN + 1):
            for i in range(2):
                # Everything decays once a workflow, not once a task: large workflows count no more often.
                followers[n, i] *= KEEPS
                sizes[n, i] *= KEEPS
        n = min(MOST_SEEN, ended.num_tasks)
        sizes[n, 0] += ended.num_tasks
        sizes[n, 1] += 1.0
    k = min(MOST_SEEN, ended.seen)
    followers[k, 0] += ended.descendants
    followers[k, 1] += 1.0
