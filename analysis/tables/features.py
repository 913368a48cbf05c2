"""Table 5 and its figure: the attention feature f at each scale, as functions of the feature rows of one setting.

Covariance and KL are the paper's. They change with the variance of f, which a regulariser may shrink: correlation,
effective rank and variance stand beside them, and drift is also given in standard deviations of f.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..load import require_one_setting, variants
from ..paper import PAPER_FEATURES, is_papers_setting, is_papers_variant
from ..stats.summaries import summarise
from .methods import interval_note

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

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(features)
    papers = is_papers_setting(features)
    metrics = (*STATISTICS, *DRIFTS)
    records = []
    for servers in sorted(int(n) for n in features["test_servers"].unique()):
        at_scale = features[features["test_servers"] == servers]
        for name in variants(at_scale):
            rows = at_scale[at_scale["variant"] == name]
            summaries = summarise(rows.assign(episode=0), metrics)  # a policy has one row where it has many episodes
            seeds = summaries[STATISTICS[0]].seeds
            record: dict[str, Any] = {"test_servers": servers, "variant": name, "seeds": seeds}
            record["seeds_note"] = interval_note(seeds)
            for metric, summary in summaries.items():
                record |= {metric: summary.mean, f"{metric}_low": summary.low, f"{metric}_high": summary.high}
            stated = (str(rows["method"].iloc[0]), servers)
            if papers and is_papers_variant(rows.iloc[0]) and stated in PAPER_FEATURES:
                record["paper_feature_covariance"], record["paper_feature_kl"] = PAPER_FEATURES[stated]
            records.append(record)
    columns = ["test_servers", "variant", "seeds", "seeds_note"]
    for metric in metrics:
        columns += [metric, f"{metric}_low", f"{metric}_high"]
        if papers and metric in ("feature_covariance", "feature_kl"):
            columns.append(f"paper_{metric}")
    return pd.DataFrame(records, columns=columns)


def has_drift(features: pd.DataFrame) -> bool:
    """Whether any method was looked at in more than one place."""
    rows = features.dropna(subset=["drift_mmd2"])
    return bool((rows.groupby("variant")["test_servers"].nunique() > 1).any())
