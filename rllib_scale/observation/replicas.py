"""The features of a fleet of replicas: one call that is asked, and the replicas that could serve it.

`simulator/replicas/features.py` writes them. The row after the replicas means holding the call: of its features
`capacity` and `hold` are 1, the others 0. The gate is that of `gate=1` (simulator/replicas/rules.py). `answer` is 0
where lengths of answers are hidden, as they are by default.
"""

from __future__ import annotations

from rllib_scale.config import EnvConfig
from rllib_scale.observation.feature_sets import FEATURE_SETS, Feature, FeatureSet

REPLICAS = FeatureSet(
    name="replicas",
    context=(
        Feature("held", "1", "ln(1 + held calls per replica)", 2.0, 1.0),
        Feature("working_set", "1", "tokens of active sessions over all memory", 0.9, 0.3),
    ),
    task=(
        Feature("prompt", "1", "prompt over the mean memory of a replica", 0.1, 0.06),
        Feature("waited", "1", "ln(1 + seconds since it was asked)", 3.0, 2.5),
        Feature("is_held", "1", "1: it is held", 0.6, 0.5),
        Feature("answer", "1", "ln(1 + expected tokens of the answer); 0: hidden", 2.5, 2.5),
    ),
    server=(
        Feature("capacity", "1", "0.01 s over the time of a step; 0 marks an empty row", 1.0, 0.5),
        Feature("prefill", "1", "1e-5 s over the time of a prefill token", 0.8, 0.5),
        Feature("running", "1", "ln(1 + calls that run)", 1.9, 0.7),
        Feature("waiting", "1", "ln(1 + calls that wait there)", 0.5, 0.8),
        Feature("backlog", "1", "ln(1 + seconds of prefill still to do)", 0.5, 0.8),
        Feature("pinned", "1", "share of its memory that running calls take", 0.4, 0.25),
        Feature("evictable", "1", "share of its memory that may be evicted", 0.6, 0.25),
        Feature("active", "1", "tokens of sessions that are active there, over its memory", 0.9, 0.25),
        Feature("step", "1", "time of a decode step in 0.1 s", 0.2, 0.1),
        Feature("hit", "1", "share of the prompt in its caches", 0.1, 0.25),
        Feature("new", "1", "ln(1 + seconds of prefill of the rest)", 2.0, 1.2),
        Feature("marginal", "1", "ln(1 + new x calls that decode there)", 3.5, 1.8),
        Feature("home", "1", "1: the last call of the agent was there", 0.1, 0.3),
        Feature("room", "1", "share of its memory that the gate leaves beside it; 1: its session is active", 0.0, 0.3),
        Feature("hold", "1", "1: this row holds the call", 0.1, 0.3),
    ),
)

HELD_CALLS = FeatureSet(
    name="held-calls",
    context=(
        Feature("held", "1", "ln(1 + held calls per replica)", 2.0, 0.8),
        Feature("working_set", "1", "tokens of active agents over the memory of all replicas, less 1", -0.1, 0.1),
        Feature("calls", "1", "ln(1 + calls per replica)", 2.1, 0.4),
    ),
    task=(),
    server=(
        Feature("capacity", "1", "1; 0 marks an empty row", 1.0, 1.0),
        Feature("none", "1", "1: this row is no call", 0.0, 1.0),
        Feature("prompt", "1", "10 times the prompt over the mean memory of a replica", 0.3, 0.2),
        Feature("left", "1", "ln(1 + seconds of prefill left at its home)", 1.0, 0.8),
        Feature("waited", "1", "ln(1 + seconds since it was asked)", 2.2, 1.5),
        Feature("since", "1", "ln(1 + seconds since the last answer of its session)", 4.5, 1.5),
        Feature("room", "1", "share of the memory that the gate leaves at its home", 0.0, 0.1),
        Feature("load", "1", "ln(1 + calls at its home)", 1.4, 1.0),
        Feature("new", "1", "1: it has no home, as no call of its agent was sent", 0.3, 0.5),
        Feature("ahead", "min", "minutes waited, less `order` times the prefill it needs [100,000 tokens]", 1.0, 3.0),
    ),
)
"""Features of the decision which held call goes; `simulator/replicas/release.py` writes them."""


def features_of(env: EnvConfig) -> FeatureSet:
    """The feature set of a problem."""
    return REPLICAS if env.on_replicas else FEATURE_SETS[env.observation.feature_set]
