"""The variants that figures and pages show if there are too many to distinguish."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from .labels import LOWER_IS_BETTER

MOST_SHOWN = 12
"""Learned variants that figures and pages show at most, the best ones; files hold all. Rules are always shown."""


def left_out(tables: Iterable[tuple[pd.DataFrame, str]]) -> tuple[frozenset[str], str]:
    """The variants that are too many to be shown, and a sentence that says so, else "".

    Args:
        tables: tables of `tables.methods` by test_servers and variant, and a metric of each.

    Returns:
        All but the rules and the MOST_SHOWN learned variants with the lowest mean rank over tables and scales.
    """
    parts = []
    for table, metric in tables:
        learned = table[table["seeds"] > 0]
        values = learned[metric].astype(float) * (1 if metric in LOWER_IS_BETTER else -1)
        ranks = values.groupby(learned["test_servers"]).rank()
        parts.append(table[["variant"]].assign(learned=table["seeds"] > 0, rank=ranks))
    every = pd.concat(parts) if parts else pd.DataFrame(columns=["variant", "learned", "rank"])
    means = every[every["learned"].astype(bool)].groupby("variant")["rank"].mean()
    if len(means) <= MOST_SHOWN:
        return frozenset(), ""
    said = f"Shown are the {MOST_SHOWN} best of {len(means)} learned variants by mean rank."
    return frozenset(means.sort_values(kind="stable").index[MOST_SHOWN:]), said
