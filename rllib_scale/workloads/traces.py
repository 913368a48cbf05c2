"""Workloads drawn from a trace: its workflows again, at other times.

(seed, episode) decides everything. Which workflows come one after the other does not depend on the rate of arrivals:
episodes at other loads, or on other clusters, have the same ones.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled
from rllib_scale.config import EnvConfig, SplitConfig, TraceConfig
from rllib_scale.config.workload import Part
from rllib_scale.errors import UserError
from rllib_scale.workloads.arrivals import arrival_times
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.random_numbers import CONTENTS, integer, seed_generator, seed_stream, uniform

Ints = NDArray[np.int64]


def draw_from_trace(config: EnvConfig, trace: TraceConfig, seed: int, episode: int) -> Workload:
    """The workload of (seed, episode).

    Raises:
        UserError: see `part_of_trace`; or more would arrive than can be drawn at once.
    """
    part = part_of_trace(config, trace)
    rng, contents = np.empty(4, dtype=np.uint64), np.empty(4, dtype=np.uint64)
    seed_generator(rng, seed, episode)
    seed_stream(contents, seed, episode, CONTENTS)
    until = config.episode.arrivals_until_s or config.episode.horizon_s
    if trace.arrivals == "recorded":
        return _from_a_moment_on(part, float(uniform(rng)), until)
    rate = config.arrival_rate_of(float(part.compute_gflop.sum()) / part.num_workflows)
    if trace.sample == "workflow":
        times = arrival_times(config, rate, rng)
        return part.take(_choices(contents, part.num_workflows, np.empty(len(times), dtype=np.int64)), times)
    # Sessions that began before the episode and still last are drawn, too: the rate is what it is meant to be at once.
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
    """What an episode may draw from: the part of the trace that the config names, all of it where it names none.

    Raises:
        UserError: the file is missing, has changed, is no workload, has no session in that part, or holds a task that
            fits no server.
    """
    part = _part(trace.file, trace.part or "all", trace.split)
    part.check_fits(max(tier.memory_gb for tier in config.cluster.tiers), trace.place)
    return part


def _from_a_moment_on(part: Workload, moment: float, until: float) -> Workload:
    """The workflows as recorded from a moment on, a share of the time recorded; its end is joined to its beginning."""
    times = part.arrival_s - part.arrival_s[0]
    length = times[-1] + times[-1] / max(1, len(times) - 1)  # a mean gap lies between the last and the first
    if length > 0:
        times = (times - moment * length) % length
    chosen = np.flatnonzero(times <= until)
    return part.take(chosen, times[chosen])


def _sessions(part: Workload) -> tuple[Ints, Ints]:
    """(S + 1,) and (W,): the workflows of session s, in order of arrival, are order[first[s] : first[s + 1]]."""
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
    rng = np.empty(4, dtype=np.uint64)
    sessions, of_workflow = np.unique(whole.session, return_inverse=True)
    trains = np.array([_is_below(rng, split.seed, session, split.train_share) for session in sessions])
    chosen = np.flatnonzero(trains[of_workflow] == (part == "train"))
    if len(chosen) == 0:
        raise UserError(
            f"{TraceConfig(file=file).place}: none of its {len(sessions)} sessions is in the {part} part; change "
            f"workload.trace.split.train_share {split.train_share} or split.seed {split.seed}"
        )
    return whole.take(chosen, whole.arrival_s[chosen])


@compiled
def _is_below(rng, seed, session, share):  # type: ignore[no-untyped-def]
    """Whether the number that seed and session decide is below the share."""
    seed_generator(rng, seed, session)
    return uniform(rng) < share


@lru_cache(maxsize=2)
def _load(file: str) -> Workload:
    """The workload of a pinned file."""
    return Workload.load(TraceConfig(file=file).path)
