"""One step of plain gradient ascent from an untrained network, at several lengths: what its argmax gains.

python analysis/studies/learning/step.py naive 64 96    # start, problems of the gradient, problems played
"""

import sys
from typing import Any

import numpy as np
import torch

from rllib_scale.config import TrialConfig
from rllib_scale.rl.env_runner import GROUP_ADVANTAGE
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.sweeps.selected import play_network
from rllib_scale.sweeps.validated import VALIDATION, draw_instances, scores

LENGTHS, ALL = (0.03, 0.1, 0.3, 1.0), 2**20
"""Norms of the change of all weights; and decisions that are more than any group has."""
SHARPNESS = {"naive": 8.0, "adaptive": 24.0}
start, problems, played = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
trial = TrialConfig.of(
    "scale-any",
    network={"skip": start, "skip_sharpness": SHARPNESS[start]},
    algorithm={
        "problems": {"family": {"agents_share": 0, "basic": {"servers": [6, 16]}}},
        **{"groups": 1, "steps_per_epoch": ALL, "minibatch_size": ALL, "validation_instances": 0},
    },
    env={"episode": {"mask": "feasible"}},
)
algorithm: Any = build_algorithm_config(trial).build_algo()
module = algorithm.learner_group._learner.module["default_policy"].unwrapped()
for _ in range(problems):
    episodes = algorithm.env_runner.sample()
    rows = torch.from_numpy(np.concatenate([np.asarray(each.get_observations())[:-1] for each in episodes]))
    actions = torch.from_numpy(np.concatenate([np.asarray(each.get_actions()) for each in episodes]))
    gained = np.concatenate([np.asarray(each.get_extra_model_outputs(GROUP_ADVANTAGE)) for each in episodes])
    logp = torch.log_softmax(module.outputs(rows)[1], -1).gather(1, actions[:, None])[:, 0]
    (-(torch.from_numpy(gained) * logp).mean() / problems).backward()
algorithm.stop()

begun = {name: tensor.detach() for name, tensor in module.network.state_dict().items()}
steps = {name: -p.grad for name, p in module.network.named_parameters() if p.grad is not None}
norm = float(torch.sqrt(sum((step**2).sum() for step in steps.values())))
instances = draw_instances(trial, played, VALIDATION)


def logs(length: float) -> np.ndarray:
    """(P,) log of the mean response of the argmax after a step of this length."""
    moved = {
        name: (tensor + length / norm * steps[name] if name in steps else tensor) for name, tensor in begun.items()
    }
    weights = {name: tensor.numpy() for name, tensor in moved.items()}
    return np.array([scores([play_network(weights, trial, each)], "response")[0] for each in instances])


untrained, revealed = logs(0.0), np.array([each.env.information.workflows == "revealed" for each in instances])
print(f"{start}: gradient of norm {norm:.4f}, of {problems} problems")
for length in LENGTHS:
    change = 100 * (logs(length) - untrained)
    for name, of in (("whole", ~revealed), ("revealed", revealed)):
        half = 2 * change[of].std(ddof=1) / np.sqrt(of.sum())
        print(f"  step of {length:4}, {name:8} {change[of].mean():+.2f} ± {half:.2f} %", flush=True)
