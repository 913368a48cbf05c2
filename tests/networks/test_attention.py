"""The attention weights that are shown are the textbook's, and the probabilities are the policy's."""

from __future__ import annotations

import pytest
import torch

from networks.observations import random_network, random_observations
from networks.textbook import Textbook
from rllib_scale.networks.attention import attention


def textbook_weights(textbook: Textbook, obs: torch.Tensor) -> torch.Tensor:
    """(L, H, N) at one observation (1, W), from nn.MultiheadAttention itself."""
    inputs = textbook.inputs(obs)
    z = textbook.server_embedder(inputs.servers)
    f = textbook.task_embedder(inputs.task)[:, None]
    kept = []
    for block, norm, feedforward, feedforward_norm in zip(
        textbook.attentions, textbook.attention_norms, textbook.feedforwards, textbook.feedforward_norms, strict=True
    ):
        attended, weights = block(f, z, z, key_padding_mask=inputs.empty != 0, average_attn_weights=False)
        f = norm(f + attended)
        f = feedforward_norm(f + feedforward(f))
        kept.append(weights[0, :, 0])
    return torch.stack(kept)


@pytest.mark.parametrize("empty", [0.0, 0.4])
@pytest.mark.parametrize(("servers", "sizes"), [(1, {}), (16, {}), (128, {"num_blocks": 3, "num_heads": 2})])
def test_weights_and_probabilities_are_the_textbooks(servers: int, sizes: dict[str, int], empty: float) -> None:
    network = random_network(**sizes).double()
    textbook = Textbook(network)
    for obs in random_observations(4, servers, empty=empty).double():
        seen = attention(network, obs)
        blocks, heads, *_ = network.attention.query.shape
        assert seen.weights.shape == (blocks, heads, servers)
        torch.testing.assert_close(seen.weights, textbook_weights(textbook, obs[None]), atol=1e-10, rtol=0)
        probabilities = torch.softmax(textbook(obs[None])[1][0], -1)
        torch.testing.assert_close(seen.probabilities, probabilities, atol=1e-10, rtol=0)


def test_empty_slots_get_no_attention_and_no_probability() -> None:
    obs = random_observations(1, 12, empty=0.5)[0]
    vacant = obs[5:].view(12, 5)[:, 0] == 0
    assert 0 < vacant.sum() < 12
    seen = attention(random_network(), obs)
    assert (seen.weights[..., vacant] == 0).all()
    assert (seen.probabilities[vacant] == 0).all()
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(2, 4))


def test_a_mask_closes_servers_to_the_pointer_and_not_to_the_attention() -> None:
    obs = random_observations(1, 12)[0]
    mask = torch.arange(12) % 3 == 0
    free, masked = (attention(random_network(), obs, closing) for closing in (None, mask))
    torch.testing.assert_close(free.weights, masked.weights)
    assert (free.probabilities[~mask] > 0).any()
    assert (masked.probabilities[~mask] == 0).all()
    assert (masked.probabilities[mask] > free.probabilities[mask]).all()


def test_clipped_logits_of_the_attention_model_are_what_the_probabilities_come_from() -> None:
    network = random_network(method="attention-model")
    obs = random_observations(3, 8)[2]
    torch.testing.assert_close(attention(network, obs).probabilities, torch.softmax(network(obs[None])[1][0], -1))
