"""What a cross-attention pointer network looks at in one decision: attention weights and pointer probabilities."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rllib_scale.networks.cross_attention import CrossAttentionPointer


class Attention(NamedTuple):
    """Shapes: L blocks, H heads, N server slots."""

    weights: Tensor  # (L, H, N), each head sums to 1; 0 at an empty slot
    probabilities: Tensor  # (N,) softmax of the logits; 0 where a mask closes the server


@torch.no_grad()
def attention(network: CrossAttentionPointer, observation: Tensor, mask: Tensor | None = None) -> Attention:
    """Softmax weights of every head and block, and the pointer's probabilities [SCALE, sec. 4.2], at one observation.

    The network's own forward never stores the weights; here its blocks are passed through once more to keep them.

    Args:
        network: any CrossAttentionPointer.
        observation: (task_dim + N * server_dim,).
        mask: (N,) bool, False for a server that the probabilities leave out; without one, only the empty slots.
    """
    batch = observation[None]
    folded, inputs = network.fold(), network.inputs(batch)
    hidden = nn.functional.relu(network.server_hidden(inputs.servers))
    f = network.task_embedder(inputs.task)
    layers = (network.attention_norms, network.feedforwards, network.feedforward_norms)
    kept = []
    for block, attention_norm, feedforward, feedforward_norm in zip(folded.blocks, *layers, strict=True):
        u = nn.functional.linear(f, block.query, block.query_bias).unflatten(1, (network.num_heads, -1))
        weights = torch.softmax(u @ hidden.mT + inputs.empty[:, None], -1)
        mean = (weights @ hidden).flatten(1)
        f = attention_norm(f + torch.addmm(block.output_bias, mean, block.output))
        f = feedforward_norm(f + feedforward(f))
        kept.append(weights[0])
    return Attention(torch.stack(kept), torch.softmax(network(batch, None if mask is None else mask[None])[1][0], -1))
