"""What a policy loses on problems that it was not trained on, beside the drift of its attention feature there.

    python analysis/studies/transfer/study.py

prints the tables of analysis/studies/transfer/README.md and draws its figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rllib_scale_analysis.figures import draw
from rllib_scale_analysis.figures.chart import Chart, Marks, Panel
from rllib_scale_analysis.figures.style import Look, looks
from rllib_scale_analysis.labels import label
from rllib_scale_analysis.load import load
from rllib_scale_analysis.rows import SETTING, variants
from rllib_scale_analysis.stats.intervals import MIN_SEEDS, mean_interval
from rllib_scale_analysis.tables.league import BOOTSTRAP_SEED
from rllib_scale_analysis.tables.relative import BASE, PREFIX
from rllib_scale_analysis.tables.render import to_csv
from rllib_scale_analysis.tables.summary import interval_note
from scipy import stats

from rllib_scale.results.columns import PAIR_KEY

METRIC = "response_censored_s"
PLACE = (*SETTING, "test_servers")
DRIFTS = ("drift_training_wasserstein", "drift_training_mmd2")
AGAINST, LOST = f"{PREFIX}{METRIC}", "lost_percent"
IDENTITY = ("variant", "method", "kind", "lambda_decorrelation", "lambda_kl", "scheduler")
FEWEST = 3
"""Problems, the training's left out, from which anything is said."""
RESAMPLES = 999
LEFT_OUT = ("coding-agents-0.7",)
"""Scenarios of the sweep that the page does not cover."""


def transfer(episodes: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Every policy on every problem other than that of its training.

    The censored response on a problem is in per cent of the base's: the mean over episodes of the logarithm of the
    ratio. Lost is that less the same on the problem of the training, in points.

    Args:
        episodes: rows of any settings, those of the base among them.
        features: feature rows of the same results.

    Returns:
        One row per (setting, test_servers, variant, scheduler): DRIFTS, AGAINST and LOST. No rows of policies that
        were not played on the problem of their training, or where fewer than FEWEST problems are left.
    """
    place = list(PLACE)
    columns = [*place, *IDENTITY, *DRIFTS, AGAINST, LOST]
    features = features.dropna(subset=list(DRIFTS))
    base = episodes[episodes["method"] == BASE].groupby([*place, *PAIR_KEY], observed=True)[METRIC].mean()
    own = episodes[episodes["scheduler"].isin(features["scheduler"])].set_index([*place, *PAIR_KEY])
    ratio = (own[METRIC].astype(float) / base.reindex(own.index).astype(float)).map(np.log)
    means = 100 * ratio.groupby([*(own.index.get_level_values(n) for n in place), own["scheduler"]]).mean().map(
        np.expm1
    )
    means.index.names = [*place, "scheduler"]
    rows = features.merge(means.rename(AGAINST).reset_index(), on=[*place, "scheduler"]).dropna(subset=[AGAINST])
    trained = (rows["test_servers"] == rows["train_servers"]) & (rows["drift_mmd2"] == rows["drift_training_mmd2"])
    at_home = rows[trained].groupby("scheduler")[AGAINST].mean()
    rows[LOST] = rows[AGAINST] - at_home.reindex(rows["scheduler"]).to_numpy(float)
    rows = rows[~trained].dropna(subset=[LOST])
    if rows[place].drop_duplicates().shape[0] < FEWEST:
        rows = rows.iloc[:0]
    return rows[columns].reset_index(drop=True)


def transfer_table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per variant of `transfer`'s rows: means over its policies' means over the problems, with intervals."""
    records = []
    for name in variants(rows):
        of = rows[rows["variant"] == name].groupby("scheduler")[[*DRIFTS, AGAINST, LOST]].mean()
        record: dict[str, Any] = {"variant": name, "seeds": len(of), "seeds_note": interval_note(len(of))}
        for column in (*DRIFTS, AGAINST, LOST):
            interval = mean_interval(of[[column]].to_numpy(float))
            record |= {column: of[column].mean(), f"{column}_low": interval.low, f"{column}_high": interval.high}
        records.append(record)
    return pd.DataFrame(records)


def agreement(rows: pd.DataFrame) -> pd.DataFrame:
    """How drift and loss go together, by Spearman's rank correlation: a row for each of DRIFTS.

    1 means that the policy that drifts most loses most.

    Args:
        rows: of `transfer`.

    Returns:
        drift; between_policies: mean over the problems of the correlation on one problem, with _low and _high of a
        bootstrap over the policies (NaN with fewer than MIN_SEEDS); between_problems: correlation of the means over
        the policies; policies, problems: those of policies that were played on every problem.
    """
    place = list(PLACE)
    records = []
    for drift in DRIFTS:
        tables = [
            rows.pivot_table(index=place, columns="scheduler", values=column, observed=True) for column in (drift, LOST)
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


def lost_by_drift(rows: pd.DataFrame, found: pd.DataFrame, looks: Mapping[str, Look]) -> Chart:
    """What is lost on other problems than the training's against the drift of f there: a point a variant and problem.

    Args:
        rows: of `transfer`.
        found: of `agreement`.
        looks: of the variants.
    """
    if rows.empty:
        return Chart(caption="no policy was played on enough problems that it was not trained on")
    panels = []
    for drift in DRIFTS:
        marks = []
        for name, look in looks.items():
            means = rows[rows["variant"] == name].groupby(list(PLACE), observed=True)[[drift, LOST]].mean()
            said = [f"{name}, {scenario}, N = {servers}" for scenario, *_, servers in means.index]
            alone = Look(look.colour, look.marker, "", look.hollow)
            marks.append(Marks(means[drift], means[LOST], alone, name, size=0.7, hover=said))
        panels.append(Panel(marks, x_label=label(drift), y_label=label(LOST), zero="y"))
    agree = "; ".join(
        f"{row['drift']}: {row['between_policies']:.2f} "
        f"[{row['between_policies_low']:.2f}, {row['between_policies_high']:.2f}]"
        for _, row in found.iterrows()
    )
    return Chart(
        panels,
        f"A point: a problem, mean over seeds; lost: per cent of {BASE}'s response, less the same on the problem of "
        f"the training. Rank correlation between the {found['policies'].iloc[0]} policies on one problem, mean over "
        f"{found['problems'].iloc[0]} problems [95 %], {agree}.",
    )


def main(folder: Path) -> None:
    """Print the tables of a results folder and draw its figure beside them."""
    results = load(folder)
    episodes, features = (frame[~frame["scenario"].isin(LEFT_OUT)] for frame in (results.episodes, results.features))
    rows = transfer(episodes, features)
    found = agreement(rows)
    print(to_csv(transfer_table(rows)), to_csv(found), sep="\n", end="")
    chart = lost_by_drift(rows, found, looks(episodes, variants(rows)))
    draw.save(draw.draw(chart), folder / "lost-by-drift.png")


if __name__ == "__main__":
    main(Path(__file__).parent)
