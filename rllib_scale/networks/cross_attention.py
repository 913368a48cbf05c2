"""The cross-attention pointer network [SCALE, sec. 4.2], in a form whose cost hardly grows with the servers.

Notation, for one observation: h_j (d) are the hidden ReLU activations of the server embedder, z_j = W h_j + b its
output, f the task's embedding as it passes the blocks; head i of a block has W_Q, b_Q, W_K, W_V, b_V (k x d or k,
k = d / heads) and W_O (d x k), the block has b_O. The textbook computes a key and a value per server and head:

    score_ij = (W_Q f + b_Q) . (W_K z_j) / sqrt(k),   a_i = softmax_j(score_ij)
    out      = sum_i W_O (sum_j a_ij (W_V z_j + b_V)) + b_O

There is a single query, and everything after h_j is linear in it, so all of it can be applied to the query before,
and to the weighted mean after, instead of to each server:

    score_ij = u_i . h_j + const,   u_i = W^T W_K^T (W_Q f + b_Q) / sqrt(k)
    out      = sum_i W_O W_V W (sum_j a_ij h_j) + const,   const = b_O + sum_i W_O (W_V b + b_V)

using sum_j a_ij = 1. The constant of the scores is the same for every server and cancels in the softmax; a key bias
would be such a constant too, which is why there is none. The pointer likewise:

    p_j = (P_Q f) . (P_K z_j) = (W^T P_K^T P_Q f) . h_j + (P_K^T P_Q f) . b

No (B, N, d) tensor beside h is made, and only the score and the mean have a cost that depends on N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rllib_scale.networks.inputs import Inputs, InputSpec, ObservationInput, embedder


class BlockWeights(NamedTuple):
    """Folded attention weights of one block; d embedding, H heads."""

    query: Tensor  # (H * d, d): f -> u
    query_bias: Tensor  # (H * d,)
    output: Tensor  # (H * d, d): weighted means of h -> out
    output_bias: Tensor  # (d,)


class FoldedWeights(NamedTuple):
    """Everything between the hidden server activations and the block outputs, as products of the parameters."""

    blocks: tuple[BlockWeights, ...]
    pointer: Tensor  # (d, d): f -> direction in h
    pointer_bias: Tensor  # (d,): f -> the constant of the logits


class CrossAttention(nn.Module):
    """Multi-head attention parameters of all L blocks, a matrix per head; `output` holds W_O transposed.

    Initialised as torch.nn.MultiheadAttention: Xavier for query, key and value, the default of a linear layer for
    the output, zero for the biases.
    """

    def __init__(self, embedding_dim: int, num_heads: int, num_blocks: int) -> None:
        super().__init__()
        shape = (num_blocks, num_heads, embedding_dim // num_heads)  # L, H, k
        d = embedding_dim
        self.query = nn.Parameter(torch.empty(*shape, d))
        self.query_bias = nn.Parameter(torch.zeros(shape))
        self.key = nn.Parameter(torch.empty(*shape, d))
        self.value = nn.Parameter(torch.empty(*shape, d))
        self.value_bias = nn.Parameter(torch.zeros(shape))
        self.output = nn.Parameter(torch.empty(*shape, d))
        self.output_bias = nn.Parameter(torch.zeros(num_blocks, d))
        xavier = math.sqrt(6 / (d + 3 * d))
        for parameter in (self.query, self.key, self.value):
            nn.init.uniform_(parameter, -xavier, xavier)
        nn.init.uniform_(self.output, -1 / math.sqrt(d), 1 / math.sqrt(d))

    def fold(self, embedder: nn.Linear) -> tuple[BlockWeights, ...]:
        """Weights that act on h, the input of `embedder`, in place of its output z."""
        L, H, k, d = self.query.shape
        # Key and value in one product each: at this size a call costs more than its arithmetic.
        inner = torch.stack((self.key / math.sqrt(k), self.value)) @ embedder.weight  # (2, L, H, k, d)
        query, output = (inner.mT @ torch.stack((self.query, self.output))).view(2, L, H * d, d)
        query_bias = (inner[0].mT @ self.query_bias[..., None]).view(L, H * d)
        value_bias = self.value @ embedder.bias + self.value_bias  # (L, H, k)
        output_bias = self.output_bias + (value_bias.view(L, 1, H * k) @ self.output.view(L, H * k, d))[:, 0]
        return tuple(map(BlockWeights, query.unbind(), query_bias.unbind(), output.unbind(), output_bias.unbind()))


class Skip(nn.Module):
    """Inputs to a term of each logit, w . s_j with w = bias + weight t; s_j and t standardised. It begins at 0.

    A way past the encoder. The cost of a rule is such a map of the features that name its terms: a network that begins
    as the rule learns what to add to it.

    Args:
        inputs: columns of the observation.
    """

    def __init__(self, inputs: InputSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs.server_dim, inputs.task_dim))
        self.bias = nn.Parameter(torch.zeros(inputs.server_dim))

    def forward(self, inputs: Inputs) -> Tensor:
        """(B, N) terms."""
        weights = nn.functional.linear(inputs.task, self.weight, self.bias)
        return (inputs.servers @ weights[:, :, None])[:, :, 0]

    @torch.no_grad()
    def start_from(self, inputs: InputSpec, costs: Mapping[int, float]) -> None:
        """Begin as the rule whose cost is a sum of a server's features: so much less for a unit more, by column."""
        for column, cost in costs.items():
            self.bias[column] = -cost * inputs.server_std[column]


