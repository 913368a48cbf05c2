"""What an experiment is: strict, immutable models of a cluster, a workload, a training and a sweep.

Every number the paper states is a default here; every point it leaves open is a named field with a
calibrated default. Nothing in this module imports numpy, torch, gymnasium or ray.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MIN_SERVERS = 4
"""Smallest cluster a tier ratio is scaled to."""
MAX_SERVERS = 1_000_000
"""Largest one; beyond it an observation alone takes more than 20 MB."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
MaskMode = Literal["none", "feasible"]
DecisionMode = Literal["argmax", "sample"]


class Model(BaseModel):
    """Base of every config model: unknown keys are refused and values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# --------------------------------------------------------------------------- cluster


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


# --------------------------------------------------------------------------- workload


class NormalConfig(Model):
    """Normal distribution kept between `low` and `high`, by redrawing (truncate) or by moving to the edge (clip)."""

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
        if self.bound == "truncate" and (self.mean + 3 * self.std < self.low or self.mean - 3 * self.std > high):
            raise ValueError(f"low {self.low} and high {high} lie more than 3 standard deviations from the mean")
        return self


Topology = Literal["random-predecessors", "chain", "fork-join", "layered", "erdos-renyi", "tree"]


class WorkloadConfig(Model):
    """How workflows arrive and what they look like [SCALE, sec. 5]."""

    arrival_rate_per_server: Positive = Field(default=1 / 16, description="workflows per second and server")
    offered_load: Positive | None = Field(
        default=None,
        description="work offered over capacity; replaces arrival_rate_per_server where it is set",
    )
    min_tasks: Count = 3
    max_tasks: Annotated[int, Field(ge=1, le=4096)] = 8
    compute_gflop: NormalConfig = NormalConfig(mean=10, std=3, low=1, bound="truncate")
    memory_gb: NormalConfig = NormalConfig(mean=16, std=8, low=1, high=80)
    output_gb: NormalConfig = NormalConfig(mean=0.5, std=0.2, low=0.01)
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

    @property
    def mean_workflow_gflop(self) -> float:
        """Expected compute demand of one workflow in GFLOP, bounds of the distribution taken into account."""
        dist = self.compute_gflop
        mean_tasks = (self.min_tasks + self.max_tasks) / 2
        if dist.std == 0:
            return mean_tasks * min(max(dist.mean, dist.low), math.inf if dist.high is None else dist.high)

        def cdf(x: float) -> float:
            return 0.5 * math.erfc(-x / math.sqrt(2))

        def pdf(x: float) -> float:
            return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)

        a = (dist.low - dist.mean) / dist.std
        b = math.inf if dist.high is None else (dist.high - dist.mean) / dist.std
        inside = cdf(b) - cdf(a)
        partial = dist.mean * inside + dist.std * (pdf(a) - pdf(b))
        if dist.bound == "truncate":
            return mean_tasks * partial / inside
        above = 0.0 if dist.high is None else dist.high * (1 - cdf(b))
        return mean_tasks * (partial + dist.low * cdf(a) + above)


# --------------------------------------------------------------------------- episode, reward, observation


class EpisodeConfig(Model):
    """The clock of an episode. The paper leaves all of it open; the defaults are the calibrated ones."""

    horizon_s: Positive = Field(default=12.0, description="the episode is cut here")
    arrivals_until_s: Positive | None = Field(
        default=None, description="no workflow arrives later; the episode then ends when the system is empty"
    )
    clock_step_s: Positive = Field(default=0.1, description="dt, what an invalid decision advances the clock by")
    idle_advance: Literal["event", "clock-step"] = Field(
        default="event", description="with no ready task: on to the next event, or by clock_step_s"
    )
    first_arrival: Literal["exponential", "at-zero"] = Field(
        default="exponential", description="the system starts empty; when the first workflow arrives"
    )
    mask: MaskMode = Field(
        default="none",
        description="feasible: a decision is asked for only when an idle server fits, and others are masked",
    )
    horizon_is_terminal: bool = Field(default=True, description="whether the cut counts as a terminal state")
    max_decisions: Count | None = Field(
        default=None, description="cuts the episode too, right after that many decisions"
    )


class RewardConfig(Model):
    """Reward of a decision [SCALE, sec. 4.1].

    `paper` pays for fast execution; `tasks-in-system` is -(tasks in the system), integrated over time.
    """

    name: Literal["paper", "tasks-in-system"] = "paper"
    time_weight: NonNegative = Field(default=1.0, description="w_tau")
    time_scale_s: Positive = Field(default=1.0, description="s_tau")
    communication_weight: NonNegative = Field(default=0.1, description="alpha")
    communication_scale_s: Positive = Field(default=0.16, description="delta_max, open in the paper")
    energy_weight: NonNegative = Field(default=0.0, description="beta")
    energy_scale_j: Positive = Field(default=2000.0, description="e_max, open in the paper; e is busy power x time")
    invalid_reward: Finite = Field(default=-0.001, description="of an invalid decision")


class ObservationConfig(Model):
    """The feature set and its normalisers C_max and M_max, which the paper leaves open for tasks."""

    feature_set: Literal["paper"] = "paper"
    task_compute_max_gflop: Positive = 20.0
    server_compute_max_gflops: Positive = 4.0
    memory_max_gb: Positive = Field(default=80.0, description="M_max, of tasks and servers alike")


class EnvConfig(Model):
    """One scheduling problem: cluster, workload, clock, reward, observation."""

    cluster: ClusterConfig = ClusterConfig()
    workload: WorkloadConfig = WorkloadConfig()
    episode: EpisodeConfig = EpisodeConfig()
    reward: RewardConfig = RewardConfig()
    observation: ObservationConfig = ObservationConfig()

    @model_validator(mode="after")
    def _every_task_fits(self) -> EnvConfig:
        largest = max(tier.memory_gb for tier in self.cluster.tiers)
        high = self.workload.memory_gb.high
        if high is None or high > largest:
            raise ValueError(
                f"workload.memory_gb.high is {high}: a task that fits no server could be drawn; "
                f"it must be at most {largest}, the memory of the largest server in GB"
            )
        return self

    @property
    def arrival_rate(self) -> float:
        """Workflows per second for the whole cluster."""
        if self.workload.offered_load is not None:
            return self.workload.offered_load * self.cluster.total_gflops / self.workload.mean_workflow_gflop
        return self.workload.arrival_rate_per_server * self.cluster.num_servers

    def at_scale(self, servers: int) -> EnvConfig:
        """The same problem at another number of servers, arrivals in proportion."""
        return self.model_copy(update={"cluster": self.cluster.scaled(servers)})

    def with_mask(self, mask: MaskMode) -> EnvConfig:
        """The same problem with another action mask."""
        return self.model_copy(update={"episode": self.episode.model_copy(update={"mask": mask})})


def _steady(load: float) -> EnvConfig:
    return EnvConfig(
        workload=WorkloadConfig(offered_load=load),
        episode=EpisodeConfig(horizon_s=550.0, arrivals_until_s=150.0, mask="feasible"),
    )


SCENARIOS: dict[str, tuple[EnvConfig, str]] = {
    "paper": (EnvConfig(), "the paper's experiment, open points calibrated: overload, 12 s, no mask"),
    "steady-0.5": (_steady(0.5), "offered load 0.5, arrivals for 150 s, then drained; feasible servers only"),
    "steady-0.7": (_steady(0.7), "offered load 0.7, arrivals for 150 s, then drained; feasible servers only"),
    "steady-0.9": (_steady(0.9), "offered load 0.9, arrivals for 150 s, then drained; feasible servers only"),
}


def scenario(name: str) -> EnvConfig:
    """The named scenario's problem at its training scale, N = 16."""
    if name not in SCENARIOS:
        raise ValueError(f"unknown scenario {name!r}; valid: {', '.join(SCENARIOS)}")
    return SCENARIOS[name][0]


