"""Worth of each part of `adaptive-price`: the shipped policy without it, on 120 problems, whole and revealed.

NUMBA_CACHE_DIR=$(mktemp -d) python -m benchmarks.ablation nothing   # or one of PARTS

Parts are compiled code and no settings, so this patches the package, and each needs its own cache. `25 s` leaves
nothing out and `units` has fixed units of 5 s, both on tasks of 25 s.
"""

import sys

import numpy as np

from rllib_scale.compiled import internal
from rllib_scale.config.family import Family
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.evaluation.candidates import Instance, outcomes_of, play_base
from rllib_scale.schedulers import adaptive_terms, estimates, online_prices
from rllib_scale.schedulers.adaptive_price import AdaptivePrice, shipped_map
from rllib_scale.workloads.family import draw_kind

PARTS = (
    "nothing",
    "map",
    "context",
    "tail",
    "duals",
    "scarcity",
    "window",
    "hidden work",
    "followers",
    "25 s",
    "units",
)
SEED, COUNT = 6302, 120

(without,) = sys.argv[1:]
assert without in PARTS, PARTS
weights = shipped_map().copy()
parameters = AdaptivePriceParameters(tail=0.0 if without == "tail" else 1.0)
take_means = online_prices._take_means


@internal
def in_units_of_5_s(b, is_revealed, seen, prices):  # type: ignore[no-untyped-def]
    """Like `take_means`, with the time of a mean task of the paper."""
    take_means(b, is_revealed, seen, prices)
    prices.means[b].tau = 5.0


if without == "map":
    weights[:] = 0.0
elif without == "context":
    weights[:, 1:] = 0.0
elif without == "duals":
    online_prices.DISCOUNT = 0.0
elif without == "scarcity":
    adaptive_terms.SCARCE = 1e-9
elif without == "window":
    estimates.KEEPS = 1.0
elif without == "hidden work":
    adaptive_terms.hidden_of = internal(lambda seen, sizes: 0.0)
elif without == "followers":
    adaptive_terms.followers_of = internal(lambda seen, followers: 1.0)
elif without == "units":
    online_prices._take_means = in_units_of_5_s
task_s = 25.0 if without in ("25 s", "units") else 5.0
family = Family(task_s=(task_s, task_s))
for revealed in (False, True):
    logs = []
    for k in range(COUNT):
        instance = Instance(draw_kind(family, np.random.default_rng([SEED, k]), "basic", revealed), 990_000 + k)
        base, found = play_base(instance), outcomes_of(AdaptivePrice(parameters, weights), 1, instance)
        logs.append([np.log(getattr(found, name) / getattr(base, name))[0] for name in ("response_s", "jct_p95_s")])
    shown = [f"{x:+.1f}" for x in 100 * np.expm1(np.mean(logs, axis=0))]
    print(f"without {without},", "revealed:" if revealed else "whole:", *shown, flush=True)
