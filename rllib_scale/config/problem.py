"""One scheduling problem: cluster, workload, clock, reward, observation [SCALE, sec. 3 to 5].

Numbers of the paper are defaults. Points that the paper leaves open are fields with calibrated defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import Count, Finite, Fraction, MaskMode, Model, NonNegative, Positive
from rllib_scale.config.cluster import ClusterConfig
from rllib_scale.config.replicas import ServiceConfig
from rllib_scale.config.workload import Recording, ServicePart, WorkloadConfig
from rllib_scale.errors import UserError

MAX_TASKS = 1e7
"""Tasks of an episode: its tables take gigabytes."""
MAX_TASKS_TIMES_SERVERS = 1e11
"""Tasks times servers of an episode: it takes about ten minutes, as a decision compares all servers."""


class EpisodeConfig(Model):
    """The clock of an episode. The paper leaves all of it open; the defaults are the calibrated ones."""

    horizon_s: Positive = Field(default=12.0, description="end of the episode")
    arrivals_until_s: Positive | None = Field(
        default=None, description="time of the last arrivals; the episode then ends when the system is empty"
    )
    clock_step_s: Annotated[Positive, Field(ge=1e-6)] = Field(
        default=0.1, description="dt, by which an invalid decision advances the clock"
    )
    idle_advance: Literal["event", "clock-step"] = Field(
        default="event", description="without ready tasks the clock advances to the next event, or by clock_step_s"
    )
    first_arrival: Literal["exponential", "at-zero"] = Field(
        default="exponential", description="arrival of the first workflow; the system starts empty"
    )
    mask: MaskMode = Field(
        default="none",
        description="feasible: decisions are requested only when an idle server fits, and other servers are masked",
    )
    horizon_is_terminal: bool = Field(default=True, description="whether the horizon is a terminal state")
    max_decisions: Count | None = Field(default=None, description="the episode ends after this many decisions, too")


NamedOrder = Literal[
    "longest-hop", "first-ready", "first-arrival", "most-descendants", "shortest-task", "descendants-per-work"
]


class DecisionConfig(Model):
    """When decisions are requested and what an answer means; the defaults are the paper's [SCALE, sec. 4.1].

    At an event the ready tasks are offered, one at a time in a named order, or several at once (`open`).
    """

    on_busy: Literal["step", "reserve"] = Field(
        default="step",
        description="if a chosen server is busy, step: the clock advances by clock_step_s; reserve: the task waits for "
        "it until the next event, and the next task is offered",
    )
    offer: Literal["all", "startable"] = Field(
        default="all",
        description="on_busy reserve: tasks that are offered, all that wait or those for which some server is open",
    )
    order: NamedOrder | Literal["open"] = Field(
        default="longest-hop", description="order of the offered tasks (level 1); open: the agent chooses"
    )
    ties: Literal["first-ready", "first-arrival"] = Field(
        default="first-ready",
        description="ties of the order: the task that was ready first, or the workflow that arrived first",
    )
    candidates: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=8, description="open: number K of tasks offered at once"
    )
    open_by: NamedOrder = Field(default="longest-hop", description="open: order by which the K tasks are selected")

    @model_validator(mode="after")
    def _rounds_are_filtered(self) -> DecisionConfig:
        if self.offer == "startable" and self.on_busy == "step":
            raise ValueError(
                "offer startable: goes with on_busy reserve; with step, episode.mask decides which tasks are offered"
            )
        return self

    @property
    def offered(self) -> int:
        """Number K of tasks offered at once."""
        return self.candidates if self.order == "open" else 1

    @property
    def ties_by_arrival(self) -> bool:
        """Whether ties go to the workflow that arrived first; first-ready and first-arrival decide it themselves."""
        return self.level1 == "first-arrival" or (self.ties == "first-arrival" and self.level1 != "first-ready")

    @property
    def level1(self) -> NamedOrder:
        """The order in which tasks are offered."""
        return self.open_by if self.order == "open" else self.order


class CommunicationConfig(Model):
    """Cost of moving a task's input to its server. In YAML also `communication: transfer`."""

    text_key: ClassVar = "mode"

    mode: Literal["reward", "transfer"] = Field(
        default="reward",
        description="reward: the delay enters features and reward only [SCALE, sec. 3]; transfer: it takes server "
        "time, too, before the execution",
    )
    predecessors: Literal["first", "all"] = Field(
        default="first", description="predecessors whose output is moved from other servers; all: in turn"
    )
    first: Literal["lowest-index", "largest-output"] = Field(
        default="lowest-index", description="the first predecessor, open in the paper"
    )


