"""What each method's decisions are like: invalid ones by cause, and how busy each tier is, in one setting."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rllib_scale.results.tables import UTILISATION_PREFIX

from ..labels import TIER_PREFIX
from ..load import require_one_setting, variants
from ..stats.summaries import summarise
from .methods import count_episodes, interval_note

CAUSES = {
    "invalid_no_fit": "server too small",
    "invalid_busy_avoidable": "busy, another was free",
    "invalid_busy_unavoidable": "busy, none was free",
}
"""Why a decision was invalid, as `rllib_scale.results.tables.METRIC_COLUMNS` defines it."""
HOW_TO_READ = (
    "means over training seeds of the mean over a seed's episodes; [low, high] is their 95 % interval. Decisions, all "
    "and invalid, are per episode; an invalid one costs a clock step. Utilisation: share of the time servers are busy."
)


def tiers(episodes: pd.DataFrame) -> list[str]:
    """The tiers that the rows have a utilisation of."""
    names = [str(name) for name in episodes if str(name).startswith(UTILISATION_PREFIX)]
    return [name.removeprefix(UTILISATION_PREFIX) for name in names if episodes[name].notna().any()]


def behaviour_table(episodes: pd.DataFrame, servers: int) -> pd.DataFrame:
    """Decisions, those of them that were invalid by cause, and utilisation, at one number of servers.

    Args:
        episodes: rows of one setting.
        servers: the scale N.

    Returns:
        One row per variant: seeds and seeds_note; decisions, the CAUSES, utilisation and tier_NAME for each tier, with
        their _low and _high over seeds; episodes a seed.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    rows = episodes[episodes["test_servers"] == servers]
    of_tier = {f"{TIER_PREFIX}{tier}": f"{UTILISATION_PREFIX}{tier}" for tier in tiers(rows)}
    metrics = {name: name for name in ("decisions", *CAUSES, "utilisation")} | of_tier
    records = []
    for name in variants(rows):
        own = rows[rows["variant"] == name]
        summaries = summarise(own, tuple(metrics.values()))
        seeds = summaries["decisions"].seeds
        note = interval_note(seeds, bool((own["kind"] == "heuristic").any()))
        record: dict[str, Any] = {"variant": name, "seeds": seeds, "seeds_note": note}
        for column, metric in metrics.items():
            summary = summaries[metric]
            record |= {column: summary.mean, f"{column}_low": summary.low, f"{column}_high": summary.high}
        records.append(record | {"episodes": count_episodes(own)})
    columns = [column + suffix for column in metrics for suffix in ("", "_low", "_high")]
    return pd.DataFrame(records, columns=["variant", "seeds", "seeds_note", *columns, "episodes"])
