"""Forward and backward of the whole cross-attention pointer as two compiled calls, for training on a CPU.

The network is small: passed through torch operation by operation, a minibatch costs more in dispatch than in
arithmetic. Here everything from the folding of the weights to their gradients is one compiled function each way;
dense layers are BLAS products, the rest are loops over the minibatch that a compiler turns into vector instructions.
Values and gradients are those of `CrossAttentionPointer.forward` within float32 rounding; its notation and derivation
stand in networks/cross_attention.py. Arrays are feature-major: the B rows of the minibatch are the last axis.

All in one file: Numba compiles a cached function anew when its own file changes, not when that of a callee does.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rllib_scale.compiled import FAST, compiled
from rllib_scale.networks.compiled.inference import as_mask, exp_of_negative
from rllib_scale.networks.cross_attention import CrossAttentionPointer
from rllib_scale.networks.inputs import MASKED

# Inlined by force: a function that is called would be another one in the process that compiles it than in those that
# take the cached code, and its sums would be rounded in another order.
_compiled = partial(compiled, allocates=True, inline=True, fastmath=set(FAST))
_f32 = np.float32


class Parameters(NamedTuple):
    """The parameters of a CrossAttentionPointer, or their gradients, as float32 arrays; a tuple holds one a block."""

    query: np.ndarray  # (L, H, k, d)
    query_bias: np.ndarray  # (L, H, k)
    key: np.ndarray  # (L, H, k, d)
    value: np.ndarray  # (L, H, k, d)
    value_bias: np.ndarray  # (L, H, k)
    output: np.ndarray  # (L, H, k, d)
    output_bias: np.ndarray  # (L, d)
    task_hidden: np.ndarray  # (d, task_dim)
    task_hidden_bias: np.ndarray  # (d,)
    task_output: np.ndarray  # (d, d)
    task_output_bias: np.ndarray  # (d,)
    server_hidden: np.ndarray  # (d, server_dim)
    server_hidden_bias: np.ndarray  # (d,)
    embedder: np.ndarray  # (d, d)
    embedder_bias: np.ndarray  # (d,)
    pointer_query: np.ndarray  # (d, d)
    pointer_key: np.ndarray  # (d, d)
    attention_scale: tuple[np.ndarray, ...]  # (d,)
    attention_shift: tuple[np.ndarray, ...]  # (d,)
    inner: tuple[np.ndarray, ...]  # (4d, d)
    inner_bias: tuple[np.ndarray, ...]  # (4d,)
    outer: tuple[np.ndarray, ...]  # (d, 4d)
    outer_bias: tuple[np.ndarray, ...]  # (d,)
    feedforward_scale: tuple[np.ndarray, ...]  # (d,)
    feedforward_shift: tuple[np.ndarray, ...]  # (d,)


_SINGLE = 17
"""Fields of `Parameters` before those that hold one array a block."""


class Constants(NamedTuple):
    """What training does not change."""

    task_scale: np.ndarray  # (task_dim,)
    task_shift: np.ndarray  # (task_dim,)
    server_scale: np.ndarray  # (server_dim,)
    server_shift: np.ndarray  # (server_dim,)
    server_capacity: int  # column of a server's features
    norm_eps: float


class Workspace(NamedTuple):
    """Everything a forward leaves for the backward, and the scratch of both."""

    task: np.ndarray  # (task_dim, B), standardised
    servers: np.ndarray  # (N, server_dim, B), standardised
    empty: np.ndarray  # (N, B), MASKED or 0
    closed: np.ndarray  # (N, B), MASKED or 0
    task_hidden: np.ndarray  # (d, B)
    hidden: np.ndarray  # (N, d, B)
    inner_key: np.ndarray  # (L, H, k, d), W_K W / sqrt(k)
    inner_value: np.ndarray  # (L, H, k, d), W_V W
    mixed_bias: np.ndarray  # (L, H, k), W_V b + b_V
    query: np.ndarray  # (L, H * d, d), f -> u
    query_bias: np.ndarray  # (L, H * d)
    output: np.ndarray  # (L, H * d, d), weighted means -> output
    output_bias: np.ndarray  # (L, d)
    pointing: np.ndarray  # (d, d), P_Q^T P_K
    pointer: np.ndarray  # (d, d), f -> direction in h
    pointer_bias: np.ndarray  # (d,)
    feature: np.ndarray  # (L + 1, d, B), before each block and after the last
    u: np.ndarray  # (L, H * d, B)
    attention: np.ndarray  # (L, H, N, B)
    mean: np.ndarray  # (L, H * d, B)
    centred: np.ndarray  # (L, 2, d, B), both norms' inputs, standardised
    spread: np.ndarray  # (L, 2, B), 1 / standard deviation of those inputs
    middle: np.ndarray  # (L, d, B), between attention and feed-forward
    activation: np.ndarray  # (L, 4d, B), GELU
    slope: np.ndarray  # (L, 4d, B), its derivative
    direction: np.ndarray  # (d, B), of the pointer
    logits: np.ndarray  # (N, B)
    wide: np.ndarray  # (4d, B), scratch
    narrow: np.ndarray  # (2, d, B), scratch
    heads: np.ndarray  # (2, H * d, B), scratch
    rows: np.ndarray  # (3, B), scratch
    grad_hidden: np.ndarray  # (N, d, B), scratch
    grad_scores: np.ndarray  # (N, B), scratch


class FusedPointer:
    """Features and logits of a network's observations, differentiable in its parameters.

    Workspaces are kept from pass to pass: a minibatch allocates nothing but its results. Not thread-safe.

    Args:
        network: on the CPU, in float32.
    """

    def __init__(self, network: CrossAttentionPointer) -> None:
        inputs = network.inputs
        norm: Any = network.attention_norms[0]
        self.network = network
        self.parameters = _parameters_of(network)
        self._shapes = [tuple(parameter.shape) for parameter in self.parameters]
        self._ends = [0, *itertools.accumulate(parameter.numel() for parameter in self.parameters)]
        self.constants = Constants(
            inputs.task_scale.numpy(),
            inputs.task_shift.numpy(),
            inputs.server_scale.numpy(),
            inputs.server_shift.numpy(),
            inputs.spec.server_capacity,
            norm.eps,
        )
        self._free: dict[tuple[int, int], list[Workspace]] = {}
        self._addresses: list[int] = []
        self._arrays = self.weights()

    def __call__(self, obs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Feature f (B, d) and logits (B, N) of observations (B, task_dim + N * server_dim).

        `mask` (B, N): see `rllib_scale.networks.inputs.ObservationInput`.
        """
        return _Pass.apply(self, obs, mask, *self.parameters)

    def weights(self) -> Parameters:
        """The parameters as arrays that share their memory, looked up anew where a tensor has moved."""
        addresses = [parameter.data_ptr() for parameter in self.parameters]
        if addresses != self._addresses:
            self._addresses = addresses
            self._arrays = _structure([parameter.detach().numpy() for parameter in self.parameters])
        return self._arrays

    def gradients(self) -> list[np.ndarray]:
        """Uninitialised gradients, in the order of `parameters`."""
        flat = np.empty(self._ends[-1], dtype=_f32)
        return [flat[i:j].reshape(shape) for i, j, shape in zip(self._ends, self._ends[1:], self._shapes, strict=False)]

    def take(self, batch: int, servers: int) -> Workspace:
        """A workspace that no pass is using."""
        free = self._free.setdefault((batch, servers), [])
        return free.pop() if free else _workspace(self._arrays, batch, servers)

    def give_back(self, workspace: Workspace) -> None:
        """Let another pass use a workspace."""
        servers, batch = workspace.logits.shape
        self._free[batch, servers].append(workspace)


