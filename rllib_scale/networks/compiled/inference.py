"""Forward passes without torch: for a few observations, dispatching its operations costs more than their work.

`compile_network` folds a network's weights once and returns a function from observations to logits, equal to the
network's own forward within float32 rounding. Single-threaded. The baseline encoders alone stay with torch.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np
import torch

from rllib_scale.networks.compiled.arithmetic import fast
from rllib_scale.networks.cross_attention import CrossAttentionPointer
from rllib_scale.networks.inputs import MASKED, ObservationInput
from rllib_scale.networks.mlp import StructuredMLP
from rllib_scale.networks.pointer import SetPointer
from rllib_scale.simulator.pointer import PointerWeights, Scratch, point


class Forward(Protocol):
    """Logits (B, N) float32 of observations (B, task_dim + N * server_dim) float32, as the network's own forward."""

    def __call__(self, observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """`mask` (B, N) bool: see `rllib_scale.networks.inputs.ObservationInput`."""


def as_mask(mask: Any) -> np.ndarray:
    """A mask (B, N), or None, as compiled functions take it: uint8, (0, 0) for None."""
    return np.empty((0, 0), dtype=np.uint8) if mask is None else np.ascontiguousarray(mask, dtype=np.uint8)


def compile_network(network: CrossAttentionPointer | SetPointer | StructuredMLP) -> Forward:
    """The forward of a network with the weights as they are now."""
    if isinstance(network, SetPointer):
        return _copy_network(network)
    if isinstance(network, StructuredMLP):
        return _compile_mlp(network)
    weights = pointer_weights(network)

    def forward(observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        observation = np.ascontiguousarray(observation, dtype=np.float32)
        servers = network.inputs.spec.num_servers(observation.shape[1])
        logits = np.empty((len(observation), servers), dtype=np.float32)
        _pointer_forward(observation, as_mask(mask), logits, weights)
        return logits

    return forward


# ---------------------------------------------------------------------- cross-attention pointer


@torch.no_grad()
def pointer_weights(network: CrossAttentionPointer) -> PointerWeights:
    """The weights as they are now, for compiled code."""
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
        clip=np.float32(network.logit_clip or 0),
        eps=np.float32(norms[0][0].eps),
    )


def _standardised(layer: Any, inputs: ObservationInput, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of a first layer that acts on raw features."""
    scale, shift = getattr(inputs, f"{part}_scale"), getattr(inputs, f"{part}_shift")
    return layer.weight * scale, layer.bias + layer.weight @ shift


@fast
def _pointer_forward(observation, mask, logits, w):  # type: ignore[no-untyped-def]
    task_dim, server_dim, d = len(w.task_hidden), len(w.server_hidden), len(w.pointer)
    n = logits.shape[1]
    s = Scratch(
        np.empty((server_dim, n), dtype=np.float32),
        np.empty((d, n), dtype=np.float32),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.float32),
        np.empty((5, d), dtype=np.float32),
        np.empty(w.inner.shape[2], dtype=np.float32),
    )
    for b in range(len(observation)):
        row = observation[b]
        for j in range(n):
            for c in range(server_dim):
                s.columns[c, j] = row[task_dim + j * server_dim + c]
        some_open = False
        for j in range(n):
            is_empty = s.columns[w.server_capacity, j] == np.float32(0.0)
            s.empty[j] = np.float32(MASKED) if is_empty else np.float32(0.0)
            some_open = some_open or (not is_empty and len(mask) > 0 and mask[b, j] != 0)
        point(row, n, w, s, logits[b])
        for j in range(n):
            if s.empty[j] != np.float32(0.0) or (some_open and mask[b, j] == 0):
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
