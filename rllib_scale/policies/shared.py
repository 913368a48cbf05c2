"""What exported policies of every kind share."""

from __future__ import annotations

from typing import Any

from rllib_scale.config import EnvConfig, ProblemsConfig, TrialConfig
from rllib_scale.errors import UserError


def as_html(policy: Any) -> str:
    """A notebook's view of an exported policy: what it is and what trained it."""
    import pandas as pd

    trial: TrialConfig = policy.trial
    problems = trial.algorithm.problems or ProblemsConfig()
    servers = ", ".join(map(str, problems.servers or (trial.env.cluster.num_servers,)))
    where = f"at {servers} servers" if problems.family is None else "on problems of any cluster"
    facts = {
        "policy": policy.name,
        "method": f"{trial.method}: {policy.description}",
        "trained": f"{policy.epochs} epochs {where}, seed {trial.seed}",
    }
    return str(pd.DataFrame(facts.items()).to_html(header=False, index=False))


def check_scale(name: str, trial: TrialConfig, env: EnvConfig) -> None:
    """Refuse a problem of another number of servers than a policy knows.

    Raises:
        UserError: its network is fixed to the number that it was trained at.
    """
    own, given = trial.env.cluster.num_rows, env.cluster.num_rows
    if not trial.spec.any_scale and own != given:
        raise UserError(f"{name}: was trained at {own} servers and knows no other number (got {given})")
