"""The RLModule of every PPO method: a network of rllib_scale.networks and a critic on its feature."""

from __future__ import annotations

from typing import Any

from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from rllib_scale.config import TrialConfig
from rllib_scale.networks.build import build_network
from rllib_scale.networks.mlp import Critic
from rllib_scale.rl.settings import ppo_of


class SchedulingModule(TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    """Observation to logits, and to a value through the feature f, which RLlib carries as the embedding.

    `model_config["trial"]` is the TrialConfig as plain data. On environment runners there is no critic.
    """

    def setup(self) -> None:
        """Build network and critic."""
        trial = TrialConfig.model_validate(self.model_config["trial"])
        self.masked = trial.env.masked
        self.network = build_network(trial)
        self.fused: Any = None
        """The network as one compiled pass each way, where the learner uses it."""
        self.critic = Critic(self.network.feature_dim, ppo_of(trial).critic_hidden)

    def get_non_inference_attributes(self) -> list[str]:
        """Attributes that environment runners do not need."""
        return ["critic"]

    def outputs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Feature f (B, d) and logits (B, N) of rows of the environment; see `InputSpec.split_mask`."""
        return (self.fused or self.network)(*self.network.inputs.spec.split_mask(rows, self.masked))

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        _, logits = self.outputs(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: logits}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        features, logits = self.outputs(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: features}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Values (B,), from the features `embeddings` (B, d) where they are at hand."""
        if embeddings is None:
            # The critic reads the feature of the actor's network: without it at hand that is computed first.
            embeddings, _ = self.outputs(batch[Columns.OBS])
        return self.critic(embeddings)
