"""YAML sections of a training: training, imitation, DQN, SAC, regulariser, end, resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import (
    MAX_SERVERS,
    MIN_SERVERS,
    Count,
    Episodes,
    Fraction,
    LearningRate,
    Model,
    NonNegative,
    Positive,
)
from rllib_scale.config.family import Family
from rllib_scale.config.problem import EnvConfig

MAX_ROWS = 10**7
"""Observations that a training keeps at once: 4 GB at 16 servers."""
MAX_CPUS = 100_000
"""CPUs of a cluster."""


class SRRConfig(Model):
    """Regulariser on the attention feature [SCALE, sec. 4.3]."""

    lambda_decorrelation: NonNegative = Field(default=0.01, description="lambda_1, weight of L_c")
    lambda_kl: NonNegative = Field(default=0.001, description="lambda_2, weight of L_d")
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
    family: Family | None = Field(default=None, description="problems of any cluster, in place of servers and load")

    @model_validator(mode="before")
    @classmethod
    def _any_is_a_family(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "any":
            raise ValueError(f"{value}: valid: any, or servers and offered_load, or family")
        return {"family": {}} if value == "any" else value

    @model_validator(mode="after")
    def _ordered(self) -> ProblemsConfig:
        if self.family is not None and (self.servers or self.offered_load):
            raise ValueError("family: draws servers and load, too; leave out servers and offered_load, or family")
        if self.offered_load is not None and self.offered_load[0] > self.offered_load[1]:
            raise ValueError(f"offered_load: low {self.offered_load[0]} is above high {self.offered_load[1]}")
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
        if self.offered_load is None:
            return drawn
        low, high = self.offered_load
        workload = drawn.workload.model_copy(update={"offered_load": low + v * (high - low)})
        return drawn.model_copy(update={"workload": workload})


class Drawn(Model):
    """Settings of every training: the problems that it draws."""

    problems: ProblemsConfig | None = Field(
        default=None,
        description="a number of servers and a load drawn for each episode, or `any`: a problem of any cluster "
        "(`family`); null: the problem of `env`",
    )


class InEpochs(Drawn):
    """Settings of trainings by RLlib: epochs of a number of decisions."""

    epochs: Count = Field(default=1000, description="samples and their update; also the length of the cosine")
    steps_per_epoch: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 1024


class Rewarded(InEpochs):
    """Settings of PPO, DQN and SAC: environments and rewards."""

    gamma: Fraction = 0.99
    num_envs: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=4, description="parallel environments of an environment runner"
    )
    reward_unit: Positive | None = Field(
        default=None,
        description="unit of rewards per server of the episode, so that returns are about 1 at any scale; unset: "
        "rewards as they are, as in every table",
    )
    reward: str | None = Field(
        default=None,
        description="user-defined function in place of the problem's reward, `package.module:Name` or an entry point: "
        "see docs/extending.md",
    )


class Minibatched(InEpochs):
    """Settings of PPO and imitation: minibatches, and a learning rate that follows a cosine."""

    learning_rate: LearningRate = 3e-4
    final_learning_rate: Fraction = 5e-5
    gradient_clip: Positive = Field(default=0.5, description="global norm")
    minibatch_size: Annotated[int, Field(ge=2)] = 256
    adam_epsilon: Positive = 1e-5
    initial_policy: str | None = Field(
        default=None,
        description="PPO and imitation: folder of an exported policy, or `zoo:NAME`, with the initial weights of the "
        "network; the critic is new",
    )


class TrainingConfig(Minibatched, Rewarded):
    """The paper's PPO [SCALE, sec. 5]; DQN and SAC take epochs, gamma, steps_per_epoch and num_envs from here."""

    time_unit_s: Positive | None = Field(
        default=None,
        description="PPO: gamma discounts so much time, so that answers that take no time are not discounted; unset: "
        "it discounts every decision [SCALE, sec. 4.1]",
    )
    gae_lambda: Fraction = 0.95
    lambda_by: Literal["decision", "time"] | None = Field(
        default=None,
        description="PPO: gae_lambda applies per decision or per time_unit_s; unset: per decision, or as the method "
        "decides",
    )
    clip: Positive = 0.2
    entropy_coefficient: NonNegative = 0.01
    value_coefficient: NonNegative = Field(default=0.5, description="c_1, open in the paper")
    passes: Count = 8
    standardise_advantages: Literal["minibatch", "epoch", "none"] = Field(
        default="minibatch",
        description="advantages to mean 0 and deviation 1 over these samples; open in the paper",
    )
    reference_kl_coefficient: NonNegative = Field(
        default=0.0,
        description="PPO: weight of KL(policy || initial policy) in the loss",
    )