class InformationConfig(Model):
    """Observability of tasks for schedulers, and errors of estimates."""

    estimate_error: NonNegative = Field(
        default=0.0,
        description="coefficient of variation of the observed over the true compute demand: lognormal, mean 1, drawn "
        "for each task by a separate generator",
    )
    workflows: Literal["whole", "revealed"] = Field(
        default="whole",
        description="whole: a workflow is observed when it arrives; revealed: a task when its predecessors have ended",
    )
    straggler_share: Fraction = Field(
        default=0.0,
        description="share of tasks, drawn by a separate generator, that take straggler_factor times as long, which no "
        "scheduler observes",
    )
    straggler_factor: Annotated[Positive, Field(ge=1)] = Field(
        default=5.0, description="true compute demand of a straggler over that of the workload"
    )

    @property
    def straggles(self) -> bool:
        """Whether some tasks take longer than in the workload."""
        return self.straggler_share > 0 and self.straggler_factor > 1

    @property
    def label(self) -> str:
        """Observability: clairvoyant (whole workflows, exact demands), estimates, revealed, or `revealed estimates`."""
        revealed, estimates = self.workflows == "revealed", self.estimate_error > 0 or self.straggles
        return " ".join(["revealed"] * revealed + ["estimates"] * estimates) or "clairvoyant"


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
    energy_scale_j: Positive = Field(default=2000.0, description="e_max, open in the paper")
    energy_power: Literal["busy", "above-idle"] = Field(
        default="busy",
        description="energy e: busy power x time, which with the paper's powers is 100 J per GFLOP on every tier; or "
        "(busy - idle power) x time",
    )
    invalid_reward: Finite = Field(default=-0.001, description="reward of an invalid decision")


class ObservationConfig(Model):
    """The feature set and its normalisers C_max and M_max, which the paper leaves open for tasks.

    Units are for problems whose outputs and times differ much from the paper's, for which networks standardise.
    """

    feature_set: Literal["paper", "rounds"] = "paper"
    task_compute_max_gflop: Positive = 20.0
    server_compute_max_gflops: Positive = 4.0
    memory_max_gb: Positive = Field(default=80.0, description="M_max of tasks and servers")
    output_unit_gb: Positive = Field(default=1.0, description="unit of outputs")
    delay_unit_s: Positive = Field(default=1.0, description="unit of communication delays")
    time_unit_s: Positive = Field(default=1.0, description="unit of remaining times and waits")
    caches: Literal["exact", "own"] | Positive = Field(
        default="exact",
        description="what rules for replicas know of caches and queues: exact; a number: their state, read at "
        "intervals of this many seconds; or own, the router's memory of what it sent where",
    )