# --------------------------------------------------------------------------- training


class NetworkConfig(Model):
    """Sizes of the networks [SCALE, sec. 4.2 and 5]."""

    embedding_dim: Count = 16
    num_heads: Count = 4
    num_blocks: Count = 2
    critic_hidden: Count = 64
    mlp_hidden: tuple[Count, ...] = Field(default=(256, 256), min_length=1)
    standardise: Literal["fixed", "none"] = Field(
        default="fixed", description="inputs standardised by fixed constants inside the network, or raw"
    )

    @model_validator(mode="after")
    def _heads_divide(self) -> NetworkConfig:
        if self.embedding_dim % self.num_heads:
            raise ValueError(f"embedding_dim {self.embedding_dim} is not a multiple of num_heads {self.num_heads}")
        return self


class SRRConfig(Model):
    """Regulariser on the attention feature [SCALE, sec. 4.3]."""

    lambda_decorrelation: NonNegative = Field(default=0.01, description="lambda_1, weight of L_c")
    lambda_kl: NonNegative = Field(default=0.001, description="lambda_2, weight of L_d")
    ramp_start_epoch: NonNegative = 10
    ramp_epochs: Positive = 50
    reduction: Literal["sum", "mean"] = Field(default="sum", description="over the off-diagonal entries of L_c")


