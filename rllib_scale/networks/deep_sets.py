"""The Deep Sets encoder [Zaheer et al. 2017]: servers are pooled, whatever the task, where SCALE attends to them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rllib_scale.networks.inputs import InputSpec
from rllib_scale.networks.pointer import SetPointer


class DeepSets(SetPointer):
    """f = LayerNorm(rho([task, mean over servers, maximum over servers])), rho a three-layer MLP; z = the embeddings.

    Mean and maximum, for a sum would grow with the number of servers. The LayerNorm gives f the scale it has in
    `CrossAttentionPointer`, whose blocks end in one.

    Args:
        inputs: columns and standardisation of the observation.
        embedding_dim: d; rho's hidden layers have 4d units.
    """

    def __init__(self, inputs: InputSpec, embedding_dim: int) -> None:
        super().__init__(inputs, embedding_dim)
        d = embedding_dim
        self.rho = nn.Sequential(
            nn.Linear(3 * d, 4 * d), nn.ReLU(), nn.Linear(4 * d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d)
        )
        self.norm = nn.LayerNorm(d)

    def encode(self, task: Tensor, servers: Tensor, empty: Tensor) -> tuple[Tensor, Tensor]:
        """See `SetPointer.encode`."""
        pooled = pool(servers, empty)
        return self.norm(self.rho(torch.cat((task, pooled), 1))), servers


def pool(servers: Tensor, empty: Tensor) -> Tensor:
    """Mean and maximum (B, 2d) of the embeddings (B, N, d) of rows that are not empty; 0 where all are."""
    real = (empty == 0).to(servers.dtype)
    count = real.sum(1, keepdim=True)
    mean = (real[:, None] @ servers)[:, 0] / count.clamp_min(1)
    maximum = (servers + empty[..., None]).amax(1) * (count > 0)
    return torch.cat((mean, maximum), 1)
