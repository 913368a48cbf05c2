"""The tables of the league and of coding agents, from the rows that this page's commands write.

python analysis/studies/any-cluster/against.py league-*.parquet    # ranks by mean response
python analysis/studies/any-cluster/against.py agents-*.parquet    # time on the cluster and response
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

BASE = "fastest-idle"
COLUMNS = ["sojourn_mean_s", "response_censored_s", "jct_p95_s"]
rows = pd.concat([pd.read_parquet(name).assign(file=Path(name).stem) for name in sys.argv[1:]])
if rows["file"].iloc[0].startswith("league"):
    rows["workflows"] = rows["file"].str.rpartition("-")[2]
    for seen, part in rows.groupby("workflows", sort=False):
        response, tail = (
            part.pivot_table(index=["scenario", "test_servers"], columns="method", values=name) for name in COLUMNS[1:]
        )
        ratios = response.div(response.min(axis=1), axis=0)
        percent = [100 * np.expm1(np.log(one.div(one[BASE], axis=0)).mean()) for one in (response, tail)]
        table = {"mean rank": response.rank(axis=1).mean(), "worst ratio": ratios.max(), "where": ratios.idxmax()}
        table |= {"response, %": percent[0], "JCT p95, %": percent[1]}
        print(seen, pd.DataFrame(table).sort_values("mean rank").round(2).to_string(), sep="\n")
else:
    for (file, method), part in rows[rows["method"] != BASE].groupby(["file", "method"]):
        base = rows[(rows["file"] == file) & (rows["method"] == BASE)]
        ours, theirs = (one.set_index("episode")[COLUMNS] for one in (part, base))
        logs = np.log(ours / theirs)
        half = 100 * logs.std() * 2.26 / np.sqrt(len(logs))  # Student's, of ten episodes
        print(file, method, *(f"{100 * np.expm1(m):+.1f} ± {h:.1f}" for m, h in zip(logs.mean(), half, strict=True)))
