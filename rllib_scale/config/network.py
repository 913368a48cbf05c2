"""Networks. `network` holds settings of networks over an observation, `decima` and `deeprm` those of their methods."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from rllib_scale.config.base import Count, Model, NonNegative, Positive, Width, models_of
from rllib_scale.config.paths import Refers
from rllib_scale.config.schedulers import Scarce


class EncoderConfig(Model):
    """Settings of every network over an observation [SCALE, sec. 4.2 and 5]."""

    asked: ClassVar = "scores"
    """Kind of answer: scores of the servers for one task, or the next start."""
    any_scale: ClassVar = True
    """Whether it runs at any number of servers."""
    built_by: ClassVar = ""
    """Module and class in `rllib_scale.networks` of an encoder that takes the columns and the width alone."""

    embedding_dim: Width = Field(default=16, description="width d of embeddings")
    standardise: Literal["fixed", "none"] = Field(
        default="fixed", description="inputs are standardised by constants in the network, or raw"
    )


class _Attending(EncoderConfig):
    num_heads: Width = Field(default=4, description="attention heads; divide embedding_dim")
    num_blocks: Annotated[int, Field(ge=1, le=64)] = Field(default=2, description="attention blocks")

    @model_validator(mode="after")
    def _heads_divide(self) -> _Attending:
        if self.embedding_dim % self.num_heads:
            raise ValueError(
                f"network.embedding_dim {self.embedding_dim}: is not a multiple of network.num_heads {self.num_heads}"
            )
        return self


class CrossAttentionConfig(_Attending):
    """The cross-attention pointer."""

    name: Literal["cross-attention"]
    skip: Literal["none", "linear", "adaptive", "naive"] = Field(
        default="none",
        description="cross-attention: logits are also linear in a server's features, by weights linear in the task's, "
        "which start at 0, or for scale-any as adaptive-price (by default) or as the earliest finish with twice the "
        "wait, which is not shown the prices of adaptive-price",
    )
    skip_sharpness: Positive = Field(
        default=4.0, description="scale-any: initial decrease of a logit by the rule's cost, per tau"
    )
    scarce: Scarce = Field(default=0.0, description="scale-any: its order of tasks is that of `adaptive-price:scarce`")
    penalty: NonNegative = Field(
        default=0.0, description="skip naive: cost of a server that has to be waited for, in tau; adaptive has its own"
    )


class AttentionModelConfig(_Attending):
    """The pointer whose logits are scaled and clipped."""

    name: Literal["attention-model"]
    logit_clip: Positive = Field(default=10.0, description="attention-model: bound of the logits, 10 tanh")


class SetTransformerConfig(_Attending):
    """Servers that attend to each other under the same pointer."""

    name: Literal["set-transformer"]
    induced_points: Width = Field(default=8, description="set-transformer: points through which servers attend")


class DeepSetsConfig(EncoderConfig):
    """Deep Sets under the same pointer."""

    built_by: ClassVar = "deep_sets:DeepSets"

    name: Literal["deep-sets"]


class MLPConfig(EncoderConfig):
    """The structured MLP, for one number of servers."""

    any_scale: ClassVar = False

    name: Literal["mlp"]
    mlp_hidden: tuple[Width, ...] = Field(default=(256, 256), min_length=1, description="mlp: hidden layers")


class CustomEncoderConfig(EncoderConfig):
    """A user-defined encoder under the same pointer."""

    name: Literal["custom"]
    encoder: Annotated[str, Refers("encoder")] = Field(
        description="replaces the encoder of the method by a user-defined class, `package.module:Name` or an entry "
        "point: see docs/extending.md",
    )


class DecimaConfig(Model):
    """Sizes of the graph network of `decima`; the defaults are those of its authors."""

    asked: ClassVar = "starts"
    any_scale: ClassVar = True

    name: Literal["decima"]
    embedding_dim: Width = Field(default=8, description="width of embeddings of tasks, workflows and the whole")
    hidden: tuple[Width, ...] = Field(default=(16, 8), description="hidden layers of the message networks")
    head_hidden: tuple[Width, ...] = Field(default=(32, 16), description="hidden layers of the scoring heads")


class DeepRMConfig(Model):
    """The image of `deeprm` and its layer; defaults are those of its authors, except the length of a step."""

    asked: ClassVar = "starts"
    any_scale: ClassVar = False

    name: Literal["deeprm"]
    time_steps: Annotated[int, Field(ge=1, le=256)] = Field(default=20, description="columns of the image")
    step_s: Positive | None = Field(
        default=None,
        description="time of a column; null: the largest task on the slowest server is as wide as the image "
        "(observation.task_compute_max_gflop)",
    )
    queue: Annotated[int, Field(ge=1, le=256)] = Field(
        default=10, description="waiting tasks in the image, by the time they became ready; others are counted"
    )
    backlog: Count = Field(default=60, description="tasks that the image can count beyond these")
    hidden: Annotated[int, Field(ge=1, le=1024)] = Field(default=20, description="width of its hidden layer")


AnyNetwork = Annotated[
    CrossAttentionConfig
    | AttentionModelConfig
    | SetTransformerConfig
    | DeepSetsConfig
    | MLPConfig
    | CustomEncoderConfig
    | DecimaConfig
    | DeepRMConfig,
    Field(discriminator="name"),
]
NETWORK_MODELS = models_of(AnyNetwork)
"""Name of a network -> its model."""
