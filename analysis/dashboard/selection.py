"""Filters over evaluation episodes and training curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..rows import Setting, of_families, select, settings, variants

Lambdas = tuple[float, float]


@dataclass(frozen=True)
class Options:
    """The values that each filter offers, in order."""

    settings: tuple[Setting, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    lambdas: tuple[Lambdas, ...]
    scales: tuple[int, ...]


@dataclass(frozen=True)
class Filters:
    """The chosen values. An empty choice is no filter.

    Rules have neither seeds nor lambdas: these filters do not apply to them.

    Attributes:
        setting: rows of several never share a table.
        methods, seeds, lambdas, scales: as in Options.
    """

    setting: Setting
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    lambdas: tuple[Lambdas, ...] = ()
    scales: tuple[int, ...] = ()


def options(episodes: pd.DataFrame, curves: pd.DataFrame) -> Options:
    """The values that occur."""
    columns = ["variant", "method", "train_seed", "lambda_decorrelation", "lambda_kl"]
    both = pd.concat([episodes[[*columns, "kind"]], curves[columns].assign(kind="learned")]).drop_duplicates()
    learned = both[both["kind"] == "learned"]
    lambdas = learned[["lambda_decorrelation", "lambda_kl"]].dropna().drop_duplicates()
    method_of = dict(zip(both["variant"], both["method"], strict=True))
    episodes = episodes[~of_families(episodes)]
    return Options(
        settings=tuple(settings(episodes)),
        methods=tuple(dict.fromkeys(str(method_of[name]) for name in variants(both))),
        seeds=tuple(sorted(int(seed) for seed in learned["train_seed"].dropna().unique())),
        lambdas=tuple(sorted((float(a), float(b)) for a, b in lambdas.itertuples(index=False))),
        scales=tuple(sorted(int(n) for n in episodes["test_servers"].unique())),
    )


def apply(episodes: pd.DataFrame, filters: Filters) -> pd.DataFrame:
    """The evaluation episodes that pass the filters."""
    rows = select(episodes, *filters.setting)
    if filters.scales:
        rows = rows[rows["test_servers"].isin(filters.scales)]
    return apply_to_trainings(rows, filters)


def apply_to_trainings(rows: pd.DataFrame, filters: Filters) -> pd.DataFrame:
    """The rows of the chosen methods, seeds and lambdas; also for training curves, which have no setting."""
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
