"""Scores of the maps of a sweep on problems that neither a search nor another study plays; the best is shipped.

python analysis/studies/any-cluster/choose.py results/any_cluster
"""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from rllib_scale.config.family import Family
from rllib_scale.evaluation.candidates import Instance, outcomes_of, play_base
from rllib_scale.schedulers.adaptive_price import SHAPE, AdaptivePrice
from rllib_scale.workloads.family import draw

WEIGHTS = {"response_s": 0.8, "makespan_s": 0.1, "jct_p95_s": 0.1}

files = sorted(Path(sys.argv[1]).glob("policies/*/policy.safetensors"))
maps = np.array([np.zeros(SHAPE), *(load_file(file)["weights"] for file in files)])
print("arrivals [s]; scores [%]: no map,", ", ".join(file.parent.name for file in files))
for arrivals_s, count in ((120.0, 120), (900.0, 24), (3600.0, 8)):
    family, logs = Family(arrivals_s=(arrivals_s, arrivals_s)), []
    for k in range(count):
        instance = Instance(draw(family, 10, k, (k + 0.5) / count), 75_000 + k)
        base, found = play_base(instance), outcomes_of(AdaptivePrice(weights=maps), len(maps), instance)
        logs.append([np.log(getattr(found, name) / getattr(base, name)) for name in WEIGHTS])
    scores = np.tensordot(list(WEIGHTS.values()), np.mean(logs, axis=0), axes=1)
    print(arrivals_s, np.round(100 * scores, 1), "worst response", np.round(np.exp(np.max(logs, axis=0)[0]), 2))
