"""Forward and backward of the whole cross-attention pointer as two compiled calls, for training on a CPU.

The network is small: passed through torch operation by operation, a minibatch costs more in dispatch than in
arithmetic. Here everything from the folding of the weights to their gradients is one compiled function each way;
dense layers are BLAS products, the rest are loops over the minibatch that a compiler turns into vector instructions.
Values and gradients are those of `CrossAttentionPointer.forward` within float32 rounding; its notation and derivation
are in networks/cross_attention.py. Arrays are feature-major: the B rows of the minibatch are the last axis. Many rows
of many servers are passed through in tiles: every head of every block reads all that is known of every server, which
is slow where it does not stay in the cache.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rllib_scale.networks.compiled.fused_arrays import Constants, Parameters, Workspace, parameters_of, structure
from rllib_scale.networks.compiled.fused_arrays import workspace as new_workspace
from rllib_scale.networks.compiled.fused_backward import backward
from rllib_scale.networks.compiled.fused_forward import forward
from rllib_scale.networks.compiled.inference import as_mask, compile_network
from rllib_scale.networks.cross_attention import CrossAttentionPointer

TILE_BYTES = 2**21
"""Bytes of hidden activations (N, d) per tile of rows; chosen by measurement (benchmarks/net.py)."""
TILE_ROWS = 64
"""At least, in every tile but the last: shorter loops would cost more than the cache saves."""
KEPT_SHAPES = 2
"""Shapes for which workspaces are kept: a training has those of its minibatches and of its whole batch."""


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
        self.parameters = parameters_of(network)
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
        self._free: dict[tuple[int, ...], list[Workspace]] = {}  # by shape of the logits, the last used at the end
        self._addresses: list[int] = []
        self._arrays = self.weights()

    def __call__(self, obs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Feature f (B, d) and logits (B, N) of observations (B, task_dim + N * server_dim).

        Args:
            obs: must not ask for a gradient.
            mask: (B, N), see `rllib_scale.networks.inputs.ObservationInput`.
        """
        features, logits = self._features_and_scores(obs, mask)
        if self.network.skip is not None:  # one product, which gains nothing by being compiled
            logits = self.network.passed(logits, self.network.inputs(obs))
        return features, logits

    def _features_and_scores(self, obs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Without the network's skip."""
        if not torch.is_grad_enabled():
            return self.forward(obs, mask)[:2]
        if obs.requires_grad:
            raise RuntimeError("the fused pass gives no gradient of observations; the network itself does")
        if not any(parameter.requires_grad for parameter in self.parameters):
            return self.forward(obs, mask)[:2]
        return _Pass.apply(self, obs, mask, *self.parameters)

    def forward(
        self, obs: Tensor, mask: Tensor | None, keep: bool = False
    ) -> tuple[Tensor, Tensor, list[tuple[slice, Workspace]]]:
        """The results of `__call__`, and with `keep`, for the backward, rows and workspace of each tile."""
        rows, closing = np.ascontiguousarray(obs.detach().numpy(), dtype=np.float32), as_mask(mask)
        servers, d = self.network.inputs.spec.num_servers(rows.shape[1]), self.network.feature_dim
        features, logits = torch.empty(len(rows), d), torch.empty(len(rows), servers)
        into_features, into_logits, weights = features.numpy(), logits.numpy(), self.weights()
        kept = []
        for part in tiles(len(rows), servers, d):
            workspace = self._take(part.stop - part.start, servers)
            arrays = (into_features[part], into_logits[part])
            forward(rows[part], closing[part], weights, self.constants, workspace, *arrays)
            if keep:
                kept.append((part, workspace))
            else:
                self._give_back(workspace)
        return features, logits, kept

    def backward(
        self, grad_features: Tensor, grad_logits: Tensor, kept: list[tuple[slice, Workspace]]
    ) -> list[np.ndarray]:
        """Gradients in the order of `parameters`, from what a forward has kept."""
        features, logits = grad_features.contiguous().numpy(), grad_logits.contiguous().numpy()
        weights, total = self.weights(), np.empty(self._ends[-1], dtype=np.float32)
        for i, (part, workspace) in enumerate(kept):
            flat = total if i == 0 else np.empty_like(total)
            backward(features[part], logits[part], weights, workspace, structure(self._parts(flat)))
            self._give_back(workspace)
            if i > 0:
                total += flat
        return self._parts(total)

    def weights(self) -> Parameters:
        """The parameters as arrays that share their memory, looked up again if a tensor has moved."""
        addresses = [parameter.data_ptr() for parameter in self.parameters]
        if addresses != self._addresses:
            self._addresses = addresses
            self._arrays = structure([parameter.detach().numpy() for parameter in self.parameters])
        return self._arrays

    def _parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """One array, cut into those of the parameters."""
        return [flat[i:j].reshape(shape) for i, j, shape in zip(self._ends, self._ends[1:], self._shapes, strict=False)]

    def _take(self, batch: int, servers: int) -> Workspace:
        """A workspace that no pass is using."""
        free = self._free.pop((servers, batch), [])
        self._free[servers, batch] = free
        if len(self._free) > KEPT_SHAPES:
            del self._free[next(iter(self._free))]
        return free.pop() if free else new_workspace(self._arrays, batch, servers)

    def _give_back(self, workspace: Workspace) -> None:
        """Let another pass use a workspace, unless its shape is no longer in use."""
        free = self._free.get(workspace.logits.shape)
        if free is not None:
            free.append(workspace)


def fuse(network: Any) -> FusedPointer | None:
    """The compiled form of a network, or None where there is none: another network, clipped logits, not float32."""
    is_pointer = isinstance(network, CrossAttentionPointer) and network.logit_clip is None
    if not is_pointer or any(parameter.dtype != torch.float32 for parameter in network.parameters()):
        return None
    return FusedPointer(network)


def pass_through(network: Any) -> None:
    """One forward and one backward of a network by all functions here: compiles them."""
    observations = torch.zeros(2, network.inputs.spec.task_dim + 4 * network.inputs.spec.server_dim)
    compile_network(network)(observations.numpy())
    features, logits = FusedPointer(network)(observations)
    torch.autograd.backward(features.sum() + logits.sum())


def tiles(batch: int, servers: int, embedding_dim: int) -> list[slice]:
    """The rows of a minibatch in pieces that are passed through the network one after the other."""
    most = max(TILE_ROWS, TILE_BYTES // (4 * servers * embedding_dim))
    size = math.ceil(batch / math.ceil(batch / most)) if batch else 1
    return [slice(start, min(start + size, batch)) for start in range(0, max(batch, 1), size)]


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, fused: FusedPointer, obs: Tensor, mask: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        features, logits, ctx.kept = fused.forward(obs, mask, keep=True)
        ctx.fused, ctx.versions = fused, [parameter._version for parameter in parameters]
        return features, logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_features: Tensor, grad_logits: Tensor) -> tuple[Any, ...]:
        if ctx.kept is None:
            raise RuntimeError("a second backward would read what another pass has written")
        if ctx.versions != [parameter._version for parameter in ctx.fused.parameters]:
            raise RuntimeError("the parameters were changed between forward and backward")
        kept, ctx.kept = ctx.kept, None
        gradients = ctx.fused.backward(grad_features, grad_logits, kept)
        return None, None, None, *map(torch.from_numpy, gradients)
