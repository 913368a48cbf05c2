"""SRR's leverage: the share of a policy's decisions that change when f, the feature that it acts on, is its mean.

python analysis/studies/srr/leverage.py POLICY ...    # exported policies, or zoo:NAME; some seconds each

A policy of `scale-any` decides on 40 problems of the family, another one on the problem that it was trained on.
"""

import sys
from typing import Any

import numpy as np
import torch

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.policies.policy import load_policy
from rllib_scale.workloads.family import fixed_problems, fixed_seed

SEED = 8243
PROBLEMS, ROWS = 40, 128
"""Problems or episodes, and evenly spaced decisions of each."""


def decisions(policy: Any, problems: list[tuple[EnvConfig, int]], most: int) -> list[np.ndarray]:
    """Observations at `most` decisions, evenly spaced, of an episode of each problem."""
    forward, found = policy._forward, []
    for env, seed in problems:
        seen: list[np.ndarray] = []
        policy._forward = lambda rows, seen=seen: (seen.append(rows), forward(rows))[1]
        play(policy, env, seed, [0])
        rows = np.concatenate(seen)
        found.append(rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))])
    policy._forward = forward
    return found


@torch.no_grad()
def leverage(network: Any, rows: list[np.ndarray]) -> tuple[float, float]:
    """Shares of the decisions that change where f is its mean, and where the pointer's logits are 0."""
    found = [network(torch.from_numpy(each)) for each in rows]
    mean, chosen = torch.cat([f for f, _ in found]).mean(0), [logits.argmax(1) for _, logits in found]

    def changed() -> float:
        again = [network(torch.from_numpy(each))[1].argmax(1) for each in rows]
        return float((torch.cat(again) != torch.cat(chosen)).float().mean())

    hook = network.feedforward_norms[-1].register_forward_hook(lambda _, __, f: mean.expand_as(f))
    by_mean = changed()
    hook.remove()
    network.pointer_query.weight.zero_()
    return by_mean, changed()


def main(names: list[str]) -> None:
    """Print both shares for each policy."""
    family = [(env, fixed_seed("basic", k, SEED)) for k, env in enumerate(fixed_problems("basic", False)[:PROBLEMS])]
    for name in names:
        policy: Any = load_policy(name)
        own = [(policy.trial.env, SEED + k) for k in range(PROBLEMS)]
        rows = decisions(policy, family if policy.trial.visits else own, ROWS)
        by_mean, without = leverage(policy.network, rows)
        count = sum(map(len, rows))
        print(
            f"{name}: of {count} decisions {by_mean:.2%} change with the mean of f, {without:.1%} without the pointer"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
