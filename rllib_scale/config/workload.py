"""Arrivals and tasks of workflows: by the paper's distributions, from a trace, or fitted to one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from rllib_scale.config.base import Count, Finite, Fraction, Model, NonNegative, Positive, Seed
from rllib_scale.config.paths import Refers
from rllib_scale.config.pinned import DIGEST_SEPARATOR, check_unchanged, content_of, digest_of, split
from rllib_scale.errors import UserError

_TABLES = Path(__file__).parents[1] / "workloads" / "tables"
TABLES = {path.stem: path for path in sorted(_TABLES.glob("*.json"))}
"""The shipped fitted tables."""
MOST_LEVELS = 24
"""Steps of a rate over time, as the hours of a day."""
MAX_LOAD = 10
"""Offered load of a setting: ten times what a cluster can do, and less than a percentage given by mistake."""

LEAST_SHARE = 0.001
"""Least share of draws that a truncation may keep: about what lies above 3 standard deviations."""


class NormalConfig(Model):
    """Normal distribution between `low` and `high`, by redrawing (truncate) or by moving to the bound (clip)."""

    mean: Finite
    std: NonNegative
    low: Positive
    high: Positive | None = None
    bound: Literal["truncate", "clip"] = "clip"

    @model_validator(mode="after")
    def _reachable(self) -> NormalConfig:
        high = math.inf if self.high is None else self.high
        if high < self.low:
            raise ValueError(f"high {high} is below low {self.low}")
        if self.bound == "truncate" and self.share_between < LEAST_SHARE:
            raise ValueError(
                f"low {self.low} and high {high}: only {self.share_between:.2g} of the draws lie between, and the "
                f"others are drawn again; valid: {LEAST_SHARE:g} or more of them, or bound clip"
            )
        return self

    @property
    def share_between(self) -> float:
        """Share of the normal distribution between `low` and `high`."""
        high = math.inf if self.high is None else self.high
        if self.std == 0:
            return float(self.low <= self.mean <= high)
        return _below((high - self.mean) / self.std) - _below((self.low - self.mean) / self.std)


def _below(x: float) -> float:
    """Share of the standard normal distribution below x."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


Topology = Literal["random-predecessors", "chain", "fork-join", "layered", "erdos-renyi", "tree"]
Part = Literal["train", "test", "all"]
ServicePart = Literal["train", "test", "all", "fitting", "validation"]
"""Fitting and validation divide train."""


class RateWaveConfig(Model):
    """A periodic rate of arrivals; the rate of the config is its mean over a period.

    `amplitude`: 1 + amplitude x sin(2 pi t / period) times the mean. `levels`: steps of equal length in proportion to
    each other; levels [0.4, 1.0, 0.6] at an offered load of 2/3 are loads of 0.4, 1.0 and 0.6.
    """

    period_s: Positive
    amplitude: Fraction = 0.0
    levels: tuple[NonNegative, ...] = Field(default=(), max_length=MOST_LEVELS)

    @model_validator(mode="after")
    def _one_shape(self) -> RateWaveConfig:
        if self.amplitude > 0 if self.levels else "amplitude" not in self.model_fields_set:
            raise ValueError("amplitude and levels: give one of the two")
        if self.levels and not any(self.levels):
            raise ValueError(f"levels {list(self.levels)}: at least one must be above 0")
        return self


class SplitConfig(Model):
    """The training sessions of a trace, chosen by session number and seed only; the others are for tests."""

    train_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    seed: Seed = 0


class TraceConfig(Model):
    """Workflows of a trace in place of synthetic ones. In YAML also `trace: FILE`."""

    text_key: ClassVar = "file"

    file: Annotated[str, Refers("file")] = Field(description="workload JSON, as `rllib-scale import` writes it")
    arrivals: Literal["poisson", "recorded"] = Field(
        default="poisson",
        description="poisson: at the rate of the config; recorded: at the times of the trace, whose end is joined to "
        "its beginning, from a time that (seed, episode) decides, at any number of servers",
    )
    sample: Literal["workflow", "session"] = Field(
        default="workflow",
        description="poisson: unit of draws with replacement; workflows of a session follow each other as recorded",
    )
    split: SplitConfig = SplitConfig()
    part: Part | None = Field(
        default=None,
        description="sessions to draw from; unset: all, but in a training train, and test in a sweep that trains on "
        "the trace or plays a policy that was trained on it",
    )

    @property
    def location(self) -> str:
        """The path of the file, for messages."""
        return split(self.file)[0]

    @property
    def path(self) -> Path:
        """The checked path of the file.

        Raises:
            UserError: the file is missing or has changed.
        """
        place, content = split(self.file)
        return check_unchanged(Path(place), content, "workload.trace.file")


class Recording(NamedTuple):
    """The trace of a problem: the config path of its settings, its pinned file, and which sessions are played."""

    key: str
    pinned: str
    split: SplitConfig
    part: ServicePart | None

    @property
    def file(self) -> str:
        """Its path, for messages."""
        return split(self.pinned)[0]

    def is_of(self, other: Recording | None) -> bool:
        """Whether both are parts of the same trace, wherever its files are."""
        return other is not None and content_of(self.pinned) == content_of(other.pinned)

    def check_unseen(self, name: str, seen: Recording | None) -> None:
        """Refuse sessions that a policy may have seen in its training.

        Args:
            name: of the policy.
            seen: what it was trained on.

        Raises:
            UserError: both are of the same trace, and this is not its test part by the split of the training.
        """
        if seen is None or not self.is_of(seen):
            return
        where = f"{name} was trained on sessions of {self.file}"
        if self.split != seen.split:
            share, seed = seen.split.train_share, seen.split.seed
            raise UserError(
                f"{self.key}.split: {where}, by another split; valid for all that is compared with it: its own, "
                f"train_share {share:g} and seed {seed}, and {self.key}.part test"
            )
        if self.part != "test":
            raise UserError(
                f"{self.key}.part {self.part or 'all'}: {where}; valid for all that is compared with it: "
                f"{self.key}.part test, whose sessions it has not seen"
            )


