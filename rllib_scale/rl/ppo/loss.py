"""The loss of one minibatch: PPO with the representation regulariser [SCALE, sec. 4.3], as a pure function."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rllib_scale.networks.srr import srr


class Rows(NamedTuple):
    """The B rows of a minibatch."""

    actions: Tensor  # (B,) int
    action_logp: Tensor  # (B,) log-probability under the policy that sampled
    advantages: Tensor  # (B,)
    value_targets: Tensor  # (B,)
    reference_logits: Tensor | None = None  # (B, N) of the policy to stay near
    sampling_logits: Tensor | None = None  # (B, N) of the policy that sampled, where the loss holds the KL to it


class Outputs(NamedTuple):
    """Outputs of the network for the B rows."""

    features: Tensor  # (B, d)
    logits: Tensor  # (B, N)
    values: Tensor  # (B,)


class Weights(NamedTuple):
    """Weights of the loss terms in force at an epoch."""

    clip: float
    value: float
    entropy: float
    lambda_decorrelation: float  # after the ramp
    lambda_kl: float  # after the ramp
    reduction: Literal["sum", "mean"]
    standardise: bool  # advantages, over the rows
    regularise: bool  # whether the last two are ever above 0
    reference: float = 0.0  # of the KL divergence to the reference policy
    sampling_kl: float = 0.0  # of the KL divergence from the policy that sampled
    value_clip: float = math.inf  # of a row's squared error of the value


class Terms(NamedTuple):
    """Unweighted terms, scalars. The names are those of the training table; the last is RLlib's."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    srr_decorrelation: Tensor
    srr_kl: Tensor
    mean_kl_loss: Tensor


def standardised(advantages: Tensor) -> Tensor:
    """Advantages (B,) with mean 0 and deviation 1."""
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def kl_divergence(logits: Tensor, reference_logits: Tensor) -> Tensor:
    """Mean over rows of KL(policy || reference) [nat], of logits (B, N) each, closed rows being closed in both."""
    log_probabilities = torch.log_softmax(logits, -1)
    difference = log_probabilities - torch.log_softmax(reference_logits, -1)
    return (log_probabilities.exp() * difference).sum(-1).mean()


def ppo_loss(rows: Rows, outputs: Outputs, weights: Weights) -> tuple[Tensor, Terms]:
    """Clipped surrogate + c_1 MSE - entropy bonus + SRR, + KL to a reference policy where there is one; and its terms.

    The paper has no KL term to the policy that sampled and no value clipping [SCALE, sec. 4.3]; RLlib's PPO has both.
    """
    log_probabilities = torch.log_softmax(outputs.logits, -1)
    logp = log_probabilities.gather(1, rows.actions[:, None])[:, 0]
    entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
    # pi(a|s) / pi_old(a|s); the smaller of both surrogates gives no credit for leaving [1 - clip, 1 + clip].
    ratio = torch.exp(logp - rows.action_logp)
    advantages = standardised(rows.advantages) if weights.standardise else rows.advantages
    surrogate = torch.min(advantages * ratio, advantages * ratio.clamp(1 - weights.clip, 1 + weights.clip))
    policy_loss = -surrogate.mean()
    value_errors = (outputs.values - rows.value_targets).square()
    if weights.value_clip < math.inf:
        value_errors = value_errors.clamp(max=weights.value_clip)
    value_loss = value_errors.mean()
    # Always computed: a training without SRR also logs how its features are distributed.
    decorrelation, kl = srr(outputs.features, reduction=weights.reduction)
    loss = policy_loss + weights.value * value_loss - weights.entropy * entropy
    if weights.regularise:
        loss = loss + weights.lambda_decorrelation * decorrelation + weights.lambda_kl * kl
    if rows.reference_logits is not None:
        loss = loss + weights.reference * kl_divergence(outputs.logits, rows.reference_logits)
    sampling_kl = loss.new_zeros(())
    if rows.sampling_logits is not None:
        sampling_kl = kl_divergence(rows.sampling_logits, outputs.logits)
        loss = loss + weights.sampling_kl * sampling_kl
    return loss, Terms(policy_loss, value_loss, entropy, decorrelation, kl, sampling_kl)