class ImitationConfig(Model):
    """Behaviour cloning: networks learn an expert's choices by cross-entropy.

    Epochs, learning rates, minibatch_size, gradient_clip and adam_epsilon are those of `training`. An epoch learns once
    from each of steps_per_epoch demonstrated decisions.
    """

    expert: str | None = Field(
        default=None,
        description="a scheduler, with parameters as `reserve:waiting=2`, or the folder of an exported policy, or "
        "`zoo:NAME`; unset: no imitation",
    )
    episodes: Episodes = Field(default=256, description="episodes of demonstrations")
    holdout_episodes: Episodes = Field(default=32, description="more episodes, on which agreement is measured")


class StopConfig(Model):
    """End of a training, by default after `training.epochs`, which stays the length of the cosine."""

    epochs: Count | None = None
    env_steps: Count | None = Field(default=None, description="rounded up to whole epochs")

    @model_validator(mode="after")
    def _one_of_two(self) -> StopConfig:
        if self.epochs is not None and self.env_steps is not None:
            raise ValueError("give epochs or env_steps, not both")
        return self


class OffPolicyConfig(Model):
    """Settings of DQN and SAC, which the paper names without settings."""

    buffer_size: Annotated[int, Field(ge=1024, le=MAX_ROWS)] = Field(
        default=50_000, description="transitions, drawn uniformly"
    )
    batch_size: Annotated[int, Field(ge=2, le=MAX_ROWS)] = 64
    warmup_steps: Count = Field(default=2048, description="env steps before the first update")
    steps_per_update: Count = Field(default=4, description="env steps per gradient step")
    steps_per_round: Annotated[int, Field(ge=1, le=512)] = Field(
        default=64, description="env steps sampled with the same weights between updates"
    )
    gradient_clip: Positive = Field(default=10.0, description="global norm of each optimizer's parameters")
    adam_epsilon: Positive = Field(default=1e-8, description="gradients are far smaller than in PPO")


class DQNConfig(OffPolicyConfig):
    """Dueling double DQN, epsilon-greedy."""

    learning_rate: LearningRate = 5e-4
    target_update_steps: Count = Field(default=2048, description="env steps between copies to the target network")
    epsilon_initial: Fraction = 1.0
    epsilon_final: Fraction = 0.05
    epsilon_steps: Count = Field(default=50_000, description="env steps over which epsilon falls linearly")
    double: bool = True
    dueling: bool = True


class SACConfig(OffPolicyConfig):
    """Discrete SAC with twin Q-networks."""

    learning_rate: LearningRate = Field(default=3e-4, description="learning rate of policy, Q-networks and temperature")
    target_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.005, description="tau, the rate of the target networks, at every gradient step"
    )
    initial_temperature: Positive = 0.1
    target_entropy_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="target entropy as a share of ln of the servers that may be chosen, N without a mask"
    )


FORMER_RESOURCES = {"sampler": "array", "learner": "lean", "compile": False}
"""Settings of version 0.2 and before, by the only value that is still read."""


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

    @model_validator(mode="before")
    @classmethod
    def _without_former_settings(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        for name, kept in FORMER_RESOURCES.items():
            if value.get(name, kept) != kept:
                raise ValueError(
                    f"{name} {value[name]}: there is no such setting now; leave it out. RLlib's own environment runner "
                    "and update do the work where a setting of RLlib asks for them: docs/library.md"
                )
        return {name: each for name, each in value.items() if name not in FORMER_RESOURCES}
