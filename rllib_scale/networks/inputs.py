"""Reads a flat observation for the networks: its columns, their standardisation, and which servers are closed.

Which server is feasible is not read from the observation, whose float32 features round what decides it: the simulator
decides, and hands a mask on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

MASKED = -1e9
"""Added to the score of a masked server: its probability is exactly 0, while entropy and gradients stay finite."""

Array = TypeVar("Array", Tensor, np.ndarray)


@dataclass(frozen=True)
class InputSpec:
    """Columns of the observation [task features, features of server 1, ..., of server N] that a network knows about.

    A server whose capacity, in column `server_capacity` of its features, is 0 is an empty row.
    """

    task_mean: tuple[float, ...]
    task_std: tuple[float, ...]
    server_mean: tuple[float, ...]
    server_std: tuple[float, ...]
    server_capacity: int

    @property
    def task_dim(self) -> int:
        """Number of task features."""
        return len(self.task_mean)

    @property
    def server_dim(self) -> int:
        """Number of features of one server."""
        return len(self.server_mean)

    def num_servers(self, width: int) -> int:
        """Servers in an observation of that width."""
        return (width - self.task_dim) // self.server_dim

    def split_mask(self, rows: Array, masked: bool) -> tuple[Array, Array | None]:
        """Observations (B, task_dim + N * server_dim) and mask (B, N) of what a training environment shows.

        Args:
            rows: where `masked`, (B, task_dim + N * (server_dim + 1)): each observation is followed by its mask, 1 for
                a server that may be chosen and 0 for one that may not; else observations alone, whose mask is None.
            masked: whether the trial is.
        """
        if not masked:
            return rows, None
        servers = (rows.shape[1] - self.task_dim) // (self.server_dim + 1)
        return rows[:, :-servers], rows[:, -servers:] != 0


class Inputs(NamedTuple):
    """A batch of B observations of N servers, ready for a network."""

    task: Tensor  # (B, task_dim), standardised
    servers: Tensor  # (B, N, server_dim), standardised
    empty: Tensor  # (B, N), MASKED for an empty row, else 0
    closed: Tensor  # (B, N), MASKED for a server that must not be chosen, else 0


def embedder(features: int, d: int) -> nn.Sequential:
    """The two layers by which every network embeds a task or a server."""
    return nn.Sequential(nn.Linear(features, d), nn.ReLU(), nn.Linear(d, d))


class ObservationInput(nn.Module):
    """Splits, standardises and masks; the constants are buffers, so a saved network carries them.

    Args:
        spec: columns and constants.
    """

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        self.spec = spec
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

    def forward(self, obs: Tensor, mask: Tensor | None = None) -> Inputs:
        """Read a batch.

        Args:
            obs: (B, task_dim + N * server_dim).
            mask: (B, N) bool, False for a server that is closed. Empty rows are closed in any case, and where it
                would leave a row without any server, or without a mask, they alone are.
        """
        spec = self.spec
        task = obs[:, : spec.task_dim]
        servers = obs[:, spec.task_dim :].unflatten(1, (-1, spec.server_dim))
        empty = servers[..., spec.server_capacity] == 0
        closed = empty
        if mask is not None:
            closed = empty | ~mask
            closed = empty | (closed & ~closed.all(1, keepdim=True))
        return Inputs(
            task=torch.addcmul(self.task_shift, task, self.task_scale),
            servers=torch.addcmul(self.server_shift, servers, self.server_scale),
            empty=empty.to(obs.dtype) * MASKED,
            closed=closed.to(obs.dtype) * MASKED,
        )
