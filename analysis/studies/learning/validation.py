"""The score of the untrained network on the validation episodes of a training of this page, as `objective_validation`.

python analysis/studies/learning/validation.py adaptive 1 128 0.5    # start, seed, episodes, share of revealed
"""

import sys

from rllib_scale.config import TrialConfig
from rllib_scale.evaluation.candidates import play_base
from rllib_scale.networks.build import build_network
from rllib_scale.sweeps.selected import play_network
from rllib_scale.sweeps.validated import VALIDATION, draw_instances, scores

start, seed, count, revealed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
trial = TrialConfig.model_validate(
    {
        "method": "scale-any",
        "seed": seed,
        "network": {"skip": start},
        "training": {
            "problems": {"family": {"agents_share": 0, "revealed_share": revealed, "basic": {"servers": [6, 24]}}}
        },
        "env": {"episode": {"mask": "feasible"}},
    }
)
instances = draw_instances(trial, count, VALIDATION)
untrained = {name: tensor.numpy() for name, tensor in build_network(trial).state_dict().items()}
network = scores([play_network(untrained, trial, each) for each in instances], "response")
base = scores([play_base(each) for each in instances], "response")
print(f"{network[0] - base[0]:.4f}")
