"""How far every variant lies below or above a base, the simplest strong rule, in per cent on identical episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import style
from ..figures.evaluation import server_axis
from ..load import SETTING, information_of, require_one_setting, select, settings, variants
from ..stats import resampling
from ..stats.resampling import MeanTest, Unit
from ..stats.scores import EPISODE, Scores
from .methods import interval_note
from .render import HEADINGS

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
    "over episodes of a rule (docs/statistics.md), of this comparison alone. Gap closed: 100 x (base - method) / "
    "(base - lower bound), of means over the episodes with a bound: 100 is what no scheduler can beat and perhaps none "
    "reaches. Its interval is that of the linearised ratio."
)
PANELS_ACROSS = 3


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
        bases = at_scale[at_scale["method"] == BASE]
        for name in variants(at_scale):
            rows = at_scale[at_scale["variant"] == name]
            partner = _base_of(rows, bases)
            if partner is None or rows["method"].iloc[0] == BASE:
                continue
            rows, partner = _common(rows, partner)
            if rows.empty:
                continue
            first, second = Scores.of(rows, measured), Scores.of(partner, measured)
            unit: Unit = "seeds" if first.learned else "episodes"
            seeds = len(first.seeds) if first.learned else 0
            record = {"test_servers": servers, "variant": name, "information": information_of(rows)}
            record |= {"seeds": seeds, "seeds_note": interval_note(seeds, not first.learned)}
            for metric in measured:
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = np.log(first.values[metric] / second.values[metric])
                test = _mean_test(np.where(np.isfinite(ratio), ratio, np.nan).tobytes(), len(ratio), unit)
                for suffix, value in (("", test.mean), ("_low", test.interval.low), ("_high", test.interval.high)):
                    record[f"{PREFIX}{metric}{suffix}"] = 100 * math.expm1(value)
            if bounded:
                gained = second.values["response_censored_s"] - first.values["response_censored_s"]
                bound = Scores.of(partner, [LOWER_BOUND]).values[LOWER_BOUND]
                test = _gap_closed(gained, second.values["response_censored_s"] - bound, unit)
                record |= {GAP: test.mean, f"{GAP}_low": test.interval.low, f"{GAP}_high": test.interval.high}
            records.append(record | {"episodes": len(first.episodes)})
    shown = [*(f"{PREFIX}{metric}" for metric in measured), *bounded]
    named = [f"{column}{suffix}" for column in shown for suffix in ("", "_low", "_high")]
    lead = ["test_servers", "variant", "information", "seeds", "seeds_note"]
    return pd.DataFrame(records, columns=[*lead, *named, "episodes"])


@lru_cache(maxsize=2**14)
def _mean_test(ratios: bytes, seeds: int, unit: Unit) -> MeanTest:
    """Of ratios (S, E); a report asks for the same ones in tables and a figure."""
    return resampling.mean_test(np.frombuffer(ratios).reshape(seeds, -1), unit)


def _gap_closed(gained: np.ndarray, gap: np.ndarray, unit: Unit) -> MeanTest:
    """100 x mean of `gained` (S, E) over mean of `gap` (1, E); NaN where no gap is known, or there is none.

    The interval is that of the mean of the ratio's linear part (the delta method), paired by episode as elsewhere.
    """
    known = np.isfinite(gained) & np.isfinite(gap)
    gained, gap = np.where(known, gained, np.nan), np.where(known, gap, np.nan)
    width = float(np.nanmean(gap)) if known.any() else math.nan
    if not width > 0:
        return _mean_test(np.full(1, np.nan).tobytes(), 1, unit)
    share = float(np.nanmean(gained)) / width
    return _mean_test((100 * (share + (gained - share * gap) / width)).tobytes(), len(gained), unit)


def _base_of(rows: pd.DataFrame, bases: pd.DataFrame) -> pd.DataFrame | None:
    """The rows of the base that a variant is compared with: the only ones, or those of the same settings."""
    if bases["variant"].nunique() > 1:
        bases = bases[bases["overrides"] == rows["overrides"].iloc[0]]
    return bases if bases["variant"].nunique() == 1 else None


def _common(rows: pd.DataFrame, others: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of the episodes that both have."""
    keys = [pd.MultiIndex.from_frame(frame[list(EPISODE)].astype(int)) for frame in (rows, others)]
    return rows[keys[0].isin(keys[1])], others[keys[1].isin(keys[0])]


