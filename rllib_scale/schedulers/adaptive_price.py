"""`adaptive-price`: the price rule for any cluster and workload, by what it sees of them.

    theta = link(duals of what has arrived + strength x U [1, context])

Prices of fast servers are the duals of the capacity constraints for the tasks that have arrived (`online_prices`). One
map U, searched over a family of problems, modulates them and the other numbers of the rule by what is seen at each
event. All units are relative, so the same map serves any cluster. Every formula:
analysis/studies/any-cluster/README.md.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from safetensors.numpy import load_file

from rllib_scale import zoo
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.observation.view import View
from rllib_scale.schedulers.adaptive_terms import INPUTS, THETA, AdaptiveTerms
from rllib_scale.schedulers.reserving import PricingDispatcher

SHAPE = len(THETA), len(INPUTS)
"""Shape of the map U."""
AGE = 0.1
"""Weight of a workflow's age, in 2 tau, in the order of tasks, at tail 1."""


@cache
def shipped_map() -> np.ndarray:
    """U (8, 13) of `zoo:adaptive-price`, searched over a family of problems."""
    return load_file(zoo.folder_of("zoo:adaptive-price") / zoo.TENSORS)["weights"]


class AdaptivePrice(PricingDispatcher):
    """See the module.

    Args:
        parameters: of the rule.
        weights: U (8, 13), or (B, 8, 13), one for each environment of a batch; None: the one that is shipped.

    Attributes:
        weights: strength x U, and in its constant what `tail` adds.
        learned: what has been learned since `reset`.
    """

    name = "adaptive-price"
    description = "prices of time on fast servers by what has arrived and what is seen, for any cluster"

    def __init__(self, parameters: AdaptivePriceParameters | None = None, weights: np.ndarray | None = None) -> None:
        super().__init__(parameters)
        given = np.asarray(shipped_map() if weights is None else weights, dtype=np.float64)
        if given.shape[-2:] != SHAPE:
            raise ValueError(f"weights {given.shape}: must be {SHAPE}")
        self.weights = self.parameters.strength * given
        self.weights[..., THETA.index("age"), 0] += AGE * self.parameters.tail

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        weights = np.broadcast_to(self.weights, (len(seeds), *SHAPE))
        self.learned = AdaptiveTerms(weights, self.moves_take_time, self.parameters.scarce)

    def change_servers(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.change_servers`."""
        self.learned.forget_servers()

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """See `PricingDispatcher.terms`; learns from what is seen."""
        return self.learned(view)

    def servers_for(self, view: View, offered: np.ndarray) -> np.ndarray:
        """See `VisitingDispatcher.servers_for`, which hides tasks that are to be learned from."""
        self.terms(view)
        return super().servers_for(view, offered)
