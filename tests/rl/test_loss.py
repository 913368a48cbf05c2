"""Rows and loss of PPO: advantages and loss in plain Python and numpy, and which rows are learned from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing

from rllib_scale.networks.inputs import MASKED
from rllib_scale.networks.srr import srr
from rllib_scale.rl.ppo.exact_batch import ExactBatch
from rllib_scale.rl.ppo.lean_update import train_batch
from rllib_scale.rl.ppo.loss import Outputs, Rows, Weights, ppo_loss

GAMMA, LAMBDA = 0.9, 0.7
WEIGHT = torch.tensor([0.3, -0.2, 0.5])


def values_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return batch[Columns.OBS] @ WEIGHT


def episode(seed: int, length: int, terminated: bool) -> SingleAgentEpisode:
    rng = np.random.default_rng(seed)
    return SingleAgentEpisode(
        observations=list(rng.normal(size=(length + 1, 3)).astype(np.float32)),
        actions=list(rng.integers(4, size=length)),
        rewards=list(rng.normal(size=length)),
        infos=[{}] * (length + 1),
        extra_model_outputs={
            Columns.ACTION_LOGP: list(rng.normal(size=length)),
            Columns.ACTION_DIST_INPUTS: list(rng.normal(size=(length, 4))),
        },
        terminated=terminated,
        len_lookback_buffer=0,
    )


EPISODES = [episode(0, 5, True), episode(1, 3, False), episode(2, 1, False)]


def plain_advantages(one: SingleAgentEpisode) -> list[float]:
    rewards = one.get_rewards()
    values = values_of({Columns.OBS: torch.from_numpy(np.array(one.get_observations()))}).double().tolist()
    if one.is_terminated:
        values[-1] = 0.0
    advantages, following = [], 0.0
    for t in reversed(range(len(one))):
        following = rewards[t] + GAMMA * values[t + 1] - values[t] + GAMMA * LAMBDA * following
        advantages.insert(0, following)
    return advantages


def test_advantages_by_plain_python() -> None:
    batch = train_batch(EPISODES, values_of, GAMMA, LAMBDA)
    expected = np.concatenate([plain_advantages(one) for one in EPISODES])
    np.testing.assert_allclose(batch[Postprocessing.ADVANTAGES].numpy(), expected, rtol=1e-5, atol=1e-6)
    values = values_of(batch).numpy()
    np.testing.assert_allclose(batch[Postprocessing.VALUE_TARGETS].numpy(), expected + values, rtol=1e-5, atol=1e-6)


def minibatch(seed: int = 0, size: int = 64) -> tuple[Rows, Outputs]:
    torch.manual_seed(seed)
    outputs = Outputs(torch.randn(size, 4), torch.randn(size, 5), torch.randn(size))
    actions = torch.randint(5, (size,))
    rows = Rows(actions, -1.6 + 0.8 * torch.randn(size), 3 + 2 * torch.randn(size), torch.randn(size))
    return rows, Outputs(*(output.requires_grad_() for output in outputs))


@pytest.mark.parametrize("standardise", [True, False])
def test_loss_by_numpy(standardise: bool) -> None:
    rows, outputs = minibatch()
    terms_of = {
        "clip": 0.2,
        "value": 0.5,
        "entropy": 0.01,
        "lambda_decorrelation": 0.3,
        "lambda_kl": 0.7,
        "reduction": "sum",
    }
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


@pytest.mark.parametrize("standardise", [False, True])
def test_exact_batch_keeps_every_valid_row_once_and_shuffles(standardise: bool) -> None:
    columns = ("obs", "actions", "action_logp", "action_dist_inputs", "advantages", "value_targets", "rewards")
    index = torch.arange(1042)
    mask = index % 60 != 59
    batch = {column: index.float() for column in columns} | {"loss_mask": mask, "obs": index[:, None]}
    torch.manual_seed(0)
    connector = ExactBatch(1000, standardise)
    (selected,) = connector(rl_module=None, batch={"default_policy": batch}).values()
    assert set(selected) == set(columns)
    rows = selected["obs"][:, 0]
    assert len(rows) == len(rows.unique()) == 1000
    assert mask[rows].all()
    assert all(torch.equal(selected[column], rows.float()) for column in columns if column not in ("obs", "advantages"))
    kept = rows.float()
    expected = (kept - kept.mean()) / kept.std() if standardise else kept
    torch.testing.assert_close(selected["advantages"], expected, rtol=1e-5, atol=1e-5)
    assert (rows[1:] < rows[:-1]).float().mean() > 0.4, "the rows must be shuffled"
    (again,) = connector(rl_module=None, batch={"default_policy": batch}).values()
    assert not torch.equal(again["obs"], selected["obs"])
