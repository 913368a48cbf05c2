"""The structured MLP of the baselines [SCALE, sec. 5], for a fixed number of servers, and the critic of all methods."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rllib_scale.errors import UserError
from rllib_scale.networks.inputs import InputSpec, ObservationInput, embedder


class StructuredMLP(nn.Module):
    """Task and servers embedded apart, by one embedder for all servers, then concatenated and fed to an MLP.

    Its feature f is the last hidden activation.

    Args:
        inputs: columns and standardisation of the observation.
        num_servers: the only number of servers it works for.
        embedding_dim: width of the embeddings.
        hidden: widths of the hidden layers.
    """

    def __init__(
        self,
        inputs: InputSpec,
        num_servers: int,
        embedding_dim: int,
        hidden: Sequence[int],
    ) -> None:
        super().__init__()
        self.num_servers = num_servers
        self.feature_dim = hidden[-1]
        self.inputs = ObservationInput(inputs)
        self.task_embedder = embedder(inputs.task_dim, embedding_dim)
        self.server_embedder = embedder(inputs.server_dim, embedding_dim)
        widths = [(num_servers + 1) * embedding_dim, *hidden]
        layers: list[nn.Module] = []
        for i in range(len(hidden)):
            layers += [nn.Linear(widths[i], widths[i + 1]), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Linear(hidden[-1], num_servers)

    def forward(self, obs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Feature f (B, hidden[-1]) and logits (B, N) of observations (B, task_dim + N * server_dim).

        `mask` (B, N): see `ObservationInput`.

        Raises:
            UserError: the observation is of another number of servers.
        """
        self.check_servers(self.inputs.spec.num_servers(obs.shape[1]))
        inputs = self.inputs(obs, mask)
        embeddings = torch.cat(
            (self.task_embedder(inputs.task), self.server_embedder(inputs.servers).flatten(1)), dim=1
        )
        f = self.trunk(embeddings)
        return f, self.head(f) + inputs.closed

    def check_servers(self, num_servers: int) -> None:
        """Refuse another number of servers than the network was made for."""
        if num_servers != self.num_servers:
            raise UserError(
                f"the MLP policy is fixed to N={self.num_servers} servers and cannot run at N={num_servers}; "
                f"every other network runs at any N"
            )


class Critic(nn.Module):
    """Value of a state from the feature f alone: a three-layer MLP with ReLU [SCALE, sec. 4.2]."""

    def __init__(self, feature_dim: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(feature_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, f: Tensor) -> Tensor:
        """Values (B,) of features (B, feature_dim)."""
        return self.layers(f).squeeze(-1)
