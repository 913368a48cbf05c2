"""Embedders and pointer, shared by the baseline encoders and the cross-attention network [SCALE, sec. 4.2]."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from rllib_scale.networks.inputs import InputSpec, ObservationInput, embedder


class SetPointer(nn.Module, ABC):
    """Task and servers to a feature f and one logit per server, for any number of servers; `encode` is the encoder.

    Two-layer MLPs embed task and servers, as in `CrossAttentionPointer`, and the logits are those of its pointer,
    p_j = (W_Q f) . (W_K z_j), with what the encoder makes of server j as z_j.

    Args:
        inputs: columns and standardisation of the observation.
        embedding_dim: d.
    """

    def __init__(self, inputs: InputSpec, embedding_dim: int) -> None:
        super().__init__()
        d = embedding_dim
        self.feature_dim = d
        self.inputs = ObservationInput(inputs)
        self.task_embedder = embedder(inputs.task_dim, d)
        self.server_embedder = embedder(inputs.server_dim, d)
        self.pointer_query = nn.Linear(d, d, bias=False)
        self.pointer_key = nn.Linear(d, d, bias=False)

    @abstractmethod
    def encode(self, task: Tensor, servers: Tensor, empty: Tensor) -> tuple[Tensor, Tensor]:
        """Feature f (B, d), whatever the order of the servers, and z (B, N, d), which follows it.

        Args:
            task: embeddings (B, d).
            servers: embeddings (B, N, d).
            empty: (B, N), MASKED for an empty row, which must change neither f nor another server's z; else 0.
        """

    def forward(self, obs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Feature f (B, d) and logits (B, N) of observations (B, task_dim + N * server_dim).

        `mask` (B, N), see `ObservationInput`, closes servers to the pointer, never to the encoder.
        """
        inputs = self.inputs(obs, mask)
        f, z = self.encode(self.task_embedder(inputs.task), self.server_embedder(inputs.servers), inputs.empty)
        # W_K is applied to the one query rather than to every z_j.
        direction = self.pointer_query(f) @ self.pointer_key.weight
        return f, (direction[:, None] * z).sum(-1) + inputs.closed
