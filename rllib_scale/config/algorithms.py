"""What trains a policy: for each algorithm a model of the settings that it uses, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import Count, Model, NonNegative, Positive
from rllib_scale.config.network import CriticSize
from rllib_scale.config.schedulers import PolicySpec, PriceParameters, parse_scheduler
from rllib_scale.config.training import (
    CompiledLoop,
    DQNConfig,
    Drawn,
    ImitationConfig,
    Minibatched,
    Rewarded,
    SACConfig,
    Sampler,
    TrainingConfig,
    UpdateLoop,
)


class _InMinibatches(Minibatched, CompiledLoop):
    @model_validator(mode="after")
    def _minibatches_divide(self) -> _InMinibatches:
        if self.steps_per_epoch % self.minibatch_size:
            raise ValueError(
                f"training.steps_per_epoch {self.steps_per_epoch}: is not a multiple of training.minibatch_size "
                f"{self.minibatch_size}"
            )
        return self


class PPO(TrainingConfig, CriticSize, Sampler, _InMinibatches):
    """The paper's PPO."""

    sections: ClassVar = ("network", "resources", "training")

    name: Literal["ppo"]

    @model_validator(mode="after")
    def _reference_is_there(self) -> PPO:
        if self.reference_kl_coefficient > 0 and self.initial_policy is None:
            raise ValueError(
                "training.reference_kl_coefficient: there is no policy to stay near; give initial_policy, too"
            )
        return self

    @model_validator(mode="after")
    def _time_is_discounted_by_our_own_parts(self) -> PPO:
        if self.time_unit_s is not None and (self.sampler, self.learner) != ("array", "lean"):
            raise ValueError(
                f"training.time_unit_s: resources.sampler {self.sampler} and resources.learner {self.learner} discount "
                "by decision; valid: array and lean"
            )
        if self.lambda_by == "time" and self.time_unit_s is None:
            raise ValueError("training.lambda_by time: needs training.time_unit_s")
        return self


class Imitation(ImitationConfig, _InMinibatches):
    """Behaviour cloning of an expert."""

    sections: ClassVar = ("resources", "training", "imitation")

    name: Literal["imitation"]
    expert: str

    @property
    def policy(self) -> Path | None:
        """Folder of the policy that is the expert; None where it is a rule or user code.

        Raises:
            UserError: it is missing or has changed.
        """
        spec = parse_scheduler(self.expert)
        return spec.folder("imitation.expert") if isinstance(spec, PolicySpec) else None


class DQN(DQNConfig, CriticSize, UpdateLoop, Sampler, Rewarded):
    """Dueling double DQN."""

    sections: ClassVar = ("network", "resources", "training", "dqn")

    name: Literal["dqn"]


class SAC(SACConfig, UpdateLoop, Sampler, Rewarded):
    """Discrete SAC."""

    sections: ClassVar = ("resources", "training", "sac")

    name: Literal["sac"]


class CMAConfig(Model):
    """CMA-ES of the method `context-price`; a generation is an epoch.

    A score is the mean over numbers of servers and instances of ln(objective [s]). All candidates of a generation play
    the same instances, and each generation others.
    """

    epochs: Count = Field(default=150, description="generations")
    population: Annotated[int, Field(ge=4)] = Field(default=20, description="candidates a generation")
    instances: Count = Field(
        default=12,
        description="episodes that each candidate plays; loads are spread evenly over them, and the more servers, the "
        "fewer of them, while each number of servers counts the same",
    )
    objective: Literal["response", "balanced"] = Field(
        default="balanced",
        description="what is to be low: the mean response; or it with 80 % and makespans, mean and 95th percentile, "
        "with 10 % each",
    )
    initial: PriceParameters | Literal["dual-price"] = Field(
        default=PriceParameters(),
        description="the rule that it begins with: price, at all times the same; or dual-price, with the prices of the "
        "load observed, for workloads to which the numbers of price are strange",
    )
    initial_step: Positive = Field(
        default=0.3,
        description="standard deviation of each weight at the beginning; in proportion more where those of its row are "
        "above 10",
    )
    validation_instances: Count = Field(default=32, description="on which the average of the search is tried")
    validate_every: Count = Field(
        default=10, description="generations, and after the last; the weights that do best there are exported"
    )


class ReinforceConfig(Model):
    """Policy gradient of the methods `decima` and `deeprm`.

    An epoch plays `instances` workloads, each in `episodes` episodes that differ in the policy's draws alone, and makes
    one step of Adam. What an episode costs from a moment on is measured by the mean of the others from the same moment:
    arrivals are the same in all of them and cancel.
    """

    epochs: Count = 200
    instances: Count = Field(
        default=2, description="workloads an epoch, new ones each time; loads are spread evenly over them"
    )
    episodes: Annotated[int, Field(ge=2, le=1024)] = Field(
        default=8, description="of each workload, whose mean is the baseline"
    )
    objective: Literal["tasks", "workflows"] = Field(
        default="tasks",
        description="whose number in the system, integrated over time, is to be low: tasks of workflows that have "
        "arrived (mean response), or workflows (mean makespan; jobs in both papers)",
    )
    discount_s: Positive | None = Field(
        default=30.0, description="what comes later by so many seconds counts 1/e; null: all counts the same"
    )
    learning_rate: Positive = Field(default=3e-3, description="of Adam")
    gradient_clip: Positive = Field(default=1.0, description="global norm")
    entropy_coefficient: NonNegative = Field(
        default=0.01, description="at the beginning; from there a line to the final one"
    )
    final_entropy_coefficient: NonNegative = Field(default=0.0, description="after `epochs`")
    validation_instances: Count = Field(default=8, description="on which the policy is tried, without its draws")
    validate_every: Count = Field(
        default=10, description="epochs, and after the last; the weights that do best there are exported"
    )


class _WholeEpisodes(Drawn):
    """What plays whole episodes: each number of servers needs one."""

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