class TrainingConfig(Model):
    """PPO as in the paper [SCALE, sec. 5]."""

    epochs: Count = Field(default=1000, description="one collect and its update; also the length of the cosine")
    learning_rate: Positive = 3e-4
    final_learning_rate: NonNegative = 5e-5
    gamma: Fraction = 0.99
    gae_lambda: Fraction = 0.95
    clip: Positive = 0.2
    entropy_coefficient: NonNegative = 0.01
    value_coefficient: NonNegative = Field(default=0.5, description="c_1, open in the paper")
    gradient_clip: Positive = Field(default=0.5, description="global norm")
    steps_per_epoch: Count = 1024
    num_envs: Count = Field(default=4, description="parallel environments an environment runner")
    minibatch_size: Annotated[int, Field(ge=2)] = 256
    passes: Count = 8
    adam_epsilon: Positive = 1e-5

    @model_validator(mode="after")
    def _divides(self) -> TrainingConfig:
        if self.steps_per_epoch % self.minibatch_size:
            raise ValueError(
                f"steps_per_epoch {self.steps_per_epoch} is not a multiple of minibatch_size {self.minibatch_size}"
            )
        return self


class StopConfig(Model):
    """Where a training ends; unset: after `training.epochs`. The cosine's length stays that of `training.epochs`."""

    epochs: Count | None = None
    env_steps: Count | None = Field(default=None, description="rounded up to whole epochs")

    @model_validator(mode="after")
    def _one_of_two(self) -> StopConfig:
        if self.epochs is not None and self.env_steps is not None:
            raise ValueError("give epochs or env_steps, not both")
        return self


@dataclass(frozen=True)
class MethodSpec:
    """What a method name stands for."""

    network: Literal["cross-attention", "mlp"]
    srr: bool
    description: str

    @property
    def any_scale(self) -> bool:
        """Whether a trained policy runs at another number of servers."""
        return self.network == "cross-attention"


METHODS: dict[str, MethodSpec] = {
    "scale": MethodSpec("cross-attention", True, "cross-attention pointer trained by PPO with SRR"),
    "crossattn": MethodSpec("cross-attention", False, "cross-attention pointer trained by PPO, no SRR"),
    "ppo": MethodSpec("mlp", False, "structured MLP trained by PPO, fixed number of servers"),
    "ppo-srr": MethodSpec("mlp", True, "structured MLP trained by PPO with SRR, fixed number of servers"),
}


class TrialResources(Model):
    """What one training asks Ray for, and which environment runner and update loop work for it."""

    sampler: Literal["array", "rllib"] = Field(
        default="array", description="our environment runner over whole arrays, or RLlib's own step by step"
    )
    learner: Literal["lean", "rllib"] = Field(
        default="lean", description="our update loop over whole arrays, or RLlib's own; equal but for rounding"
    )
    env_runners: Annotated[int, Field(ge=0)] = Field(default=0, description="remote samplers; 0 samples in the learner")
    cpus: Positive = Field(default=1.0, description="of the learner process; each environment runner takes one more")


class TrialConfig(Model):
    """One training: a cell of a sweep."""

    method: str = "scale"
    seed: Seed = 42
    env: EnvConfig = EnvConfig()
    training: TrainingConfig = TrainingConfig()
    stop: StopConfig = StopConfig()
    srr: SRRConfig = SRRConfig()
    network: NetworkConfig = NetworkConfig()
    resources: TrialResources = TrialResources()

    @model_validator(mode="after")
    def _method_decides_srr(self) -> TrialConfig:
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}; valid: {', '.join(METHODS)}")
        if not METHODS[self.method].srr:
            # One cell, whatever lambda grid it stands in: a method without SRR has no lambdas.
            object.__setattr__(self, "srr", SRRConfig(lambda_decorrelation=0, lambda_kl=0))
        return self

    @property
    def spec(self) -> MethodSpec:
        """The registry entry of this trial's method."""
        return METHODS[self.method]

    @property
    def stop_epochs(self) -> int:
        """Epochs after which the training ends."""
        if self.stop.env_steps is not None:
            return -(-self.stop.env_steps // self.training.steps_per_epoch)
        return self.stop.epochs or self.training.epochs

    @property
    def cell(self) -> str:
        """Hash of everything that decides the trained weights (twelve hex digits)."""
        content = self.model_dump(mode="json")
        content["resources"] = self.resources.model_dump(include={"env_runners", "sampler", "learner"})
        return digest(content)

    @property
    def name(self) -> str:
        """Readable and unique within a sweep: method, seed and cell hash."""
        return f"{self.method}-s{self.seed}-{self.cell}"


def digest(content: Any) -> str:
    """Twelve hex digits of the SHA-256 of a JSON value in canonical form."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
