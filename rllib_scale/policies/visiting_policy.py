"""A trained `scale-any` as a policy: a dispatcher that visits in the order of `adaptive-price` and asks its network."""

from __future__ import annotations

import copy

import numpy as np

from rllib_scale.config import DecisionMode, TrialConfig
from rllib_scale.networks.build import Network
from rllib_scale.networks.compiled.inference import compile_network
from rllib_scale.observation.view import View
from rllib_scale.policies.shared import Exported
from rllib_scale.schedulers.asked_visits import AskedVisits
from rllib_scale.schedulers.reserving import VisitingDispatcher


class VisitingPolicy(Exported, VisitingDispatcher):
    """The exported policy of a training of `scale-any`; it plays any problem, as `adaptive-price` does.

    Args:
        network: as `build_network` makes it; a copy is kept.
        trial: what trained it.
        epochs: that it was trained for.
        decision: argmax, or `sample` by its probabilities.
    """

    def __init__(self, network: Network, trial: TrialConfig, epochs: int, decision: DecisionMode = "argmax") -> None:
        super().__init__()
        self.trained_by(trial, epochs)
        self.decision = decision
        self.network = copy.deepcopy(network).eval()
        self._forward = compile_network(self.network)

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self.asked = AskedVisits(len(seeds), self.moves_take_time, self.trial.visits_by)

    def decide(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        visits = self.asked
        visits.begin(view)
        servers = np.zeros(len(visits.current), dtype=np.int64)
        while len(asked := np.flatnonzero(visits.current >= 0)):
            logits = self._forward(visits.rows[asked])
            if self.decision == "sample":
                logits = logits + np.stack([self.generators[b].gumbel(size=logits.shape[1]) for b in asked.tolist()])
            servers[asked] = np.argmax(logits, axis=1)
            visits.choose(servers)
        return visits.answers()

    def servers_for(self, view: View, offered: np.ndarray) -> np.ndarray:
        """See `VisitingDispatcher.servers_for`, which hides tasks that are to be learned from."""
        self.asked.learned(view)
        return super().servers_for(view, offered)
