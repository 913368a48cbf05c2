"""The compiled forward of the cross-attention pointer, for one observation; `networks/cross_attention.py` is its torch.

Sums may be reordered into vector lanes: results differ from torch's in the last bits.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import FAST, internal

_inner = partial(internal, fastmath=set(FAST))


class PointerWeights(NamedTuple):
    """Folded float32 weights of a CrossAttentionPointer (networks/cross_attention.py): d embedding, H heads, L blocks.

    Linear layers are stored (in, out); input standardisation is folded into the first layers.
    """

    task_hidden: np.ndarray  # (task_dim, d)
    task_hidden_bias: np.ndarray  # (d,)
    task_output: np.ndarray  # (d, d)
    task_output_bias: np.ndarray  # (d,)
    server_hidden: np.ndarray  # (server_dim, d)
    server_hidden_bias: np.ndarray  # (d,)
    query: np.ndarray  # (L, H, d, d): f -> u
    query_bias: np.ndarray  # (L, H, d)
    output: np.ndarray  # (L, H, d, d): weighted mean of h -> its share of the block's output
    output_bias: np.ndarray  # (L, d)
    attention_norm: np.ndarray  # (L, 2, d): scale, shift
    inner: np.ndarray  # (L, d, 4d)
    inner_bias: np.ndarray  # (L, 4d)
    outer: np.ndarray  # (L, 4d, d)
    outer_bias: np.ndarray  # (L, d)
    feedforward_norm: np.ndarray  # (L, 2, d)
    pointer: np.ndarray  # (d, d): f -> direction in h
    pointer_bias: np.ndarray  # (d,)
    skip: np.ndarray  # (server_dim + 1, task_dim): task -> what each feature counts in the logits, and a constant
    skip_bias: np.ndarray  # (server_dim + 1,); both are empty of a network without a skip
    server_capacity: int  # column of a server's features
    clip: np.float32  # of the logits; 0: none
    eps: np.float32  # of the layer norms


class Scratch(NamedTuple):
    """Room of a forward over n servers, float32."""

    columns: np.ndarray  # (server_dim, n): features of the servers; input
    hidden: np.ndarray  # (d, n)
    empty: np.ndarray  # (n,): what is added to the scores of a server, 0, or far below 0 for an empty row; input
    scores: np.ndarray  # (n,)
    vectors: np.ndarray  # (5, d); the first is the feature f
    wide: np.ndarray  # (4d,)


@_inner
def exp_of_negative(x):  # type: ignore[no-untyped-def]
    """Exponential of a float32 at most 0, within 2e-7 of the true value, in operations that a compiler can vectorise.

    x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by the degree-7 polynomial of Cephes' expf, 2^n through its bits.
    """
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + np.float32(1.0)
    return y * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@_inner
def _linear(x, weight, bias, out):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = bias[k]
    for i in range(weight.shape[0]):
        for k in range(len(out)):
            out[k] += x[i] * weight[i, k]


@_inner
def _normalise(x, norm, eps):  # type: ignore[no-untyped-def]
    """LayerNorm in place."""
    mean = np.float32(0.0)
    for k in range(len(x)):
        mean += x[k]
    mean /= np.float32(len(x))
    variance = np.float32(0.0)
    for k in range(len(x)):
        variance += (x[k] - mean) * (x[k] - mean)
    scale = np.float32(1.0) / np.float32(math.sqrt(variance / np.float32(len(x)) + eps))
    for k in range(len(x)):
        x[k] = (x[k] - mean) * scale * norm[0, k] + norm[1, k]


@_inner
def _attend(u, n, s, mean):  # type: ignore[no-untyped-def]
    """Compute mean (d,) = softmax_j(u . hidden_j) over the rows that are not empty."""
    for j in range(n):
        s.scores[j] = s.empty[j]
    for k in range(len(u)):
        for j in range(n):
            s.scores[j] += u[k] * s.hidden[k, j]
    highest = s.scores[0]
    for j in range(n):
        highest = max(highest, s.scores[j])
    total = np.float32(0.0)
    for j in range(n):
        s.scores[j] = exp_of_negative(s.scores[j] - highest)
        total += s.scores[j]
    for k in range(len(u)):
        part = np.float32(0.0)
        for j in range(n):
            part += s.scores[j] * s.hidden[k, j]
        mean[k] = part / total


@_inner
def point(task, n, w, s, logits):  # type: ignore[no-untyped-def]
    """Write the logits of n servers, of empty rows too.

    Args:
        task: (task_dim,), or more.
        n: servers in the scratch.
        w: PointerWeights.
        s: Scratch.
        logits: is written to.
    """
    task_dim, d = w.task_hidden.shape
    server_dim = len(w.server_hidden)
    num_blocks, num_heads = w.query.shape[:2]
    f, out, u, mean, first = s.vectors[0], s.vectors[1], s.vectors[2], s.vectors[3], s.vectors[4]
    wide = s.wide
    for k in range(d):
        for j in range(n):
            s.hidden[k, j] = w.server_hidden_bias[k]
        for c in range(server_dim):
            for j in range(n):
                s.hidden[k, j] += w.server_hidden[c, k] * s.columns[c, j]
        for j in range(n):
            s.hidden[k, j] = max(s.hidden[k, j], np.float32(0.0))
    _linear(task, w.task_hidden, w.task_hidden_bias, first)
    for k in range(d):
        first[k] = max(first[k], np.float32(0.0))
    _linear(first, w.task_output, w.task_output_bias, f)
    for block in range(num_blocks):
        for k in range(d):
            out[k] = w.output_bias[block, k]
        for head in range(num_heads):
            _linear(f, w.query[block, head], w.query_bias[block, head], u)
            _attend(u, n, s, mean)
            for i in range(d):
                for k in range(d):
                    out[k] += mean[i] * w.output[block, head, i, k]
        for k in range(d):
            f[k] += out[k]
        _normalise(f, w.attention_norm[block], w.eps)
        _linear(f, w.inner[block], w.inner_bias[block], wide)
        for i in range(len(wide)):
            x = wide[i]
            wide[i] = np.float32(0.5) * x * (np.float32(1.0) + np.float32(math.erf(x * np.float32(0.70710678))))
        _linear(wide, w.outer[block], w.outer_bias[block], out)
        for k in range(d):
            f[k] += out[k]
        _normalise(f, w.feedforward_norm[block], w.eps)
    constant = np.float32(0.0)
    for k in range(d):
        constant += f[k] * w.pointer_bias[k]
        u[k] = np.float32(0.0)
    for i in range(d):
        for k in range(d):
            u[k] += f[i] * w.pointer[i, k]
    for j in range(n):
        logits[j] = constant
    for k in range(d):
        for j in range(n):
            logits[j] += u[k] * s.hidden[k, j]
    if w.clip > np.float32(0.0):
        for j in range(n):
            logits[j] = w.clip * np.float32(math.tanh(logits[j] / np.float32(math.sqrt(d))))
    for c in range(len(w.skip)):
        per_unit = w.skip_bias[c]
        for i in range(task_dim):
            per_unit += w.skip[c, i] * task[i]
        for j in range(n):
            logits[j] += per_unit * (s.columns[c, j] if c < server_dim else np.float32(1.0))
