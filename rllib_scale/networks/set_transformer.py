"""The Set Transformer encoder [Lee et al. 2019]: servers attend to each other before the task attends to them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rllib_scale.networks.inputs import InputSpec
from rllib_scale.networks.pointer import SetPointer


class AttentionBlock(nn.Module):
    """MAB(x, y): x attends to y, residual, LayerNorm; then a row-wise ReLU layer, residual, LayerNorm.

    Args:
        embedding_dim: d.
        num_heads: divides d.
    """

    def __init__(self, embedding_dim: int, num_heads: int) -> None:
        super().__init__()
        d = embedding_dim
        self.num_heads = num_heads
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, d, bias=False)  # a key bias adds the same to every score of a query: no effect
        self.value = nn.Linear(d, d)
        self.output = nn.Linear(d, d)
        self.attention_norm = nn.LayerNorm(d)
        self.feedforward = nn.Linear(d, d)
        self.feedforward_norm = nn.LayerNorm(d)

    def forward(self, x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
        """(B, Q, d) from queries x (B, Q, d) and set y (B, K, d); `bias` (B, K) is added to the scores of y."""
        query, key, value = (
            projected.unflatten(2, (self.num_heads, -1)).transpose(1, 2)
            for projected in (self.query(x), self.key(y), self.value(y))
        )
        mask = None if bias is None else bias[:, None, None]
        mean = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.attention_norm(x + self.output(mean.transpose(1, 2).flatten(2)))
        return self.feedforward_norm(x + nn.functional.relu(self.feedforward(x)))


class InducedBlock(nn.Module):
    """ISAB(x) = MAB(x, MAB(I, x)): a set attends to itself through m learned points I, at a cost linear in its size.

    Args:
        embedding_dim: d.
        num_heads: divides d.
        num_points: m.
    """

    def __init__(self, embedding_dim: int, num_heads: int, num_points: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.empty(num_points, embedding_dim))
        nn.init.xavier_uniform_(self.points)
        self.gather = AttentionBlock(embedding_dim, num_heads)
        self.spread = AttentionBlock(embedding_dim, num_heads)

    def forward(self, x: Tensor, empty: Tensor) -> Tensor:
        """(B, N, d) from the set x (B, N, d); `empty` (B, N) is MASKED for what is not in the set, else 0."""
        summary = self.gather(self.points.expand(x.shape[0], -1, -1), x, empty)
        return self.spread(x, summary)


class SetTransformer(SetPointer):
    """f = MAB(task, z) with z = the server embeddings after `num_blocks` ISABs; the pointer's keys are of z too.

    The task is the seed of the pooling by attention: one query, as in `CrossAttentionPointer`.

    Args:
        inputs: columns and standardisation of the observation.
        embedding_dim: d.
        num_heads: heads of each block; divides d.
        num_blocks: ISABs.
        induced_points: m of each ISAB.
    """

    def __init__(
        self,
        inputs: InputSpec,
        embedding_dim: int,
        num_heads: int,
        num_blocks: int,
        induced_points: int,
    ) -> None:
        super().__init__(inputs, embedding_dim)
        self.blocks = nn.ModuleList(InducedBlock(embedding_dim, num_heads, induced_points) for _ in range(num_blocks))
        self.pooling = AttentionBlock(embedding_dim, num_heads)

    def encode(self, task: Tensor, servers: Tensor, empty: Tensor) -> tuple[Tensor, Tensor]:
        """See `SetPointer.encode`."""
        for block in self.blocks:
            servers = block(servers, empty)
        return self.pooling(task[:, None], servers, empty)[:, 0], servers
