"""A searched gate against `lmetric:gate=1` on held-out sessions, with everything counted that is open at the end.

    python analysis/studies/replicas/learned.py SESSIONS REPLICAS SEED EPISODES LOADS    # 8 9500 6 16,20,24,28,32,40

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

from rllib_scale.evaluation.play import play
from rllib_scale.loading import env_from
from rllib_scale.policies.make import make_policy

POLICIES = Path(__file__).parent / "policies"
BEST = "lmetric:gate=1"


def open_calls(engine: Any) -> pd.DataFrame:
    """Calls that are asked and not answered when the episode ends."""
    fleet, tasks, first = engine._fleets[0], engine._scripts.tasks, engine._scripts.first_task
    free, row = set[int](), int(fleet.now[0]["free_calls"])
    while row >= 0:
        free.add(row)
        row = int(fleet.calls[row]["next"])
    rows = []
    for call in (fleet.calls[at] for at in range(len(fleet.calls)) if at not in free):
        session = fleet.sessions[call["session"]]
        turn = tasks[first[session["script"]] + call["call"]]["turn"]
        rows.append((session["number"], session["script"], turn, call["asked_s"], np.inf))
    return pd.DataFrame(rows, columns=["session", "script", "turn", "asked_s", "end_s"])


def measured(engine: Any) -> dict[str, float]:
    """Mean times of calls and turns, 99th percentile of calls, output, longest hold."""
    metrics, scripts, starts = engine.metrics(), engine._scripts, engine._fleets[0].starts
    begin_s, end_s = engine.config.service.warm_up_s, engine.config.episode.horizon_s
    still = open_calls(engine)
    calls = pd.concat([pd.DataFrame(engine.calls())[still.columns], still])
    ages = (np.minimum(calls["end_s"], end_s) - calls["asked_s"])[calls["end_s"] >= begin_s]
    turns = calls.groupby(["session", "turn"]).agg(
        script=("script", "first"), first=("asked_s", "min"), last=("end_s", "max"), count=("script", "size")
    )
    open_s, ended = 0.0, 0
    for of in turns.reset_index().to_dict("records"):
        script = of["script"]
        own = scripts.tasks["turn"][scripts.first_task[script] : scripts.first_task[script + 1]]
        is_whole = of["count"] >= (own[starts["skipped"][of["session"]] :] == of["turn"]).sum()
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


def main(source: Path, replicas: int, seed: int, episodes: int, loads: list[int]) -> None:
    """Print 100 ln of the ratio to BEST of the same episode, mean and half of the 95 % interval, and longest holds."""
    for live in loads:
        service = {"trace": str(source.absolute()), "sessions": live, "part": "test"}
        env = env_from(
            {
                "cluster": {"tiers": [{"name": "pod", "count": replicas, "replica": "2xh100/30b-a3b"}]},
                "service": {"name": "replica", **service},
                "episode": {"horizon_s": 5400.0},
                "reward": {"name": "tasks-in-system"},
            },
            "study",
        )

        def rows(policy: str, env: Any = env) -> pd.DataFrame:
            made = make_policy(policy, env)
            return pd.DataFrame([measured(play(made, env, seed, [episode])) for episode in range(episodes)])

        base = rows(BEST)
        for folder in sorted(POLICIES.iterdir()):
            own = rows(str(folder))
            ratio, half = 100 * np.log(own / base), stats.t.ppf(0.975, episodes - 1) / np.sqrt(episodes)
            texts = [f"{name} {ratio[name].mean():+.1f} ± {half * ratio[name].std():.1f}" for name in list(ratio)[:4]]
            holds = f"longest hold {own['longest hold'].mean():.0f} s, the rule {base['longest hold'].mean():.0f} s"
            print(f"{replicas} replicas, {live} sessions, {folder.name}: {', '.join(texts)}, {holds}", flush=True)


if __name__ == "__main__":
    fleet_size, eval_seed, count = map(int, sys.argv[2:5])
    main(Path(sys.argv[1]), fleet_size, eval_seed, count, [int(live) for live in sys.argv[5].split(",")])
