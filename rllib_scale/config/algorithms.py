"""What trains a policy: for each algorithm a model of the settings that it uses, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Tag, model_validator

from rllib_scale.config.base import name_of
from rllib_scale.config.network import CriticSize
from rllib_scale.config.price_search import CMAConfig
from rllib_scale.config.reinforce import ReinforceConfig
from rllib_scale.config.schedulers import PolicySpec, parse_scheduler
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


AnyAlgorithm = Annotated[
    Annotated[PPO, Tag("ppo")]
    | Annotated[Imitation, Tag("imitation")]
    | Annotated[DQN, Tag("dqn")]
    | Annotated[SAC, Tag("sac")]
    | Annotated[CMAES, Tag("cma-es")]
    | Annotated[Reinforce, Tag("reinforce")],
    Discriminator(name_of),
]
