"""Parts of every training: the regulariser, the problems that it draws, its end and its resources."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import MAX_SERVERS, MIN_SERVERS, Count, Model, NonNegative, Positive
from rllib_scale.config.family import Family
from rllib_scale.config.paths import Changing
from rllib_scale.config.problem import EnvConfig

MAX_CPUS = 100_000
"""CPUs of a cluster."""


class SRRConfig(Model):
    """Regulariser on the attention feature [SCALE, sec. 4.3]."""

    lambda_decorrelation: Changing[NonNegative] = Field(default=0.01, description="lambda_1, weight of L_c")
    lambda_kl: Changing[NonNegative] = Field(default=0.001, description="lambda_2, weight of L_d")
    ramp_start_epoch: NonNegative = Field(
        default=10, description="both weights are 0 up to this epoch, 0 being the first; a shorter training has no SRR"
    )
    ramp_epochs: Positive = Field(default=50, description="epochs over which both weights then grow linearly")
    reduction: Literal["sum", "mean"] = Field(default="sum", description="over the off-diagonal entries of L_c")


NO_SRR = SRRConfig(lambda_decorrelation=0, lambda_kl=0)
"""The weights of a method without SRR."""


class ProblemsConfig(Model):
    """Problems of a training: each episode draws a number of servers and a load; `env` has the ones left out.

    Or each draws a problem of a family, in YAML also `problems: any`, and `env` decides how it is played: its
    decision, observation, reward and mask. Half of the problems then hold places, transfers and release delays.
    """

    texts: ClassVar = ("any",)

    servers: tuple[Annotated[int, Field(ge=MIN_SERVERS, le=MAX_SERVERS)], ...] = Field(
        default=(), description="numbers of servers, equally likely; empty: the number of `env`"
    )
    offered_load: tuple[Positive, Positive] | None = Field(
        default=None, description="low and high of a uniform distribution; null: the load of `env`"
    )
    sessions: tuple[Count, Count] | None = Field(
        default=None, description="service replica: fewest and most live sessions per replica; null: those of `env`"
    )
    family: Family | None = Field(default=None, description="problems of any cluster, in place of servers and load")

    @classmethod
    def written_out(cls, value: Any) -> Any:
        """A family by its defaults, for `any`."""
        if isinstance(value, str) and value != "any":
            raise ValueError(f"{value}: valid: any, or servers and offered_load, or family")
        return {"family": {}} if value == "any" else value

    @model_validator(mode="after")
    def _ordered(self) -> ProblemsConfig:
        if self.family is not None and (self.servers or self.offered_load):
            raise ValueError("family: draws servers and load, too; leave out servers and offered_load, or family")
        for name in ("offered_load", "sessions"):
            if (ends := getattr(self, name)) is not None and ends[0] > ends[1]:
                raise ValueError(f"{name}: low {ends[0]} is above high {ends[1]}")
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of servers; of a family its fewest and most places."""
        return self.servers if self.family is None else self.family.places

    def all(self, env: EnvConfig) -> list[EnvConfig]:
        """The problem at each of `sizes`, at its own load."""
        return [env.at_scale(servers) for servers in self.sizes] or [env]

    def draw(self, env: EnvConfig, u: float, v: float) -> EnvConfig:
        """The problem of one episode. `u` and `v`, uniform in [0, 1), decide the number of servers and the load."""
        every = self.all(env)
        drawn = every[int(u * len(every))]
        if self.sessions is not None:
            fewest, most = self.sessions
            service = drawn.service.model_copy(update={"sessions": fewest + int(v * (most + 1 - fewest))})
            return drawn.model_copy(update={"service": service})
        if self.offered_load is None:
            return drawn
        low, high = self.offered_load
        workload = drawn.workload.model_copy(update={"offered_load": low + v * (high - low)})
        return drawn.model_copy(update={"workload": workload})


class StopConfig(Model):
    """End of a training, by default after the epochs of the algorithm, which stay the length of the cosine."""

    epochs: Count | None = Field(default=None, description="end after this many epochs")
    env_steps: Count | None = Field(default=None, description="rounded up to whole epochs")

    @model_validator(mode="after")
    def _one_of_two(self) -> StopConfig:
        if self.epochs is not None and self.env_steps is not None:
            raise ValueError("give epochs or env_steps, not both")
        return self


class TrialResources(Model):
    """Resources of one training."""

    env_runners: Annotated[int, Field(ge=0, le=MAX_CPUS)] = Field(
        default=0, description="remote samplers; 0 samples in the learner"
    )
    learners: Annotated[int, Field(ge=0, le=MAX_CPUS)] = Field(
        default=0, description="remote learners, which split each minibatch; 0 learns in the training's own process"
    )
    cpus: Annotated[float, Field(ge=0.01, le=10_000, allow_inf_nan=False)] = Field(
        default=1.0,
        description="CPUs of the training's process; each environment runner and remote learner takes one more",
    )
