"""Table 5 and its figure: the attention feature f at each scale, as functions of the feature rows of one setting.

Covariance and KL are the paper's. They change with the variance of f, which a regulariser may shrink: correlation,
effective rank and variance stand beside them, and drift is also given in standard deviations of f.
"""

from __future__ import annotations

import math

import pandas as pd

from ..paper import PAPER_FEATURES, is_papers_setting, papers_methods
from .summary import summary_table

STATISTICS = (
    "feature_covariance",
    "feature_kl",
    "feature_correlation",
    "feature_effective_rank",
    "feature_variance",
)
DRIFTS = ("drift_wasserstein", "drift_wasserstein_relative", "drift_mmd2")
HOW_TO_READ = (
    "mean over training seeds of a statistic of f at the policy's own decisions; [low, high] is its 95 % interval "
    "(Student's). Covariance and correlation: mean magnitude off the diagonal. Covariance and KL change with the "
    "variance of f, correlation and effective rank do not. Drift: distance from f at the training scale on other "
    "episodes, so that at the training scale it is what sampling alone makes of it; Wasserstein in the unit of "
    "f, and in standard deviations (sd) of f at the training scale; MMD² is unbiased and may be below 0."
)


def table5(features: pd.DataFrame) -> pd.DataFrame:
    """Distribution of the attention feature at each scale, and its drift from the training scale [SCALE, Table 5].

    Args:
        features: feature rows of one setting.

    Returns:
        One row per (test_servers, variant), by test_servers: seeds and seeds_note; STATISTICS and DRIFTS, means over
        seeds, with their _low and _high; in the paper's setting paper_feature_covariance and paper_feature_kl.
    """
    # A policy has one row where it has many episodes.
    by, metrics = ("test_servers", "variant"), (*STATISTICS, *DRIFTS)
    table = summary_table(features.assign(episode=0), by, metrics, ("", "_low", "_high")).drop(
        columns=["episodes", "episodes_note"]
    )
    if is_papers_setting(features):
        methods = papers_methods(features)
        keys = [(methods.get(name, ""), servers) for servers, name in table[["test_servers", "variant"]].to_numpy()]
        stated = [PAPER_FEATURES.get(key, (math.nan, math.nan)) for key in keys]
        for number, metric in enumerate(("feature_covariance", "feature_kl")):
            place = list(table.columns).index(f"{metric}_high") + 1
            table.insert(place, f"paper_{metric}", [pair[number] for pair in stated])
    return table


def has_drift(features: pd.DataFrame) -> bool:
    """Whether any method's feature was measured at more than one scale."""
    rows = features.dropna(subset=["drift_mmd2"])
    return bool((rows.groupby("variant")["test_servers"].nunique() > 1).any())
