"""The paper's problem at three sizes and the drift of f, of the pairs of trainings that README.md describes.

python analysis/studies/srr/secondary.py results/srr/policies    # writes secondary.parquet; pairs.py tests it

Drift is the mean over the dimensions of f of the 1-D Wasserstein distance, in standard deviations of f on the
validation problems of the training, from these to the test problems of the family with more than their 16 servers.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from leverage import decisions  # type: ignore[import-not-found]

from rllib_scale.config import EnvConfig
from rllib_scale.config.scenarios import scenario
from rllib_scale.evaluation.feature_drift import drift
from rllib_scale.evaluation.play import evaluate
from rllib_scale.policies.policy import load_policy
from rllib_scale.sweeps.validated import VALIDATION, draw_instances
from rllib_scale.workloads.family import fixed_problems, fixed_seed

SEED, EPISODES = 8241, {16: 32, 128: 16, 1024: 2}
ROWS = 32
"""Decisions of a problem in a sample of f, evenly spaced."""


@torch.no_grad()
def features(policy: Any, problems: list[tuple[EnvConfig, int]]) -> np.ndarray:
    """(decisions, d) f where the policy decides."""
    found = [policy.network(torch.from_numpy(rows))[0] for rows in decisions(policy, problems, ROWS)]
    return torch.cat(found).double().numpy()


larger = [
    (env, fixed_seed("basic", k, SEED))
    for revealed in (False, True)
    for k, env in enumerate(fixed_problems("basic", revealed))
    if env.cluster.num_servers > 16
]
table: list[dict[str, Any]] = []
for folder in sorted(Path(sys.argv[1]).iterdir()):
    policy: Any = load_policy(folder)
    method = "naive, SRR" if policy.trial.srr.lambda_decorrelation else "naive"
    row = {"method": method, "seed": policy.trial.seed}
    trained = [(each.env, each.seed) for each in draw_instances(policy.trial, 64, VALIDATION)]
    moved = drift(features(policy, larger), features(policy, trained))
    table.append(row | {"measure": "drift of f", "episode": 0, "value": moved["drift_wasserstein_relative"]})
    for servers, episodes in EPISODES.items():
        played = evaluate(policy, scenario("steady-0.7").at_scale(servers), SEED, episodes)
        measure = f"steady-0.7 at {servers}"
        table += [
            row | {"measure": measure, "episode": k, "value": p["response_censored_s"]} for k, p in enumerate(played)
        ]
    print(folder.name, method, f"{moved['drift_wasserstein_relative']:.3f}", flush=True)
pd.DataFrame(table).to_parquet(Path(__file__).parent / "secondary.parquet", index=False)
