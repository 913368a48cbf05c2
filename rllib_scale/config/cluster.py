"""Servers: hardware tiers, their counts at any number of servers, the network between them."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, model_validator

from rllib_scale.config.base import MAX_SERVERS, MIN_SERVERS, Count, Model, NonNegative, Positive


class TierConfig(Model):
    """A hardware class of identical servers [SCALE, sec. 5]."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    count: Count
    compute_gflops: Positive
    memory_gb: Positive
    idle_power_w: NonNegative = 0.0
    busy_power_w: NonNegative = 0.0

    @model_validator(mode="after")
    def _busy_draws_at_least_idle(self) -> TierConfig:
        if self.busy_power_w < self.idle_power_w:
            raise ValueError(f"busy_power_w {self.busy_power_w} is below idle_power_w {self.idle_power_w}")
        return self


PAPER_TIERS = (
    TierConfig(name="small", count=4, compute_gflops=1.0, memory_gb=8.0, idle_power_w=30.0, busy_power_w=100.0),
    TierConfig(name="medium", count=10, compute_gflops=2.0, memory_gb=32.0, idle_power_w=50.0, busy_power_w=200.0),
    TierConfig(name="large", count=2, compute_gflops=4.0, memory_gb=80.0, idle_power_w=80.0, busy_power_w=400.0),
)
CLUSTER_PRESETS = {"paper-16": 16, "paper-32": 32, "paper-48": 48}


def scale_counts(counts: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Counts of the same ratio that sum to `total` (largest remainder, at least one of each).

    >>> scale_counts((4, 10, 2), 48)
    (12, 30, 6)
    """
    if total < max(MIN_SERVERS, len(counts)):
        raise ValueError(f"{total} servers are too few: at least {max(MIN_SERVERS, len(counts))} are needed")
    shares = [total * c / sum(counts) for c in counts]
    scaled = [max(1, math.floor(s)) for s in shares]
    by_remainder = sorted(range(len(counts)), key=lambda k: (-(shares[k] - scaled[k]), k))
    position = 0
    while sum(scaled) < total:
        scaled[by_remainder[position % len(counts)]] += 1
        position += 1
    while sum(scaled) > total:
        most = max(range(len(counts)), key=lambda k: (scaled[k] - shares[k] if scaled[k] > 1 else -math.inf, scaled[k]))
        scaled[most] -= 1
    return tuple(scaled)


class ClusterConfig(Model):
    """Servers and the network between them.

    In YAML either a preset name (`cluster: paper-32`), or `servers: N` (the tiers at N servers in total),
    or own `tiers` with their counts.
    """

    tiers: tuple[TierConfig, ...] = Field(default=PAPER_TIERS, min_length=1)
    servers: Annotated[int, Field(ge=MIN_SERVERS, le=MAX_SERVERS)] | None = Field(
        default=None, description="rescales the tier counts to this total, keeping their ratio"
    )
    empty_slots: Annotated[int, Field(ge=0)] = Field(
        default=0, description="server slots of capacity 0 appended after the last tier"
    )
    bandwidth_gb_s: Positive = 10.0
    latency_s: NonNegative = 0.01

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in CLUSTER_PRESETS:
                raise ValueError(f"unknown cluster {value!r}; valid: {', '.join(CLUSTER_PRESETS)}")
            return {"servers": CLUSTER_PRESETS[value]}
        return value

    @model_validator(mode="after")
    def _rescale(self) -> ClusterConfig:
        if len({tier.name for tier in self.tiers}) < len(self.tiers):
            raise ValueError("tier names must differ")
        if self.servers is not None:
            counts = scale_counts(tuple(tier.count for tier in self.tiers), self.servers)
            tiers = tuple(t.model_copy(update={"count": c}) for t, c in zip(self.tiers, counts, strict=True))
            object.__setattr__(self, "tiers", tiers)
            object.__setattr__(self, "servers", None)
        return self

    @property
    def num_servers(self) -> int:
        """Real servers, empty slots not counted."""
        return sum(tier.count for tier in self.tiers)

    @property
    def num_slots(self) -> int:
        """Width N of the action space: real servers and empty slots."""
        return self.num_servers + self.empty_slots

    @property
    def total_gflops(self) -> float:
        """Compute capacity of the whole cluster in GFLOPS."""
        return sum(tier.count * tier.compute_gflops for tier in self.tiers)

    def scaled(self, servers: int) -> ClusterConfig:
        """The same tier ratio at another number of servers."""
        return ClusterConfig.model_validate(self.model_dump() | {"servers": servers})