class FittedConfig(Model):
    """Workflows drawn by a table that was fitted to a trace. In YAML also `fitted: coding-agents`."""

    text_key: ClassVar = "table"

    table: Annotated[str, Refers("table")] = Field(description="coding-agents, or a file of `rllib-scale fit-workload`")

    @field_validator("table")
    @classmethod
    def _ours_is_pinned(cls, value: str) -> str:
        return f"{value}{DIGEST_SEPARATOR}{digest_of(TABLES[value])}" if value in TABLES else value

    @property
    def path(self) -> Path:
        """The checked path of the table.

        Raises:
            UserError: the table is missing or has changed.
        """
        place, content = split(self.table)
        return check_unchanged(TABLES.get(place, Path(place)), content, "workload.fitted.table")


class WorkloadConfig(Model):
    """Arrivals and tasks of workflows [SCALE, sec. 5].

    A trace, a fitted table or a generator replaces the settings of synthetic workflows, from min_tasks to branching.
    """

    arrival_rate_per_server: Positive = Field(default=1 / 16, description="workflows per second and server")
    offered_load: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="offered work over capacity; replaces arrival_rate_per_server",
    )
    rate_wave: RateWaveConfig | None = Field(
        default=None,
        description="periodic rate of arrivals; unset: a constant rate",
    )
    trace: TraceConfig | None = Field(default=None, description="replays a trace")
    fitted: FittedConfig | None = Field(default=None, description="draws workflows by a fitted table")
    generator: Annotated[str, Refers("generator")] | None = Field(
        default=None,
        description="draws workflows by a user-defined function, `package.module:Name` or an entry point: see "
        "docs/extending.md",
    )
    min_tasks: Count = 3
    max_tasks: Annotated[int, Field(ge=1, le=4096)] = 8
    compute_gflop: NormalConfig = NormalConfig(mean=10, std=3, low=1, bound="truncate")
    memory_gb: NormalConfig = NormalConfig(mean=16, std=8, low=1, high=80)
    output_gb: NormalConfig = NormalConfig(mean=0.5, std=0.2, low=0.01)
    delay_s: NormalConfig | None = Field(
        default=None,
        description="release delay: a task is ready so long after its predecessors end, or its workflow arrives",
    )
    topology: Topology = "random-predecessors"
    max_predecessors: Count = Field(default=2, description="random-predecessors: 1 to this many distinct earlier nodes")
    layer_width: Count = Field(default=3, description="layered: tasks a layer, uniform from 1")
    edge_probability: Fraction = Field(default=0.3, description="erdos-renyi: of each forward edge")
    branching: Count = Field(default=2, description="tree: children a node, at most")

    @model_validator(mode="after")
    def _ordered(self) -> WorkloadConfig:
        if self.max_tasks < self.min_tasks:
            raise ValueError(f"max_tasks {self.max_tasks} is below min_tasks {self.min_tasks}")
        return self

    @model_validator(mode="after")
    def _one_rate(self) -> WorkloadConfig:
        default = WorkloadConfig.model_fields["arrival_rate_per_server"].default
        if self.offered_load is not None and self.arrival_rate_per_server != default:
            raise ValueError(
                f"offered_load {self.offered_load:g} and arrival_rate_per_server {self.arrival_rate_per_server:g}: "
                "give one of the two, null for offered_load if it is the other"
            )
        if self.offered_load is not None and self.offered_load > MAX_LOAD:
            raise ValueError(
                f"offered_load {self.offered_load:g}: is offered work over capacity, and 0.7 is 70 %; "
                f"valid: above 0, at most {MAX_LOAD}"
            )
        return self

    @model_validator(mode="after")
    def _one_source(self) -> WorkloadConfig:
        if sum(source is not None for source in (self.trace, self.fitted, self.generator)) > 1:
            raise ValueError("trace, fitted and generator: give one of them, null for the others")
        if self.trace is not None and self.trace.arrivals == "recorded":
            for name in ("offered_load", "rate_wave"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}: with trace.arrivals recorded the trace says when workflows arrive; "
                        "valid: null, or trace.arrivals poisson"
                    )
        return self

    @property
    def is_synthetic(self) -> bool:
        """Whether workflows are drawn from distributions, not from a trace, a table or a generator."""
        return self.trace is None and self.fitted is None and self.generator is None

    @property
    def mean_workflow_gflop(self) -> float:
        """Expected compute demand of a synthetic workflow in GFLOP, within the bounds of the distribution."""
        dist = self.compute_gflop
        mean_tasks = (self.min_tasks + self.max_tasks) / 2
        if dist.std == 0:
            return mean_tasks * min(max(dist.mean, dist.low), math.inf if dist.high is None else dist.high)

        def pdf(x: float) -> float:
            return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)

        a = (dist.low - dist.mean) / dist.std
        b = math.inf if dist.high is None else (dist.high - dist.mean) / dist.std
        inside = dist.share_between
        partial = dist.mean * inside + dist.std * (pdf(a) - pdf(b))
        if dist.bound == "truncate":
            return mean_tasks * partial / inside
        above = 0.0 if dist.high is None else dist.high * (1 - _below(b))
        return mean_tasks * (partial + dist.low * _below(a) + above)
