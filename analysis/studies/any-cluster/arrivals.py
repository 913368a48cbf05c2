"""`adaptive-price` against `fastest-idle` by the time of arrivals, size and parameters, on problems of the family.

python analysis/studies/any-cluster/arrivals.py
"""

import numpy as np

from rllib_scale.config.family import BasicProblems, Family, Kind
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.evaluation.candidates import Instance, outcomes_of, play_base
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.workloads.family import draw_kind

SEED = 6303
MANY = BasicProblems(servers=(256, 1024))
STUDIES: tuple[tuple[float, int, BasicProblems, tuple[Kind, ...]], ...] = (
    (120.0, 120, BasicProblems(), ("basic", "agents")),
    (900.0, 40, BasicProblems(), ("basic", "agents")),
    (3600.0, 10, BasicProblems(), ("basic", "agents")),
    (120.0, 24, MANY, ("basic",)),
)
"""Time of arrivals [s], problems, sizes, kinds."""
SETTINGS: tuple[dict[str, float], ...] = ({}, {"tail": 0.0}, {"tail": 2.0}, {"strength": 0.0}, {"strength": 1.0})

print("arrivals [s], servers, kind, workflows, parameters; response, JCT p95 [%]; worst response; share worse by 0.2 %")
for arrivals_s, count, basic, kinds in STUDIES:
    family = Family(arrivals_s=(arrivals_s, arrivals_s), basic=basic)
    for kind, revealed in ((kind, revealed) for kind in kinds for revealed in (False, True)):
        logs = []
        for k in range(count):
            env = draw_kind(family, np.random.default_rng([SEED, k]), kind, revealed)
            instance = Instance(env, 1000 * SEED + k)
            base = play_base(instance)
            rules = [AdaptivePrice(AdaptivePriceParameters(**given)) for given in SETTINGS]
            found = [outcomes_of(rule, 1, instance) for rule in rules]
            logs.append(
                [
                    [np.log(getattr(each, n) / getattr(base, n))[0] for n in ("response_s", "jct_p95_s")]
                    for each in found
                ]
            )
        for given, each in zip(SETTINGS, np.swapaxes(logs, 0, 1), strict=True):
            half = 196 * each.std(axis=0, ddof=1) / np.sqrt(count)
            shown = [f"{100 * np.expm1(m):+.1f} ± {h:.1f}" for m, h in zip(each.mean(axis=0), half, strict=True)]
            worst, worse = np.exp(each[:, 0].max()), np.mean(each[:, 0] > 0.002)
            where = (
                arrivals_s,
                "256 to 1024" if basic == MANY else "4 to 48",
                kind,
                "revealed" if revealed else "whole",
            )
            print(*where, given or "default", *shown, f"{worst:.3f} {worse:.3f}", flush=True)