def fuse(network: Any) -> FusedPointer | None:
    """The compiled form of a network, or None where there is none: another network, clipped logits, a GPU."""
    is_pointer = isinstance(network, CrossAttentionPointer) and network.logit_clip is None
    if not is_pointer or any(p.device.type != "cpu" or p.dtype != torch.float32 for p in network.parameters()):
        return None
    return FusedPointer(network)


def _structure(arrays: list[Any]) -> Parameters:
    """In the order of `_parameters_of`."""
    blocks = (len(arrays) - _SINGLE) // (len(Parameters._fields) - _SINGLE)
    tuples = (tuple(arrays[i : i + blocks]) for i in range(_SINGLE, len(arrays), blocks))
    return Parameters(*arrays[:_SINGLE], *tuples)


def _parameters_of(network: CrossAttentionPointer) -> list[Tensor]:
    attention, task = network.attention, network.task_embedder
    norms: tuple[Any, ...] = (network.attention_norms, network.feedforward_norms)
    feedforwards: Any = network.feedforwards
    layers: tuple[Any, ...] = (task[0], task[2], network.server_hidden, network.server_embedder)
    return [
        *(attention.query, attention.query_bias, attention.key, attention.value, attention.value_bias),
        *(attention.output, attention.output_bias),
        *(parameter for layer in layers for parameter in (layer.weight, layer.bias)),
        *(network.pointer_query.weight, network.pointer_key.weight),
        *(norm.weight for norm in norms[0]),
        *(norm.bias for norm in norms[0]),
        *(f[0].weight for f in feedforwards),
        *(f[0].bias for f in feedforwards),
        *(f[2].weight for f in feedforwards),
        *(f[2].bias for f in feedforwards),
        *(norm.weight for norm in norms[1]),
        *(norm.bias for norm in norms[1]),
    ]


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, fused: FusedPointer, obs: Tensor, mask: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        array = np.ascontiguousarray(obs.numpy(), dtype=_f32)
        batch, servers = len(array), fused.network.inputs.spec.num_servers(array.shape[1])
        workspace = fused.take(batch, servers)
        features, logits = torch.empty(batch, fused.network.feature_dim), torch.empty(batch, servers)
        _forward(array, as_mask(mask), fused.weights(), fused.constants, workspace, features.numpy(), logits.numpy())
        if any(ctx.needs_input_grad):
            ctx.fused, ctx.workspace = fused, workspace
            ctx.versions = [parameter._version for parameter in parameters]
        else:
            fused.give_back(workspace)
        return features, logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_features: Tensor, grad_logits: Tensor) -> tuple[Any, ...]:
        fused, workspace = ctx.fused, ctx.workspace
        if ctx.versions != [parameter._version for parameter in fused.parameters]:
            raise RuntimeError("the parameters were changed between forward and backward")
        del ctx.workspace  # a second backward would read what another pass has written
        gradients = fused.gradients()
        features, logits = grad_features.contiguous().numpy(), grad_logits.contiguous().numpy()
        _backward(features, logits, fused.weights(), workspace, _structure(gradients))
        fused.give_back(workspace)
        return None, None, None, *map(torch.from_numpy, gradients)


