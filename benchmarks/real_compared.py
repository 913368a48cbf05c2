"""Runs of real engines and their predictions: a table, and the errors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from scipy import stats

from benchmarks.measure import Measure

CELL = ["load", "policy", "seed"]
SHOWN = {
    "call_s": "mean call, s",
    "call_p99_s": "p99, s",
    "first_s": "first token, s",
    "output_per_s": "output, tokens/s",
}
DIFFER = 0.10
"""Policies that differ by more than this share are in an order."""


def table(both: pd.DataFrame) -> Table:
    """Real / predicted figures of each run."""
    result = Table("load", title="real / predicted", title_justify="left")
    result.add_column("policy", no_wrap=True)
    result.add_column("seed")
    for name in (*SHOWN.values(), "hit rate", "foreign"):
        result.add_column(name, justify="right")
    for _, row in both.sort_values(CELL).iterrows():
        figures = [f"{row[name]:.2f} / {row[f'{name}_model']:.2f}" for name in (*SHOWN, "hit")]
        result.add_row(f"{row['load']:g}", row["policy"], str(row["seed"]), *figures, f"{row['foreign']:.2f}")
    return result


def measures(held_out: Sequence[dict[str, Any]], both: pd.DataFrame, first: str) -> list[Measure]:
    """Errors of predictions, and differences between runs.

    Args:
        held_out: for each engine, the errors on the load that was not fitted.
        both: a row for each run; columns of its prediction end in `_model`.
        first: the policy with which others are compared in pairs.
    """
    found = []
    for name, what, bar, aim in (("latency", "latency", 7.0, 4.0), ("ttft", "first token", 15.0, 8.0)):
        worst = 100 * max(each[f"{name}_median"] for each in held_out)
        found.append(Measure(f"held-out load, {what}: median error", "%", worst, None, bar, aim, True))
    for name, what in SHOWN.items():
        bars = (15.0, 8.0) if name == "call_s" else (None, None)
        off = 100 * float(np.abs(np.log(both[name] / both[f"{name}_model"])).mean())
        found.append(Measure(f"{what.partition(',')[0]}: mean of |ln| over runs", "%", off, None, *bars, True))
    off = float((both["hit"] - both["hit_model"]).abs().mean())
    found.append(Measure("hit rate: mean difference", "", off, at_most=True))
    right = pairs(both)
    if len(right):
        name = f"pairs of policies that differ by more than {DIFFER:.0%}, in order ({sum(right)} of {len(right)})"
        found.append(Measure(name, "%", 100 * float(np.mean(right)), None, 90.0, 97.0))
    gains = gains_of_gates(both)
    if len(gains):
        off = float((gains["real"] - gains["model"]).abs().mean())
        found.append(Measure("gate's gain in output: mean difference of ln", "", off, None, 0.2, 0.1, True))
    found += paired(both, first)
    real, model = (cliff(both, name) for name in ("call_s", "call_s_model"))
    if real is not None and model is not None:
        found.append(Measure("cliff: loads of the grid between", "", abs(real - model), None, 1.0, 0.0, True))
    return found + spreads(both)


def paired(both: pd.DataFrame, first: str) -> list[Measure]:
    """100 ln of each policy's mean call, p99 and output over those of `first`, over pairs of the same sessions.

    Only where there are at least three pairs at a load; with half of the 95 % interval, and the prediction.
    """
    found, means = list[Measure](), _means(both)
    for (load, policy), own in means[means["policy"] != first].groupby(["load", "policy"], sort=False):
        pairs = own.merge(means[means["policy"] == first], on=["load", "seed"], suffixes=("", "_first"))
        for name in ("call_s", "call_p99_s", "output_per_s"):
            real, model = (100 * np.log(pairs[each] / pairs[f"{each}_first"]) for each in (name, f"{name}_model"))
            if len(pairs) > 2:
                half = stats.t.ppf(0.975, len(real) - 1) * real.sem()
                what = f"{policy} at {load:g}, {SHOWN[name].partition(',')[0]}: 100 ln, ± {half:.1f}"
                found.append(Measure(f"{what} (predicted {model.mean():+.1f})", "", float(real.mean())))
    return found


def spreads(both: pd.DataFrame) -> list[Measure]:
    """Differences of mean calls between runs of the same sessions, and of other sessions, in |ln|."""
    found, logs = [], both.assign(ln=np.log(both["call_s"]))
    same = logs.groupby(CELL)["ln"].agg(lambda each: each.max() - each.min())
    counts = logs.groupby(CELL).size()
    others = logs.groupby(CELL)["ln"].mean().groupby(["load", "policy"]).agg(["count", np.ptp])
    parts = (
        ("the same sessions twice", same[counts > 1]),
        ("other sessions of the same kind", others["ptp"][others["count"] > 1]),
    )
    for what, each in parts:
        if len(each):
            found.append(Measure(f"{what}: |ln| of mean calls", "%", 100 * float(each.mean()), at_most=True))
    return found


def _means(both: pd.DataFrame) -> pd.DataFrame:
    """Means over runs of the same sessions."""
    return both.groupby(CELL, sort=False).mean(numeric_only=True).reset_index()


def pairs(both: pd.DataFrame) -> list[bool]:
    """Whether the prediction orders each pair of policies with the same sessions that differ by DIFFER correctly."""
    right = []
    for _, cell in _means(both).groupby(["load", "seed"]):
        for one, other in itertools.combinations(cell.to_dict("records"), 2):
            real, model = (np.log(one[name] / other[name]) for name in ("call_s", "call_s_model"))
            if abs(real) > np.log1p(DIFFER):
                right.append(bool(real * model > 0))
    return right


def _ungated(both: pd.DataFrame) -> str | None:
    """The policy whose gates are compared with it."""
    bare = {str(name).partition(":gate=")[0] for name in both["policy"] if ":gate=" in str(name)}
    return next((name for name in both["policy"] if name in bare), None)


def gains_of_gates(both: pd.DataFrame) -> pd.DataFrame:
    """For each gate and load, ln of its output over that of its policy without it: real and predicted."""
    means, bare = _means(both), _ungated(both)
    rows = []
    for (load, seed), cell in means.groupby(["load", "seed"]):
        of = cell.set_index("policy")
        for name in of.index:
            if bare in of.index and str(name).startswith(f"{bare}:gate="):
                real, model = (
                    float(np.log(of.loc[name, each] / of.loc[bare, each]))
                    for each in ("output_per_s", "output_per_s_model")
                )
                rows.append({"load": load, "seed": seed, "policy": name, "real": real, "model": model})
    return pd.DataFrame(rows)


def cliff(both: pd.DataFrame, name: str) -> int | None:
    """Load of the grid after which the mean call of the policy without a gate grows by the largest ratio."""
    of = both[both["policy"] == _ungated(both)].groupby("load")[name].mean().sort_index()
    return int(np.argmax(np.diff(np.log(of)))) if len(of) > 2 else None
