"""A way past the encoder: logits that are linear in a server's features, by weights that are linear in the task's.

The cost of a rule is such a map of the features that name its terms: a network that begins as the rule learns what to
add to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rllib_scale.networks.inputs import Inputs, InputSpec


class Skip(nn.Module):
    """Inputs to a term of each logit, w . s_j with w = bias + weight t; s_j and t standardised. It begins at 0.

    Args:
        inputs: columns of the observation.
    """

    def __init__(self, inputs: InputSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs.server_dim, inputs.task_dim))
        self.bias = nn.Parameter(torch.zeros(inputs.server_dim))

    def forward(self, inputs: Inputs) -> Tensor:
        """(B, N) terms."""
        weights = nn.functional.linear(inputs.task, self.weight, self.bias)
        return (inputs.servers @ weights[:, :, None])[:, :, 0]

    @torch.no_grad()
    def start_from(self, inputs: InputSpec, costs: Mapping[int, float]) -> None:
        """Begin as the rule whose cost is a sum of a server's features: so much less for a unit more, by column."""
        for column, cost in costs.items():
            self.bias[column] = -cost * inputs.server_std[column]