def _workspace(p: Parameters, batch: int, servers: int) -> Workspace:
    L, H, k, d = p.query.shape
    B, N = batch, servers
    shapes: dict[str, tuple[int, ...]] = {
        "task": (p.task_hidden.shape[1], B),
        "servers": (N, p.server_hidden.shape[1], B),
        "empty": (N, B),
        "closed": (N, B),
        "task_hidden": (d, B),
        "hidden": (N, d, B),
        "inner_key": (L, H, k, d),
        "inner_value": (L, H, k, d),
        "mixed_bias": (L, H, k),
        "query": (L, H * d, d),
        "query_bias": (L, H * d),
        "output": (L, H * d, d),
        "output_bias": (L, d),
        "pointing": (d, d),
        "pointer": (d, d),
        "pointer_bias": (d,),
        "feature": (L + 1, d, B),
        "u": (L, H * d, B),
        "attention": (L, H, N, B),
        "mean": (L, H * d, B),
        "centred": (L, 2, d, B),
        "spread": (L, 2, B),
        "middle": (L, d, B),
        "activation": (L, 4 * d, B),
        "slope": (L, 4 * d, B),
        "direction": (d, B),
        "logits": (N, B),
        "wide": (4 * d, B),
        "narrow": (2, d, B),
        "heads": (2, H * d, B),
        "rows": (3, B),
        "grad_hidden": (N, d, B),
        "grad_scores": (N, B),
    }
    return Workspace(**{name: np.empty(shape, dtype=_f32) for name, shape in shapes.items()})


# ---------------------------------------------------------------------- layers, (features, B)


@_compiled
def _dense(weight, bias, x, out):  # type: ignore[no-untyped-def]
    np.dot(weight, x, out)
    for k in range(len(out)):
        for b in range(out.shape[1]):
            out[k, b] += bias[k]


