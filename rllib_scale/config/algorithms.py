"""Algorithms: for each a model of the settings that it uses, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import Count, Episodes, LearningRate, Model, NonNegative, Positive
from rllib_scale.config.network import CriticSize
from rllib_scale.config.schedulers import PolicySpec, PriceParameters, parse_scheduler
from rllib_scale.config.training import (
    DQNConfig,
    Drawn,
    ImitationConfig,
    Minibatched,
    Rewarded,
    SACConfig,
    TrainingConfig,
)


class _InMinibatches(Minibatched):
    @model_validator(mode="after")
    def _minibatches_divide(self) -> _InMinibatches:
        if self.steps_per_epoch % self.minibatch_size:
            raise ValueError(
                f"training.steps_per_epoch {self.steps_per_epoch}: is not a multiple of training.minibatch_size "
                f"{self.minibatch_size}"
            )
        return self


class PPO(TrainingConfig, CriticSize, _InMinibatches):
    """The paper's PPO."""

    sections: ClassVar = ("network", "training")

    name: Literal["ppo"]

    @model_validator(mode="after")
    def _reference_is_there(self) -> PPO:
        if self.reference_kl_coefficient > 0 and self.initial_policy is None:
            raise ValueError(
                "training.reference_kl_coefficient: there is no policy to stay near; give initial_policy, too"
            )
        return self

    @model_validator(mode="after")
    def _lambda_has_its_time(self) -> PPO:
        if self.lambda_by == "time" and self.time_unit_s is None:
            raise ValueError("training.lambda_by time: needs training.time_unit_s")
        return self


class Imitation(ImitationConfig, _InMinibatches):
    """Behaviour cloning of an expert."""

    sections: ClassVar = ("training", "imitation")

    name: Literal["imitation"]
    expert: str

    @property
    def policy(self) -> Path | None:
        """Folder of an expert that is a policy; None for other experts.

        Raises:
            UserError: the policy is missing or has changed.
        """
        spec = parse_scheduler(self.expert)
        return spec.folder("imitation.expert") if isinstance(spec, PolicySpec) else None


class DQN(DQNConfig, CriticSize, Rewarded):
    """Dueling double DQN."""

    sections: ClassVar = ("network", "training", "dqn")

    name: Literal["dqn"]


class SAC(SACConfig, Rewarded):
    """Discrete SAC."""

    sections: ClassVar = ("training", "sac")

    name: Literal["sac"]


class CMAConfig(Model):
    """CMA-ES over the weights of a price rule, for `context-price` and `adaptive-price`; a generation is an epoch.

    A score is the mean of ln(objective [s]) over numbers of servers and instances. All candidates of a generation play
    the same instances; each generation plays new ones.
    """

    epochs: Count = Field(default=150, description="generations")
    population: Annotated[int, Field(ge=4, le=10_000)] = Field(default=20, description="candidates of a generation")
    instances: Episodes = Field(
        default=12,
        description="episodes of each candidate, with evenly spread loads; larger clusters have fewer episodes, and "
        "all numbers of servers have the same weight",
    )
    objective: Literal["response", "balanced"] = Field(
        default="balanced",
        description="response: the mean response time; balanced: 80 % of it and 10 % each of mean and 95th percentile "
        "of the job completion time",
    )
    initial: PriceParameters | Literal["dual-price"] = Field(
        default=PriceParameters(),
        description="context-price: initial rule: price, with constant prices; or dual-price, with prices by the "
        "observed load, for workloads far from those of price",
    )
    initial_step: Positive = Field(
        default=0.3,
        description="initial standard deviation of each weight; in proportion larger where the weights of its row are "
        "above 10; for adaptive-price about a quarter of it",
    )
    validation_instances: Episodes = Field(default=32, description="episodes that validate the mean of the search")
    validate_every: Count = Field(
        default=10, description="generations between validations; the best weights are exported"
    )


class ReinforceConfig(Model):
    """Policy gradient of the methods `decima` and `deeprm`.

    An epoch plays `instances` workloads, each in `episodes` episodes that differ in the policy's draws only, and makes
    one step of Adam. The baseline of an episode's cost from a time on is the mean of the other episodes from that time:
    they replay the same arrivals, which cancel.
    """

    epochs: Count = 200
    instances: Episodes = Field(default=2, description="new workloads of an epoch, with evenly spread loads")
    episodes: Annotated[int, Field(ge=2, le=1024)] = Field(
        default=8, description="episodes of each workload, whose mean is the baseline"
    )
    objective: Literal["tasks", "workflows"] = Field(
        default="tasks",
        description="cost is the number in the system, integrated over time, of tasks of arrived workflows (mean "
        "response time) or of workflows (mean job completion time, as in both papers)",
    )
    discount_s: Positive | None = Field(
        default=30.0, description="costs later by so many seconds count 1/e; null: all count the same"
    )
    learning_rate: LearningRate = Field(default=3e-3, description="learning rate of Adam")
    gradient_clip: Positive = Field(default=1.0, description="global norm")
    entropy_coefficient: NonNegative = Field(
        default=0.01, description="initial coefficient; it falls linearly to the final one"
    )
    final_entropy_coefficient: NonNegative = Field(default=0.0, description="coefficient after `epochs`")
    validation_instances: Episodes = Field(default=8, description="episodes that validate the policy, by argmax")
    validate_every: Count = Field(default=10, description="epochs between validations; the best weights are exported")


class _WholeEpisodes(Drawn):
    """Algorithms that play whole episodes, at least one for each number of servers."""

    sections: ClassVar[tuple[str, ...]]

    @model_validator(mode="after")
    def _sizes_have_instances(self) -> _WholeEpisodes:
        sizes = len(self.problems.servers) if self.problems else 1
        for name in ("instances", "validation_instances"):
            if (found := getattr(self, name)) < sizes:
                raise ValueError(
                    f"{self.sections[-1]}.{name} {found}: must be at least {sizes}, one for each of "
                    "training.problems.servers"
                )
        return self


class CMAES(CMAConfig, _WholeEpisodes):
    """Search for the weights of a price rule by CMA-ES."""

    sections: ClassVar = ("training", "cma")
    unused_of_env: ClassVar = ("env.observation",)

    name: Literal["cma-es"]


class Reinforce(ReinforceConfig, _WholeEpisodes):
    """REINFORCE on whole episodes."""

    sections: ClassVar = ("training", "reinforce")
    unused_of_env: ClassVar = ("env.observation.feature_set",)

    name: Literal["reinforce"]


AnyAlgorithm = Annotated[PPO | Imitation | DQN | SAC | CMAES | Reinforce, Field(discriminator="name")]
