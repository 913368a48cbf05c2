"""A family of scheduling problems: what a policy for any cluster is trained and tested on.

Problems are in canonical units: a mean task of 10 GFLOP on a mean place of 2 GFLOPS, 5 s. `Family.task_s` scales all
times, by scaling the demands. `training.problems: any` draws by the defaults.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import Field, model_validator

from rllib_scale.config.base import MIN_SERVERS, Fraction, Model, Positive
from rllib_scale.config.cluster import ClusterConfig, TierConfig
from rllib_scale.config.problem import CommunicationConfig, EnvConfig, EpisodeConfig, InformationConfig
from rllib_scale.config.workload import NormalConfig, RateWaveConfig, Topology, WorkloadConfig

Kind = Literal["basic", "agents"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Range = tuple[Positive, Positive]
Servers = Annotated[int, Field(ge=MIN_SERVERS, le=1024)]
Small = Annotated[int, Field(ge=1, le=64)]
Tasks = Annotated[int, Field(ge=1, le=512)]
Ratio = Annotated[float, Field(ge=1, le=100)]
Seconds = Annotated[Positive, Field(le=3600)]

CANONICAL_S, GFLOPS, OUTPUT_GB, LATENCY_S = 5.0, 2.0, 0.5, 0.01
"""Time of a mean task, mean speed of a place, mean output, latency of a move."""
MEMORY_GB, MOST_GB = NormalDist(16, 8), 80.0
"""Memory demand of tasks, and the largest one, as in the paper."""
DRAWN, TEST, WORKLOADS = 11, 12, 13
"""Spawn keys that separate drawn problems, test problems and the workloads of test problems."""
TEST_PROBLEMS, TEST_SEED = 120, 20_260_725
SCENARIOS: dict[str, tuple[Kind, bool]] = {
    "any": ("basic", False),
    "any-revealed": ("basic", True),
    "any-agents": ("agents", False),
    "any-agents-revealed": ("agents", True),
}
"""Scenarios of evaluations that hold TEST_PROBLEMS problems: their kind, and whether workflows are revealed."""


class _Ranges(Model):
    @model_validator(mode="after")
    def _ascend(self) -> _Ranges:
        for name, value in self:
            if isinstance(value, tuple) and value[0] > value[1]:
                raise ValueError(f"{name}: low {value[0]:g} is above high {value[1]:g}")
        return self


class BasicProblems(_Ranges):
    """Ranges of one kind of problems, from which numbers are drawn uniformly, or log-uniformly where it says so.

    Either every task fits every server (`memory_per_place`), or half of the clusters have equal memory and in the
    others it grows with speed, so that no part of a cluster is scarcer than all of it.
    """

    servers: tuple[Servers, Servers] = Field(default=(6, 48), description="of all tiers, divided by a Dirichlet draw")
    tiers: tuple[Small, Small] = (1, 4)
    speed_ratio: tuple[Ratio, Ratio] = Field(default=(1.2, 3.0), description="of a tier to the next slower one")
    most_speed_ratio: Ratio = Field(default=8.0, description="of the fastest tier to the slowest, at most")
    places: tuple[Small, Small] = Field(default=(1, 1), description="max_concurrent of each tier")
    memory_per_place: Range | None = Field(default=None, description="of a server, in mean tasks")
    offered_load: Range = (0.35, 1.1)
    moving_share: Fraction = Field(default=0.25, description="share of problems whose load follows a sine")
    tasks: tuple[Tasks, Tasks] = Field(default=(1, 14), description="min_tasks and max_tasks lie within")
    chain_share: Fraction = Field(default=1 / 6, description="share of chains; other topologies are equally likely")
    demand_std: tuple[Fraction, Fraction] = Field(
        default=(0.1, 1.0), description="of the compute demand, over its mean"
    )
    move: Range = Field(default=(0.003, 0.3), description="mean move over mean task time; log-uniform")
    transfer_share: Fraction = Field(default=0.5, description="share of problems whose moves take server time")
    delay: Range | None = Field(default=None, description="mean release delay over mean task time; log-uniform")

    @model_validator(mode="after")
    def _tiers_are_possible(self) -> BasicProblems:
        most = self.tiers[1]
        if most > self.servers[0]:
            raise ValueError(f"tiers {list(self.tiers)}: {most} tiers need {most} servers (got {self.servers[0]})")
        if self.speed_ratio[0] ** (most - 1) > self.most_speed_ratio:
            raise ValueError(f"most_speed_ratio {self.most_speed_ratio:g}: {most} tiers are further apart")
        return self

    def cluster(self, rng: np.random.Generator, move_s: float, latency_s: float) -> ClusterConfig:
        """A cluster with a mean speed of GFLOPS and moves of a mean output in `move_s`."""
        count, servers = _whole(rng, self.tiers), _whole(rng, self.servers)
        counts = 1 + rng.multinomial(servers - count, rng.dirichlet([1.5] * count))
        places = rng.integers(self.places[0], self.places[1] + 1, count)
        low, high = map(math.log, self.speed_ratio)
        above = rng.uniform(0.0, high - low, count - 1)
        room = math.log(self.most_speed_ratio) - low * (count - 1)
        steps = low + above * min(1.0, room / max(above.sum(), 1e-9))
        speeds = np.exp(np.concatenate([[0.0], np.cumsum(steps)]))
        speeds *= GFLOPS / np.average(speeds, weights=counts * places)
        memory_gb = self._memory_gb(rng, places, np.cumsum(speeds * counts * places))
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

    def _memory_gb(self, rng: np.random.Generator, places: np.ndarray, capacity: np.ndarray) -> np.ndarray:
        """(K,) memory of the servers of each tier; `capacity` (K,) is that of the tiers up to each."""
        if self.memory_per_place is not None:
            return np.asarray(places * MEMORY_GB.mean * rng.uniform(*self.memory_per_place))
        grows, needs = rng.random() < 0.5, rng.uniform(0.1, 1.0, len(places))
        # The share of tasks that fit none of the tiers so far is `needs` of the share of capacity that is faster.
        faster = np.clip(needs * (1 - capacity / capacity[-1]), 1e-9, 1 - 1e-9)
        fits = [MEMORY_GB.inv_cdf(1 - share) for share in faster]
        grown = np.maximum.accumulate(np.clip([*fits[:-1], MOST_GB], 1.0, MOST_GB))
        return grown if grows else np.full(len(places), MOST_GB)

    def workload(self, rng: np.random.Generator, task_s: float, arrivals_s: float, most_gb: float) -> WorkloadConfig:
        """A workload with tasks of `task_s` on average that need at most `most_gb`."""
        load, moves = rng.uniform(*self.offered_load), rng.random() < self.moving_share
        amplitude, period_s = rng.uniform(0.2, 0.8), arrivals_s * _log_uniform(rng, (0.5, 2.0))
        fewest, most = sorted((_whole(rng, self.tasks), _whole(rng, self.tasks)))
        is_chain, other = rng.random() < self.chain_share, int(rng.integers(len(get_args(Topology)) - 1))
        std = rng.uniform(*self.demand_std)
        plain = WorkloadConfig(min_tasks=1, max_tasks=1, compute_gflop=_normal(1.0, std, 0.1, "truncate"))
        mean = GFLOPS * task_s / plain.mean_workflow_gflop  # truncated, it is GFLOPS * task_s
        delay_s = None if self.delay is None else task_s * _log_uniform(rng, self.delay)
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


class AgentProblems(BasicProblems):
    """Ranges of problems like those of coding agents: servers of several places, long chains, moves, release delays."""

    servers: tuple[Servers, Servers] = (4, 24)
    places: tuple[Small, Small] = (2, 5)
    memory_per_place: Range | None = (0.8, 2.0)
    offered_load: Range = (0.4, 0.95)
    tasks: tuple[Tasks, Tasks] = (3, 60)
    chain_share: Fraction = 0.7
    move: Range = (0.05, 1.0)
    transfer_share: Fraction = 1.0
    delay: Range | None = (0.2, 5.0)


class Family(_Ranges):
    """Two kinds of problems, whose workflows are observed whole or revealed as they run."""

    agents_share: Fraction = Field(default=0.5, description="share of problems of the kind `agents`")
    revealed_share: Fraction = Field(default=0.5, description="share with `information.workflows: revealed`")
    task_s: Range = Field(default=(CANONICAL_S, CANONICAL_S), description="time of a mean task [s]; log-uniform")
    arrivals_s: tuple[Seconds, Seconds] = Field(
        default=(120.0, 120.0),
        description="time of arrivals where a mean task takes 5 s [s], log-uniform; then episodes go on until empty",
    )
    basic: BasicProblems = BasicProblems()
    agents: AgentProblems = AgentProblems()

    def draw(self, seed: int, index: int, stratum: float | None = None) -> EnvConfig:
        """Problem `index` of a seed, both below 2**64, which depends on nothing else.

        `stratum`, in [0, 1), decides the kind and what is observed; None: they are drawn. Evenly spaced ones represent
        the kinds evenly, and whole and revealed workflows, too.
        """
        rng = np.random.default_rng(np.random.SeedSequence(_words(seed, index), spawn_key=(DRAWN,)))
        drawn, p, q = rng.random(), self.agents_share, self.revealed_share
        ends = np.cumsum([(1 - p) * (1 - q), (1 - p) * q, p * q])  # whole, revealed; revealed, whole agents
        cell = int(np.searchsorted(ends, drawn if stratum is None else stratum, side="right"))
        return self.draw_kind(rng, KINDS[cell // 2], cell in (1, 2))

    def draw_kind(self, rng: np.random.Generator, kind: Kind, revealed: bool) -> EnvConfig:
        """A problem of a kind; `revealed` changes nothing else of it."""
        ranges: BasicProblems = getattr(self, kind)
        task_s = _log_uniform(rng, self.task_s)
        unit = task_s / CANONICAL_S
        arrivals_s = unit * _log_uniform(rng, self.arrivals_s)
        cluster = ranges.cluster(rng, task_s * _log_uniform(rng, ranges.move), unit * LATENCY_S)
        memory_gb = [tier.memory_gb for tier in cluster.tiers]
        most_gb = max(memory_gb) if ranges.memory_per_place is None else min(memory_gb)
        return EnvConfig(
            cluster=cluster,
            workload=ranges.workload(rng, task_s, arrivals_s, most_gb),
            episode=EpisodeConfig(
                horizon_s=_rounded(50 * arrivals_s + 2000 * task_s),  # so late that the system is empty before
                arrivals_until_s=_rounded(arrivals_s),
                first_arrival="at-zero",  # no episode is empty
                mask="feasible",
            ),
            communication=CommunicationConfig(mode="transfer" if rng.random() < ranges.transfer_share else "reward"),
            information=InformationConfig(workflows="revealed" if revealed else "whole"),
        )

    @property
    def places(self) -> tuple[int, int]:
        """Fewest and most places of a cluster."""
        low, high = ([k.servers[end] * k.places[end] for k in (self.basic, self.agents)] for end in (0, 1))
        return min(low), max(high)

    @property
    def largest(self) -> ClusterConfig:
        """A cluster that has in everything at least as much as any other: servers, places, speed, memory."""
        kinds = (self.basic, self.agents)
        most = TierConfig(
            name="most",
            count=max(kind.servers[1] for kind in kinds),
            compute_gflops=GFLOPS * max(kind.most_speed_ratio for kind in kinds),
            memory_gb=max(MOST_GB, *(MEMORY_GB.mean * k.places[1] * (k.memory_per_place or (1, 1))[1] for k in kinds)),
            max_concurrent=max(kind.places[1] for kind in kinds),
        )
        return ClusterConfig(tiers=(most,))


def test_problems(kind: Kind, revealed: bool) -> list[EnvConfig]:
    """TEST_PROBLEMS fixed problems of a kind, the same whole and revealed; no seed of `Family.draw` gives any."""
    words = [_words(TEST_SEED, len(KINDS) * k + KINDS.index(kind)) for k in range(TEST_PROBLEMS)]
    streams = [np.random.SeedSequence(each, spawn_key=(TEST,)) for each in words]
    return [Family().draw_kind(np.random.default_rng(stream), kind, revealed) for stream in streams]


def test_seed(kind: Kind, problem: int, seed: int) -> int:
    """Seed of the workloads of a test problem in evaluations of a seed: 63 random bits."""
    words = _words(seed, len(KINDS) * problem + KINDS.index(kind))
    return int(np.random.SeedSequence(words, spawn_key=(WORKLOADS,)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _normal(mean: float, std: float, low: float, bound: Literal["truncate", "clip"] = "clip") -> NormalConfig:
    """A normal distribution with `std` and `low` over its mean."""
    return NormalConfig(mean=_rounded(mean), std=_rounded(std * mean), low=_rounded(low * mean), bound=bound)


def _words(*numbers: int) -> tuple[int, ...]:
    """SeedSequence joins the 32-bit words of its numbers, so each number gets two."""
    return tuple(word for number in numbers for word in (number % 2**32, number >> 32))


def _whole(rng: np.random.Generator, ends: tuple[int, int]) -> int:
    return int(rng.integers(ends[0], ends[1] + 1))


def _log_uniform(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    return math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1])))


def _rounded(value: float) -> float:
    """Six digits: logarithms of two machines may differ in the last bit."""
    return float(f"{value:.6g}")
