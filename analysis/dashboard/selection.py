"""Filters over evaluation units and training curves, and the table of what they leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rllib_scale.results import tables as results

from ..load import SETTING, derive, information_of, settings, variants
from ..stats import intervals
from ..stats.summaries import NOTHING, Summary, summarise
from ..tables.methods import interval_note
from .rows import METRICS, select_rows

SUFFIXES = ("", "_sd", "_low", "_high")
Lambdas = tuple[float, float]


@dataclass(frozen=True)
class Options:
    """What a filter may be set to, each in the order in which it is offered."""

    settings: tuple[tuple[str, str, str], ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    lambdas: tuple[Lambdas, ...]
    scales: tuple[int, ...]


@dataclass(frozen=True)
class Filters:
    """What is looked at. An empty choice is no filter.

    Heuristics have neither seeds nor lambdas: they stay, whatever is chosen there.

    Attributes:
        setting: scenario, mask and decision; rows that differ there never share a table.
        methods, seeds, lambdas, scales: as in Options.
    """

    setting: tuple[str, str, str]
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    lambdas: tuple[Lambdas, ...] = ()
    scales: tuple[int, ...] = ()


def options(units: pd.DataFrame, curves: pd.DataFrame) -> Options:
    """Everything that occurs."""
    columns = ["variant", "method", "train_seed", "lambda_decorrelation", "lambda_kl"]
    both = pd.concat([units[[*columns, "kind"]], curves[columns].assign(kind="learned")]).drop_duplicates()
    learned = both[both["kind"] == "learned"]
    lambdas = learned[["lambda_decorrelation", "lambda_kl"]].dropna().drop_duplicates()
    return Options(
        settings=tuple(settings(units)),
        methods=tuple(dict.fromkeys(_method_order(both))),
        seeds=tuple(sorted(int(seed) for seed in learned["train_seed"].dropna().unique())),
        lambdas=tuple(sorted((float(a), float(b)) for a, b in lambdas.itertuples(index=False))),
        scales=tuple(sorted(int(n) for n in units["test_servers"].unique())),
    )


def _method_order(rows: pd.DataFrame) -> list[str]:
    method_of = dict(zip(rows["variant"], rows["method"], strict=True))
    return [str(method_of[name]) for name in variants(rows)]


def apply(units: pd.DataFrame, filters: Filters) -> pd.DataFrame:
    """The evaluation units that the filters leave."""
    kept = np.ones(len(units), dtype=bool)
    for column, value in zip(SETTING, filters.setting, strict=True):
        kept &= (units[column] == value).to_numpy(bool)
    if filters.scales:
        kept &= units["test_servers"].isin(filters.scales).to_numpy(bool)
    return apply_to_trainings(units[kept], filters)


def apply_to_trainings(rows: pd.DataFrame, filters: Filters) -> pd.DataFrame:
    """The rows of the methods, seeds and lambdas chosen; of training curves, which have no setting, too."""
    heuristic = (rows["kind"] == "heuristic").to_numpy(bool) if "kind" in rows else np.zeros(len(rows), dtype=bool)
    kept = np.ones(len(rows), dtype=bool)
    if filters.methods:
        kept &= rows["method"].isin(filters.methods).to_numpy(bool)
    if filters.seeds:
        kept &= heuristic | rows["train_seed"].isin(filters.seeds).to_numpy(bool)
    if filters.lambdas:
        both = zip(rows["lambda_decorrelation"], rows["lambda_kl"], strict=True)
        kept &= heuristic | np.array([pair in filters.lambdas for pair in both], dtype=bool)
    return rows[kept]


def partners(units: pd.DataFrame) -> dict[str, list[str]]:
    """Variant -> those that it can be compared with: evaluated at a common scale, at each such on the same episodes.

    Two learned ones are compared on the seeds that both have, as by `tables.comparisons.paired_table`.

    Args:
        units: of one setting.
    """
    names = variants(units)
    sides = units[["test_servers", "variant", "kind", "train_seed", "episodes_hash"]]
    met = sides.merge(sides, on="test_servers", suffixes=("", "_of_other"))
    learned = (met["kind"] == "learned") & (met["kind_of_other"] == "learned")
    paired = (~learned | (met["train_seed"] == met["train_seed_of_other"]).fillna(False)).astype(bool)
    met["paired"], met["same"] = paired, (met["episodes_hash"] == met["episodes_hash_of_other"]) | ~paired
    at_scale = met.groupby(["variant", "variant_of_other", "test_servers"]).agg({"paired": "any", "same": "all"})
    good = at_scale.all(axis=1).groupby(level=[0, 1]).all()
    return {name: [other for other in names if other != name and good.get((name, other), False)] for name in names}


def table(units: pd.DataFrame, metrics: Sequence[str] = METRICS) -> pd.DataFrame:
    """Every variant at every scale, over the training seeds that are left.

    Args:
        units: of one setting.
        metrics: some of METRICS.

    Returns:
        One row per (test_servers, variant), by test_servers, in the columns of `analysis.tables.table4`: information;
        seeds and seeds_note; of each metric the mean over seeds, its _sd (over the episodes of a seed), _low and _high
        (over seeds); episodes a seed; without_response: episodes, over all seeds, in which no task completed, if any.
        The numbers are those of `analysis.stats.summarise`, which is asked itself where the seeds of a variant have
        different episodes.

    Raises:
        UserError: see `evaluation_rows`, in the latter case.
    """
    names = variants(units)
    records = []
    groups: dict[tuple[int, str], pd.DataFrame] = dict(iter(units.groupby(["test_servers", "variant"])))  # type: ignore[arg-type]
    for servers, name in sorted(groups, key=lambda key: (key[0], names.index(key[1]))):
        rows = groups[servers, name].sort_values("train_seed")
        if rows["episodes_hash"].nunique() > 1:
            every = evaluation_rows(rows)
            summaries: Mapping[str, Summary] = summarise(every, metrics)
            episodes = len(every[["eval_seed", "episode"]].drop_duplicates())
        else:
            summaries = {metric: _summary(rows, metric) for metric in metrics}
            episodes = int(rows["rows"].iloc[0])
        learned = bool((rows["kind"] == "learned").any())
        seeds = int(rows["completed"].notna().sum()) if learned else 0
        record: dict[str, Any] = {"test_servers": int(servers), "variant": name, "seeds": seeds}
        record[results.INFORMATION] = information_of(rows)
        record["seeds_note"] = interval_note(seeds, not learned)
        for metric, summary in summaries.items():
            record |= {f"{metric}{end}": getattr(summary, end.removeprefix("_") or "mean") for end in SUFFIXES}
        record["episodes"] = episodes
        record["without_response"] = int((rows["rows"] - rows["response_mean_s_n"]).sum()) or None
        records.append(record)
    columns = [
        "test_servers",
        "variant",
        results.INFORMATION,
        "seeds",
        "seeds_note",
        *(f"{m}{end}" for m in metrics for end in SUFFIXES),
    ]
    frame = pd.DataFrame(records, columns=[*columns, "episodes", "without_response"])
    return frame.astype({"without_response": "Int64"})


def _summary(rows: pd.DataFrame, metric: str) -> Summary:
    """The numbers of `analysis.stats.summaries`, from the sums of each seed, where all have the same episodes."""
    means, variances = (rows[name].to_numpy(float) for name in (metric, f"{metric}_var"))
    means, variances = means[~np.isnan(means)], variances[~np.isnan(variances)]
    if not len(means):
        return NOTHING
    ends = intervals.mean_interval(means[:, None])
    sd = math.sqrt(variances.mean()) if len(variances) else math.nan
    return replace(NOTHING, mean=float(means.mean()), sd=sd, low=ends.low, high=ends.high)


def evaluation_rows(units: pd.DataFrame) -> pd.DataFrame:
    """The evaluation rows behind some units, with the columns of `analysis.load.load`.

    Raises:
        UserError: a file cannot be read any more.
    """
    rows = derive(select_rows(units), results.typed(pd.DataFrame(), results.TRAINING_COLUMNS))[0]
    labels = dict(zip(units["cell"], units["variant"], strict=True))
    return rows.assign(variant=rows["cell"].map(labels).astype("string"))


def repeated_seeds(units: pd.DataFrame) -> list[str]:
    """Variants of which several cells hold the same training seed: no mean over seeds can be told of them."""
    rows = units[units.duplicated(["variant", "test_servers", "train_seed"], keep=False)]
    return sorted(rows["variant"].unique())
