"""A policy against `adaptive-price` on the last 80 of the 120 problems, on evaluation seeds of its own.

python analysis/studies/learning/held_out.py analysis/studies/learning/from_rule
"""

import sys

import numpy as np

from rllib_scale.evaluation.candidates import Instance, outcomes_of
from rllib_scale.policies.policy import load_policy
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.workloads.family import fixed_problems, fixed_seed

USED, SEEDS = 40, (7911, 7912)
"""Problems that earlier experiments used, and evaluation seeds that no other study has."""
for revealed in (True, False):
    logs = []
    for number, env in enumerate(fixed_problems("basic", revealed)):
        if number < USED:
            continue
        of_each = []
        for seed in SEEDS:
            instance = Instance(env, fixed_seed("basic", number, seed))
            policy, rule = (outcomes_of(each, 1, instance) for each in (load_policy(sys.argv[1]), AdaptivePrice()))
            of_each.append(
                [np.log(policy.response_s / rule.response_s)[0], np.log(policy.jct_p95_s / rule.jct_p95_s)[0]]
            )
        logs.append(np.mean(of_each, axis=0))
    mean, half = 100 * np.mean(logs, axis=0), 199 * np.std(logs, axis=0, ddof=1) / np.sqrt(len(logs))  # Student's, 1.99
    kind = "revealed" if revealed else "whole"
    print(f"{kind:9} response {mean[0]:+.2f} ± {half[0]:.2f} %, p95 {mean[1]:+.2f} ± {half[1]:.2f} %", flush=True)
