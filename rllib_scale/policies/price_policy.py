"""A searched `context-price` as a policy: its weights as files, and as the dispatcher that plays them."""

from __future__ import annotations

from rllib_scale.config import DecisionMode, EnvConfig, ProblemsConfig, TrialConfig
from rllib_scale.config.rounds import WITHOUT_PAPER_MODE
from rllib_scale.errors import UserError
from rllib_scale.schedulers.context import Floats
from rllib_scale.schedulers.context_price import ContextPrice


class PricePolicy(ContextPrice):
    """What a training of the method `context-price` exports.

    Args:
        weights: as for `ContextPrice`.
        speeds: as for `ContextPrice`.
        trial: what trained it.
        epochs: generations it was searched for.
        decision: argmax; there are no probabilities to sample from.

    Raises:
        UserError: another decision is asked for.
    """

    def __init__(
        self, weights: Floats, speeds: Floats, trial: TrialConfig, epochs: int, decision: DecisionMode = "argmax"
    ) -> None:
        searched = (trial.training.problems or ProblemsConfig()).all(trial.env)
        rows = [env.cluster.num_slots for env in searched]
        super().__init__(weights, speeds, (float(min(rows)), float(max(rows))))
        if decision != "argmax":
            raise UserError(f"decision {decision}: {trial.method} has no probabilities to sample from; valid: argmax")
        self.name, self.description = trial.name, trial.spec.description
        self.trial, self.epochs = trial, epochs

    def check(self, config: EnvConfig) -> None:
        """See `Dispatcher.check`: the paper's mode is refused."""
        if config.costs_time:
            raise UserError(WITHOUT_PAPER_MODE.format(self.name))
