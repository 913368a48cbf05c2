"""What a policy loses on problems that it was not trained on, beside the drift of its attention feature there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from ..labels import label
from ..load import variants
from ..stats.intervals import MIN_SEEDS, mean_interval
from ..stats.scores import EPISODE, PLACE
from .league import BOOTSTRAP_SEED
from .methods import interval_note
from .relative import BASE, PREFIX

METRIC = "response_censored_s"
DRIFTS = ("drift_training_wasserstein", "drift_training_mmd2")
AGAINST, LOST = f"{PREFIX}{METRIC}", "lost_percent"
IDENTITY = ("variant", "method", "kind", "lambda_decorrelation", "lambda_kl", "cell")
FEWEST = 3
"""Problems, the training's left out, from which anything is said."""
RESAMPLES = 999
TITLE = "Other problems than the training's: drift of the feature, and what is lost"
HOW_TO_READ = (
    f"of each policy the censored response on a problem in per cent of {BASE}'s, mean over episodes of the logarithm "
    "of the ratio; lost: that less the same on the problem of the training, in points. Drift: of f from the problem "
    "of the training. Means over the problems (scenario and number of servers), that of the training left out; [low, "
    "high]: 95 % over training seeds."
)
AGREEMENT_TITLE = "Whether a feature that drifts less transfers better"
AGREEMENT_HOW = (
    "Spearman's rank correlation of drift and loss; 1: who drifts most loses most. Between policies: on one problem, "
    "mean over the problems; [low, high]: 95 % bootstrap over the policies. Between problems: of the means over the "
    "policies."
)


def transfer(episodes: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Every policy on every problem other than that of its training.

    Args:
        episodes: rows of any settings, those of the base among them.
        features: feature rows of the same results.

    Returns:
        One row per (setting, test_servers, variant, cell): DRIFTS, AGAINST and LOST. No rows of policies that were not
        played on the problem of their training, or where fewer than FEWEST problems are left.
    """
    place = list(PLACE)
    columns = [*place, *IDENTITY, *DRIFTS, AGAINST, LOST]
    features = features.dropna(subset=list(DRIFTS))
    base = episodes[episodes["method"] == BASE].groupby([*place, *EPISODE], observed=True)[METRIC].mean()
    own = episodes[episodes["cell"].isin(features["cell"])].set_index([*place, *EPISODE])
    ratio = (own[METRIC].astype(float) / base.reindex(own.index).astype(float)).map(np.log)
    means = 100 * ratio.groupby([*(own.index.get_level_values(n) for n in place), own["cell"]]).mean().map(np.expm1)
    means.index.names = [*place, "cell"]
    rows = features.merge(means.rename(AGAINST).reset_index(), on=[*place, "cell"]).dropna(subset=[AGAINST])
    trained = (rows["test_servers"] == rows["train_servers"]) & (rows["drift_mmd2"] == rows["drift_training_mmd2"])
    at_home = rows[trained].groupby("cell")[AGAINST].mean()
    rows[LOST] = rows[AGAINST] - at_home.reindex(rows["cell"]).to_numpy(float)
    rows = rows[~trained].dropna(subset=[LOST])
    if rows[place].drop_duplicates().shape[0] < FEWEST:
        rows = rows.iloc[:0]
    return rows[columns].reset_index(drop=True)


def transfer_table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per variant of `transfer`'s rows: means over its policies' means over the problems, with intervals."""
    records = []
    for name in variants(rows):
        of = rows[rows["variant"] == name].groupby("cell")[[*DRIFTS, AGAINST, LOST]].mean()
        record: dict[str, Any] = {"variant": name, "seeds": len(of), "seeds_note": interval_note(len(of))}
        for column in (*DRIFTS, AGAINST, LOST):
            interval = mean_interval(of[[column]].to_numpy(float))
            record |= {column: of[column].mean(), f"{column}_low": interval.low, f"{column}_high": interval.high}
        records.append(record)
    return pd.DataFrame(records)


def agreement(rows: pd.DataFrame) -> pd.DataFrame:
    """How drift and loss go together: a row for each of DRIFTS.

    Args:
        rows: of `transfer`.

    Returns:
        drift, between_policies with _low and _high (NaN of fewer than MIN_SEEDS policies), between_problems, policies,
        problems; of policies that were played on every problem.
    """
    place = list(PLACE)
    records = []
    for drift in DRIFTS:
        tables = [
            rows.pivot_table(index=place, columns="cell", values=column, observed=True) for column in (drift, LOST)
        ]
        x, y = (table.dropna(axis=1).to_numpy(float) for table in tables)  # (P, policies)
        policies = x.shape[1]
        low = high = np.nan
        if policies >= MIN_SEEDS:
            rng = np.random.default_rng(BOOTSTRAP_SEED)
            drawn = rng.integers(policies, size=(RESAMPLES, policies))
            found = np.array([_rank_correlation(x[:, d], y[:, d]).mean() for d in drawn])
            low, high = np.nanquantile(found, (0.025, 0.975))
        between = _rank_correlation(x, y).mean() if policies > 1 else np.nan
        across = _rank_correlation(x.mean(axis=1)[None], y.mean(axis=1)[None])[0]
        record = {
            "drift": label(drift),
            "between_policies": between,
            "between_policies_low": low,
            "between_policies_high": high,
        }
        records.append(record | {"between_problems": across, "policies": policies, "problems": len(x)})
    return pd.DataFrame(records)


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's, of each row of x and y (P, n) with itself; NaN where either does not vary."""
    a, b = (stats.rankdata(values, axis=1) for values in (x, y))
    a, b = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (a, b))
    with np.errstate(invalid="ignore"):
        correlation: np.ndarray = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return correlation