def against_base_figure(episodes: pd.DataFrame, metric: str = "response_censored_s") -> Figure:
    """One panel a setting: each variant's metric against the base's in per cent, against the number of servers N.

    Args:
        episodes: rows of any settings.
        metric: one of METRICS.
    """
    column = PREFIX + metric
    panels = []
    for setting in settings(episodes):
        table = against_base(select(episodes, *setting))
        if column in table and table[column].notna().any():
            panels.append((setting, table))
    if not panels:
        return style.empty_figure(f"{BASE} was not played, so that nothing can be compared with it")
    names = [name for name in variants(episodes) if any((table["variant"] == name).any() for _, table in panels)]
    one_scale = all(table["test_servers"].nunique() == 1 for _, table in panels)
    across = 2 if len(panels) == 4 else min(PANELS_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    height = 0.9 + 0.28 * len(names) if one_scale else 3.2
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=((3.6 if one_scale else 1.6) + 4.2 * across, 1.2 + height * down), layout="constrained")
        grid = figure.subplots(down, across, sharey=True, squeeze=False)
        for axes in grid.ravel()[len(panels) :]:
            axes.set_axis_off()
        looks = style.looks(episodes, names)
        draw = _dots if one_scale else _lines
        for axes, (setting, table) in zip(grid.ravel(), panels, strict=False):
            axes.set_title(_title(setting, [s for s, _ in panels]))
            draw(axes, table, column, names, looks)
        what = f"{HEADINGS[column].removesuffix(', %')} against {BASE}, %"
        low, high = _range(pd.concat([table for _, table in panels]), column)
        for k, axes in enumerate(grid.ravel()[: len(panels)]):
            if one_scale:
                axes.set_xlim(low, high)
                axes.set_xlabel(what if k + across >= len(panels) else "")
            else:
                axes.set_ylim(low, high)
                axes.set_ylabel(what if k % across == 0 else "")
        if not one_scale:
            style.legend(figure, grid[0, 0], len(names))
        beside = "" if one_scale else " Points stand a little beside their N."
        style.caption(
            figure, f"{BASE} is 0. Bars: 95 % interval, paired by episode; long ones leave the picture.{beside}"
        )
    return figure


def _lines(axes: Axes, table: pd.DataFrame, column: str, names: Sequence[str], looks: Mapping[str, style.Look]) -> None:
    """A line a variant against the number of servers."""
    scales = sorted(int(n) for n in table["test_servers"].unique())
    gap = min(np.diff(np.log2(scales)), default=1.0)
    axes.axhline(0, color="0.35", linewidth=1)
    for position, name in enumerate(names):
        rows = table[table["variant"] == name]
        shift = 2 ** (min(0.04, 0.4 * gap / len(names)) * (position - (len(names) - 1) / 2))
        x, look = rows["test_servers"].to_numpy(float) * shift, looks[name]
        # Empty where it was not played: the legend is that of the first panel.
        axes.plot(x, rows[column], color=look.colour, marker=look.marker, linestyle=look.line, label=name)
        axes.vlines(x, rows[f"{column}_low"], rows[f"{column}_high"], color=look.colour, linewidth=1.5, alpha=0.6)
    server_axis(axes, scales, gap)


def _dots(axes: Axes, table: pd.DataFrame, column: str, names: Sequence[str], looks: Mapping[str, style.Look]) -> None:
    """A row a variant, where there is one number of servers."""
    axes.axvline(0, color="0.35", linewidth=1)
    for position, name in enumerate(names):
        rows, look, y = table[table["variant"] == name], looks[name], -float(position)
        axes.plot(rows[column], [y] * len(rows), color=look.colour, marker=look.marker, linestyle="", label=name)
        axes.hlines(
            [y] * len(rows), rows[f"{column}_low"], rows[f"{column}_high"], color=look.colour, linewidth=1.8, alpha=0.6
        )
    axes.set_yticks([-position for position in range(len(names))], names)


def _range(tables: pd.DataFrame, column: str) -> tuple[float, float]:
    """Ends of the axis: all means, and half their range on either side for the intervals."""
    values = np.append(tables[column].dropna().to_numpy(float), 0.0)
    ends = tables[[f"{column}_low", f"{column}_high"]].to_numpy(float)
    room = 0.5 * max(float(np.ptp(values)), 1.0)
    low, high = (float(f(np.append(ends[np.isfinite(ends)], values))) for f in (np.min, np.max))
    pad = 0.05 * room
    return max(low, values.min() - room) - pad, min(high, values.max() + room) + pad


def _title(setting: tuple[str, str, str], every: list[tuple[str, str, str]]) -> str:
    """What tells a setting from the others, the scenario in any case."""
    parts = [f"{name} {value}" for name, value in zip(SETTING, setting, strict=True)]
    telling = [len({other[k] for other in every}) > 1 for k in range(len(setting))]
    return ", ".join([setting[0], *(part for part, tells in zip(parts[1:], telling[1:], strict=True) if tells)])
