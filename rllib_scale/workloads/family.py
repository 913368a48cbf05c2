"""Problems drawn from a family (`rllib_scale.config.family`): those of trainings, and the fixed ones of tests."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np

from rllib_scale.config import ClusterConfig, EnvConfig, NormalConfig, ProblemsConfig, TierConfig, WorkloadConfig
from rllib_scale.config.family import (
    CANONICAL_S,
    GFLOPS,
    KINDS,
    LATENCY_S,
    MEMORY_GB,
    MOST_GB,
    OUTPUT_GB,
    TEST_PROBLEMS,
    BasicProblems,
    Family,
    Kind,
)
from rllib_scale.config.problem import CommunicationConfig, EpisodeConfig, InformationConfig
from rllib_scale.config.workload import RateWaveConfig, Topology
from rllib_scale.workloads.random_numbers import mixed_seed, words_of

DRAWN, TEST, WORKLOADS = 11, 12, 13
"""Spawn keys that separate drawn problems, test problems and the workloads of test problems."""
TEST_SEED = 20_260_725


def draw(family: Family, seed: int, index: int, stratum: float | None = None) -> EnvConfig:
    """Problem `index` of a seed, both below 2**64, which depends on nothing else.

    `stratum`, in [0, 1), decides the kind and what is observed; None: they are drawn. Evenly spaced ones represent
    the kinds evenly, and whole and revealed workflows, too.
    """
    rng = np.random.default_rng(np.random.SeedSequence(words_of(seed, index), spawn_key=(DRAWN,)))
    drawn, p, q = rng.random(), family.agents_share, family.revealed_share
    ends = np.cumsum([(1 - p) * (1 - q), (1 - p) * q, p * q])  # whole, revealed; revealed, whole agents
    cell = int(np.searchsorted(ends, drawn if stratum is None else stratum, side="right"))
    return draw_kind(family, rng, KINDS[cell // 2], cell in (1, 2))


def draw_kind(family: Family, rng: np.random.Generator, kind: Kind, revealed: bool) -> EnvConfig:
    """A problem of a kind; `revealed` changes nothing else of it."""
    ranges: BasicProblems = getattr(family, kind)
    task_s = _log_uniform(rng, family.task_s)
    unit = task_s / CANONICAL_S
    arrivals_s = unit * _log_uniform(rng, family.arrivals_s)
    cluster = _cluster(ranges, rng, task_s * _log_uniform(rng, ranges.move), unit * LATENCY_S)
    memory_gb = [tier.memory_gb for tier in cluster.tiers]
    most_gb = max(memory_gb) if ranges.memory_per_place is None else min(memory_gb)
    return EnvConfig(
        cluster=cluster,
        workload=_workload(ranges, rng, task_s, arrivals_s, most_gb),
        episode=EpisodeConfig(
            horizon_s=_rounded(50 * arrivals_s + 2000 * task_s),  # so late that the system is empty before
            arrivals_until_s=_rounded(arrivals_s),
            first_arrival="at-zero",  # no episode is empty
            mask="feasible",
        ),
        communication=CommunicationConfig(mode="transfer" if rng.random() < ranges.transfer_share else "reward"),
        information=InformationConfig(workflows="revealed" if revealed else "whole"),
    )


def draw_played(
    problems: ProblemsConfig, env: EnvConfig, seed: int, index: int, stratum: float | None = None
) -> EnvConfig:
    """A problem of the family of a training, played as `env` is; arguments as of `draw`."""
    assert problems.family is not None
    drawn = draw(problems.family, seed, index, stratum)
    times = {name: getattr(drawn.episode, name) for name in ("horizon_s", "arrivals_until_s", "first_arrival")}
    played = {name: getattr(env, name) for name in ("decision", "observation", "reward")}
    return drawn.model_copy(update=played | {"episode": env.episode.model_copy(update=times)})


def fixed_problems(kind: Kind, revealed: bool) -> list[EnvConfig]:
    """TEST_PROBLEMS fixed problems of a kind, the same whole and revealed; no seed of `draw` gives any."""
    words = [words_of(TEST_SEED, len(KINDS) * k + KINDS.index(kind)) for k in range(TEST_PROBLEMS)]
    streams = [np.random.SeedSequence(each, spawn_key=(TEST,)) for each in words]
    return [draw_kind(Family(), np.random.default_rng(stream), kind, revealed) for stream in streams]


def fixed_seed(kind: Kind, problem: int, seed: int) -> int:
    """Seed of the workloads of a test problem in evaluations of a seed: 63 random bits."""
    return mixed_seed(WORKLOADS, *words_of(seed, len(KINDS) * problem + KINDS.index(kind)))


def _cluster(ranges: BasicProblems, rng: np.random.Generator, move_s: float, latency_s: float) -> ClusterConfig:
    """A cluster with a mean speed of GFLOPS and moves of a mean output in `move_s`."""
    count, servers = _whole(rng, ranges.tiers), _whole(rng, ranges.servers)
    counts = 1 + rng.multinomial(servers - count, rng.dirichlet([1.5] * count))
    places = rng.integers(ranges.places[0], ranges.places[1] + 1, count)
    low, high = map(math.log, ranges.speed_ratio)
    above = rng.uniform(0.0, high - low, count - 1)
    room = math.log(ranges.most_speed_ratio) - low * (count - 1)
    steps = low + above * min(1.0, room / max(above.sum(), 1e-9))
    speeds = np.exp(np.concatenate([[0.0], np.cumsum(steps)]))
    speeds *= GFLOPS / np.average(speeds, weights=counts * places)
    memory_gb = _memory_gb(ranges, rng, places, np.cumsum(speeds * counts * places))
    tiers = [
        {
            "name": f"tier{k}",
            "count": n,
            "max_concurrent": p,
            "compute_gflops": _rounded(s),
            "memory_gb": _rounded(m),
        }
        for k, (n, p, s, m) in enumerate(zip(counts, places, speeds, memory_gb, strict=True), start=1)
    ]
    return ClusterConfig(
        tiers=tuple(map(TierConfig.model_validate, tiers)),
        bandwidth_gb_s=_rounded(OUTPUT_GB / move_s),
        latency_s=_rounded(latency_s),
    )


def _memory_gb(ranges: BasicProblems, rng: np.random.Generator, places: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """(K,) memory of the servers of each tier; `capacity` (K,) is that of the tiers up to each."""
    if ranges.memory_per_place is not None:
        return np.asarray(places * MEMORY_GB.mean * rng.uniform(*ranges.memory_per_place))
    grows, needs = rng.random() < 0.5, rng.uniform(0.1, 1.0, len(places))
    # The share of tasks that fit none of the tiers so far is `needs` of the share of capacity that is faster.
    faster = np.clip(needs * (1 - capacity / capacity[-1]), 1e-9, 1 - 1e-9)
    fits = [MEMORY_GB.inv_cdf(1 - share) for share in faster]
    grown = np.maximum.accumulate(np.clip([*fits[:-1], MOST_GB], 1.0, MOST_GB))
    return grown if grows else np.full(len(places), MOST_GB)


def _workload(
    ranges: BasicProblems, rng: np.random.Generator, task_s: float, arrivals_s: float, most_gb: float
) -> WorkloadConfig:
    """A workload with tasks of `task_s` on average that need at most `most_gb`."""
    load, moves = rng.uniform(*ranges.offered_load), rng.random() < ranges.moving_share
    amplitude, period_s = rng.uniform(0.2, 0.8), arrivals_s * _log_uniform(rng, (0.5, 2.0))
    fewest, most = sorted((_whole(rng, ranges.tasks), _whole(rng, ranges.tasks)))
    is_chain, other = rng.random() < ranges.chain_share, int(rng.integers(len(get_args(Topology)) - 1))
    std = rng.uniform(*ranges.demand_std)
    plain = WorkloadConfig(min_tasks=1, max_tasks=1, compute_gflop=_normal(1.0, std, 0.1, "truncate"))
    mean = GFLOPS * task_s / plain.mean_workflow_gflop  # truncated, it is GFLOPS * task_s
    delay_s = None if ranges.delay is None else task_s * _log_uniform(rng, ranges.delay)
    return WorkloadConfig(
        offered_load=_rounded(load),
        rate_wave=RateWaveConfig(period_s=_rounded(period_s), amplitude=_rounded(amplitude)) if moves else None,
        min_tasks=fewest,
        max_tasks=most,
        compute_gflop=_normal(mean, std, 0.1, "truncate"),
        memory_gb=NormalConfig(mean=MEMORY_GB.mean, std=MEMORY_GB.stdev, low=1, high=min(most_gb, MOST_GB)),
        output_gb=_normal(OUTPUT_GB, 0.4, 0.02),
        delay_s=None if delay_s is None else _normal(delay_s, 0.5, 0.05),
        topology="chain" if is_chain else [name for name in get_args(Topology) if name != "chain"][other],
    )


def _normal(mean: float, std: float, low: float, bound: Literal["truncate", "clip"] = "clip") -> NormalConfig:
    """A normal distribution with `std` and `low` over its mean."""
    return NormalConfig(mean=_rounded(mean), std=_rounded(std * mean), low=_rounded(low * mean), bound=bound)


def _whole(rng: np.random.Generator, ends: tuple[int, int]) -> int:
    return int(rng.integers(ends[0], ends[1] + 1))


def _log_uniform(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    return math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1])))


def _rounded(value: float) -> float:
    """Six digits: logarithms of two machines may differ in the last bit."""
    return float(f"{value:.6g}")
