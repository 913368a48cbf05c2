"""Learned gates against `lmetric:gate=1` on held-out sessions, with everything counted that is open at the end.

    python analysis/studies/replicas/learned.py SESSIONS REPLICAS SEED EPISODES LOADS [POLICIES]    # 8 9500 6 16,24,40

REPLICAS is a number, or mixed: 8, of which every second one is of the slow kind of study.py. With POLICIES, a folder
with trainings of one method that differ by their seeds, intervals are over seeds and episodes; else each of policies/.

The metrics are those of study.py: means by Little's integral, the 99th percentile with calls still open.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from study import BEST, COMPARED, HOLD, MIXED, POD, problem  # type: ignore[import-not-found]

from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy

POLICIES = Path(__file__).parent / "policies"


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
            engine: Any = play(make_policy(policy, env), env, seed, list(range(episodes)))
            metrics = pd.DataFrame([engine.metrics(b) for b in range(episodes)])
            return metrics[[*COMPARED]].rename(columns=COMPARED).astype(float)

        base, folders = rows(BEST), sorted((seeds or POLICIES).iterdir())
        for group in [folders] if seeds else [[folder] for folder in folders]:
            played = {folder.name: rows(str(folder)) for folder in group}
            ratios: list[Any] = [100 * np.log((own / base).drop(columns=HOLD)) for own in played.values()]
            ratio = pd.concat(ratios, keys=list(played), names=["policy", "episode"])
            half, own = half_width(ratio), pd.concat(played.values())
            texts = [f"{name} {ratio[name].mean():+.1f} ± {half[name]:.1f}" for name in ratio]
            holds = f"longest hold {own[HOLD].mean():.0f} s, the rule {base[HOLD].mean():.0f} s"
            name = f"{len(group)} seeds" if seeds else group[0].name
            print(f"{fleet} replicas, {live} sessions, {name}: {', '.join(texts)}, {holds}", flush=True)


if __name__ == "__main__":
    eval_seed, count = map(int, sys.argv[3:5])
    given = [int(live) for live in sys.argv[5].split(",")]
    main(Path(sys.argv[1]), sys.argv[2], eval_seed, count, given, *map(Path, sys.argv[6:7]))
