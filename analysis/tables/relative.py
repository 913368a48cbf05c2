"""Every variant against a base rule, in per cent on identical episodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from ..labels import AGAINST_BASE as PREFIX
from ..rows import asked_alike, require_one_setting, variants, ways
from ..stats import intervals
from ..stats.intervals import MeanTest, Unit
from ..stats.scores import note, scores_by
from .summary import interval_note, observability_by

BASE = "fastest-idle"
METRICS = (
    *("response_censored_s", "response_p95_s", "jct_mean_s", "jct_p95_s", "sojourn_mean_s"),
    "sojourn_p95_s",
)
"""Times above 0, which are compared by their ratio."""
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
        One row per (test_servers, variant) without the base: observability, seeds, seeds_note; `against_base_<metric>`
        in per cent for each of the METRICS that has values, with _low and _high; if any row has a lower bound,
        `gap_closed_percent` with _low and _high, the share of the distance from the base's mean response to the bound;
        episodes that both have, and episodes_note if the variant has more. No rows if the base was not evaluated. If it
        was asked in several ways, the partner is chosen as by `asked_alike`.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    measured = [metric for metric in METRICS if metric in episodes and episodes[metric].notna().any()]
    bounded = [GAP] * bool(episodes[LOWER_BOUND].notna().any())
    by = ("test_servers", "variant")
    scores = dict(scores_by(episodes, by, [*measured, *[LOWER_BOUND] * len(bounded)]))
    bases = [str(name) for name in episodes.loc[episodes["method"] == BASE, "variant"].unique()]
    asked = ways(episodes)
    observability = observability_by(episodes, by).to_dict()
    records: list[dict[str, Any]] = []
    for servers in sorted({servers for servers, _ in scores}):
        here = [name for name in bases if (servers, name) in scores]
        for name in (name for name in variants(episodes) if (servers, name) in scores):
            if name in bases or not here:
                continue
            base = asked_alike(name, here, asked)[0]
            whole = scores[servers, name]
            first = whole.shared_with(scores[servers, base])
            second = scores[servers, base].shared_with(first)
            if not first.episodes:
                continue
            unit: Unit = "seeds" if first.learned else "episodes"
            seeds = len(first.seeds) if first.learned else 0
            record = {"test_servers": servers, "variant": name, "observability": observability.get((servers, name), "")}
            record |= {"seeds": seeds, "seeds_note": interval_note(seeds, not first.learned)}
            for metric in measured:
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = np.log(first.values[metric] / second.values[metric])
                record |= percent(f"{PREFIX}{metric}", ratio, unit)
            if bounded:
                gained = second.values["response_censored_s"] - first.values["response_censored_s"]
                bound = second.values[LOWER_BOUND]
                test = _gap_closed(gained, second.values["response_censored_s"] - bound, unit)
                record |= _with_ends(GAP, test.mean, test.interval.low, test.interval.high)
            count = len(first.episodes)
            records.append(record | {"episodes": count, "episodes_note": note(count, len(whole.episodes))})
    shown = [*(f"{PREFIX}{metric}" for metric in measured), *bounded]
    named = [f"{column}{suffix}" for column in shown for suffix in ("", "_low", "_high")]
    lead = ["test_servers", "variant", "observability", "seeds", "seeds_note"]
    return pd.DataFrame(records, columns=[*lead, *named, "episodes", "episodes_note"])


def percent(column: str, logs: np.ndarray, unit: Unit) -> dict[str, float]:
    """A column in per cent with its _low and _high: the mean of logarithms of ratios (S, E), which may lack some."""
    test = intervals.mean_test(np.where(np.isfinite(logs), logs, np.nan), unit)
    return _with_ends(column, *(100 * math.expm1(end) for end in (test.mean, test.interval.low, test.interval.high)))


def _with_ends(column: str, mean: float, low: float, high: float) -> dict[str, float]:
    return {column: mean, f"{column}_low": low, f"{column}_high": high}


def _gap_closed(gained: np.ndarray, gap: np.ndarray, unit: Unit) -> MeanTest:
    """100 x mean of `gained` (S, E) over mean of `gap` (1, E); NaN without a gap above 0.

    The interval is that of the mean of the ratio's linear part (the delta method), paired by episode as elsewhere.
    """
    known = np.isfinite(gained) & np.isfinite(gap)
    gained, gap = np.where(known, gained, np.nan), np.where(known, gap, np.nan)
    width = float(np.nanmean(gap)) if known.any() else math.nan
    if not width > 0:
        return intervals.mean_test(np.full((1, 1), np.nan), unit)
    share = float(np.nanmean(gained)) / width
    return intervals.mean_test(100 * (share + (gained - share * gap) / width), unit)
