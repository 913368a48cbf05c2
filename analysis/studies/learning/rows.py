"""The rows of this page and of ../srr, from the results of `rllib-scale sweep learning` and `evaluate.yaml`.

python analysis/studies/learning/rows.py 8231 analysis/studies/learning/episodes.parquet FOLDERS    # evaluation seed
"""

import sys

import pandas as pd
from rllib_scale_analysis.load import load

from rllib_scale.config.family import TEST_PROBLEMS
from rllib_scale.workloads.family import fixed_seed

seed, target, *folders = sys.argv[1:]
rows = pd.concat([load(folder).episodes for folder in folders]).drop_duplicates(["scheduler", "scenario", "eval_seed"])
rows = rows[rows["eval_seed"].isin([fixed_seed("basic", k, int(seed)) for k in range(TEST_PROBLEMS)])]
learned = rows["method"] == "scale-any"
started = rows["overrides"].str.extract(r"network\.skip=(\w+)")[0].fillna("adaptive")
for name in ("penalty", "scarce"):
    started += rows["overrides"].str.contains(rf"network\.{name}=(?!0|false)").map({True: f", {name}", False: ""})
names = started + rows["lambda_decorrelation"].gt(0).map({True: ", SRR", False: ""})
rows["method"] = rows["method"].astype(str).mask(learned, names)
rows = rows.rename(columns={"train_seed": "seed"}).astype({"scenario": str, "seed": "Int64"})
columns = ["method", "seed", "scenario", "number", "response_censored_s", "jct_p95_s"]
rows = rows[columns].sort_values(columns[:4]).reset_index(drop=True)
rows.to_parquet(target, index=False)
print(rows.groupby(["method", "seed", "scenario"], dropna=False).size().to_string())