class EnvConfig(Model):
    """One scheduling problem: cluster, service, workload, clock, decisions, communication, reward, observation."""

    cluster: ClusterConfig = ClusterConfig()
    service: ServiceConfig = ServiceConfig()
    workload: WorkloadConfig = WorkloadConfig()
    episode: EpisodeConfig = EpisodeConfig()
    decision: DecisionConfig = DecisionConfig()
    communication: CommunicationConfig = CommunicationConfig()
    information: InformationConfig = InformationConfig()
    reward: RewardConfig = RewardConfig()
    observation: ObservationConfig = ObservationConfig()

    @model_validator(mode="after")
    def _replicas_serve_sessions(self) -> EnvConfig:
        if not self.on_replicas:
            if named := [tier.name for tier in self.cluster.tiers if tier.replica is not None]:
                raise ValueError(f"cluster.tiers: {named[0]} has a replica; valid: with service replica")
            if self.service != ServiceConfig():
                raise ValueError("service: name fixed has no settings; valid: leave them out, or name replica")
            if self.observation.caches != "exact":
                raise ValueError("observation.caches: has no effect with service fixed; leave it out")
            return self
        if missing := [tier.name for tier in self.cluster.tiers if tier.replica is None]:
            raise ValueError(
                f"cluster.tiers: service replica needs the `replica` of each tier, a preset or its coefficients; "
                f"missing: {', '.join(missing)}"
            )
        for name in ("workload", "decision", "communication", "information", "observation"):
            default = type(self).model_fields[name].default
            if name == "observation":
                default = default.model_copy(update={"caches": self.observation.caches})
            if getattr(self, name) != default:
                raise ValueError(f"{name}: has no effect with service replica; leave it out")
        for name, is_set in (
            ("cluster.changes", not self.cluster.changes.none),
            ("cluster.empty_slots", self.cluster.empty_slots > 1),
            ("cluster.tiers.labels", bool(self.cluster.label_names)),
            ("episode.arrivals_until_s", self.episode.arrivals_until_s is not None),
            ("episode.max_decisions", self.episode.max_decisions is not None),
        ):
            if is_set:
                raise ValueError(f"{name}: not with service replica; leave it out")
        if self.reward.name != "tasks-in-system":
            raise ValueError("reward.name paper: service replica has no such reward; valid: tasks-in-system")
        if self.service.warm_up_s >= self.episode.horizon_s:
            raise ValueError(
                f"service.warm_up_s {self.service.warm_up_s:g}: must be below episode.horizon_s "
                f"{self.episode.horizon_s:g}, the end of the episode"
            )
        # The row behind the replicas holds the call.
        object.__setattr__(self, "cluster", self.cluster.model_copy(update={"empty_slots": 1}))
        return self

    @model_validator(mode="after")
    def _every_task_fits(self) -> EnvConfig:
        if self.on_replicas:
            return self
        largest = self.cluster.largest_memory_gb
        high = self.workload.memory_gb.high
        if self.workload.is_synthetic and (high is None or high > largest):
            raise ValueError(
                f"workload.memory_gb.high is {high}: a task that fits no server could be drawn; "
                f"it must be at most {largest}, the memory of the largest server in GB; "
                f"tiers of the {self.cluster.num_servers} servers: {self.cluster.tier_counts}"
            )
        return self

    def check_arrivals(self, written: Mapping[str, Any]) -> None:
        """Refuse arrivals after the end of an episode, where `written`, its settings as in YAML, asks for them.

        Raises:
            ValueError: it does.
        """
        episode = written.get("episode")
        until_s, horizon_s = self.episode.arrivals_until_s, self.episode.horizon_s
        if isinstance(episode, Mapping) and "arrivals_until_s" in episode and (until_s or 0.0) > horizon_s:
            raise ValueError(
                f"episode.arrivals_until_s {until_s:g}: the episode ends before, at episode.horizon_s {horizon_s:g}; "
                "valid: at most that, or null"
            )

    def check_size(self) -> None:
        """Check that whole episodes of synthetic workflows can be played, as in an evaluation.

        Raises:
            UserError: they are too large to end.
        """
        if self.workload.is_synthetic and not self.on_replicas:
            seconds = min(self.episode.horizon_s, self.episode.arrivals_until_s or math.inf)
            tasks = self.arrival_rate * seconds * (self.workload.min_tasks + self.workload.max_tasks) / 2
            servers = self.cluster.num_servers
            if tasks > MAX_TASKS or tasks * servers > MAX_TASKS_TIMES_SERVERS:
                raise UserError(
                    f"an episode has about {tasks:.3g} tasks on {servers:,} servers (arrivals for {seconds:g} s); "
                    f"valid: at most {MAX_TASKS:.0e} tasks, and {MAX_TASKS_TIMES_SERVERS:.0e} tasks x servers"
                )

    @property
    def on_replicas(self) -> bool:
        """Whether servers are replicas of a language model."""
        return self.service.name == "replica"

    @property
    def masked(self) -> bool:
        """Whether observations have a mask of valid servers."""
        return self.episode.mask == "feasible" or self.decision.on_busy == "reserve"

    @property
    def offers_startable(self) -> bool:
        """Whether tasks for which no server is open are not offered."""
        return self.episode.mask == "feasible" or self.decision.offer == "startable"

    @property
    def costs_time(self) -> bool:
        """Whether an invalid answer costs time in which no task starts, as in the paper."""
        return not self.on_replicas and self.episode.mask == "none" and self.decision.on_busy == "step"

    @property
    def arrival_rate(self) -> float:
        """Synthetic workflows per second for the whole cluster."""
        return self.arrival_rate_of(self.workload.mean_workflow_gflop)

    def arrival_rate_of(self, mean_workflow_gflop: float) -> float:
        """Workflows per second for the whole cluster at a mean compute demand.

        Raises:
            UserError: the workflows have no work, and the rate is given as a load.
        """
        if self.workload.offered_load is not None:
            if mean_workflow_gflop <= 0:
                raise UserError(
                    f"workload.offered_load {self.workload.offered_load:g}: the workflows have no work and are no "
                    "load at any rate; set workload.arrival_rate_per_server, and workload.offered_load=null"
                )
            return self.workload.offered_load * self.cluster.total_gflops / mean_workflow_gflop
        return self.workload.arrival_rate_per_server * self.cluster.num_servers

    def at_scale(self, servers: int) -> EnvConfig:
        """The same problem at another number of servers, arrivals in proportion."""
        return self.model_copy(update={"cluster": self.cluster.scaled(servers)})

    def with_mask(self, mask: MaskMode) -> EnvConfig:
        """The same problem with another action mask."""
        return self.model_copy(update={"episode": self.episode.model_copy(update={"mask": mask})})

    @property
    def recording(self) -> Recording | None:
        """The trace that is played, which is whole unless its part is set; None where everything is drawn."""
        service, trace = self.service, self.workload.trace
        if service.trace is not None:
            return Recording("service", service.trace, service.split, service.part)
        return None if trace is None else Recording("workload.trace", trace.file, trace.split, trace.part)

    def with_part(self, part: ServicePart) -> EnvConfig:
        """The same problem on a part of its trace; unchanged without a trace."""
        if self.service.trace is not None:
            return self.model_copy(update={"service": self.service.model_copy(update={"part": part})})
        trace = self.workload.trace
        if trace is None:
            return self
        workload = self.workload.model_copy(update={"trace": trace.model_copy(update={"part": part})})
        return self.model_copy(update={"workload": workload})

    def check_unseen(self, name: str, training: EnvConfig) -> None:
        """Refuse sessions that a policy may have seen in its training.

        Args:
            name: of the policy.
            training: its problem.

        Raises:
            UserError: see `Recording.check_unseen`.
        """
        if (own := self.recording) is not None:
            own.check_unseen(name, training.recording)

    def in_rounds_of(self, own: EnvConfig, name: str) -> EnvConfig:
        """The same problem with the decision rounds of `own`, on which a policy was trained, if it reserves servers.

        Raises:
            UserError: the policy, `name`, reserves servers, and here naming a busy server costs time.
        """
        if own.decision.on_busy == "step":
            return self
        if self.costs_time:
            raise UserError(without_paper_mode(name))
        return self.model_copy(update={"decision": own.decision}).with_mask(own.episode.mask)


def without_paper_mode(name: str) -> str:
    """Why a policy that decides for all waiting tasks does not play the paper's mode."""
    return (
        f"{name} decides for all waiting tasks at each event, and in the paper's mode (mask none, on_busy step) an "
        "answer that starts none costs clock_step_s; valid: mask feasible, or decision.on_busy reserve"
    )
