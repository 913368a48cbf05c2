"""Servers: hardware tiers, their counts at any number of servers, and the network between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from rllib_scale.config.base import MAX_SERVERS, MIN_SERVERS, Model, NonNegative, Positive
from rllib_scale.config.paths import Refers
from rllib_scale.config.replicas import Replica
from rllib_scale.config.yaml_files import explain
from rllib_scale.errors import choice_error

MAX_PLACES, MAX_LABELS = 1024, 62
"""Places of a server, and different labels of a cluster or a workload: each is a bit of a whole number."""
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/=+-]*$", max_length=400)]


def server_property(unit: str, **settings: Any) -> Any:
    """A field of `TierConfig` that is a number of each server: simulator, views, features and live servers have it."""
    return Field(json_schema_extra={"unit": unit}, **settings)


class TierConfig(Model):
    """A hardware class of identical servers [SCALE, sec. 5]."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    count: Annotated[int, Field(ge=1, le=MAX_SERVERS)]
    compute_gflops: Positive = server_property("GFLOPS")
    memory_gb: Positive = server_property("GB")
    idle_power_w: NonNegative = server_property("W", default=0.0)
    busy_power_w: NonNegative = server_property("W", default=0.0)
    max_concurrent: Annotated[int, Field(ge=1, le=MAX_PLACES)] = server_property(
        "1",
        default=1,
        description="tasks that a server runs at once, each at compute_gflops; they share its memory",
    )
    slowdown: NonNegative = server_property(
        "1",
        default=0.0,
        description="an execution takes 1 + slowdown x (other tasks running there at its start) times as long",
    )
    replica: Annotated[Replica, Refers("replica")] | None = Field(
        default=None,
        description="with `service: replica`, what its servers are: a preset, a file of `rllib-scale fit-replica`, or "
        "coefficients; compute_gflops and memory_gb then act on nothing",
    )
    labels: tuple[Label, ...] = Field(
        default=(),
        description="what its servers offer, as a GPU type, a model, a region; a task needs all of its labels there",
    )
    ratio: Annotated[int, Field(ge=1, le=MAX_SERVERS)] | None = Field(
        default=None, description="the tier's part of the servers, which `servers: N` has rounded to count; null: count"
    )

    @model_validator(mode="before")
    @classmethod
    def _replicas_need_no_speed(cls, value: Any) -> Any:
        is_replica = isinstance(value, dict) and value.get("replica") is not None
        return {"compute_gflops": 1.0, "memory_gb": 1.0} | value if is_replica else value

    @field_validator("labels")
    @classmethod
    def _in_order(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _busy_draws_at_least_idle(self) -> TierConfig:
        if self.busy_power_w < self.idle_power_w:
            raise ValueError(f"busy_power_w {self.busy_power_w} is below idle_power_w {self.idle_power_w}")
        return self


PROPERTIES: dict[str, Any] = {
    name: field.annotation
    for name, field in TierConfig.model_fields.items()
    if isinstance(field.json_schema_extra, dict) and "unit" in field.json_schema_extra
}
"""The numbers of a server, float or int, by name."""
PAPER_TIERS = (
    TierConfig(name="small", count=4, compute_gflops=1.0, memory_gb=8.0, idle_power_w=30.0, busy_power_w=100.0),
    TierConfig(name="medium", count=10, compute_gflops=2.0, memory_gb=32.0, idle_power_w=50.0, busy_power_w=200.0),
    TierConfig(name="large", count=2, compute_gflops=4.0, memory_gb=80.0, idle_power_w=80.0, busy_power_w=400.0),
)
LLM_TIERS = tuple(
    TierConfig(
        name=name,
        count=count,
        max_concurrent=max_concurrent,
        compute_gflops=gflops,
        memory_gb=memory_gb,
        idle_power_w=idle_w,
        busy_power_w=busy_w,
        slowdown=0.02,
    )
    for name, count, max_concurrent, gflops, memory_gb, idle_w, busy_w in (
        ("l40s", 6, 2, 0.57, 27.0, 35.0, 350.0),
        ("a100", 6, 3, 1.0, 56.0, 55.0, 400.0),
        ("h100", 3, 3, 1.64, 56.0, 70.0, 700.0),
        ("h100x4", 1, 8, 2.17, 272.0, 280.0, 2800.0),
    )
)
"""Servers of a language model of 8 B parameters in 16 bit (16 GB), which run several calls at once.

Memory: 90 % of the GPU's 48 or 80 GB (NVIDIA's datasheets of L40S, A100 80GB SXM and H100 SXM; 90 % is vLLM's default)
minus the weights, which leaves room for the KV caches of running calls; four H100 in tensor parallel have 4 x 72 - 16.
Speed: decoding reads weights and caches once per token, so a token on a full server takes its bytes (16 GB + 17 GB per
call, the median context of coding agents) over its memory bandwidth (864, 2 039 and 3 350 GB/s; four together 75 % of
13 400, assumed), in units of the a100. That a server with free places is faster is left out. Power: the datasheets'
maximum; idle about a tenth of it, assumed. slowdown: the cost of other calls' prefills, assumed. The counts are
assumed, too.
"""
CLUSTER_PRESETS = {
    "paper-16": (PAPER_TIERS, 16),
    "paper-32": (PAPER_TIERS, 32),
    "paper-48": (PAPER_TIERS, 48),
    "llm-16": (LLM_TIERS, 16),
}


def scale_counts(counts: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Counts in the same ratio that sum to `total` (largest remainder). Each is at least one where `total` allows it.

    >>> scale_counts((4, 10, 2), 48), scale_counts((4, 10, 2), 2)
    ((12, 30, 6), (1, 1, 0))
    """
    least = int(total >= len(counts))
    shares = [total * c / sum(counts) for c in counts]
    scaled = [max(least, math.floor(s)) for s in shares]
    by_remainder = sorted(range(len(counts)), key=lambda k: (-(shares[k] - scaled[k]), k))
    position = 0
    while sum(scaled) < total:
        scaled[by_remainder[position % len(counts)]] += 1
        position += 1
    while sum(scaled) > total:
        most = max(
            range(len(counts)), key=lambda k: (scaled[k] - shares[k] if scaled[k] > least else -math.inf, scaled[k])
        )
        scaled[most] -= 1
    return tuple(scaled)


def label_bits(labels: Iterable[str], names: Sequence[str]) -> int:
    """A set of labels as bits, bit k for names[k]. One that is not among the names is bit MAX_LABELS, which none is."""
    return sum({1 << (names.index(label) if label in names else MAX_LABELS) for label in labels})


class ChangeConfig(Model):
    """One scheduled change: some servers join, drain or fail.

    Servers are numbered tier by tier from 0. `share` names the last servers of each tier instead, rounded to whole
    servers, at every scale.
    """

    time_s: NonNegative
    event: Literal["join", "drain", "fail"] = Field(
        description="drain: no more tasks start, and the server leaves when its tasks end; fail: it leaves at once"
    )
    servers: tuple[Annotated[int, Field(ge=0)], ...] = ()
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    tiers: tuple[str, ...] = Field(default=(), description="with share: of these tiers only; empty: all")

    @model_validator(mode="after")
    def _names_servers(self) -> ChangeConfig:
        if bool(self.servers) == (self.share is not None):
            raise ValueError("give servers, by number, or share, one of the two")
        if self.tiers and self.share is None:
            raise ValueError("tiers go with share")
        return self


class ChangesConfig(Model):
    """Servers that join, drain and fail during an episode [SCALE, sec. 3], by a schedule or at random times.

    The random times of a server depend on (seed, episode) and its number only. Servers in the schedule have none. A
    server whose first scheduled change is a join is absent before it.
    """

    schedule: tuple[ChangeConfig, ...] = ()
    failures_per_1000_h: NonNegative = Field(default=0.0, description="rate of one server; exponential times")
    repair_s: Positive | None = Field(
        default=None, description="mean repair time, exponential; unset: it does not return"
    )
    departures_per_h: NonNegative = Field(default=0.0, description="rate of one server, with notice: spot capacity")
    notice_s: NonNegative = Field(
        default=30.0, description="the server drains so long, then fails with its running tasks"
    )
    return_s: Positive | None = Field(default=None, description="mean time until it returns; unset: it does not return")
    tiers: tuple[str, ...] = Field(default=(), description="tiers whose servers fail and depart at random; empty: all")

    @property
    def at_random(self) -> bool:
        """Whether servers change at random times."""
        return self.failures_per_1000_h > 0 or self.departures_per_h > 0

    @property
    def none(self) -> bool:
        """Whether no server changes."""
        return not (self.schedule or self.at_random)


class ClusterConfig(Model):
    """Servers and the network between them.

    In YAML a preset (`cluster: paper-32`), `servers: N` (the tiers at N servers in total), or `tiers` with counts.
    """

    texts: ClassVar = tuple(CLUSTER_PRESETS)

    tiers: tuple[TierConfig, ...] = Field(default=PAPER_TIERS, min_length=1)
    servers: Annotated[int, Field(ge=MIN_SERVERS, le=MAX_SERVERS)] | None = Field(
        default=None,
        description="rescales the tier counts to this total in their ratio; with fewer than tiers, some are left out",
    )
    empty_slots: Annotated[int, Field(ge=0, le=MAX_SERVERS)] = Field(
        default=0, description="empty rows of capacity 0 after the last tier"
    )
    bandwidth_gb_s: Positive = 10.0
    latency_s: NonNegative = 0.01
    changes: ChangesConfig = Field(default=ChangesConfig(), description="servers that join, drain and fail")

    @classmethod
    def written_out(cls, value: Any) -> Any:
        """The tiers and the number of servers of a preset."""
        if isinstance(value, str):
            if value not in CLUSTER_PRESETS:
                raise ValueError(str(choice_error("cluster", value, CLUSTER_PRESETS)))
            tiers, servers = CLUSTER_PRESETS[value]
            return {"tiers": [tier.model_dump(mode="json") for tier in tiers], "servers": servers}
        return value

    @model_validator(mode="after")
    def _rescale(self) -> ClusterConfig:
        if len({tier.name for tier in self.tiers}) < len(self.tiers):
            raise ValueError("tier names must differ")
        parts = tuple(tier.ratio or tier.count for tier in self.tiers)
        counts = tuple(tier.count for tier in self.tiers)
        if self.servers is not None:
            counts = scale_counts(parts, self.servers)
        common, total = math.gcd(*parts), sum(counts)
        exact = all(count * sum(parts) == part * total for count, part in zip(counts, parts, strict=True))
        ratio = [None if exact else part // common for part in parts]
        tiers = [
            tier.model_copy(update={"count": count, "ratio": part})
            for tier, count, part in zip(self.tiers, counts, ratio, strict=True)
            if count > 0
        ]
        object.__setattr__(self, "tiers", tuple(tiers))
        object.__setattr__(self, "servers", None)
        return self

    @model_validator(mode="after")
    def _labels_are_bits(self) -> ClusterConfig:
        if len(self.label_names) > MAX_LABELS:
            raise ValueError(f"tiers: {len(self.label_names)} different labels; valid: at most {MAX_LABELS}")
        return self

    @model_validator(mode="after")
    def _changes_name_servers(self) -> ClusterConfig:
        names = [tier.name for tier in self.tiers]
        for where, tiers in (
            ("changes", self.changes.tiers),
            *((f"changes.schedule.{i}", change.tiers) for i, change in enumerate(self.changes.schedule)),
        ):
            for name in tiers:
                if name not in names:
                    raise ValueError(f"{where}.tiers: {choice_error('tier', name, names)}")
        for i, change in enumerate(self.changes.schedule):
            for server in change.servers:
                if server >= self.num_servers:
                    raise ValueError(
                        f"changes.schedule.{i}.servers: no server {server}; valid: 0 to {self.num_servers - 1}"
                    )
        return self

    @property
    def tier_counts(self) -> str:
        """The tiers in words, as `small (4), medium (10)`."""
        return ", ".join(f"{tier.name} ({tier.count})" for tier in self.tiers)

    @property
    def num_servers(self) -> int:
        """Servers, without empty rows."""
        return sum(tier.count for tier in self.tiers)

    @property
    def num_rows(self) -> int:
        """N, the rows of observation and action space: the servers, then the empty ones."""
        return self.num_servers + self.empty_slots

    @property
    def num_places(self) -> int:
        """Tasks that all servers together run at once."""
        return sum(tier.count * tier.max_concurrent for tier in self.tiers)

    @property
    def total_gflops(self) -> float:
        """Compute capacity of all places in GFLOPS."""
        return sum(tier.count * tier.max_concurrent * tier.compute_gflops for tier in self.tiers)

    @property
    def label_names(self) -> tuple[str, ...]:
        """All labels of its servers; bit k of a set of labels is the k-th one."""
        return tuple(sorted({label for tier in self.tiers for label in tier.labels}))

    @property
    def labels_of_tiers(self) -> list[int]:
        """Labels of the servers of each tier, as bits."""
        names = self.label_names
        return [label_bits(tier.labels, names) for tier in self.tiers]

    @property
    def largest_memory_gb(self) -> float:
        """Memory of the largest server [GB]."""
        return max(tier.memory_gb for tier in self.tiers)

    def scaled(self, servers: int) -> ClusterConfig:
        """The same tier ratio at another number of servers, which earlier scalings that kept all tiers do not change.

        Raises:
            ValueError: the schedule names a server or a tier that does not exist then.
        """
        try:
            return ClusterConfig.model_validate(self.model_dump() | {"servers": servers})
        except ValidationError as error:
            raise ValueError(explain(error)) from None
