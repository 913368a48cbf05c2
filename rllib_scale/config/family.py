"""A family of scheduling problems: what a policy for any cluster is trained and tested on.

Problems are in canonical units: a mean task of 10 GFLOP on a mean place of 2 GFLOPS, 5 s. `Family.task_s` scales all
times, by scaling the demands. `algorithm.problems: any` draws by the defaults. `rllib_scale.workloads.family` draws.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from rllib_scale.config.base import MIN_SERVERS, Fraction, Model, Positive
from rllib_scale.config.cluster import ClusterConfig, TierConfig

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
TEST_PROBLEMS = 120
"""Fixed problems of each scenario."""
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