@_compiled
def _dense_backward(grad, x, grad_weight, grad_bias):  # type: ignore[no-untyped-def]
    """Gradients of weight and bias of a dense layer from that of its output."""
    np.dot(grad, x.T, grad_weight)
    _sum_rows(grad, grad_bias)


@_compiled
def _sum_rows(x, out):  # type: ignore[no-untyped-def]
    for k in range(len(x)):
        total = _f32(0.0)
        for b in range(x.shape[1]):
            total += x[k, b]
        out[k] = total


@_compiled
def _relu(x):  # type: ignore[no-untyped-def]
    for k in range(len(x)):
        for b in range(x.shape[1]):
            x[k, b] = max(x[k, b], _f32(0.0))


@_compiled
def _gelu(x, slope):  # type: ignore[no-untyped-def]
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


@_compiled
def _normalise(x, scale, shift, eps, centred, spread, rows, out):  # type: ignore[no-untyped-def]
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


@_compiled
def _normalise_backward(grad, scale, centred, spread, rows, grad_scale, grad_shift):  # type: ignore[no-untyped-def]
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


@_compiled
def _scores(u, hidden, start, out):  # type: ignore[no-untyped-def]
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


@_compiled
def _add_scaled(x, factor, start, out):  # type: ignore[no-untyped-def]
    """Add factor (B,) times x (d, B) to rows start .. start + d of out."""
    for k in range(len(x)):
        for b in range(len(factor)):
            out[start + k, b] += factor[b] * x[k, b]


# ---------------------------------------------------------------------- the network


@_compiled
def _read(obs, mask, c, w):  # type: ignore[no-untyped-def]
    """Standardised inputs and masks; see networks/inputs.py."""
    B = len(obs)
    N, server_dim, _ = w.servers.shape
    task_dim = len(w.task)
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
        if some:
            for j in range(N):
                w.closed[j, b] = w.empty[j, b] if mask[b, j] != 0 else _f32(MASKED)


@_compiled
def _fold(p, w):  # type: ignore[no-untyped-def]
    """Products of the parameters; see CrossAttentionPointer.fold."""
    L, H, k, d = p.query.shape
    scale = _f32(1.0 / math.sqrt(k))
    for block in range(L):
        w.output_bias[block] = p.output_bias[block]
        for h in range(H):
            np.dot(p.key[block, h] * scale, p.embedder, w.inner_key[block, h])
            np.dot(p.value[block, h], p.embedder, w.inner_value[block, h])
            np.dot(w.inner_key[block, h].T, p.query[block, h], w.query[block, h * d : h * d + d])
            np.dot(w.inner_value[block, h].T, p.output[block, h], w.output[block, h * d : h * d + d])
            np.dot(w.inner_key[block, h].T, p.query_bias[block, h], w.query_bias[block, h * d : h * d + d])
            for i in range(k):
                mixed = p.value_bias[block, h, i]
                for m in range(d):
                    mixed += p.value[block, h, i, m] * p.embedder_bias[m]
                w.mixed_bias[block, h, i] = mixed
                for m in range(d):
                    w.output_bias[block, m] += mixed * p.output[block, h, i, m]
    np.dot(p.pointer_query.T, p.pointer_key, w.pointing)
    np.dot(w.pointing, p.embedder, w.pointer)
    np.dot(w.pointing, p.embedder_bias, w.pointer_bias)


