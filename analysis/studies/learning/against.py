"""Policies against a base, on the problems of the family that no experiment had used before.

python analysis/studies/learning/against.py fastest-idle    # percent, mean of logs, 95 % intervals over problems
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from rllib_scale.config.family import TEST_PROBLEMS
from rllib_scale.workloads.family import fixed_seed

SEED, USED = 7811, 40
"""Of `evaluate.yaml`; and how many problems, the first ones, earlier experiments used."""
base, rows = sys.argv[1], pd.read_parquet(Path(__file__).parent / "episodes.parquet")
rows["number"] = rows["eval_seed"].map({fixed_seed("basic", k, SEED): k for k in range(USED, TEST_PROBLEMS)})
rows = rows.dropna(subset="number").set_index(["number", "episode"])
for (scenario, method), part in rows[rows["method"] != base].groupby(["scenario", "method"]):
    theirs = rows[(rows["scenario"] == scenario) & (rows["method"] == base)]
    for column in ("response_censored_s", "jct_p95_s"):
        logs = pd.Series(np.log(part[column] / theirs[column])).groupby("number").mean()
        half = 1.99 * logs.std() / np.sqrt(len(logs))  # Student's, of 80 problems
        worse = f"worse on {(logs > 0).mean():.0%} of {len(logs)}"
        print(f"{scenario:13} {method:15} {column:20} {100 * logs.mean():+.2f} ± {100 * half:.2f} %, {worse}")
