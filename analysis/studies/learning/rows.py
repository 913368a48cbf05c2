"""The rows of this page: what it needs of the results of `rllib-scale sweep learning` and of `evaluate.yaml`.

python analysis/studies/learning/rows.py results/learning results/learning_evaluation
"""

import sys
from pathlib import Path

import pandas as pd
from rllib_scale_analysis.load import load

from rllib_scale.config.family import TEST_PROBLEMS
from rllib_scale.workloads.family import fixed_seed

SEED = 8231
"""Of both evaluations."""
rows = pd.concat([load(folder).episodes for folder in sys.argv[1:]]).drop_duplicates(
    ["trial_id", "scenario", "eval_seed"]
)
rows["number"] = rows["eval_seed"].map({fixed_seed("basic", k, SEED): k for k in range(TEST_PROBLEMS)})
learned = rows["method"] == "scale-any"
started = rows["overrides"].str.extract(r"network\.skip=(\w+)")[0].fillna("adaptive")
names = started + rows["lambda_decorrelation"].gt(0).map({True: ", SRR", False: ""})
rows["method"] = rows["method"].astype(str).mask(learned, names)
rows = rows.rename(columns={"train_seed": "seed"}).astype({"scenario": str, "seed": "Int64"})
columns = ["method", "seed", "scenario", "number", "response_censored_s", "jct_p95_s"]
rows = rows[columns].sort_values(columns[:4]).reset_index(drop=True)
rows.to_parquet(Path(__file__).parent / "episodes.parquet", index=False)
print(rows.groupby(["method", "seed", "scenario"], dropna=False).size().to_string())
