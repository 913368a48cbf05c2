"""Layers of the fused pass, and their gradients, in arrays (features, B)."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.networks.compiled.arithmetic import inner, layer, product
from rllib_scale.simulator.pointer import exp_of_negative

_f32 = np.float32


@layer
def dense(weight, bias, x, out):  # type: ignore[no-untyped-def]
    """Write W x + b to `out`."""
    product(weight, x, out)
    for k in range(len(out)):
        for b in range(out.shape[1]):
            out[k, b] += bias[k]


@layer
def dense_backward(grad, x, grad_weight, grad_bias):  # type: ignore[no-untyped-def]
    """Gradients of weight and bias of a dense layer from that of its output."""
    product(grad, x.T, grad_weight)
    sum_rows(grad, grad_bias)


@inner
def copy(x, out):  # type: ignore[no-untyped-def]
    """Write x (B,) to `out`: numba compiles an assignment of arrays to a second of checks of their shapes."""
    for b in range(len(out)):
        out[b] = x[b]


@layer
def add(x, out):  # type: ignore[no-untyped-def]
    """Add x to `out`."""
    for k in range(len(out)):
        for b in range(out.shape[1]):
            out[k, b] += x[k, b]


@layer
def sum_rows(x, out):  # type: ignore[no-untyped-def]
    """Write the sum of every row to `out`."""
    for k in range(len(x)):
        total = _f32(0.0)
        for b in range(x.shape[1]):
            total += x[k, b]
        out[k] = total


@layer
def relu(x):  # type: ignore[no-untyped-def]
    """In place."""
    for k in range(len(x)):
        for b in range(x.shape[1]):
            x[k, b] = max(x[k, b], _f32(0.0))


@layer
def gelu(x, slope):  # type: ignore[no-untyped-def]
    """X becomes x Phi(x); slope its derivative Phi(x) + x phi(x).

    Phi by formula 7.1.26 of Abramowitz and Stegun, within 1e-7.
    """
    for k in range(len(x)):
        for b in range(x.shape[1]):
            v = x[k, b]
            bell = exp_of_negative(_f32(-0.5) * v * v)
            t = _f32(1.0) / (_f32(1.0) + _f32(0.3275911 * math.sqrt(0.5)) * abs(v))
            tail = _f32(1.061405429) * t - _f32(1.453152027)
            tail = ((tail * t + _f32(1.421413741)) * t - _f32(0.284496736)) * t + _f32(0.254829592)
            tail = _f32(0.5) * tail * t * bell  # Phi(-|v|)
            share = tail if v < _f32(0.0) else _f32(1.0) - tail
            x[k, b] = v * share
            slope[k, b] = share + v * bell * _f32(0.3989422804)


@layer
def normalise(x, scale, shift, eps, centred, spread, rows, out):  # type: ignore[no-untyped-def]
    """LayerNorm over the first axis."""
    d, B = x.shape
    mean, variance = rows[0], rows[1]
    mean[:] = _f32(0.0)
    variance[:] = _f32(0.0)
    share = _f32(1.0 / d)
    for k in range(d):
        for b in range(B):
            mean[b] += x[k, b] * share
    for k in range(d):
        for b in range(B):
            variance[b] += (x[k, b] - mean[b]) * (x[k, b] - mean[b]) * share
    for b in range(B):
        spread[b] = _f32(1.0) / math.sqrt(variance[b] + eps)
    for k in range(d):
        for b in range(B):
            centred[k, b] = (x[k, b] - mean[b]) * spread[b]
            out[k, b] = centred[k, b] * scale[k] + shift[k]


@layer
def normalise_backward(grad, scale, centred, spread, rows, grad_scale, grad_shift):  # type: ignore[no-untyped-def]
    """`grad` becomes the gradient of the norm's input."""
    d, B = grad.shape
    mean, aligned = rows[0], rows[1]
    mean[:] = _f32(0.0)
    aligned[:] = _f32(0.0)
    share = _f32(1.0 / d)
    for k in range(d):
        total, weighted = _f32(0.0), _f32(0.0)
        for b in range(B):
            total += grad[k, b]
            weighted += grad[k, b] * centred[k, b]
        grad_shift[k], grad_scale[k] = total, weighted
        for b in range(B):
            grad[k, b] *= scale[k]
            mean[b] += grad[k, b] * share
            aligned[b] += grad[k, b] * centred[k, b] * share
    for k in range(d):
        for b in range(B):
            grad[k, b] = (grad[k, b] - mean[b] - centred[k, b] * aligned[b]) * spread[b]


@layer
def scores(u, hidden, start, out):  # type: ignore[no-untyped-def]
    """Add u . h of one server to out (B,), with u in rows start .. start + d."""
    d, B = hidden.shape
    for k in range(0, d - d % 4, 4):
        for b in range(B):
            out[b] += (
                u[start + k, b] * hidden[k, b]
                + u[start + k + 1, b] * hidden[k + 1, b]
                + u[start + k + 2, b] * hidden[k + 2, b]
                + u[start + k + 3, b] * hidden[k + 3, b]
            )
    for k in range(d - d % 4, d):
        for b in range(B):
            out[b] += u[start + k, b] * hidden[k, b]


@layer
def add_scaled(x, factor, start, out):  # type: ignore[no-untyped-def]
    """Add factor (B,) times x (d, B) to rows start .. start + d of out."""
    for k in range(len(x)):
        for b in range(len(factor)):
            out[start + k, b] += factor[b] * x[k, b]


@layer
def attend(u, hidden, empty, start, attention, rows, mean):  # type: ignore[no-untyped-def]
    """Weights (N, B) of one head, and its weighted mean of the hidden activations into rows of `mean`."""
    N, _, B = hidden.shape
    highest, total = rows[0], rows[1]
    highest[:] = _f32(-np.inf)
    total[:] = _f32(0.0)
    for j in range(N):
        copy(empty[j], attention[j])
        scores(u, hidden[j], start, attention[j])
        for b in range(B):
            highest[b] = max(highest[b], attention[j, b])
    for j in range(N):
        for b in range(B):
            attention[j, b] = exp_of_negative(attention[j, b] - highest[b])
            total[b] += attention[j, b]
    for b in range(B):
        total[b] = _f32(1.0) / total[b]
    for j in range(N):
        for b in range(B):
            attention[j, b] *= total[b]
        add_scaled(hidden[j], attention[j], start, mean)


@layer
def attend_backward(u, hidden, start, attention, grad_mean, inner, grad_scores, grad_u, grad_hidden):  # type: ignore[no-untyped-def]
    """Add the gradients of u and of the hidden activations, from that of the weighted mean of one head."""
    N, d, B = hidden.shape
    inner[:] = _f32(0.0)
    for j in range(N):
        row = grad_scores[j]
        row[:] = _f32(0.0)
        scores(grad_mean, hidden[j], start, row)
        for b in range(B):
            inner[b] += row[b] * attention[j, b]
    for j in range(N):
        row = grad_scores[j]
        for b in range(B):
            row[b] = attention[j, b] * (row[b] - inner[b])
        add_scaled(hidden[j], row, start, grad_u)
        for k in range(d):
            for b in range(B):
                grad_hidden[j, k, b] += attention[j, b] * grad_mean[start + k, b] + row[b] * u[start + k, b]
