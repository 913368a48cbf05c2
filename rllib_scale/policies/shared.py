"""Code shared by exported policies."""

from __future__ import annotations

from rllib_scale.config import EnvConfig, ProblemsConfig, TrialConfig
from rllib_scale.policies.description import as_played
from rllib_scale.schedulers.base import BasePolicy


class Exported(BasePolicy):
    """A policy that a training exports, before the rule or scheduler that plays it among its bases.

    Attributes:
        trial: what trained it.
        epochs: that it was trained for.
    """

    def trained_by(self, trial: TrialConfig, epochs: int) -> None:
        """Note what trained it."""
        self.name, self.description, self.sees = trial.name, trial.description, trial.sees
        self.trial, self.epochs = trial, epochs

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`.

        Raises:
            UserError: see `as_played`.
        """
        return super().problem(as_played(self.name, self.trial, env))

    def _repr_html_(self) -> str:
        """A notebook's view: what it is and what trained it."""
        import pandas as pd

        trial, problems = self.trial, self.trial.algorithm.problems or ProblemsConfig()
        servers = ", ".join(map(str, problems.servers or (trial.env.cluster.num_servers,)))
        where = f"at {servers} servers" if problems.family is None else "on problems of any cluster"
        facts = {
            "policy": self.name,
            "method": f"{trial.method}: {self.description}",
            "trained": f"{self.epochs} epochs {where}, seed {trial.seed}",
        }
        return str(pd.DataFrame(facts.items()).to_html(header=False, index=False))
