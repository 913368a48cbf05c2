"""Invalid decisions by cause, and utilisation by tier, in one setting."""

from __future__ import annotations

import pandas as pd

from rllib_scale.results.columns import UTILISATION_PREFIX

from ..labels import TIER_PREFIX
from ..rows import INVALID
from .summary import summary_table

HOW_TO_READ = (
    "means over training seeds of the mean over a seed's episodes; [low, high] is their 95 % interval. Decisions, all "
    "and invalid, are per episode; an invalid one costs a clock step. Utilisation: share of the time servers are busy."
)


def behaviour_table(episodes: pd.DataFrame, servers: int) -> pd.DataFrame:
    """Decisions, the invalid ones by cause, and utilisation at one number of servers, as a `summary_table` by variant.

    Args:
        episodes: rows of one setting.
        servers: the scale N.

    Returns:
        decisions, the INVALID ones, utilisation and tier_NAME for each tier, with their _low and _high.
    """
    rows = episodes[episodes["test_servers"] == servers]
    measured = [str(name) for name in rows.columns[rows.notna().any()] if str(name).startswith(UTILISATION_PREFIX)]
    of_tiers = {name: TIER_PREFIX + name.removeprefix(UTILISATION_PREFIX) for name in measured}
    rows = rows.rename(columns=of_tiers)
    metrics = ("decisions", *INVALID, "utilisation", *of_tiers.values())
    return summary_table(rows, ("variant",), metrics, ("", "_low", "_high"))
