"""The loss against numpy, written independently, and against torch's distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rllib_scale.networks.inputs import MASKED
from rllib_scale.networks.srr import srr
from rllib_scale.rl.ppo.loss import Outputs, Rows, Weights, ppo_loss
from rllib_scale.rl.ppo.ppo_learner import ExactBatch

torch.set_num_threads(1)


def minibatch(seed: int = 0, size: int = 64) -> tuple[Rows, Outputs]:
    torch.manual_seed(seed)
    outputs = Outputs(torch.randn(size, 4), torch.randn(size, 5), torch.randn(size))
    actions = torch.randint(5, (size,))
    rows = Rows(actions, -1.6 + 0.8 * torch.randn(size), 3 + 2 * torch.randn(size), torch.randn(size))
    return rows, Outputs(*(output.requires_grad_() for output in outputs))


@pytest.mark.parametrize("standardise", [True, False])
def test_loss_by_numpy(standardise: bool) -> None:
    rows, outputs = minibatch()
    terms_of = {"clip": 0.2, "value": 0.5, "entropy": 0.01, "decorrelation": 0.3, "kl": 0.7, "reduction": "sum"}
    weights = Weights(**terms_of, standardise=standardise, regularise=True)
    loss, terms = ppo_loss(rows, outputs, weights)
    logits, values = outputs.logits.detach().numpy().astype(float), outputs.values.detach().numpy()
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    ratio = p[np.arange(64), rows.actions.numpy()] / np.exp(rows.action_logp.numpy())
    advantages = rows.advantages.numpy()
    if standardise:
        advantages = (advantages - advantages.mean()) / advantages.std(ddof=1)
    assert (np.abs(ratio - 1) > 0.2).any(), "some ratios must be clipped for the test to mean anything"
    policy_loss = -np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages).mean()
    value_loss = ((values - rows.value_targets.numpy()) ** 2).mean()
    entropy = -(p * np.log(p)).sum(1).mean()
    regulariser = srr(outputs.features)
    assert terms.policy_loss.item() == pytest.approx(policy_loss, rel=1e-5)
    assert terms.value_loss.item() == pytest.approx(value_loss, rel=1e-5)
    assert terms.entropy.item() == pytest.approx(entropy, rel=1e-5)
    assert terms.srr_decorrelation.item() == regulariser.decorrelation.item()
    assert terms.srr_kl.item() == regulariser.kl.item()
    expected = policy_loss + 0.5 * value_loss - 0.01 * entropy
    expected += 0.3 * regulariser.decorrelation.item() + 0.7 * regulariser.kl.item()
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("decorrelation", "kl"), [(0.1, 0.0), (0.0, 0.1)])
def test_each_lambda_reaches_the_features_alone(decorrelation: float, kl: float) -> None:
    gradients = []
    for weights in (
        Weights(0.2, 0.5, 0.01, 0.0, 0.0, "sum", True, False),
        Weights(0.2, 0.5, 0.01, decorrelation, kl, "sum", True, True),
    ):
        rows, outputs = minibatch()
        ppo_loss(rows, outputs, weights)[0].backward()
        gradients.append([0 if output.grad is None else output.grad.clone() for output in outputs])
    (f_without, *without), (f_with, *with_srr) = gradients
    assert isinstance(f_without, int)
    assert f_with.abs().max() > 1e-4
    assert all(torch.equal(one, other) for one, other in zip(without, with_srr, strict=True))


def test_masked_actions_leave_loss_and_gradient_finite() -> None:
    rows, outputs = minibatch()
    logits = outputs.logits.detach().clone()
    logits[torch.arange(64), (rows.actions + 1) % 5] += MASKED
    outputs = outputs._replace(logits=logits.requires_grad_())
    loss, terms = ppo_loss(rows, outputs, Weights(0.2, 0.5, 0.01, 0.0, 0.0, "sum", True, False))
    loss.backward()
    assert torch.isfinite(torch.stack([loss, *terms])).all()
    assert torch.isfinite(logits.grad).all()
    assert terms.entropy.item() == pytest.approx(torch.distributions.Categorical(logits=logits).entropy().mean().item())


def test_exact_batch_keeps_every_valid_row_once_and_shuffles() -> None:
    columns = ("obs", "actions", "action_logp", "action_dist_inputs", "advantages", "value_targets", "rewards")
    index = torch.arange(1042)
    mask = index % 60 != 59
    batch = {column: index.clone() for column in columns} | {"loss_mask": mask, "obs": index[:, None]}
    torch.manual_seed(0)
    connector = ExactBatch(1024)
    (selected,) = connector(batch={"default_policy": batch}).values()
    assert set(selected) == set(columns)
    rows = selected["actions"]
    assert len(rows) == 1024
    assert mask[rows].all()
    assert len(rows.unique()) == 1024
    assert torch.equal(selected["obs"][:, 0], rows)
    assert (rows[1:] < rows[:-1]).float().mean() > 0.4, "the rows must be shuffled"
    (again,) = connector(batch={"default_policy": batch}).values()
    assert not torch.equal(again["actions"], rows)
