"""The backward of the fused pass: from the gradients of features and logits to those of the parameters."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.networks.compiled.arithmetic import fast, layer, product
from rllib_scale.networks.compiled.fused_layers import (
    add,
    add_scaled,
    attend_backward,
    dense_backward,
    normalise_backward,
    sum_rows,
)

_f32 = np.float32


@fast
def backward(grad_features, grad_logits, p, w, g):  # type: ignore[no-untyped-def]
    """Write the gradients `g` of the Parameters `p`, from those of a forward's features (B, d) and logits (B, N).

    `w` is the Workspace of that forward.
    """
    L, H, k_dim, d = p.query.shape
    N, B = w.logits.shape
    grad, other = w.narrow[0], w.narrow[1]
    grad_pointer, grad_pointing = np.empty((d, d), dtype=_f32), np.empty((d, d), dtype=_f32)
    grad_pointer_bias = np.empty(d, dtype=_f32)
    grad_query, grad_output = np.empty((H * d, d), dtype=_f32), np.empty((H * d, d), dtype=_f32)
    grad_query_bias = np.empty(H * d, dtype=_f32)
    square, slim = np.empty((d, d), dtype=_f32), np.empty((k_dim, d), dtype=_f32)
    g.embedder[:] = _f32(0.0)
    g.embedder_bias[:] = _f32(0.0)

    # the pointer
    constant = w.rows[2]
    constant[:] = _f32(0.0)
    other[:] = _f32(0.0)
    w.grad_hidden[:] = _f32(0.0)
    for j in range(N):
        row = w.grad_scores[j]
        for b in range(B):
            row[b] = grad_logits[b, j]
            constant[b] += row[b]
        # logit_j = direction . h_j + constant: its gradient flows into the direction and into h_j.
        add_scaled(w.hidden[j], row, 0, other)
        add_scaled(w.direction, row, 0, w.grad_hidden[j])
    f = w.feature[L]
    product(w.pointer, other, grad)
    product(f, other.T, grad_pointer)
    for k in range(d):
        total = _f32(0.0)
        for b in range(B):
            total += f[k, b] * constant[b]
            # The feature is also SRR's and the critic's input: their gradient comes from outside.
            grad[k, b] += grad_features[b, k] + w.pointer_bias[k] * constant[b]
        grad_pointer_bias[k] = total
    product(grad_pointer, p.embedder.T, grad_pointing)
    for k in range(d):
        for m in range(d):
            grad_pointing[k, m] += grad_pointer_bias[k] * p.embedder_bias[m]
            g.embedder_bias[m] += w.pointing[k, m] * grad_pointer_bias[k]
    product(w.pointing.T, grad_pointer, square)
    add(square, g.embedder)
    product(p.pointer_key, grad_pointing.T, g.pointer_query)
    product(p.pointer_query, grad_pointing, g.pointer_key)

    # the blocks, last to first; `grad` is the gradient of what a block gives
    for block in range(L - 1, -1, -1):
        u, mean, grad_mean, grad_u = w.u[block], w.mean[block], w.heads[0], w.heads[1]
        normalise_backward(
            grad,
            p.feedforward_scale[block],
            w.centred[block, 1],
            w.spread[block, 1],
            w.rows,
            g.feedforward_scale[block],
            g.feedforward_shift[block],
        )
        dense_backward(grad, w.activation[block], g.outer[block], g.outer_bias[block])
        product(p.outer[block].T, grad, w.wide)
        for k in range(len(w.wide)):
            for b in range(B):
                # The forward has kept the derivative of GELU.
                w.wide[k, b] *= w.slope[block, k, b]
        dense_backward(w.wide, w.middle[block], g.inner[block], g.inner_bias[block])
        product(p.inner[block].T, w.wide, other)
        for k in range(d):
            for b in range(B):
                grad[k, b] += other[k, b]
        normalise_backward(
            grad,
            p.attention_scale[block],
            w.centred[block, 0],
            w.spread[block, 0],
            w.rows,
            g.attention_scale[block],
            g.attention_shift[block],
        )
        # `grad` is now that of f + output^T mean + bias: it stays for f, and goes through the rest below.
        product(mean, grad.T, grad_output)
        product(w.output[block], grad, grad_mean)
        sum_rows(grad, g.output_bias[block])
        grad_u[:] = _f32(0.0)
        for h in range(H):
            attend_backward(
                u, w.hidden, h * d, w.attention[block, h], grad_mean, w.rows[0], w.grad_scores, grad_u, w.grad_hidden
            )
        dense_backward(grad_u, w.feature[block], grad_query, grad_query_bias)
        product(w.query[block].T, grad_u, other)
        for k in range(d):
            for b in range(B):
                grad[k, b] += other[k, b]
        _unfold(block, p, w, grad_query, grad_query_bias, grad_output, g, square, slim)

    # the embedders
    dense_backward(grad, w.task_hidden, g.task_output, g.task_output_bias)
    product(p.task_output.T, grad, other)
    for k in range(d):
        for b in range(B):
            if w.task_hidden[k, b] <= _f32(0.0):
                other[k, b] = _f32(0.0)
    dense_backward(other, w.task, g.task_hidden, g.task_hidden_bias)
    g.server_hidden[:] = _f32(0.0)
    g.server_hidden_bias[:] = _f32(0.0)
    server_dim = w.servers.shape[1]
    for j in range(N):
        for k in range(d):
            row, hidden = w.grad_hidden[j, k], w.hidden[j, k]
            total = _f32(0.0)
            for b in range(B):
                # ReLU: where it gave 0 nothing flows back.
                row[b] = row[b] if hidden[b] > _f32(0.0) else _f32(0.0)
                total += row[b]
            g.server_hidden_bias[k] += total
            for i in range(server_dim):
                total = _f32(0.0)
                for b in range(B):
                    total += row[b] * w.servers[j, i, b]
                g.server_hidden[k, i] += total


@layer
def _unfold(block, p, w, grad_query, grad_query_bias, grad_output, g, square, slim):  # type: ignore[no-untyped-def]
    """From the gradients of a block's products to those of its parameters."""
    _, H, k_dim, d = p.query.shape
    scale = _f32(1.0 / math.sqrt(k_dim))
    for h in range(H):
        into_u = grad_query[h * d : h * d + d]
        into_mean = grad_output[h * d : h * d + d]
        # The products of `_fold` backwards: of C = A^T B, grad A = B grad C^T and grad B = A grad C.
        product(w.inner_key[block, h], into_u, g.query[block, h])
        product(w.inner_value[block, h], into_mean, g.output[block, h])
        # inner_key
        product(p.query[block, h], into_u.T, slim)
        for i in range(k_dim):
            total = _f32(0.0)
            for m in range(d):
                slim[i, m] += p.query_bias[block, h, i] * grad_query_bias[h * d + m]
                total += w.inner_key[block, h, i, m] * grad_query_bias[h * d + m]
            g.query_bias[block, h, i] = total
        slim *= scale
        product(slim, p.embedder.T, g.key[block, h])
        product(p.key[block, h].T, slim, square)
        add(square, g.embedder)
        # inner_value and mixed_bias
        product(p.output[block, h], into_mean.T, slim)
        product(slim, p.embedder.T, g.value[block, h])
        product(p.value[block, h].T, slim, square)
        add(square, g.embedder)
        for i in range(k_dim):
            total = _f32(0.0)
            for m in range(d):
                g.output[block, h, i, m] += w.mixed_bias[block, h, i] * g.output_bias[block, m]
                total += p.output[block, h, i, m] * g.output_bias[block, m]
            g.value_bias[block, h, i] = total
            for m in range(d):
                g.value[block, h, i, m] += total * p.embedder_bias[m]
                g.embedder_bias[m] += total * p.value[block, h, i, m]
