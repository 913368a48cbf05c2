"""The policies of the preset `learning` against a base, on the problems of the family that no experiment had used.

python analysis/studies/learning/against.py adaptive-price    # or fastest-idle, start: per cent, mean of logs, 95 %
python analysis/studies/learning/against.py fastest-idle analysis/studies/srr/episodes.parquet    # other rows
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rllib_scale_analysis.stats.intervals import mean_test

USED = 40
"""Problems that earlier experiments used, the first ones of `any` and of `any-revealed`."""
base, rows = sys.argv[1], pd.read_parquet([*sys.argv, str(Path(__file__).parent / "episodes.parquet")][2])
rows = rows[rows["number"] >= USED].set_index("number")
for scenario, played in rows.groupby("scenario"):
    theirs = played[played["method"] == base]
    for method, part in played[played["method"] != base].groupby("method"):
        for column in ("response_censored_s", "jct_p95_s"):
            # (S seeds, P problems): both differ from one experiment to the next, and the interval is over both.
            logs = [np.log(of_seed[column] / theirs[column]) for _, of_seed in part.groupby("seed", dropna=False)]
            found = mean_test(100 * np.array(logs), "seeds" if len(logs) > 1 else "episodes")
            half = (found.interval.high - found.interval.low) / 2
            of = f"{len(logs)} x {len(theirs)}"
            print(f"{scenario:13} {method:24} {column:20} {found.mean:+.2f} ± {half:.2f} %, {of}")
