"""Figures that compare: differences with their verdicts, ranks, per cent of a base, one episode under two methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..labels import LOWER_IS_BETTER, label
from ..stats.families import QUESTIONS, TESTED
from ..tables.relative import BASE, PREFIX
from .chart import Chart, Grid, Marks, Panel, varies
from .style import Look

Setting = tuple[str, str, str]
VERDICTS = {
    "first is better": Look("#0072B2", "o", ""),
    "second is better": Look("#D55E00", "s", ""),
    "undecided": Look("#7F7F7F", "d", ""),
}
EQUAL = 1e-9
"""Means closer than this share tie."""
PAIRED = "Bars: 95 % interval over seeds and episodes, where one is claimed."
HOLM = "Colours: Holm's verdict in the family of the question (docs/statistics.md)."


def _side(verdict: object, metric: str) -> str:
    if verdict not in ("lower", "higher"):
        return "undecided"
    return "first is better" if (verdict == "lower") == (metric in LOWER_IS_BETTER) else "second is better"


def _by_verdict(rows: pd.DataFrame, metric: str, scale: pd.Series) -> list[Marks]:
    """Differences as marks, one row each, in the colour of their verdict; every colour is in the legend."""
    sides = rows[f"{metric}_verdict"].map(lambda verdict: _side(verdict, metric))
    found = []
    for side, look in VERDICTS.items():
        where = np.flatnonzero(sides == side)
        own, per = rows.iloc[where], scale.iloc[where]
        mean, low, high = (own[f"{metric}{end}"].astype(float) * per for end in ("", "_low", "_high"))
        names = zip(own["first"], own["second"], own["test_servers"], own[f"{metric}_verdict"], strict=True)
        said = [f"{a} - {b}, N = {n}: {value:.3g}, {v}" for (a, b, n, v), value in zip(names, mean, strict=True)]
        ends = np.minimum(low, high), np.maximum(low, high)
        found.append(Marks(mean, where, look, side, low=ends[0], high=ends[1], hover=said))
    return found


def differences(paired: pd.DataFrame) -> Chart:
    """Paired differences of one setting, a row for each pair at each scale: completed tasks per server, responses.

    Args:
        paired: of `analysis.tables.comparisons.paired_table`.
    """
    several = paired[["first", "second"]].drop_duplicates().shape[0] > 1
    rows = [
        f"{a} - {b}, N = {n}" if several else f"N = {n}"
        for a, b, n in zip(paired["first"], paired["second"], paired["test_servers"], strict=True)
    ]
    panels = []
    for metric in (metric for metric in TESTED if varies(paired, metric) or (paired[metric] != 0).any()):
        per = 1 / paired["test_servers"] if metric == "completed" else pd.Series(1.0, paired.index)
        better = "lower" if metric in LOWER_IS_BETTER else "higher"
        name = label("completed_per_server" if metric == "completed" else metric)
        marks = _by_verdict(paired, metric, per)
        panels.append(Panel(marks, x_label=f"{name}\n({better} is better)", rows=rows, zero="x"))
    if not panels:
        return Chart(caption="no difference in anything")
    what = "First minus second" if several else f"{paired['first'].iloc[0]} minus {paired['second'].iloc[0]}"
    return Chart(panels, f"{what}, on identical episodes. {PAIRED} {HOLM}", columns=3)


def forest(tables: Mapping[str, tuple[pd.DataFrame, str]], means: Mapping[str, Mapping[str, float]]) -> Chart:
    """Every question at a glance: how much better the first of a pair is in the primary endpoint, in per cent.

    Args:
        tables: label of a setting -> its paired table at one scale, and its primary endpoint.
        means: label of a setting -> variant -> mean in that endpoint.
    """
    panels = []
    for question, title in QUESTIONS.items():
        parts, scales, metrics, rows = [], [], [], []
        for name, (paired, metric) in tables.items():
            own = paired[(paired["question"] == question) & paired[f"{metric}_low"].notna()]
            for _, row in own.iterrows():
                reference = means[name].get(str(row["second"]), 0.0)
                if reference:
                    sign = -100.0 if metric in LOWER_IS_BETTER else 100.0
                    parts.append(row)
                    metrics.append(metric)
                    scales.append(sign / reference)
                    rows.append(f"{row['first']} - {row['second']}" + (f", {name}" if len(tables) > 1 else ""))
        if not parts:
            continue
        every = pd.DataFrame(parts).reset_index(drop=True)
        for end in ("", "_low", "_high", "_verdict"):  # one column of each, whatever the endpoint
            every[f"endpoint{end}"] = [row[f"{metric}{end}"] for row, metric in zip(parts, metrics, strict=True)]
        swap = {"lower": "higher", "higher": "lower"}
        every["endpoint_verdict"] = [
            swap.get(v, v) if m in LOWER_IS_BETTER else v
            for v, m in zip(every["endpoint_verdict"], metrics, strict=True)
        ]
        marks = _by_verdict(every, "endpoint", pd.Series(scales))
        ends = np.concatenate([np.r_[m.x, m.low, m.high] for m in marks])
        reach = 1.08 * float(np.nanmax(np.abs(ends), initial=1.0))
        better = "% better than the second (left of 0: worse)"
        panels.append(Panel(marks, title, better, rows=rows, zero="x", x_range=(-reach, reach)))
    if not panels:
        return Chart(caption="no pair with seeds enough for a verdict")
    return Chart(
        panels,
        "First minus second on identical episodes in the primary endpoint of the scenario, in per cent of the second's "
        f"mean; to the right the first is better. {PAIRED} {HOLM}",
        columns=1,
    )


def ranks(tables: Mapping[str, tuple[pd.DataFrame, str]]) -> Chart:
    """Scenarios x methods: who stands where in the primary endpoint, at one scale each; equal means share a rank.

    Args:
        tables: label of a setting -> a table of its variants, as of `analysis.tables.methods.table4`, and its endpoint.
    """
    found: dict[str, dict[str, float]] = {}
    for name, (table, metric) in tables.items():
        means = table.set_index("variant")[metric].astype(float).dropna() * (1 if metric in LOWER_IS_BETTER else -1)
        found[name] = {str(v): float((means < x - EQUAL * abs(x)).sum() + 1) for v, x in means.items()}
    names = dict.fromkeys(name for table, _ in tables.values() for name in table["variant"])
    values = pd.DataFrame(found).reindex([str(name) for name in names]).dropna(how="all")
    values = values.loc[values.mean(axis=1).sort_values(kind="stable").index]
    if values.size < 2 or len(values) < 2:
        return Chart(caption="no two methods to rank")
    texts = values.map(lambda rank: "" if np.isnan(rank) else f"{rank:.0f}")
    panel = Panel(grid=Grid(-values, texts))
    return Chart(
        [panel], "Rank by mean in the primary endpoint, 1 the best; equal means share a rank. Blank: not played."
    )


def against_base(
    tables: Mapping[str, pd.DataFrame], looks: Mapping[str, Look], metric: str = "response_censored_s"
) -> Chart:
    """One panel a setting: each variant's metric against the base's in per cent; against N where there are several.

    Args:
        tables: label of a setting -> its `analysis.tables.relative.against_base`.
        looks: of the variants.
        metric: one of `analysis.tables.relative.METRICS`.
    """
    column = PREFIX + metric
    shown = {name: t for name, t in tables.items() if column in t and t[column].notna().any()}
    if not shown:
        return Chart(caption=f"{BASE} was not played, so that nothing can be compared with it")
    names = [name for name in looks if any((table["variant"] == name).any() for table in shown.values())]
    one_scale = all(table["test_servers"].nunique() == 1 for table in shown.values())
    span = _range(pd.concat(shown.values()), column)
    what = f"{label(column).removesuffix(', %')}, %"
    panels = []
    for setting, table in shown.items():
        scales = sorted({int(n) for n in table["test_servers"]})
        marks = []
        for position, name in enumerate(names):
            rows = table[table["variant"] == name]
            at = np.full(len(rows), position) if one_scale else rows["test_servers"].to_numpy(float)
            x, y = (rows[column], at) if one_scale else (at, rows[column])
            ends: dict[str, Any] = {"low": rows[f"{column}_low"], "high": rows[f"{column}_high"]}
            marks.append(Marks(x, y, looks[name], "" if one_scale else name, **ends))
        if one_scale:
            panels.append(Panel(marks, setting, what, rows=names, zero="x", x_range=span))
        else:
            panels.append(Panel(marks, setting, "servers N", what, scales=scales, zero="y", y_range=span))
    said = f"{BASE} is 0, below it is better. Bars: 95 % interval, paired by episode; long ones leave the picture."
    return Chart(panels, said, columns=2 if len(panels) in (2, 4) or one_scale else 3)


def _range(tables: pd.DataFrame, column: str) -> tuple[float, float]:
    """Ends of the axis: all means, and half their range on either side for the intervals."""
    values = np.append(tables[column].dropna().to_numpy(float), 0.0)
    ends = tables[[f"{column}_low", f"{column}_high"]].to_numpy(float)
    room = 0.5 * max(float(np.ptp(values)), 1.0)
    low, high = (float(f(np.append(ends[np.isfinite(ends)], values))) for f in (np.min, np.max))
    pad = 0.05 * room
    return max(low, values.min() - room) - pad, min(high, values.max() + room) + pad


def episode_pairs(pairs: pd.DataFrame, names: tuple[str, str], metric: str, shades: Sequence[str]) -> Chart:
    """The same episode under two methods, one point an episode; on the dashed line both are equal.

    Args:
        pairs: columns test_servers, episode, first and second.
        names: of the two.
        metric: a column's name.
        shades: a colour for each number of servers.
    """
    marks = []
    for (servers, rows), shade in zip(pairs.groupby("test_servers"), shades, strict=False):
        said = [f"N = {servers}, episode {episode}" for episode in rows["episode"]]
        marks.append(Marks(rows["second"], rows["first"], Look(shade, "o", ""), f"N = {servers}", hover=said))
    both = pairs[["first", "second"]].to_numpy(float)
    if len(both):
        ends = [float(np.nanmin(both)), float(np.nanmax(both))]
        marks.append(Marks(ends, ends, Look("#7F7F7F", "", "--"), "equal"))
    return Chart([Panel(marks, x_label=f"{names[1]}: {label(metric)}", y_label=f"{names[0]}: {label(metric)}")])
