"""How far every variant lies below or above a base, the simplest strong rule, in per cent on identical episodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from ..load import information_of, require_one_setting, variants
from ..stats import intervals
from ..stats.intervals import MeanTest, Unit
from ..stats.scores import Scores
from .methods import interval_note

BASE = "fastest-idle"
METRICS = (
    *("response_censored_s", "response_p95_s", "makespan_mean_s", "makespan_p95_s", "sojourn_mean_s"),
    "sojourn_p95_s",
)
"""Times that are above 0, so that a ratio says it."""
PREFIX = "against_base_"
LOWER_BOUND = "bound_capacity_s"
GAP = "gap_closed_percent"
TITLE = f"Against {BASE}, %"
HOW_TO_READ = (
    f"per cent below (-) or above (+) {BASE} on the same episodes: the mean over episodes of the logarithm of the "
    "ratio of the two, as a percentage. [low, high] is the 95 % interval over seeds and episodes of a learned method, "
    "over episodes of a rule (docs/statistics.md), of this comparison alone. Gap closed: 100 x (base - method) / (base "
    "- lower bound), of means over the episodes with a bound: 100 is what no scheduler can beat and perhaps none "
    "reaches. Its interval is that of the linearised ratio."
)


def against_base(episodes: pd.DataFrame) -> pd.DataFrame:
    """Every variant beside the base rule at every scale.

    Args:
        episodes: rows of one setting.

    Returns:
        One row per (test_servers, variant), the base left out: variant, information, seeds, seeds_note; of each of the
        METRICS that was measured `against_base_<metric>` in per cent with its _low and _high; where any row has a lower
        bound, `gap_closed_percent` with _low and _high, the share that is gained of what lies between the base's mean
        response and the bound; episodes that both played. No rows where the base was not played. Where settings of a
        grid were varied, the base is the one of the same settings.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    measured = [metric for metric in METRICS if metric in episodes and episodes[metric].notna().any()]
    bounded = [GAP] * bool(episodes[LOWER_BOUND].notna().any())
    records: list[dict[str, Any]] = []
    for servers in sorted({int(n) for n in episodes["test_servers"]}):
        at_scale = episodes[episodes["test_servers"] == servers]
        rows_of = {name: at_scale[at_scale["variant"] == name] for name in variants(at_scale)}
        scores = {name: Scores.of(rows, [*measured, *[LOWER_BOUND] * len(bounded)]) for name, rows in rows_of.items()}
        bases = {name: rows["overrides"].iloc[0] for name, rows in rows_of.items() if rows["method"].iloc[0] == BASE}
        for name, rows in rows_of.items():
            base = _base_of(rows, bases)
            if base is None or name in bases:
                continue
            first = scores[name].of_episodes(scores[base].episodes)
            second = scores[base].of_episodes(first.episodes)
            if not first.episodes:
                continue
            unit: Unit = "seeds" if first.learned else "episodes"
            seeds = len(first.seeds) if first.learned else 0
            record = {"test_servers": servers, "variant": name, "information": information_of(rows)}
            record |= {"seeds": seeds, "seeds_note": interval_note(seeds, not first.learned)}
            for metric in measured:
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = np.log(first.values[metric] / second.values[metric])
                test = intervals.mean_test(np.where(np.isfinite(ratio), ratio, np.nan), unit)
                ends = [100 * math.expm1(end) for end in (test.interval.low, test.interval.high)]
                record |= _with_ends(f"{PREFIX}{metric}", 100 * math.expm1(test.mean), *ends)
            if bounded:
                gained = second.values["response_censored_s"] - first.values["response_censored_s"]
                bound = second.values[LOWER_BOUND]
                test = _gap_closed(gained, second.values["response_censored_s"] - bound, unit)
                record |= _with_ends(GAP, test.mean, test.interval.low, test.interval.high)
            records.append(record | {"episodes": len(first.episodes)})
    shown = [*(f"{PREFIX}{metric}" for metric in measured), *bounded]
    named = [f"{column}{suffix}" for column in shown for suffix in ("", "_low", "_high")]
    lead = ["test_servers", "variant", "information", "seeds", "seeds_note"]
    return pd.DataFrame(records, columns=[*lead, *named, "episodes"])


def _with_ends(column: str, mean: float, low: float, high: float) -> dict[str, float]:
    return {column: mean, f"{column}_low": low, f"{column}_high": high}


def _gap_closed(gained: np.ndarray, gap: np.ndarray, unit: Unit) -> MeanTest:
    """100 x mean of `gained` (S, E) over mean of `gap` (1, E); NaN where no gap is known, or there is none.

    The interval is that of the mean of the ratio's linear part (the delta method), paired by episode as elsewhere.
    """
    known = np.isfinite(gained) & np.isfinite(gap)
    gained, gap = np.where(known, gained, np.nan), np.where(known, gap, np.nan)
    width = float(np.nanmean(gap)) if known.any() else math.nan
    if not width > 0:
        return intervals.mean_test(np.full((1, 1), np.nan), unit)
    share = float(np.nanmean(gained)) / width
    return intervals.mean_test(100 * (share + (gained - share * gap) / width), unit)


def _base_of(rows: pd.DataFrame, bases: dict[str, str]) -> str | None:
    """The base that a variant is compared with, of those by their settings: the only one, or that of the same."""
    same = [name for name, overrides in bases.items() if len(bases) == 1 or overrides == rows["overrides"].iloc[0]]
    return same[0] if len(same) == 1 else None
