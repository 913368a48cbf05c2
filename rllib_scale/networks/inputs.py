"""How the networks read a flat observation: its columns, their standardisation, and which servers are masked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

MASKED = -1e9
"""Added to the score of a masked server: its probability is exactly 0, while entropy and gradients stay finite."""


@dataclass(frozen=True)
class InputSpec:
    """Columns of the observation [task features, features of slot 1, ..., of slot N] that a network knows about.

    The two memory columns must be in the same unit; a slot whose capacity is 0 is empty; a server whose remaining
    time is above 0 is busy.
    """

    task_mean: tuple[float, ...]
    task_std: tuple[float, ...]
    server_mean: tuple[float, ...]
    server_std: tuple[float, ...]
    task_memory: int
    server_capacity: int
    server_memory: int
    server_remaining: int

    @property
    def task_dim(self) -> int:
        """Number of task features."""
        return len(self.task_mean)

    @property
    def server_dim(self) -> int:
        """Number of features of one server slot."""
        return len(self.server_mean)

    def num_servers(self, width: int) -> int:
        """Server slots in an observation of that width."""
        return (width - self.task_dim) // self.server_dim


class Inputs(NamedTuple):
    """A batch of B observations of N server slots, ready for a network."""

    task: Tensor  # (B, task_dim), standardised
    servers: Tensor  # (B, N, server_dim), standardised
    empty: Tensor  # (B, N), MASKED for an empty slot, else 0
    closed: Tensor  # (B, N), MASKED for a server that must not be chosen, else 0


class ObservationInput(nn.Module):
    """Splits, standardises and masks; the constants are buffers, so a saved network carries them.

    Args:
        spec: columns and constants.
        mask_infeasible: close busy servers and those too small for the task, beside the empty slots. Where that
            would close all of them, only the empty slots are closed.
    """

    def __init__(self, spec: InputSpec, mask_infeasible: bool) -> None:
        super().__init__()
        self.spec = spec
        self.mask_infeasible = mask_infeasible
        # (x - mean) / std = shift + x * scale: one operation, which also makes the server slice contiguous.
        for name, mean, std in (
            ("task", spec.task_mean, spec.task_std),
            ("server", spec.server_mean, spec.server_std),
        ):
            scale = 1 / torch.tensor(std, dtype=torch.float64)
            shift = -torch.tensor(mean, dtype=torch.float64) * scale
            self.register_buffer(f"{name}_scale", scale.float())
            self.register_buffer(f"{name}_shift", shift.float())

    task_scale: Tensor
    task_shift: Tensor
    server_scale: Tensor
    server_shift: Tensor

    def forward(self, obs: Tensor) -> Inputs:
        """Read observations (B, task_dim + N * server_dim)."""
        spec = self.spec
        task = obs[:, : spec.task_dim]
        servers = obs[:, spec.task_dim :].unflatten(1, (-1, spec.server_dim))
        empty = servers[..., spec.server_capacity] == 0
        closed = self._closed(task, servers, empty) if self.mask_infeasible else empty
        return Inputs(
            task=torch.addcmul(self.task_shift, task, self.task_scale),
            servers=torch.addcmul(self.server_shift, servers, self.server_scale),
            empty=empty.to(obs.dtype) * MASKED,
            closed=closed.to(obs.dtype) * MASKED,
        )

    def _closed(self, task: Tensor, servers: Tensor, empty: Tensor) -> Tensor:
        busy = servers[..., self.spec.server_remaining] > 0
        too_small = servers[..., self.spec.server_memory] < task[:, self.spec.task_memory, None]
        infeasible = empty | busy | too_small
        return torch.where(infeasible.all(1, keepdim=True), empty, infeasible)
