"""The arrays that the fused pass works in; its notation is that of networks/cross_attention.py."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rllib_scale.networks.cross_attention import CrossAttentionPointer


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
    """Values that training does not change."""

    task_scale: np.ndarray  # (task_dim,)
    task_shift: np.ndarray  # (task_dim,)
    server_scale: np.ndarray  # (server_dim,)
    server_shift: np.ndarray  # (server_dim,)
    server_capacity: int  # column of a server's features
    norm_eps: float


WORKSPACE: dict[str, tuple[str | int, ...]] = {
    "task": ("task_dim", "B"),  # standardised
    "servers": ("N", "server_dim", "B"),  # standardised
    "empty": ("N", "B"),  # MASKED or 0
    "closed": ("N", "B"),  # MASKED or 0
    "task_hidden": ("d", "B"),
    "hidden": ("N", "d", "B"),
    "inner_key": ("L", "H", "k", "d"),  # W_K W / sqrt(k)
    "inner_value": ("L", "H", "k", "d"),  # W_V W
    "mixed_bias": ("L", "H", "k"),  # W_V b + b_V
    "query": ("L", "Hd", "d"),  # f -> u
    "query_bias": ("L", "Hd"),
    "output": ("L", "Hd", "d"),  # weighted means -> output
    "output_bias": ("L", "d"),
    "pointing": ("d", "d"),  # P_Q^T P_K
    "pointer": ("d", "d"),  # f -> direction in h
    "pointer_bias": ("d",),
    "feature": ("L+1", "d", "B"),  # before each block and after the last
    "u": ("L", "Hd", "B"),
    "attention": ("L", "H", "N", "B"),
    "mean": ("L", "Hd", "B"),
    "centred": ("L", 2, "d", "B"),  # both norms' inputs, standardised
    "spread": ("L", 2, "B"),  # 1 / standard deviation of those inputs
    "middle": ("L", "d", "B"),  # between attention and feed-forward
    "activation": ("L", "4d", "B"),  # GELU
    "slope": ("L", "4d", "B"),  # its derivative
    "direction": ("d", "B"),  # of the pointer
    "logits": ("N", "B"),
    "wide": ("4d", "B"),  # scratch
    "narrow": (2, "d", "B"),  # scratch
    "heads": (2, "Hd", "B"),  # scratch
    "rows": (3, "B"),  # scratch
    "grad_hidden": ("N", "d", "B"),  # scratch
    "grad_scores": ("N", "B"),  # scratch
}
"""Shapes of everything that a forward leaves for the backward, and of the scratch of both."""
_Workspace: Any = namedtuple("_Workspace", WORKSPACE)  # type: ignore[misc]
Workspace = Any


def structure(arrays: list[Any]) -> Parameters:
    """Parameters, or their gradients, from arrays in the order of `parameters_of`."""
    blocks = (len(arrays) - _SINGLE) // (len(Parameters._fields) - _SINGLE)
    tuples = (tuple(arrays[i : i + blocks]) for i in range(_SINGLE, len(arrays), blocks))
    return Parameters(*arrays[:_SINGLE], *tuples)


def parameters_of(network: CrossAttentionPointer) -> list[Tensor]:
    """Every parameter, in the order of the fields of `Parameters`."""
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


def workspace(p: Parameters, batch: int, servers: int) -> Workspace:
    """An uninitialised workspace for B = `batch` rows of N = `servers`."""
    L, H, k, d = p.query.shape
    sizes: dict[str | int, int] = {"B": batch, "N": servers, "L": L, "L+1": L + 1, "H": H, "k": k, "d": d}
    sizes |= {"Hd": H * d, "4d": 4 * d, "task_dim": p.task_hidden.shape[1], "server_dim": p.server_hidden.shape[1]}
    shapes: Any = ([sizes.get(size, size) for size in shape] for shape in WORKSPACE.values())
    return _Workspace(*(np.empty(shape, dtype=np.float32) for shape in shapes))
