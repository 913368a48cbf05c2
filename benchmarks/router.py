"""A round of a Serve router with 2000 waiting requests: what it takes of the event loop."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.measure import Measure
from rllib_scale.config.replica_rules import FLEET_RULES
from rllib_scale.config.schedulers import HEURISTICS
from rllib_scale.live.holding import HoldingRouter
from rllib_scale.live.requests import Demand, Replica, RouterSettings
from rllib_scale.live.routing import Routing

RULES = HEURISTICS | FLEET_RULES
GATED = ("lmetric:gate=1", "zoo:release")
SCHEDULERS = (*(name for name, known in RULES.items() if not known.no_router), *GATED)
REPLICAS, PLACES, WAITING = 16, 4, 2000
GATED_PLACES, GATED_TOKENS = 256, 200_000
"""Where a gate holds requests, and not the places: room for about 13 on each replica."""
BAR_MS = 5.0


def run(rounds: int, per_round: int = 8) -> list[Measure]:
    """The worst of the rounds of each scheduler, in CPU time of the deciding thread."""
    measures = []
    for name in SCHEDULERS:
        found = _round_ms(name, rounds * per_round)
        title = f"router, {name}: worst of {len(found)} rounds with {WAITING} waiting"
        measures.append(Measure(title, "ms", max(found), None, BAR_MS, None, True, tuple(found)))
    return measures


def router(name: str) -> Routing | HoldingRouter:
    """The routing object of a Serve router under a scheduler."""
    if name in GATED:
        return HoldingRouter(RouterSettings(scheduler=name, replica={"kv_tokens": GATED_TOKENS}))
    if name.partition(":")[0] in FLEET_RULES:
        return HoldingRouter(RouterSettings(scheduler=name, replica="h100/8b"))
    return Routing(RouterSettings(scheduler=name))


def _round_ms(name: str, count: int) -> list[float]:
    """CPU time of rounds, between which one request ends and another comes [ms]; the first is left out."""
    one, rng = router(name), np.random.default_rng(0)
    places = GATED_PLACES if name in GATED else PLACES
    replicas = [Replica(f"r{k}", places, float(1 + k % 4), 16.0) for k in range(REPLICAS)]
    one.round(replicas, {})
    coming = iter(range(10**9))

    def arrive() -> None:
        key = next(coming)
        needs = {
            "compute_gflop": float(rng.uniform(1, 8)),
            "moved_gb": 20.0,
            "prompt_tokens": int(rng.uniform(1, 30_000)),
        }
        demand = Demand(**needs, session=str(key % 500))
        one.arrive(key, demand, one.clock())

    runs, found = [], []
    for _ in range(REPLICAS * PLACES + WAITING):
        arrive()
    for _ in range(count + 2):
        begin = time.thread_time()
        started = one.round(replicas, {})
        found.append(1e3 * (time.thread_time() - begin))
        runs += [key for key, _ in started]
        one.leave(runs.pop(int(rng.integers(len(runs)))))
        arrive()
    return found[2:]  # the first fills the replicas, and may compile
