"""What a cross-attention pointer network looks at in one decision: attention weights and pointer probabilities."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rllib_scale.networks.cross_attention import CrossAttentionPointer


class Attention(NamedTuple):
    """Shapes: L blocks, H heads, N servers."""

    weights: Tensor  # (L, H, N), each head sums to 1; 0 at an empty row
    probabilities: Tensor  # (N,) softmax of the logits; 0 where a mask closes the server


@torch.no_grad()
def attention(network: CrossAttentionPointer, observation: Tensor, mask: Tensor | None = None) -> Attention:
    """Softmax weights of every head and block, and the pointer's probabilities [SCALE, sec. 4.2], at one observation.

    The network's own forward, with the weights beside it, which that never stores.

    Args:
        network: any CrossAttentionPointer.
        observation: (task_dim + N * server_dim,).
        mask: (N,) bool, False for a server that the probabilities leave out; without one, only the empty rows.
    """
    folded, inputs = network.fold(), network.inputs(observation[None], None if mask is None else mask[None])
    hidden, f = network.embed(inputs)
    kept = []
    for number, block in enumerate(folded.blocks):
        weights = torch.softmax(network.queries(block, f) @ hidden.mT + inputs.empty[:, None], -1)
        f = network.leave_block(number, block, f, weights @ hidden)
        kept.append(weights[0])
    logits = network.passed(network.logits(folded, f, hidden, inputs.closed), inputs)
    return Attention(torch.stack(kept), torch.softmax(logits[0], -1))
