"""The figures of this page, from its rows.

python analysis/studies/any-cluster/figures.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rllib_scale_analysis import load, select
from rllib_scale_analysis.figures.style import RC, looks
from rllib_scale_analysis.tables import family

from rllib_scale.config import family as problems
from rllib_scale.workloads.family import fixed_problems

HERE = Path(__file__).parent
SHOWN = ["adaptive-price", "dual-price", "reserve"]
LABELS = {
    "zoo:context-price": ((96.5, 11), (40, 15)),
    "reserve": ((12, -7.5), (26, 6)),
    "adaptive-price": ((66, -3.5), (50, -17)),
    "dual-price": ((22, -14.5), (30, -27)),
}
"""Point of a curve [%] and place of its label."""
SEEN = {"any": "whole workflows seen", "any-revealed": "revealed as they run"}

episodes = load(HERE / "any").episodes
rows = select(episodes, "any", "feasible", "argmax")
rows = rows[rows["variant"].isin([*SHOWN, "zoo:context-price", "fastest-idle"])]
base, found = family.log_ratios(rows)
ratios = {name: family.by_problem(logs) for name, logs in found.items()}
plt.rcParams.update(RC)
figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
for name, look in looks(rows, list(ratios)).items():
    percent = 100 * (ratios[name] - 1)
    axis.plot(100 * (np.arange(len(percent)) + 0.5) / len(percent), percent, color=look.colour, linewidth=2.5)
    label = f"{name}: faster on {int((percent < -0.05).sum())}, slower on {int((percent > 0.05).sum())}"
    axis.annotate(label, *LABELS[name], color=look.colour, arrowprops={"arrowstyle": "-", "color": look.colour})
axis.axhline(0, color="black", linewidth=1)
axis.set(xlim=(0, 100), ylim=(-40, 22), xlabel=f"{len(percent)} problems, in the order of a policy's response (%)")
axis.set(ylabel=f"mean response\nagainst {base} (%)", title=f"On which problems is a policy better than {base}?")
figure.savefig(HERE / "over-problems.png", dpi=130)

envs = fixed_problems("basic", False)
speeds = [[tier.compute_gflops for tier in env.cluster.tiers] for env in envs]
demands = [env.workload.compute_gflop for env in envs]
moves = [problems.OUTPUT_GB / env.cluster.bandwidth_gb_s + env.cluster.latency_s for env in envs]
properties = {
    "offered load": [env.workload.offered_load for env in envs],
    "fastest server / slowest": [max(each) / min(each) for each in speeds],
    "standard deviation of the demand / mean": [each.std / each.mean for each in demands],
    "mean move / mean task": [move / problems.CANONICAL_S for move in moves],
}
figure, axes = plt.subplots(2, len(properties), figsize=(16, 7), sharey="row", layout="constrained")
for row, (scenario, seen) in zip(axes, SEEN.items(), strict=True):
    of_rows = select(episodes, scenario, "feasible", "argmax")
    _, found = family.log_ratios(of_rows[of_rows["variant"].isin([*SHOWN, "fastest-idle"])])
    order = of_rows.drop_duplicates("problem").sort_values("problem")["number"].to_numpy(int)  # as `found` is
    for axis, (name, values) in zip(row, properties.items(), strict=True):
        x = np.array(values)[order]
        fifths = np.array_split(np.argsort(x), 5)
        for policy, look in looks(rows, SHOWN).items():
            y = 100 * found[policy][family.RESPONSE].mean(axis=0)
            half = [1.96 * y[at].std(ddof=1) / np.sqrt(len(at)) for at in fifths]
            style = {"color": look.colour, "marker": look.marker, "capsize": 3, "label": policy}
            axis.errorbar([x[at].mean() for at in fifths], [y[at].mean() for at in fifths], half, **style)
        axis.axhline(0, color="black", linewidth=1)
        axis.set_xlabel(name)
        if "move" in name:
            axis.set_xscale("log")
    row[0].set_ylabel(f"{seen}\nresponse against fastest-idle, %")
axes[0][0].legend(loc="lower left")
figure.savefig(HERE / "by-property.png", dpi=100)
