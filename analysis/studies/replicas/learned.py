"""Learned gates against `lmetric:gate=1` on held-out sessions, with everything counted that is open at the end.

    python analysis/studies/replicas/learned.py SESSIONS REPLICAS SEED EPISODES LOADS [POLICIES]    # 8 9500 6 16,24,40

REPLICAS is a number, or mixed: 8, of which every second one is of the slow kind of study.py. With POLICIES, a folder
with trainings of one method that differ by their seeds, intervals are over seeds and episodes; else each of policies/.

A turn is open from its first call to its last answer: its mean time is the integral of open turns over turns that end
(Little's law), as `response_censored_s` is of calls. The 99th percentile is over calls that end or are still open.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from study import BEST, MIXED, POD, problem  # type: ignore[import-not-found]

from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy

POLICIES = Path(__file__).parent / "policies"


def measured(engine: Any, b: int) -> dict[str, float]:
    """Mean times of calls and turns, 99th percentile of calls, output, longest hold of fleet b."""
    metrics, scripts = engine.metrics(b), engine.scripts
    begin_s, end_s = engine.config.service.warm_up_s, engine.config.episode.horizon_s
    calls = pd.DataFrame(np.concatenate([engine.calls(b), engine.open_calls(b)]))
    ages = (np.minimum(calls["end_s"], end_s) - calls["asked_s"])[calls["end_s"] >= begin_s]
    skipped = calls.groupby("session")["call"].min()  # a session begins in the middle
    turns = calls.groupby(["session", "turn"]).agg(
        script=("script", "first"), first=("asked_s", "min"), last=("end_s", "max"), count=("script", "size")
    )
    open_s, ended = 0.0, 0
    for of in turns.reset_index().to_dict("records"):
        script = of["script"]
        own = scripts.tasks["turn"][scripts.first_task[script] : scripts.first_task[script + 1]]
        is_whole = of["count"] >= (own[skipped[of["session"]] :] == of["turn"]).sum()
        until_s = of["last"] if is_whole else np.inf
        open_s += max(0.0, min(until_s, end_s) - max(of["first"], begin_s))
        ended += begin_s <= until_s <= end_s
    return {
        "call": metrics["response_censored_s"],
        "turn": open_s / ended,
        "p99": float(np.quantile(ages, 0.99)),
        "output": metrics["output_per_gpu_hour"],
        "longest hold": metrics["longest_hold_s"],
    }


def half_width(ratio: pd.DataFrame) -> pd.Series:
    """Half of the 95 % interval of means over (policy, episode): the variances over both add up; NaN of one alone."""
    found = [ratio.groupby(level=level).mean() for level in ratio.index.names]
    squares = [stats.t.ppf(0.975, len(of) - 1) ** 2 * of.var() / len(of) for of in found if len(of) > 1]
    return sum(squares[1:], squares[0]) ** 0.5 if squares else np.nan * ratio.iloc[0]


def main(source: Path, fleet: str, seed: int, episodes: int, loads: list[int], seeds: Path | None = None) -> None:
    """Print 100 ln of the ratio to BEST of the same episode, mean and half of the 95 % interval, and longest holds."""
    for live in loads:
        kinds = MIXED if fleet == "mixed" else {"pod": (int(fleet), POD)}
        env = problem(source, kinds, hours=1, sessions=live, part="test")

        def rows(policy: str, env: Any = env) -> pd.DataFrame:
            engine = play(make_policy(policy, env), env, seed, list(range(episodes)))
            return pd.DataFrame([measured(engine, b) for b in range(episodes)])

        base, folders = rows(BEST), sorted((seeds or POLICIES).iterdir())
        for group in [folders] if seeds else [[folder] for folder in folders]:
            played = {folder.name: rows(str(folder)) for folder in group}
            ratios: list[Any] = [100 * np.log((own / base).iloc[:, :4]) for own in played.values()]
            ratio = pd.concat(ratios, keys=list(played), names=["policy", "episode"])
            half, own = half_width(ratio), pd.concat(played.values())
            texts = [f"{name} {ratio[name].mean():+.1f} ± {half[name]:.1f}" for name in ratio]
            holds = f"longest hold {own['longest hold'].mean():.0f} s, the rule {base['longest hold'].mean():.0f} s"
            name = f"{len(group)} seeds" if seeds else group[0].name
            print(f"{fleet} replicas, {live} sessions, {name}: {', '.join(texts)}, {holds}", flush=True)


if __name__ == "__main__":
    eval_seed, count = map(int, sys.argv[3:5])
    given = [int(live) for live in sys.argv[5].split(",")]
    main(Path(sys.argv[1]), sys.argv[2], eval_seed, count, given, *map(Path, sys.argv[6:7]))