class CrossAttentionPointer(nn.Module):
    """Task and servers to the attention feature f and one logit per server, for any number of servers.

    f does not depend on the order of the servers, the logits follow it, and an empty row changes neither.

    Args:
        inputs: columns and standardisation of the observation.
        embedding_dim: d.
        num_heads: heads of each block; divides d.
        num_blocks: cross-attention blocks.
        logit_clip: C of the Attention Model's logits C tanh(p_j / sqrt(d)) [Kool et al. 2019, eq. 7], masked after
            the clipping; none: the logits are the scores p_j [SCALE, sec. 4.2].
        skip: adds to the logits what is linear in a server's features; the pointer then begins at 0.
    """

    def __init__(
        self,
        inputs: InputSpec,
        embedding_dim: int,
        num_heads: int,
        num_blocks: int,
        logit_clip: float | None = None,
        skip: Skip | None = None,
    ) -> None:
        super().__init__()
        d = embedding_dim
        self.feature_dim = d
        self.num_heads = num_heads
        self.logit_clip = logit_clip
        self.inputs = ObservationInput(inputs)
        self.task_embedder = embedder(inputs.task_dim, d)
        self.server_hidden = nn.Linear(inputs.server_dim, d)
        self.server_embedder = nn.Linear(d, d)
        self.attention = CrossAttention(d, num_heads, num_blocks)
        self.attention_norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(num_blocks))
        self.feedforwards = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(num_blocks)
        )
        self.feedforward_norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(num_blocks))
        self.pointer_query = nn.Linear(d, d, bias=False)
        self.pointer_key = nn.Linear(d, d, bias=False)
        self.skip = skip
        if skip is not None:
            nn.init.zeros_(self.pointer_query.weight)

    def fold(self) -> FoldedWeights:
        """The products of parameters that a forward uses; they depend on no observation."""
        embedder = self.server_embedder
        pointer = self.pointer_query.weight.T @ self.pointer_key.weight
        return FoldedWeights(self.attention.fold(embedder), pointer @ embedder.weight, pointer @ embedder.bias)

    def forward(self, obs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Feature f (B, d) and logits (B, N) of observations (B, task_dim + N * server_dim).

        `mask` (B, N), see `ObservationInput`, closes servers to the pointer, never to the attention.
        """
        folded, inputs = self.fold(), self.inputs(obs, mask)
        hidden, f = self.embed(inputs)
        for number, weights in enumerate(folded.blocks):
            f = self.leave_block(number, weights, f, attend(self.queries(weights, f), hidden, inputs.empty))
        return f, self.passed(self.logits(folded, f, hidden, inputs.closed), inputs)

    @torch.no_grad()
    def attention_at(self, observation: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attention weights (L, H, N) of every block and head, which sum to 1, and the pointer's probabilities (N,).

        The network's own forward [SCALE, sec. 4.2], with the weights beside it, which that never stores.

        Args:
            observation: (task_dim + N * server_dim,).
            mask: (N,) bool, False for a server that the probabilities leave out; without one, only the empty rows.
        """
        folded, inputs = self.fold(), self.inputs(observation[None], None if mask is None else mask[None])
        hidden, f = self.embed(inputs)
        kept = []
        for number, block in enumerate(folded.blocks):
            weights = torch.softmax(self.queries(block, f) @ hidden.mT + inputs.empty[:, None], -1)
            f = self.leave_block(number, block, f, weights @ hidden)
            kept.append(weights[0])
        logits = self.passed(self.logits(folded, f, hidden, inputs.closed), inputs)
        return torch.stack(kept), torch.softmax(logits[0], -1)

    def passed(self, logits: Tensor, inputs: Inputs) -> Tensor:
        """Logits (B, N) with what the skip adds to them."""
        return logits if self.skip is None else logits + self.skip(inputs)

    def embed(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Hidden activations h (B, N, d) of the servers, embedding f (B, d) of the task."""
        return nn.functional.relu(self.server_hidden(inputs.servers)), self.task_embedder(inputs.task)

    def queries(self, weights: BlockWeights, f: Tensor) -> Tensor:
        """Queries u (B, H, d) of a block, from f (B, d) as it enters it."""
        return nn.functional.linear(f, weights.query, weights.query_bias).unflatten(1, (self.num_heads, -1))

    def leave_block(self, number: int, weights: BlockWeights, f: Tensor, mean: Tensor) -> Tensor:
        """Feature f (B, d) behind a block, from f before it and each head's weighted mean of h (B, H, d)."""
        f = self.attention_norms[number](f + torch.addmm(weights.output_bias, mean.flatten(1), weights.output))
        return self.feedforward_norms[number](f + self.feedforwards[number](f))

    def logits(self, folded: FoldedWeights, f: Tensor, hidden: Tensor, closed: Tensor) -> Tensor:
        """(B, N) of the pointer; `closed` (B, N) is MASKED for servers that it must not choose, else 0."""
        constant = (f @ folded.pointer_bias)[:, None]
        if self.logit_clip is None:
            return self.point(f @ folded.pointer, hidden, closed) + constant
        scores = self.point(f @ folded.pointer, hidden, torch.zeros_like(closed)) + constant
        return self.logit_clip * torch.tanh(scores / math.sqrt(self.feature_dim)) + closed

    @staticmethod
    def point(w: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
        """Scores w . h + bias (B, N) of `hidden` (B, N, d) for one query w (B, d)."""
        return _Point.apply(w, hidden, bias)


def attend(u: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
    """Mean of `hidden` (B, N, d) weighted by softmax(u . h + bias), for queries u (B, H, d); bias (B, N)."""
    return _Attend.apply(u, hidden, bias)


class _Attend(torch.autograd.Function):
    """`attend` with one (B, N, d) gradient where autograd would make two and add them."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
        weights = torch.softmax(torch.baddbmm(bias[:, None], u, hidden.mT), -1)
        ctx.save_for_backward(u, hidden, weights)
        return weights @ hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_mean: Tensor) -> tuple[Tensor, Tensor, None]:
        u, hidden, weights = ctx.saved_tensors
        grad_weights = grad_mean @ hidden.mT
        grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True))
        grad_hidden = torch.cat((weights, grad_scores), 1).mT @ torch.cat((grad_mean, u), 1)
        return grad_scores @ hidden, grad_hidden, None


class _Point(torch.autograd.Function):
    """`point` with its outer product as a broadcast: as a batched matrix product it is ten times slower at N = 16."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(w, hidden)
        return torch.baddbmm(bias[:, None], w[:, None], hidden.mT)[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, None]:
        w, hidden = ctx.saved_tensors
        return (grad_scores[:, None] @ hidden)[:, 0], grad_scores[..., None] * w[:, None], None
