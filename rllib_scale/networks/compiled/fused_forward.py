"""The forward of the fused pass: from observations to features and logits."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.networks.compiled.arithmetic import fast, layer, product
from rllib_scale.networks.compiled.fused_layers import attend, copy, dense, gelu, normalise, relu, scores
from rllib_scale.networks.inputs import MASKED

_f32 = np.float32


@layer
def _read(obs, mask, c, w):  # type: ignore[no-untyped-def]
    """Standardised inputs and masks; see networks/inputs.py."""
    B = len(obs)
    N, server_dim, _ = w.servers.shape
    task_dim = len(w.task)
    # Features first, batch last: every inner loop runs over contiguous rows of B numbers, in vector lanes.
    for i in range(task_dim):
        for b in range(B):
            w.task[i, b] = obs[b, i] * c.task_scale[i] + c.task_shift[i]
    for j in range(N):
        start = task_dim + j * server_dim
        for b in range(B):
            is_empty = obs[b, start + c.server_capacity] == _f32(0.0)
            w.empty[j, b] = w.closed[j, b] = _f32(MASKED) if is_empty else _f32(0.0)
        for i in range(server_dim):
            for b in range(B):
                w.servers[j, i, b] = obs[b, start + i] * c.server_scale[i] + c.server_shift[i]
    for b in range(len(mask)):
        some = False
        for j in range(N):
            some = some or (mask[b, j] != 0 and w.empty[j, b] == _f32(0.0))
        # A mask that would close every server is ignored (see ObservationInput).
        if some:
            for j in range(N):
                w.closed[j, b] = w.empty[j, b] if mask[b, j] != 0 else _f32(MASKED)


@layer
def _fold(p, w):  # type: ignore[no-untyped-def]
    """Products of the parameters; see CrossAttentionPointer.fold."""
    L, H, k, d = p.query.shape
    scale = _f32(1.0 / math.sqrt(k))
    for block in range(L):
        copy(p.output_bias[block], w.output_bias[block])
        for h in range(H):
            product(p.key[block, h] * scale, p.embedder, w.inner_key[block, h])
            product(p.value[block, h], p.embedder, w.inner_value[block, h])
            product(w.inner_key[block, h].T, p.query[block, h], w.query[block, h * d : h * d + d])
            product(w.inner_value[block, h].T, p.output[block, h], w.output[block, h * d : h * d + d])
            product(w.inner_key[block, h].T, p.query_bias[block, h], w.query_bias[block, h * d : h * d + d])
            for i in range(k):
                # Attention weights add up to 1: the value's bias passes through the mean, to a bias of the output.
                mixed = p.value_bias[block, h, i]
                for m in range(d):
                    mixed += p.value[block, h, i, m] * p.embedder_bias[m]
                w.mixed_bias[block, h, i] = mixed
                for m in range(d):
                    w.output_bias[block, m] += mixed * p.output[block, h, i, m]
    product(p.pointer_query.T, p.pointer_key, w.pointing)
    product(w.pointing, p.embedder, w.pointer)
    product(w.pointing, p.embedder_bias, w.pointer_bias)


@fast
def forward(obs, mask, p, c, w, features, logits):  # type: ignore[no-untyped-def]
    """Write features (B, d) and logits (B, N), and into the workspace `w` what the backward needs.

    Args:
        obs: (B, task_dim + N * server_dim).
        mask: (B, N) uint8, 0 for a server that is closed; or (0, 0).
        p: Parameters.
        c: Constants.
        w: Workspace.
        features: is written to.
        logits: is written to.
    """
    L, H, _, d = p.query.shape
    N, B = w.logits.shape
    server_dim = w.servers.shape[1]
    eps = _f32(c.norm_eps)
    _read(obs, mask, c, w)
    _fold(p, w)
    for j in range(N):
        hidden, row = w.hidden[j], w.servers[j]
        for k in range(d):
            hidden[k] = p.server_hidden_bias[k]
            for i in range(server_dim):
                weight = p.server_hidden[k, i]
                for b in range(B):
                    hidden[k, b] += weight * row[i, b]
        relu(hidden)
    dense(p.task_hidden, p.task_hidden_bias, w.task, w.task_hidden)
    relu(w.task_hidden)
    dense(p.task_output, p.task_output_bias, w.task_hidden, w.feature[0])
    for block in range(L):
        f, u, mean, x, y = w.feature[block], w.u[block], w.mean[block], w.narrow[0], w.middle[block]
        # Scores and means are taken on the embedder's hidden layer h, by the products of `_fold`: no key and no value
        # of any of the N servers is computed.
        dense(w.query[block], w.query_bias[block], f, u)
        mean[:] = _f32(0.0)
        for h in range(H):
            attend(u, w.hidden, w.empty, h * d, w.attention[block, h], w.rows, mean)
        product(w.output[block].T, mean, x)
        for k in range(d):
            for b in range(B):
                # Residual, then norm.
                x[k, b] += f[k, b] + w.output_bias[block, k]
        scale, shift = p.attention_scale[block], p.attention_shift[block]
        normalise(x, scale, shift, eps, w.centred[block, 0], w.spread[block, 0], w.rows, y)
        dense(p.inner[block], p.inner_bias[block], y, w.activation[block])
        gelu(w.activation[block], w.slope[block])
        dense(p.outer[block], p.outer_bias[block], w.activation[block], x)
        for k in range(d):
            for b in range(B):
                x[k, b] += y[k, b]
        scale, shift = p.feedforward_scale[block], p.feedforward_shift[block]
        normalise(x, scale, shift, eps, w.centred[block, 1], w.spread[block, 1], w.rows, w.feature[block + 1])
    f = w.feature[L]
    product(w.pointer.T, f, w.direction)
    constant = w.rows[0]
    constant[:] = _f32(0.0)
    for k in range(d):
        for b in range(B):
            constant[b] += w.pointer_bias[k] * f[k, b]
            features[b, k] = f[k, b]
    for j in range(N):
        for b in range(B):
            w.logits[j, b] = w.closed[j, b] + constant[b]
        scores(w.direction, w.hidden[j], 0, w.logits[j])
        for b in range(B):
            logits[b, j] = w.logits[j, b]