@_compiled
def _forward(obs, mask, p, c, w, features, logits):  # type: ignore[no-untyped-def]
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
        _relu(hidden)
    _dense(p.task_hidden, p.task_hidden_bias, w.task, w.task_hidden)
    _relu(w.task_hidden)
    _dense(p.task_output, p.task_output_bias, w.task_hidden, w.feature[0])
    for block in range(L):
        f, u, mean, x, y = w.feature[block], w.u[block], w.mean[block], w.narrow[0], w.middle[block]
        _dense(w.query[block], w.query_bias[block], f, u)
        mean[:] = _f32(0.0)
        for h in range(H):
            _attend(u, w.hidden, w.empty, h * d, w.attention[block, h], w.rows, mean)
        np.dot(w.output[block].T, mean, x)
        for k in range(d):
            for b in range(B):
                x[k, b] += f[k, b] + w.output_bias[block, k]
        scale, shift = p.attention_scale[block], p.attention_shift[block]
        _normalise(x, scale, shift, eps, w.centred[block, 0], w.spread[block, 0], w.rows, y)
        _dense(p.inner[block], p.inner_bias[block], y, w.activation[block])
        _gelu(w.activation[block], w.slope[block])
        _dense(p.outer[block], p.outer_bias[block], w.activation[block], x)
        for k in range(d):
            for b in range(B):
                x[k, b] += y[k, b]
        scale, shift = p.feedforward_scale[block], p.feedforward_shift[block]
        _normalise(x, scale, shift, eps, w.centred[block, 1], w.spread[block, 1], w.rows, w.feature[block + 1])
    f = w.feature[L]
    np.dot(w.pointer.T, f, w.direction)
    constant = w.rows[0]
    constant[:] = _f32(0.0)
    for k in range(d):
        for b in range(B):
            constant[b] += w.pointer_bias[k] * f[k, b]
            features[b, k] = f[k, b]
    for j in range(N):
        for b in range(B):
            w.logits[j, b] = w.closed[j, b] + constant[b]
        _scores(w.direction, w.hidden[j], 0, w.logits[j])
        for b in range(B):
            logits[b, j] = w.logits[j, b]


@_compiled
def _attend(u, hidden, empty, start, attention, rows, mean):  # type: ignore[no-untyped-def]
    """Weights (N, B) of one head, and its weighted mean of the hidden activations into rows of `mean`."""
    N, _, B = hidden.shape
    highest, total = rows[0], rows[1]
    highest[:] = _f32(-np.inf)
    total[:] = _f32(0.0)
    for j in range(N):
        attention[j] = empty[j]
        _scores(u, hidden[j], start, attention[j])
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
        _add_scaled(hidden[j], attention[j], start, mean)


@_compiled
def _backward(grad_features, grad_logits, p, w, g):  # type: ignore[no-untyped-def]
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
        _add_scaled(w.hidden[j], row, 0, other)
        _add_scaled(w.direction, row, 0, w.grad_hidden[j])
    f = w.feature[L]
    np.dot(w.pointer, other, grad)
    np.dot(f, other.T, grad_pointer)
    for k in range(d):
        total = _f32(0.0)
        for b in range(B):
            total += f[k, b] * constant[b]
            grad[k, b] += grad_features[b, k] + w.pointer_bias[k] * constant[b]
        grad_pointer_bias[k] = total
    np.dot(grad_pointer, p.embedder.T, grad_pointing)
    for k in range(d):
        for m in range(d):
            grad_pointing[k, m] += grad_pointer_bias[k] * p.embedder_bias[m]
            g.embedder_bias[m] += w.pointing[k, m] * grad_pointer_bias[k]
    np.dot(w.pointing.T, grad_pointer, square)
    g.embedder[:] += square
    np.dot(p.pointer_key, grad_pointing.T, g.pointer_query)
    np.dot(p.pointer_query, grad_pointing, g.pointer_key)

    # the blocks, last to first; `grad` is the gradient of what a block gives
    for block in range(L - 1, -1, -1):
        u, mean, grad_mean, grad_u = w.u[block], w.mean[block], w.heads[0], w.heads[1]
        _normalise_backward(
            grad,
            p.feedforward_scale[block],
            w.centred[block, 1],
            w.spread[block, 1],
            w.rows,
            g.feedforward_scale[block],
            g.feedforward_shift[block],
        )
        _dense_backward(grad, w.activation[block], g.outer[block], g.outer_bias[block])
        np.dot(p.outer[block].T, grad, w.wide)
        for k in range(len(w.wide)):
            for b in range(B):
                w.wide[k, b] *= w.slope[block, k, b]
        _dense_backward(w.wide, w.middle[block], g.inner[block], g.inner_bias[block])
        np.dot(p.inner[block].T, w.wide, other)
        for k in range(d):
            for b in range(B):
                grad[k, b] += other[k, b]
        _normalise_backward(
            grad,
            p.attention_scale[block],
            w.centred[block, 0],
            w.spread[block, 0],
            w.rows,
            g.attention_scale[block],
            g.attention_shift[block],
        )
        np.dot(mean, grad.T, grad_output)
        np.dot(w.output[block], grad, grad_mean)
        _sum_rows(grad, g.output_bias[block])
        grad_u[:] = _f32(0.0)
        for h in range(H):
            _attend_backward(
                u, w.hidden, h * d, w.attention[block, h], grad_mean, w.rows[0], w.grad_scores, grad_u, w.grad_hidden
            )
        _dense_backward(grad_u, w.feature[block], grad_query, grad_query_bias)
        np.dot(w.query[block].T, grad_u, other)
        for k in range(d):
            for b in range(B):
                grad[k, b] += other[k, b]
        _unfold(block, p, w, grad_query, grad_query_bias, grad_output, g, square, slim)

    # the embedders
    _dense_backward(grad, w.task_hidden, g.task_output, g.task_output_bias)
    np.dot(p.task_output.T, grad, other)
    for k in range(d):
        for b in range(B):
            if w.task_hidden[k, b] <= _f32(0.0):
                other[k, b] = _f32(0.0)
    _dense_backward(other, w.task, g.task_hidden, g.task_hidden_bias)
    g.server_hidden[:] = _f32(0.0)
    g.server_hidden_bias[:] = _f32(0.0)
    server_dim = w.servers.shape[1]
    for j in range(N):
        for k in range(d):
            row, hidden = w.grad_hidden[j, k], w.hidden[j, k]
            total = _f32(0.0)
            for b in range(B):
                row[b] = row[b] if hidden[b] > _f32(0.0) else _f32(0.0)
                total += row[b]
            g.server_hidden_bias[k] += total
            for i in range(server_dim):
                total = _f32(0.0)
                for b in range(B):
                    total += row[b] * w.servers[j, i, b]
                g.server_hidden[k, i] += total


