"""What a trained `scale-gate` gains by holding alone, by placing alone, and by its linear part alone.

    python analysis/studies/replicas/parts.py SESSIONS POLICIES SEED EPISODES LOADS    # ... 9988 2 32

100 ln of the ratio of the mean time of a call to `lmetric:gate=1` on 8 replicas, held-out sessions; 95 % over policies.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from study import BEST, POD, problem  # type: ignore[import-not-found]

from rllib_scale.evaluation.play import play
from rllib_scale.observation.replicas import REPLICAS
from rllib_scale.policies.make import make_policy
from rllib_scale.policies.policy import TrainedPolicy, load_policy

CLOSED, SCORE = (REPLICAS.server_column(name) for name in ("closed", "score"))


class Part(TrainedPolicy):
    """The network decides whether to send (`hold`) or where (`place`), the rule the other; or both (`whole`)."""

    def __init__(self, of: TrainedPolicy, part: str) -> None:
        super().__init__(of.network, of.trial, of.epochs, "feasible")
        self.part = part

    def scores(self, observation: np.ndarray, fit: np.ndarray | None = None) -> np.ndarray:
        """See `TrainedPolicy.scores`; the last row holds the call."""
        logits = super().scores(observation, fit)
        shown = observation[:, REPLICAS.head() :].reshape(len(logits), -1, REPLICAS.server_dim)[:, :-1]
        best, holds = logits[:, :-1], logits[:, -1:] > logits[:, :-1].max(axis=1, keepdims=True)
        if self.part == "hold":
            best = -shown[:, :, SCORE] - 100 * shown[:, :, CLOSED]
        elif self.part == "place":
            best, holds = best - 1e6 * shown[:, :, CLOSED], shown[:, :, CLOSED].all(axis=1, keepdims=True)
        return np.concatenate([best, np.where(holds, best.max(axis=1, keepdims=True) + 1, -1e9)], axis=1)


def main(source: Path, policies: Path, seed: int, episodes: int, loads: list[int]) -> None:
    """Print a line for each load and part."""
    for live in loads:
        env, at = problem(source, {"pod": (8, POD)}, hours=1, sessions=live, part="test"), list(range(episodes))

        def calls(policy: Any, env: Any = env, at: list[int] = at) -> np.ndarray:
            engine: Any = play(policy, env, seed, at)
            return np.log([engine.metrics(b)["response_censored_s"] for b in at])

        base, gains = calls(make_policy(BEST, env)), dict[str, list[float]]()
        for folder in sorted(policies.iterdir()):
            whole = load_policy(folder)
            assert isinstance(whole, TrainedPolicy)
            for part in ("whole", "hold", "place"):
                gains.setdefault(part, []).append(100 * float((calls(Part(whole, part)) - base).mean()))
            network: Any = whole.network
            network.pointer_query.weight.data.zero_()  # what is left is linear in the features of a replica
            gains.setdefault("linear", []).append(100 * float((calls(Part(whole, "whole")) - base).mean()))
        for part, found in gains.items():
            half = stats.t.ppf(0.975, len(found) - 1) * np.std(found, ddof=1) / len(found) ** 0.5
            print(f"{live} sessions, {part}: call {np.mean(found):+.1f} ± {half:.1f}", flush=True)


if __name__ == "__main__":
    numbers = [int(live) for live in sys.argv[5].split(",")]
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), numbers)
