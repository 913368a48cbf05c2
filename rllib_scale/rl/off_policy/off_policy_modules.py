"""The RLModules of DQN and SAC: RLlib's own, around the networks of rllib_scale.networks."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_PREDS
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.sac.sac_learner import (
    ACTION_LOG_PROBS,
    ACTION_LOG_PROBS_NEXT,
    ACTION_PROBS,
    ACTION_PROBS_NEXT,
    QF_TARGET_NEXT,
    QF_TWIN_PREDS,
)
from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor, nn

from rllib_scale.config import DQN, TrialConfig
from rllib_scale.networks.build import Network, build_network
from rllib_scale.networks.inputs import MASKED
from rllib_scale.networks.mlp import Critic

FEATURES = "features"
"""Key of the feature f among the encoder's outputs."""


class Scores(nn.Module):
    """A trial's network as RLlib's encoder: its "encoding" are the scores of the servers, and the head is the identity.

    A head could not mask: it does not see the observation.
    """

    def __init__(self, trial: TrialConfig) -> None:
        super().__init__()
        self.masked = trial.env.masked
        self.network = build_network(trial)

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Scores (B, N) and feature (B, d) of rows (B, width) of the environment; see `InputSpec.split_mask`."""
        features, scores = self.network(*self.network.inputs.spec.split_mask(batch[Columns.OBS], self.masked))
        return {ENCODER_OUT: scores, FEATURES: features}


class DQNModule(DefaultDQNTorchRLModule):
    """Q = scores of the network; with dueling Q = V(f) + scores - their mean over the servers that may be chosen.

    V is constant in a state: the scores alone order the servers as Q does, and only they are exported. A server
    that must not be chosen has Q = -inf, which RLlib's loss and exploration understand.
    `model_config["trial"]` is the TrialConfig as plain data.
    """

    def setup(self) -> None:
        """Build network and value stream."""
        trial = TrialConfig.model_validate(self.model_config["trial"])
        settings = trial.algorithm
        assert isinstance(settings, DQN)
        self.uses_dueling = settings.dueling
        self.uses_double_q = settings.double
        self.num_atoms = 1
        self.epsilon_schedule = Scheduler(
            [[0, settings.epsilon_initial], [settings.epsilon_steps, settings.epsilon_final]], framework="torch"
        )
        self.encoder = Scores(trial)
        self.masked = self.encoder.masked
        self.af = nn.Identity()
        if self.uses_dueling:
            self.vf = Critic(self.network.feature_dim, settings.critic_hidden)

    @property
    def network(self) -> Network:
        """The exported network."""
        return self.encoder.network

    def epsilon(self, env_steps: int) -> float:
        """Share of random actions after a number of env steps of the training."""
        return float(self.epsilon_schedule.update(env_steps))

    def _qf_forward_helper(self, batch: dict[str, Any], encoder: Scores, head: Any) -> dict[str, Tensor]:
        encoded = encoder(batch)
        scores = encoded[ENCODER_OUT]
        # Networks give masked servers the score MASKED, far below all others.
        closed = scores < MASKED / 2
        if self.uses_dueling:
            mean = scores.masked_fill(closed, 0).sum(1, keepdim=True) / (~closed).sum(1, keepdim=True)
            # Q = V + A - mean A [Wang et al., ICML 2016, eq. 9], the mean over servers that may be chosen.
            scores = head["vf"](encoded[FEATURES])[:, None] + scores - mean
        return {QF_PREDS: scores.masked_fill(closed, -torch.inf)}


class SACModule(DefaultSACTorchRLModule):
    """Discrete policy and twin Q-networks, of the same architecture and apart.

    `model_config["trial"]` is the TrialConfig as plain data. On environment runners there are no Q-networks.
    """

    def setup(self) -> None:
        """Build policy and Q-networks."""
        trial = TrialConfig.model_validate(self.model_config["trial"])
        self.twin_q = True  # RLlib's loss for discrete actions needs both
        self.pi_encoder, self.pi = Scores(trial), nn.Identity()
        self.masked = self.pi_encoder.masked
        if not self.inference_only:
            self.qf_encoder, self.qf = Scores(trial), nn.Identity()
            self.qf_twin_encoder, self.qf_twin = Scores(trial), nn.Identity()

    @property
    def network(self) -> Network:
        """The policy, which is exported."""
        return self.pi_encoder.network

    def _forward_train_discrete(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Like RLlib's, by log_softmax: the logarithm of a softmax is -inf where a probability underflows to 0."""
        now, following = {Columns.OBS: batch[Columns.OBS]}, {Columns.OBS: batch[Columns.NEXT_OBS]}
        logp = torch.log_softmax(self.pi_encoder(now)[ENCODER_OUT], -1)
        # Targets carry no gradient: neither the next policy nor the target networks learn by this loss.
        with torch.no_grad():
            logp_next = torch.log_softmax(self.pi_encoder(following)[ENCODER_OUT], -1)
            target = self.forward_target(following, squeeze=False)
        return {
            ACTION_PROBS: logp.exp(),
            ACTION_LOG_PROBS: logp,
            ACTION_PROBS_NEXT: logp_next.exp(),
            ACTION_LOG_PROBS_NEXT: logp_next,
            QF_TARGET_NEXT: target,
            QF_PREDS: self.qf_encoder(now)[ENCODER_OUT],
            QF_TWIN_PREDS: self.qf_twin_encoder(now)[ENCODER_OUT],
        }
