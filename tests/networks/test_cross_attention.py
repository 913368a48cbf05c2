"""Cross-attention: the textbook's function, gradients and attention weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from networks.observations import random_network, random_observations
from networks.textbook import Textbook
from rllib_scale.networks.cross_attention import CrossAttentionPointer


def loss(f: Tensor, logits: Tensor) -> Tensor:
    """Something of the size of a PPO loss that depends on every output, entropy included."""
    log_probabilities = torch.log_softmax(logits, -1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(-1)
    return (f * torch.arange(f.shape[1]) / f.shape[1]).square().mean() + (entropy - log_probabilities[:, 0]).mean()


def check_textbook(network: CrossAttentionPointer, obs: Tensor, tolerance: float) -> None:
    """Outputs and gradients are those of the textbook form."""
    textbook = Textbook(network)
    ours, oracle = network(obs), textbook(obs)
    for one, other in zip(ours, oracle, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)
    loss(*ours).backward()
    loss(*oracle).backward()
    for one, other in textbook.pairs(network, gradients=True):
        torch.testing.assert_close(one, other.reshape(one.shape), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("empty", [0.0, 0.4])
@pytest.mark.parametrize("servers", [1, 4, 16, 128, 512])
def test_folded_form_is_the_textbook_form(servers: int, empty: float) -> None:
    check_textbook(random_network(), random_observations(32, servers, seed=servers, empty=empty), 1e-5)


@pytest.mark.parametrize(("d", "heads", "blocks"), [(16, 4, 2), (24, 2, 3), (8, 8, 1), (6, 1, 1)])
def test_folded_form_is_the_textbook_form_in_double_precision(d: int, heads: int, blocks: int) -> None:
    network = random_network(embedding_dim=d, num_heads=heads, num_blocks=blocks)
    check_textbook(network.double(), random_observations(8, 16, empty=0.3).double(), 1e-12)


@pytest.mark.parametrize(("servers", "sizes"), [(1, {}), (16, {}), (128, {"num_blocks": 3, "num_heads": 2})])
def test_weights_and_probabilities_are_the_textbooks(servers: int, sizes: dict[str, int]) -> None:
    network = random_network(**sizes).double()
    textbook = Textbook(network, keep_weights=True)
    for obs in random_observations(4, servers, empty=0.4).double():
        weights, probabilities = network.attention_at(obs)
        logits = textbook(obs[None])[1][0]
        torch.testing.assert_close(weights, torch.cat(textbook.weights)[:, :, 0], atol=1e-10, rtol=0)
        torch.testing.assert_close(probabilities, torch.softmax(logits, -1), atol=1e-10, rtol=0)
        vacant = obs[5:].view(servers, 5)[:, 0] == 0
        assert (weights[..., vacant] == 0).all()
        assert (probabilities[vacant] == 0).all()


def test_a_mask_closes_servers_to_the_pointer_and_not_to_the_attention() -> None:
    network, obs, mask = random_network(method="attention-model"), random_observations(1, 12), torch.arange(12) % 3 == 0
    (weights, free), (same, masked) = network.attention_at(obs[0]), network.attention_at(obs[0], mask)
    torch.testing.assert_close(weights, same)
    torch.testing.assert_close(free, torch.softmax(network(obs)[1][0], -1))
    torch.testing.assert_close(masked, torch.softmax(network(obs, mask[None])[1][0], -1))
    assert (masked[~mask] == 0).all()