@_compiled
def _attend_backward(u, hidden, start, attention, grad_mean, inner, grad_scores, grad_u, grad_hidden):  # type: ignore[no-untyped-def]
    N, d, B = hidden.shape
    inner[:] = _f32(0.0)
    for j in range(N):
        row = grad_scores[j]
        row[:] = _f32(0.0)
        _scores(grad_mean, hidden[j], start, row)
        for b in range(B):
            inner[b] += row[b] * attention[j, b]
    for j in range(N):
        row = grad_scores[j]
        for b in range(B):
            row[b] = attention[j, b] * (row[b] - inner[b])
        _add_scaled(hidden[j], row, start, grad_u)
        for k in range(d):
            for b in range(B):
                grad_hidden[j, k, b] += attention[j, b] * grad_mean[start + k, b] + row[b] * u[start + k, b]


@_compiled
def _unfold(block, p, w, grad_query, grad_query_bias, grad_output, g, square, slim):  # type: ignore[no-untyped-def]
    """From the gradients of a block's products to those of its parameters."""
    _, H, k_dim, d = p.query.shape
    scale = _f32(1.0 / math.sqrt(k_dim))
    for h in range(H):
        into_u = grad_query[h * d : h * d + d]
        into_mean = grad_output[h * d : h * d + d]
        np.dot(w.inner_key[block, h], into_u, g.query[block, h])
        np.dot(w.inner_value[block, h], into_mean, g.output[block, h])
        # inner_key
        np.dot(p.query[block, h], into_u.T, slim)
        for i in range(k_dim):
            total = _f32(0.0)
            for m in range(d):
                slim[i, m] += p.query_bias[block, h, i] * grad_query_bias[h * d + m]
                total += w.inner_key[block, h, i, m] * grad_query_bias[h * d + m]
            g.query_bias[block, h, i] = total
        slim *= scale
        np.dot(slim, p.embedder.T, g.key[block, h])
        np.dot(p.key[block, h].T, slim, square)
        g.embedder[:] += square
        # inner_value and mixed_bias
        np.dot(p.output[block, h], into_mean.T, slim)
        np.dot(slim, p.embedder.T, g.value[block, h])
        np.dot(p.value[block, h].T, slim, square)
        g.embedder[:] += square
        for i in range(k_dim):
            total = _f32(0.0)
            for m in range(d):
                g.output[block, h, i, m] += w.mixed_bias[block, h, i] * g.output_bias[block, m]
                total += p.output[block, h, i, m] * g.output_bias[block, m]
            g.value_bias[block, h, i] = total
            for m in range(d):
                g.value[block, h, i, m] += total * p.embedder_bias[m]
                g.embedder_bias[m] += total * p.value[block, h, i, m]
