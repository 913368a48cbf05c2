"""Forward passes without torch: for a few observations, dispatching its operations costs more than their work.

`compile_network` folds a network's weights once and returns a function from observations to logits, equal to the
network's own forward within float32 rounding. Single-threaded. The baseline encoders alone stay with torch.
"""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rllib_scale.networks.compiled.arithmetic import exp_of_negative, fast, inner
from rllib_scale.networks.compiled.fused_layers import copy as copy_row
from rllib_scale.networks.cross_attention import CrossAttentionPointer
from rllib_scale.networks.inputs import MASKED, ObservationInput
from rllib_scale.networks.mlp import StructuredMLP
from rllib_scale.networks.pointer import SetPointer


class Forward(Protocol):
    """Logits (B, N) float32 of observations (B, task_dim + N * server_dim) float32, as the network's own forward."""

    def __call__(self, observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """`mask` (B, N) bool: see `rllib_scale.networks.inputs.ObservationInput`."""


def as_mask(mask: Any) -> np.ndarray:
    """A mask (B, N), or None, as compiled functions take it: uint8, (0, 0) for None."""
    return np.empty((0, 0), dtype=np.uint8) if mask is None else np.ascontiguousarray(mask, dtype=np.uint8)


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


def compile_network(network: CrossAttentionPointer | SetPointer | StructuredMLP) -> Forward:
    """The forward of a network with the weights as they are now."""
    if isinstance(network, SetPointer):
        return _copy_network(network)
    if isinstance(network, StructuredMLP):
        return _compile_mlp(network)
    norm: Any = network.attention_norms[0]
    weights, eps = _pointer_weights(network), norm.eps
    clip = np.float32(network.logit_clip or 0)

    def forward(observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        observation = np.ascontiguousarray(observation, dtype=np.float32)
        servers = network.inputs.spec.num_servers(observation.shape[1])
        logits = np.empty((len(observation), servers), dtype=np.float32)
        _pointer_forward(observation, as_mask(mask), logits, weights, clip, np.float32(eps))
        return logits

    return forward


# ---------------------------------------------------------------------- cross-attention pointer


@torch.no_grad()
def _pointer_weights(network: CrossAttentionPointer) -> PointerWeights:
    folded = network.fold()
    d = network.feature_dim

    def array(tensor: Any) -> np.ndarray:
        return np.array(tensor.detach().float().numpy(), order="C")  # a copy: training changes weights in place

    def stacked(tensors: list[torch.Tensor], *shape: int) -> np.ndarray:
        return array(torch.stack(tensors).reshape(len(tensors), *shape))

    heads = network.num_heads
    task: Any = network.task_embedder
    task_hidden, task_bias = _standardised(task[0], network.inputs, "task")
    server_hidden, server_bias = _standardised(network.server_hidden, network.inputs, "server")
    norms: tuple[list[Any], list[Any]] = list(network.attention_norms), list(network.feedforward_norms)
    feedforwards: list[Any] = list(network.feedforwards)
    skip, skip_bias = torch.zeros(0, network.inputs.spec.task_dim), torch.zeros(0)
    if network.skip is not None:
        skip, skip_bias = _standardised(network.skip, network.inputs, "task")
        skip, skip_bias = (
            torch.cat((part.T * network.inputs.server_scale, part.T @ network.inputs.server_shift[:, None]), -1).T
            for part in (skip, skip_bias[:, None])
        )
        skip_bias = skip_bias[:, 0]
    return PointerWeights(
        task_hidden=array(task_hidden.T),
        task_hidden_bias=array(task_bias),
        task_output=array(task[2].weight.T),
        task_output_bias=array(task[2].bias),
        server_hidden=array(server_hidden.T),
        server_hidden_bias=array(server_bias),
        query=stacked([b.query.reshape(heads, d, d).mT for b in folded.blocks], heads, d, d),
        query_bias=stacked([b.query_bias for b in folded.blocks], heads, d),
        output=stacked([b.output for b in folded.blocks], heads, d, d),
        output_bias=stacked([b.output_bias for b in folded.blocks], d),
        attention_norm=stacked([torch.stack((n.weight, n.bias)) for n in norms[0]], 2, d),
        inner=stacked([layer.weight.T for layer, _, _ in feedforwards], d, 4 * d),
        inner_bias=stacked([layer.bias for layer, _, _ in feedforwards], 4 * d),
        outer=stacked([layer.weight.T for _, _, layer in feedforwards], 4 * d, d),
        outer_bias=stacked([layer.bias for _, _, layer in feedforwards], d),
        feedforward_norm=stacked([torch.stack((n.weight, n.bias)) for n in norms[1]], 2, d),
        pointer=array(folded.pointer),
        pointer_bias=array(folded.pointer_bias),
        skip=array(skip),
        skip_bias=array(skip_bias),
        server_capacity=network.inputs.spec.server_capacity,
    )


def _standardised(layer: Any, inputs: ObservationInput, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of a first layer that acts on raw features."""
    scale, shift = getattr(inputs, f"{part}_scale"), getattr(inputs, f"{part}_shift")
    return layer.weight * scale, layer.bias + layer.weight @ shift


@inner
def _linear(x, weight, bias, out):  # type: ignore[no-untyped-def]
    copy_row(bias, out)
    for i in range(len(x)):
        for k in range(len(out)):
            out[k] += x[i] * weight[i, k]


@inner
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


@inner
def _attend(u, hidden, empty, scores, mean):  # type: ignore[no-untyped-def]
    """Compute mean (d,) = softmax_j(u . hidden_j) over the rows that are not empty; hidden (d, N)."""
    d, n = hidden.shape
    copy_row(empty, scores)
    for k in range(d):
        for j in range(n):
            scores[j] += u[k] * hidden[k, j]
    highest = scores[0]
    for j in range(n):
        highest = max(highest, scores[j])
    total = np.float32(0.0)
    for j in range(n):
        scores[j] = exp_of_negative(scores[j] - highest)
        total += scores[j]
    for k in range(d):
        part = np.float32(0.0)
        for j in range(n):
            part += scores[j] * hidden[k, j]
        mean[k] = part / total


@fast
def _pointer_forward(observation, mask, logits, w, clip, eps):  # type: ignore[no-untyped-def]
    task_dim, d = w.task_hidden.shape
    server_dim = len(w.server_hidden)
    num_blocks, num_heads = w.query.shape[:2]
    n = logits.shape[1]
    columns = np.empty((server_dim, n), dtype=np.float32)
    hidden = np.empty((d, n), dtype=np.float32)
    empty = np.empty(n, dtype=np.float32)
    scores = np.empty(n, dtype=np.float32)
    f, out, u, mean, first = (
        np.empty(d, dtype=np.float32),
        np.empty(d, dtype=np.float32),
        np.empty(d, dtype=np.float32),
        np.empty(d, dtype=np.float32),
        np.empty(d, dtype=np.float32),
    )
    wide = np.empty(w.inner.shape[2], dtype=np.float32)
    for b in range(len(observation)):
        row = observation[b]
        for j in range(n):
            for c in range(server_dim):
                columns[c, j] = row[task_dim + j * server_dim + c]
        for j in range(n):
            empty[j] = np.float32(0.0) if columns[w.server_capacity, j] != np.float32(0.0) else np.float32(MASKED)
        for k in range(d):
            for j in range(n):
                hidden[k, j] = w.server_hidden_bias[k]
            for c in range(server_dim):
                for j in range(n):
                    hidden[k, j] += w.server_hidden[c, k] * columns[c, j]
            for j in range(n):
                hidden[k, j] = max(hidden[k, j], np.float32(0.0))
        _linear(row[:task_dim], w.task_hidden, w.task_hidden_bias, first)
        for k in range(d):
            first[k] = max(first[k], np.float32(0.0))
        _linear(first, w.task_output, w.task_output_bias, f)
        for block in range(num_blocks):
            copy_row(w.output_bias[block], out)
            for head in range(num_heads):
                _linear(f, w.query[block, head], w.query_bias[block, head], u)
                _attend(u, hidden, empty, scores, mean)
                for i in range(d):
                    for k in range(d):
                        out[k] += mean[i] * w.output[block, head, i, k]
            for k in range(d):
                f[k] += out[k]
            _normalise(f, w.attention_norm[block], eps)
            _linear(f, w.inner[block], w.inner_bias[block], wide)
            for i in range(len(wide)):
                x = wide[i]
                wide[i] = np.float32(0.5) * x * (np.float32(1.0) + np.float32(math.erf(x * np.float32(0.70710678))))
            _linear(wide, w.outer[block], w.outer_bias[block], out)
            for k in range(d):
                f[k] += out[k]
            _normalise(f, w.feedforward_norm[block], eps)
        constant = np.float32(0.0)
        for k in range(d):
            constant += f[k] * w.pointer_bias[k]
        u[:] = np.float32(0.0)
        for i in range(d):
            for k in range(d):
                u[k] += f[i] * w.pointer[i, k]
        for j in range(n):
            logits[b, j] = constant
        for k in range(d):
            for j in range(n):
                logits[b, j] += u[k] * hidden[k, j]
        if clip > np.float32(0.0):
            for j in range(n):
                logits[b, j] = clip * np.float32(math.tanh(logits[b, j] / np.float32(math.sqrt(d))))
        if len(w.skip):
            for c in range(server_dim + 1):
                per_unit = w.skip_bias[c]
                for i in range(task_dim):
                    per_unit += w.skip[c, i] * row[i]
                if c == server_dim:
                    for j in range(n):
                        logits[b, j] += per_unit
                else:
                    for j in range(n):
                        logits[b, j] += per_unit * columns[c, j]
        some_open = False
        for j in range(mask.shape[1]):
            if mask[b, j] and empty[j] == np.float32(0.0):
                some_open = True
        for j in range(n):
            if empty[j] != np.float32(0.0) or (some_open and not mask[b, j]):
                logits[b, j] += np.float32(MASKED)


# ---------------------------------------------------------------------- baseline encoders


def _copy_network(network: SetPointer) -> Forward:
    """The torch forward of a copy: training changes weights in place."""
    copied = copy.deepcopy(network).requires_grad_(False).eval()

    @torch.inference_mode()
    def forward(observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        closing = None if mask is None else torch.tensor(mask, dtype=torch.bool)
        _, logits = copied(torch.tensor(observation, dtype=torch.float32), closing)
        return np.asarray(logits)

    return forward


# ---------------------------------------------------------------------- structured MLP


@torch.no_grad()
def _compile_mlp(network: StructuredMLP) -> Forward:
    """A few matrix products: numpy's are as fast as compiled loops, and its calls far cheaper than torch's."""
    spec = network.inputs.spec
    task_layers: Any = network.task_embedder
    server_layers: Any = network.server_embedder

    def layer(weight: torch.Tensor, bias: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        return np.ascontiguousarray(weight.T.numpy()).copy(), bias.numpy().copy()

    task = [
        layer(*_standardised(task_layers[0], network.inputs, "task")),
        layer(task_layers[2].weight, task_layers[2].bias),
    ]
    server = [
        layer(*_standardised(server_layers[0], network.inputs, "server")),
        layer(server_layers[2].weight, server_layers[2].bias),
    ]
    linear = [module for module in network.trunk if isinstance(module, torch.nn.Linear)]
    trunk = [layer(module.weight, module.bias) for module in linear]
    head = layer(network.head.weight, network.head.bias)

    def embed(x: np.ndarray, layers: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        (w1, b1), (w2, b2) = layers
        return np.maximum(x @ w1 + b1, 0) @ w2 + b2

    def forward(observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        network.check_servers(spec.num_servers(observation.shape[1]))
        size = len(observation)
        servers = observation[:, spec.task_dim :].reshape(-1, spec.server_dim)
        parts = (embed(observation[:, : spec.task_dim], task), embed(servers, server).reshape(size, -1))
        x = np.concatenate(parts, axis=1)
        for weight, bias in trunk:
            x = np.maximum(x @ weight + bias, 0)
        closing = None if mask is None else torch.tensor(mask, dtype=torch.bool)
        inputs = network.inputs(torch.from_numpy(np.ascontiguousarray(observation)), closing)
        return np.asarray(x @ head[0] + head[1] + inputs.closed.numpy())

    return forward
