"""Figures that compare: differences with their verdicts, ranks, per cent of a base, one episode under two methods."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ..labels import LOWER_IS_BETTER, axis_label, label
from ..rows import without_common
from ..stats.families import QUESTIONS, TESTED
from ..tables.relative import BASE, PREFIX
from .chart import MOST_IN_ROWS, Chart, Grid, Marks, Panel, in_rows, span, varies
from .style import Look

Setting = tuple[str, str, str]
VERDICTS = {
    "first is better": Look("#0072B2", "o", ""),
    "second is better": Look("#D55E00", "s", ""),
    "undecided": Look("#7F7F7F", "d", ""),
}
EQUAL = 1e-9
"""Means closer than this share tie."""
PAIRED = "Bars: 95 % interval over seeds and episodes, where one is claimed; long ones are cut."
HOLM = "Colours: Holm's verdict in the family of the question (docs/statistics.md)."


def _compared(row: pd.Series, metric: str, per: float) -> tuple[str, float, float, float, str]:
    """The better side by the verdict; the difference times `per` and the ends of its interval; a text of both."""
    verdict = str(row[f"{metric}_verdict"])
    mean, *ends = (float(row[f"{metric}{end}"]) * per for end in ("", "_low", "_high"))
    side = "undecided"
    if verdict in ("lower", "higher"):
        side = f"{'first' if (verdict == 'lower') == (metric in LOWER_IS_BETTER) else 'second'} is better"
    said = f"{row['first']} - {row['second']}, N = {row['test_servers']}: {mean:.3g}, {verdict}"
    return side, mean, min(ends), max(ends), said


def _by_side(found: Sequence[tuple[str, float, float, float, str]]) -> list[Marks]:
    """Differences of `_compared` as marks, one row each, in the colour of their side."""
    marks = []
    for side, look in VERDICTS.items():
        rows = [row for row, (own, *_) in enumerate(found) if own == side]
        mean, low, high = (np.array([found[row][k] for row in rows], float) for k in (1, 2, 3))
        marks.append(Marks(mean, rows, look, side, low=low, high=high, hover=[found[row][4] for row in rows]))
    return marks


def differences(paired: pd.DataFrame) -> Chart:
    """Paired differences of one setting, a row for each pair at each scale: completed tasks per server, responses.

    Args:
        paired: of `analysis.tables.comparisons.paired_table`.
    """
    several = paired[["first", "second"]].drop_duplicates().shape[0] > 1
    every = [row for _, row in paired.iterrows()]
    rows = [
        f"{row['first']} - {row['second']}, N = {row['test_servers']}" if several else f"N = {row['test_servers']}"
        for row in every
    ]
    panels = []
    for metric in (metric for metric in TESTED if varies(paired, metric) or (paired[metric] != 0).any()):
        is_count = metric == "completed"
        marks = _by_side([_compared(row, metric, 1 / row["test_servers"] if is_count else 1.0) for row in every])
        name = axis_label("completed_per_server" if is_count else metric).rpartition("\n")[0]
        side, first = ("left" if metric in LOWER_IS_BETTER else "right"), "the first" if several else every[0]["first"]
        panels.append(Panel(marks, x_label=f"{name}\n({side} of 0: {first} is better)", rows=rows, zero="x"))
    if not panels:
        return Chart(caption="no difference in anything")
    what = "First minus second" if several else f"{paired['first'].iloc[0]} minus {paired['second'].iloc[0]}"
    return Chart(panels, f"{what}, on identical episodes. {PAIRED} {HOLM}", columns=3)


def forest(tables: Mapping[str, tuple[pd.DataFrame, str]], means: Mapping[str, Mapping[str, float]]) -> Chart:
    """Each question: how much better the first of a pair is in the primary endpoint, in per cent.

    Args:
        tables: label of a setting -> its paired table at one scale, and its primary endpoint.
        means: label of a setting -> variant -> mean in that endpoint.
    """
    panels = []
    for question, title in QUESTIONS.items():
        found, rows = [], []
        for name, (paired, metric) in tables.items():
            sign = -100.0 if metric in LOWER_IS_BETTER else 100.0
            for _, row in paired[(paired["question"] == question) & paired[f"{metric}_low"].notna()].iterrows():
                if reference := means[name].get(str(row["second"]), 0.0):
                    found.append(_compared(row, metric, sign / reference))
                    rows.append(f"{row['first']} - {row['second']}" + (f", {name}" if len(tables) > 1 else ""))
        if found:
            marks = _by_side(found)
            reach = max([1.0, *map(abs, span(marks, in_rows=True) or ())])  # no span: every pair is a tie
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


def over_problems(ratios: Mapping[str, np.ndarray], base: str, looks: Mapping[str, Look]) -> Chart:
    """Ratios (P,) of each variant's response to the base's on the problems of a family, ascending: a curve each."""
    if not ratios:
        return Chart(caption="no rule to compare with")
    marks = []
    for name, found in ratios.items():
        along = 100 * (np.arange(len(found)) + 0.5) / len(found)
        marks.append(Marks(along, 100 * (found - 1), looks[name], name, size=0.4))
    panel = Panel(marks, x_label="problems, %", y_label=f"against {base}, %", zero="y")
    return Chart(
        [panel],
        f"Each method's problems in the order of its ratio, mean over seeds. Below 0 it answers sooner than {base}.",
        columns=1,
    )


def ranks(tables: Mapping[str, tuple[pd.DataFrame, str]], hidden: Container[str] = (), note: str = "") -> Chart:
    """Scenarios x methods: ranks in the primary endpoint at one scale each; equal means share a rank.

    Args:
        tables: label of a setting -> a table of its variants, as of `analysis.tables.methods.table4`, and its endpoint.
        hidden: variants that are ranked but not shown.
        note: a sentence on these for the caption.
    """
    found: dict[str, dict[str, float]] = {}
    for name, (table, metric) in tables.items():
        means = table.set_index("variant")[metric].astype(float).dropna() * (1 if metric in LOWER_IS_BETTER else -1)
        found[name] = {str(v): float((means < x - EQUAL * abs(x)).sum() + 1) for v, x in means.items()}
    names = dict.fromkeys(name for table, _ in tables.values() for name in table["variant"])
    values = pd.DataFrame(found).reindex([str(n) for n in names if n not in hidden]).dropna(how="all")
    values = values.loc[values.mean(axis=1).sort_values(kind="stable").index]
    if min(values.shape) < 2:
        return Chart(caption="no two methods to rank, or a single setting")
    values.columns, common = without_common(list(found))
    texts = values.map(lambda rank: "" if np.isnan(rank) else f"{rank:.0f}")
    panel = Panel(grid=Grid(-values, texts))
    said = "Rank by mean in the primary endpoint, 1 the best; equal means share a rank. Blank: not played."
    said += f" All with {common}." if common else ""
    return Chart([panel], f"{said} {note}".strip())


def against_base(
    tables: Mapping[str, pd.DataFrame], looks: Mapping[str, Look], metric: str = "response_censored_s"
) -> Chart:
    """One panel a setting: each variant's metric in per cent of the base's, against N if there are many scales.

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
    in_lines = max(table["test_servers"].nunique() for table in shown.values()) > MOST_IN_ROWS
    ends = f"{column}_low", f"{column}_high"
    what = f"{label(column).removesuffix(', %')}, %"
    panels = []
    for setting, table in shown.items():
        scales = sorted({int(n) for n in table["test_servers"]})
        if not in_lines:
            panels.append(Panel(in_rows(table, names, column, ends), setting, what, rows=names, zero="x"))
            continue
        marks = []
        for name in names:
            rows = table[table["variant"] == name]
            low, high = (rows[end] for end in ends)
            at = rows["test_servers"].to_numpy(float)
            marks.append(Marks(at, rows[column], looks[name], name, low=low, high=high))
        panels.append(Panel(marks, setting, "servers N", what, scales=scales, zero="y"))
    every = span([marks for panel in panels for marks in panel.marks], not in_lines)
    panels = [replace(one, y_range=every) if in_lines else replace(one, x_range=every) for one in panels]
    said = f"{BASE} is 0, below it is better. Bars: 95 % interval, paired by episode; long ones are cut."
    return Chart(panels, said, columns=3 if in_lines and len(panels) not in (2, 4) else 2)
