"""The pointer network as a textbook writes it, from torch's own layers: the oracle of the folded form."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rllib_scale.networks.cross_attention import CrossAttentionPointer


class Textbook(nn.Module):
    """A key and a value per server, through nn.MultiheadAttention, with the parameters of `network` copied."""

    def __init__(self, network: CrossAttentionPointer, keep_weights: bool = False) -> None:
        super().__init__()
        self.keep_weights = keep_weights
        self.weights: list[Tensor] = []  # of each block in the last forward, (B, heads, 1, N)
        blocks, heads, _, d = network.attention.query.shape
        self.inputs = network.inputs
        self.task_embedder = nn.Sequential(nn.Linear(5, d), nn.ReLU(), nn.Linear(d, d))
        self.server_embedder = nn.Sequential(nn.Linear(5, d), nn.ReLU(), nn.Linear(d, d))
        self.attentions = nn.ModuleList(nn.MultiheadAttention(d, heads, batch_first=True) for _ in range(blocks))
        self.attention_norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(blocks))
        self.feedforwards = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(blocks)
        )
        self.feedforward_norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(blocks))
        self.pointer_query = nn.Linear(d, d, bias=False)
        self.pointer_key = nn.Linear(d, d, bias=False)
        self.to(network.server_hidden.weight.dtype)
        with torch.no_grad():
            for mine, theirs in self.pairs(network):
                mine.copy_(theirs.reshape(mine.shape))
            for attention in self.attentions:
                attention.in_proj_bias[d : 2 * d] = 0  # a key bias has no effect

    def pairs(self, network: CrossAttentionPointer, gradients: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """Every parameter of this module (a view of it), or its gradient, with the one of `network`."""
        of = (lambda parameter: parameter.grad) if gradients else (lambda parameter: parameter)
        d = network.feature_dim
        a = network.attention
        for i, mine in enumerate(self.attentions):
            weight, bias = of(mine.in_proj_weight), of(mine.in_proj_bias)
            yield weight[:d], of(a.query)[i]
            yield weight[d : 2 * d], of(a.key)[i]
            yield weight[2 * d :], of(a.value)[i]
            yield bias[:d], of(a.query_bias)[i]
            yield bias[2 * d :], of(a.value_bias)[i]
            yield of(mine.out_proj.weight).T, of(a.output)[i]
            yield of(mine.out_proj.bias), of(a.output_bias)[i]
        for mine, theirs in (
            (self.server_embedder[0], network.server_hidden),
            (self.server_embedder[2], network.server_embedder),
            *((getattr(self, name), getattr(network, name)) for name in self.SAME),
        ):
            for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
                yield of(one), of(other)

    SAME = ("task_embedder", "attention_norms", "feedforwards", "feedforward_norms", "pointer_query", "pointer_key")

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.inputs(obs)
        z = self.server_embedder(inputs.servers)
        f = self.task_embedder(inputs.task)[:, None]
        self.weights = []
        for attention, attention_norm, feedforward, feedforward_norm in zip(
            self.attentions, self.attention_norms, self.feedforwards, self.feedforward_norms, strict=True
        ):
            how = {"need_weights": self.keep_weights, "average_attn_weights": False}
            attended, weights = attention(f, z, z, key_padding_mask=inputs.empty != 0, **how)
            self.weights.append(weights)
            f = attention_norm(f + attended)
            f = feedforward_norm(f + feedforward(f))
        f = f[:, 0]
        logits = (self.pointer_key(z) @ self.pointer_query(f)[..., None])[..., 0]
        return f, logits + inputs.closed
