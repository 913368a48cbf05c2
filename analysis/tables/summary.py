"""Means over training seeds with their intervals: what the tables of methods, decisions, features and lambdas share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from rllib_scale.results.columns import OBSERVABILITY

from ..rows import require_one_setting, variants
from ..stats.intervals import MIN_SEEDS
from ..stats.scores import Scores, note, on_shared, scores_by
from ..stats.summaries import summary

ENDS = ("", "_sd", "_low", "_high")
"""Suffixes of the columns of a metric: mean, standard deviation over the episodes of a seed, ends of the interval."""


def interval_note(seeds: int, is_rule: bool = False) -> str | None:
    """Note beside the seeds: "no interval" where none is claimed, "fixed" where nothing was trained."""
    return "fixed" if is_rule else "no interval" if seeds < MIN_SEEDS else None


def summary_table(
    rows: pd.DataFrame, by: Sequence[str], metrics: Sequence[str], ends: Sequence[str] = ENDS
) -> pd.DataFrame:
    """One row per group of rows: ascending in the columns `by`, variants in their fixed order.

    All rows of a number of servers are of the same episodes: those that all their variants have, if there are any.

    Args:
        rows: evaluation rows, or others with a training seed, of one setting.
        by: columns that name a group. Each group holds one variant at one scale.
        metrics: columns of numbers.
        ends: of each metric, some of ENDS.

    Returns:
        The columns `by`; seeds: training seeds with a value; seeds_note; each metric with its ends; episodes of a seed,
        and episodes_note: "of 30" where the variant has more.

    Raises:
        UserError: the rows mix settings, or a group holds an episode of a seed twice.
    """
    require_one_setting(rows)
    position = {name: number for number, name in enumerate(variants(rows))}
    every = [(dict(zip(by, key, strict=True)), scores) for key, scores in scores_by(rows, by, metrics)]
    every.sort(key=lambda group: [position[value] if name == "variant" else value for name, value in group[0].items()])
    at_scale: dict[int, list[Scores]] = {}
    for _, scores in every:
        at_scale.setdefault(scores.servers, []).append(scores)
    shared = {servers: iter(on_shared(found)) for servers, found in at_scale.items()}
    records: list[dict[str, Any]] = []
    for key, whole in every:
        scores = next(shared[whole.servers])
        found = {metric: summary(scores, metric) for metric in metrics}
        seeds = max(one.seeds for one in found.values())
        record = key | {"seeds": seeds, "seeds_note": interval_note(seeds, not scores.learned)}
        for metric, one in found.items():
            record |= {f"{metric}{end}": getattr(one, end.removeprefix("_") or "mean") for end in ends}
        count = len(scores.episodes)
        records.append(record | {"episodes": count, "episodes_note": note(count, len(whole.episodes))})
    columns = [f"{metric}{end}" for metric in metrics for end in ends]
    return pd.DataFrame(records, columns=[*by, "seeds", "seeds_note", *columns, "episodes", "episodes_note"])


def observability_by(rows: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """Observability of the variant of each group of rows, where known."""
    known = rows[[*by, OBSERVABILITY]].dropna().drop_duplicates().sort_values(OBSERVABILITY)
    return known.groupby([*by])[OBSERVABILITY].agg(", or ".join)
