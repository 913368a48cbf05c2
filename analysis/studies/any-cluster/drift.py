"""Workload, load and demands change at 300 s: `adaptive-price` beside `fastest-idle`, and beside itself if it is told.

python analysis/studies/any-cluster/drift.py

The one that is told has seen an episode of each regime in advance, with other workflows, and switches at the change.
"""

from typing import Any

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.config.family import Family
from rllib_scale.evaluation.play import play, played_to_its_end
from rllib_scale.evaluation.workflows import completions_s
from rllib_scale.observation.policy import Policy
from rllib_scale.observation.view import View
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.family import draw_kind
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

CHANGE_S, COUNT, SEED = 300.0, 40, 6301


class Told(AdaptivePrice):
    """Knows both regimes."""

    def __init__(self, known: list[AdaptivePrice]) -> None:
        super().__init__()
        self.known = known

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Policy.reset`."""
        super().reset(seeds)
        self.regime = -1

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """See `PricingDispatcher.terms`."""
        now = int(view.env["clock_s"][0] >= CHANGE_S)
        if now != self.regime:
            super().terms(view)
            self.regime = now
            for mine, theirs in zip(self.learned.estimates, self.known[now].learned.estimates, strict=True):
                mine[:] = theirs
            self.learned.prices.limit[:] = -2.0  # as if the servers were new: solve again
        return super().terms(view)


def one_after_the_other(first: Workload, second: Workload) -> Workload:
    """The second one arrives from CHANGE_S on."""
    names = ("compute_gflop", "memory_gb", "output_gb", "delay_s", "edges")
    joined: dict[str, Any] = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names}
    for name in ("task_offsets", "edge_offsets"):
        own = getattr(first, name)
        joined[name] = np.concatenate([own, getattr(second, name)[1:] + own[-1]])
    return Workload(arrival_s=np.concatenate([first.arrival_s, CHANGE_S + second.arrival_s]), **joined)


def outcome(policy: Policy, env: EnvConfig, workload: Workload) -> np.ndarray:
    """Logarithms of the mean response and of the 95th percentile of job completion times."""
    engine = play(policy, env, SEED, [0], workload=workload)
    times = completions_s(workload, engine.schedule()) - workload.arrival_s
    return np.log([engine.metrics()["response_mean_s"], np.quantile(times, 0.95)])


def knowledge(env: EnvConfig, seed: int) -> AdaptivePrice:
    """The rule after one episode."""
    rule = AdaptivePrice()
    play(rule, env, seed, [0])
    return rule


family = Family(arrivals_s=(CHANGE_S, CHANGE_S))
for revealed in (False, True):
    logs = []
    for k in range(COUNT):
        before, after = (draw_kind(family, np.random.default_rng([SEED, k, n]), "basic", revealed) for n in (0, 1))
        after = after.model_copy(update={"cluster": before.cluster})
        workload = one_after_the_other(*(generate(env, SEED + k, 0) for env in (before, after)))
        env = played_to_its_end(before, workload)
        told = Told([knowledge(each, 77_000 + k) for each in (before, after)])
        players = (make_scheduler("fastest-idle", env.observation, env.episode.mask), AdaptivePrice(), told)
        logs.append([outcome(player, env, workload) for player in players])
    base, online, knowing = 100 * np.swapaxes(logs, 0, 1)
    for name, other in (("fastest-idle", base), ("one that is told", knowing)):
        lost = online - other
        half = 1.96 * lost.std(axis=0, ddof=1) / np.sqrt(COUNT)
        shown = [f"{m:+.1f} ± {h:.1f}" for m, h in zip(lost.mean(axis=0), half, strict=True)]
        print("revealed" if revealed else "whole", "against", name, *shown, flush=True)
