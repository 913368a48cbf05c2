"""Plain PPO in one file, the yardstick of training speed: PPO by hand, without RLlib.

The same vector environment, network, loss and update as our trainings: an epoch collects 1024 decisions in 4
environments and trains 8 passes of 4 shuffled minibatches on them. Everything is eager torch, with the usual
optimisations: no autograd while sampling, values by one batched forward after it, a fused Adam.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rllib_scale.config import PPO, TrialConfig
from rllib_scale.config.training import NO_SRR
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.networks.build import build_network
from rllib_scale.networks.mlp import Critic
from rllib_scale.networks.srr import ramp
from rllib_scale.rl.ppo.loss import Outputs, Rows, Weights, ppo_loss
from rllib_scale.rl.settings import ppo_of


class Agent(nn.Module):
    """Network and critic."""

    def __init__(self, trial: TrialConfig) -> None:
        super().__init__()
        self.network = build_network(trial)
        self.critic = Critic(self.network.feature_dim, ppo_of(trial).critic_hidden)

    def forward(self, observation: Tensor) -> Outputs:
        """Features, logits and values of observations (B, 5 + 5N)."""
        features, logits = self.network(observation)
        return Outputs(features, logits, self.critic(features))


class Rollout(NamedTuple):
    """S consecutive steps of B environments."""

    observations: Tensor  # (S + 1, B, 5 + 5N)
    actions: Tensor  # (S, B)
    action_logp: Tensor  # (S, B)
    rewards: Tensor  # (S, B)
    terminated: Tensor  # (S, B)
    truncated: Tensor  # (S, B)
    valid: Tensor  # (S, B) False: the environment began its next episode and ignored the action


class PlainPPO:
    """Trains one policy; `epoch` is one collect and its update.

    Args:
        trial: which problem, network and hyperparameters.
    """

    def __init__(self, trial: TrialConfig) -> None:
        torch.manual_seed(trial.seed)
        torch.set_num_threads(1)
        self.trial = trial
        self.training = ppo_of(trial)
        self.env = SchedulingVectorEnv(self.training.num_envs, trial.env)
        self.agent = Agent(trial)
        self.optimizer = torch.optim.Adam(
            self.agent.parameters(), lr=self.training.learning_rate, eps=self.training.adam_epsilon, fused=True
        )
        self.epochs_done = 0
        self.observation, _ = self.env.reset(seed=trial.seed)
        self.begins = np.zeros(self.training.num_envs, dtype=bool)

    def epoch(self) -> float:
        """Train one epoch; returns the mean loss."""
        rollout = self.collect()
        observations, rows = self.flatten(rollout)
        self.optimizer.param_groups[0]["lr"] = cosine(self.epochs_done, self.training)
        losses = []
        for _ in range(self.training.passes):
            for chosen in torch.randperm(len(observations)).split(self.training.minibatch_size):
                losses.append(
                    self.update(
                        observations[chosen], Rows(*(None if column is None else column[chosen] for column in rows))
                    )
                )
        self.epochs_done += 1
        return torch.stack(losses).mean().item()

    @torch.no_grad()
    def collect(self) -> Rollout:
        """Step the environments until there are enough decisions to train on."""
        observations, steps, collected = [torch.from_numpy(self.observation)], [], 0
        while collected < self.training.steps_per_epoch:
            _, logits = self.agent.network(observations[-1])
            logp = torch.log_softmax(logits, -1)
            actions = torch.multinomial(logp.exp(), 1)
            self.observation, reward, terminated, truncated, _ = self.env.step(actions[:, 0].numpy())
            valid = ~self.begins  # the step after an end ignores the action and begins the next episode
            self.begins = terminated | truncated
            collected += int(valid.sum())
            observations.append(torch.from_numpy(self.observation))
            arrays = (reward.astype(np.float32), terminated, truncated, valid)
            steps.append((actions[:, 0], logp.gather(1, actions)[:, 0], *map(torch.from_numpy, arrays)))
        return Rollout(torch.stack(observations), *map(torch.stack, zip(*steps, strict=True)))

    @torch.no_grad()
    def flatten(self, rollout: Rollout) -> tuple[Tensor, Rows]:
        """Generalised advantages and value targets; the valid rows as one batch."""
        values = self.agent(rollout.observations.flatten(0, 1)).values.view(rollout.observations.shape[:2])
        gamma, decay = self.training.gamma, self.training.gamma * self.training.gae_lambda
        delta = rollout.rewards + gamma * values[1:] * ~rollout.terminated - values[:-1]
        goes_on = decay * ~(rollout.terminated | rollout.truncated)
        advantages = torch.empty_like(delta)
        following = torch.zeros(delta.shape[1])
        for s in range(len(delta) - 1, -1, -1):
            following = delta[s] + goes_on[s] * following
            advantages[s] = following
        columns = (rollout.actions, rollout.action_logp, advantages, advantages + values[:-1])
        size = self.training.steps_per_epoch
        rows = Rows(*(column[rollout.valid][:size] for column in columns))
        return rollout.observations[:-1][rollout.valid][:size], rows

    def update(self, observations: Tensor, rows: Rows) -> Tensor:
        """One gradient step on a minibatch; returns the loss."""
        loss, _ = ppo_loss(rows, self.agent(observations), self.weights())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), self.training.gradient_clip)
        self.optimizer.step()
        return loss.detach()

    def weights(self) -> Weights:
        """Weights of the loss terms in this epoch."""
        srr = self.trial.srr or NO_SRR
        share = ramp(self.epochs_done, srr.ramp_start_epoch, srr.ramp_epochs)
        return Weights(
            clip=self.training.clip,
            value=self.training.value_coefficient,
            entropy=self.training.entropy_coefficient,
            lambda_decorrelation=share * srr.lambda_decorrelation,
            lambda_kl=share * srr.lambda_kl,
            reduction=srr.reduction,
            standardise=True,
            regularise=srr.lambda_decorrelation > 0 or srr.lambda_kl > 0,
        )


def cosine(epoch: int, training: PPO) -> float:
    """Learning rate of an epoch."""
    first, last = training.learning_rate, training.final_learning_rate
    return last + (first - last) * (1 + math.cos(math.pi * min(epoch / training.epochs, 1.0))) / 2
