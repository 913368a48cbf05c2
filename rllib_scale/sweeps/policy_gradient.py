"""REINFORCE for `decima` and `deeprm`: Ray tasks compute the gradients of an epoch, Adam takes one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rllib_scale.config import TrialConfig
from rllib_scale.evaluation.candidates import Instance
from rllib_scale.policies.policy import new_network
from rllib_scale.sweeps.reinforce import Weights, learn_from, reinforce_of
from rllib_scale.sweeps.selected import NetworkLearner


def learn(weights: Weights, trial: TrialConfig, entropy_coefficient: float, instance: Instance) -> Any:
    """Gradient of one instance; see `learn_from`."""
    torch.set_num_threads(1)  # sums do not depend on the machine
    return learn_from(weights, trial, instance.env, instance.seed, entropy_coefficient)


class PolicyGradient(NetworkLearner):
    """REINFORCE with Adam; an epoch plays each of `algorithm.instances` workloads several times."""

    state = (*NetworkLearner.state, "network", "_optimizer")

    def __init__(self, trial: TrialConfig) -> None:
        self.network = new_network(trial)
        self._optimizer = torch.optim.Adam(self.network.parameters(), reinforce_of(trial).learning_rate)
        super().__init__(trial, self.candidate())

    def train(self, number: int) -> dict[str, Any]:
        """One step of Adam along the mean gradient of the instances."""
        instances = self.instances(number)
        settings = self.settings
        share = min(1.0, (number - 1) / max(1, settings.epochs - 1))
        entropy_coefficient = settings.entropy_coefficient * (1 - share) + settings.final_entropy_coefficient * share
        weights = self.candidate()
        jobs = [(weights, self.trial, entropy_coefficient, instance) for instance in instances]
        found = self.spread(learn, jobs)
        norm = self._step([each.gradients for each in found], [instance.weight for instance in instances])
        return {
            "decisions": sum(each.decisions for each in found),
            "completed": float(np.mean([each.completed for each in found])),
            "response_mean_s": float(np.nanmean([each.response_s for each in found])),
            "entropy": float(np.mean([each.entropy for each in found])),
            "policy_loss": float(np.mean([each.policy_loss for each in found])),
            "gradient_norm": norm,
            "learning_rate": settings.learning_rate,
            "objective": float(np.nanmean([np.log(each.response_s) for each in found])),
        }

    def _step(self, gradients: list[list[np.ndarray]], weights: list[float]) -> float:
        """One step of Adam along the weighted mean of the gradients; returns its norm before clipping."""
        shares = np.array(weights) / sum(weights)
        for at, parameter in enumerate(self.network.parameters()):
            total = sum(share * of_one[at].astype(np.float64) for share, of_one in zip(shares, gradients, strict=True))
            parameter.grad = torch.from_numpy(np.asarray(total, dtype=np.float32))
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.gradient_clip)
        if not torch.isfinite(norm):
            raise RuntimeError(f"the gradient of {self.trial.name} is not finite")
        self._optimizer.step()
        return float(norm)
