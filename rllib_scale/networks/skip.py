"""A way past the encoder: logits that are linear in a server's features, by weights that are linear in the task's.

With the features of `pairs` a price rule is such a map, and one whose prices follow the moment is one, too: a network
that begins as the rule learns what to add to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rllib_scale.config import ObservationConfig
from rllib_scale.config.schedulers import PriceParameters
from rllib_scale.networks.inputs import Inputs, InputSpec
from rllib_scale.observation.feature_sets import FEATURE_SETS


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

    @torch.no_grad()
    def start_from_price(self, inputs: InputSpec, observation: ObservationConfig, sharpness: float) -> None:
        """Begin as the price rule with its default numbers: `sharpness` less for a second more of its cost.

        The rule weighs time by descendants^2, which divides its other terms here: the same row is the best.

        Args:
            inputs: columns and their standardisation.
            observation: of the feature set `pairs`.
            sharpness: [1/s].
        """
        features, rule = FEATURE_SETS[observation.feature_set], PriceParameters()
        middle, fast = rule.prices
        cost = {
            "wait": rule.kappa * observation.time_unit_s,
            "lasts": observation.time_unit_s,
            "lasts_middle": middle * observation.time_unit_s,
            "lasts_fast": fast * observation.time_unit_s,
            "busy_shared": rule.penalty,
        }
        for name, per_unit in cost.items():
            column = features.server_column(name)
            self.bias[column] = -sharpness * per_unit * inputs.server_std[column]
