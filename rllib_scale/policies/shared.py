"""What exported policies of every kind share."""

from __future__ import annotations

from typing import Any

from rllib_scale.config import ProblemsConfig, TrialConfig


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
