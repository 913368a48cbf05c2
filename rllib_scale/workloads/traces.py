"""Workloads drawn from a trace: its workflows with other arrivals.

(seed, episode) decides everything. The sequence of workflows does not depend on the rate of arrivals: episodes at other
loads, or on other clusters, have the same one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled
from rllib_scale.config import EnvConfig, SplitConfig, TraceConfig
from rllib_scale.config.workload import Part
from rllib_scale.errors import UserError
from rllib_scale.workloads.arrivals import arrival_times, end_of_arrivals
from rllib_scale.workloads.model import Ints, Workload
from rllib_scale.workloads.random_numbers import CONTENTS, integer, new_generator, seed_generator, uniform


def draw_from_trace(config: EnvConfig, trace: TraceConfig, seed: int, episode: int) -> Workload:
    """The workload of (seed, episode).

    Raises:
        UserError: see `part_of_trace`; or too many workflows would be drawn at once.
    """
    part = part_of_trace(config, trace)
    rng, contents = new_generator(seed, episode), new_generator(seed, episode, CONTENTS)
    until = end_of_arrivals(config)
    if trace.arrivals == "recorded":
        return _rotated(part, float(uniform(rng)), until)
    rate = config.arrival_rate_of(part.mean_gflop)
    if trace.sample == "workflow":
        times = arrival_times(config, rate, rng)
        return part.take(_choices(contents, part.num_workflows, np.empty(len(times), dtype=np.int64)), times)
    # Sessions that began before the episode and still last are drawn as well, so that the rate is right from the start.
    first, order = _sessions(part)
    begins = part.arrival_s[order[first[:-1]]]
    longest = float((part.arrival_s[order[first[1:] - 1]] - begins).max())
    starts = arrival_times(config, rate * (len(first) - 1) / part.num_workflows, rng, -longest)
    chosen = _choices(contents, len(first) - 1, np.empty(len(starts), dtype=np.int64))
    sizes = np.diff(first)[chosen]
    rows = np.arange(sizes.sum()) + np.repeat(first[chosen] - np.cumsum(sizes) + sizes, sizes)
    times = part.arrival_s[order[rows]] + np.repeat(starts - begins[chosen], sizes)
    there = (times >= 0) & (times <= until)
    return part.take(order[rows][there], times[there])


def part_of_trace(config: EnvConfig, trace: TraceConfig) -> Workload:
    """The part of the trace that the config names, by default all of it.

    Raises:
        UserError: the file is missing, has changed, is no workload, has no session in that part, or has a task that
            fits no server.
    """
    part = _part(trace.file, trace.part or "all", trace.split)
    part.check_fits(config.cluster, trace.location)
    return part


def in_train_part(workload: Workload, split: SplitConfig) -> NDArray[np.bool_]:
    """(W,) whether each workflow's session is trained on."""
    sessions, of_workflow = np.unique(workload.session, return_inverse=True)
    return trained_on(sessions, split)[of_workflow]


def trained_on(sessions: NDArray[np.int64], split: SplitConfig) -> NDArray[np.bool_]:
    """(S,) whether each session is trained on, as the split's seed and its number decide."""
    rng = np.empty(4, dtype=np.uint64)
    trains = np.zeros(len(sessions), dtype=bool)
    for i, session in enumerate(sessions):
        seed_generator(rng, split.seed, session)
        trains[i] = uniform(rng) < split.train_share
    return trains


def _rotated(part: Workload, share: float, until: float) -> Workload:
    """The workflows as recorded, from a share of the recorded time on; its end is joined to its beginning."""
    times = part.arrival_s - part.arrival_s[0]
    length = times[-1] + times[-1] / max(1, len(times) - 1)  # a mean gap between the last and the first
    if length > 0:
        times = (times - share * length) % length
    chosen = np.flatnonzero(times <= until)
    return part.take(chosen, times[chosen])


def _sessions(part: Workload) -> tuple[Ints, Ints]:
    """(S + 1,) and (W,): the workflows of session s, by arrival, are order[first[s] : first[s + 1]]."""
    order = np.argsort(part.session, kind="stable")
    starts = np.flatnonzero(np.diff(part.session[order], prepend=-1))
    return np.append(starts, len(order)), order


@compiled
def _choices(rng, n, chosen):  # type: ignore[no-untyped-def]
    """Fill with uniform integers below n."""
    for k in range(len(chosen)):
        chosen[k] = integer(rng, 0, n - 1)
    return chosen


@lru_cache(maxsize=8)
def _part(file: str, part: Part, split: SplitConfig) -> Workload:
    """The workflows of a part of a pinned file."""
    whole = _load(file)
    if part == "all":
        return whole
    chosen = np.flatnonzero(in_train_part(whole, split) == (part == "train"))
    if len(chosen) == 0:
        raise UserError(
            f"{TraceConfig(file=file).location}: none of its {len(np.unique(whole.session))} sessions is in the {part} "
            f"part; change workload.trace.split.train_share {split.train_share} or split.seed {split.seed}"
        )
    return whole.take(chosen, whole.arrival_s[chosen])


@lru_cache(maxsize=2)
def _load(file: str) -> Workload:
    """The workload of a pinned file."""
    return Workload.load(TraceConfig(file=file).path)
