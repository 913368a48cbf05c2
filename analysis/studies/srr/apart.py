"""Drift of the attention feature, and what policies lose, measured apart, on rows that are committed.

python analysis/studies/srr/apart.py    # tables and figure of this page
"""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rllib_scale_analysis.figures import draw
from rllib_scale_analysis.figures.chart import Chart, Marks, Panel
from rllib_scale_analysis.figures.style import Look
from rllib_scale_analysis.load import load

from rllib_scale.config import EnvConfig
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.policies.policy import load_policy

HERE = Path(__file__).parent
STUDY = runpy.run_path(str(HERE.parent / "transfer" / "study.py"))
LOST, LEFT_OUT = STUDY["LOST"], STUDY["LEFT_OUT"]
TIMES = (2, 4, 8, 16, 32, 64)
DRIFT, IN_PLAY = "drift_training_wasserstein", "drift_wasserstein_relative"


def repeated(method: str) -> list[float]:
    """Most that f moves, in its standard deviations, where each server of real states stands so many TIMES."""
    policy: Any = load_policy(f"zoo:{method}")
    env = SchedulingVectorEnv(16, EnvConfig())
    rows, rng = [env.reset(seed=list(range(16)))[0]], np.random.default_rng(1)
    for _ in range(60):
        rows.append(env.step(rng.integers(16, size=16))[0])
    task, servers = torch.from_numpy(np.concatenate(rows)).split([5, 5 * 16], dim=1)
    wide = [torch.cat([task, servers.repeat(1, times)], dim=1) for times in (1, *TIMES)]
    with torch.no_grad():
        features = [policy.network(each)[0] for each in wide]
    return [float(((f - features[0]).abs() / features[0].std(0)).max()) for f in features[1:]]


results = load(HERE.parent / "transfer")
episodes, features = (frame[~frame["scenario"].isin(LEFT_OUT)] for frame in (results.episodes, results.features))
policies = STUDY["transfer"](episodes, features)
print("median over 20 policies, by drift (sd), and lost (points):")
table = policies.groupby(["scenario", "test_servers"], observed=True)[[DRIFT, LOST]].median().sort_values(DRIFT)
print(table.round(2).to_string())
seeds = features.drop_duplicates("scheduler").set_index("scheduler")["train_seed"].reindex(policies["scheduler"])
print("by seed of the training:")
print(policies.groupby(seeds.to_numpy())[[DRIFT, LOST]].agg(["mean", "max"]).round(2).to_string())

played = load(HERE.parent / "reproduction" / "table4").features
grown = played.groupby(["method", "test_servers"], observed=True)[IN_PLAY].mean().unstack("method")
print("drift in standard deviations of f at 16 servers, the paper's problem:", grown.round(3).to_string(), sep="\n")

looks = {"scale": ("#0B4F6C", "o"), "crossattn": ("#B85C38", "s")}
same = pd.DataFrame({method: repeated(method) for method in looks}, index=TIMES)
print("most that f moves where each server is repeated:", same.to_string(), sep="\n")
marks = [
    *(Marks(grown.index, grown[m], Look(*look, "-", False), f"{m}, in play") for m, look in looks.items()),
    *(Marks(16 * same.index, same[m], Look(*look, ":", True), f"{m}, servers repeated") for m, look in looks.items()),
]
label = "f moves by, standard deviations"
panel = Panel(marks, x_label="servers", y_label=label, scales=[16, *(16 * times for times in TIMES)], log_y=True)
caption = "Dotted: each of 16 servers stands 2 to 64 times, nothing else changes. Lines: states that occur as N grows."
draw.save(draw.draw(Chart([panel], caption)), HERE / "repeated.png")
