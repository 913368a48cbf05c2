"""Figures of an evaluation: every method at one scale, against the number of servers, and throughput against response.

Each takes a table of `analysis.tables.methods` and the looks of its variants, as `figures.style.looks` returns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from ..labels import OUTCOMES, label
from ..paper import PAPER_COMPLETED, PAPER_RESPONSE, is_papers_variant
from .chart import INTERVAL, Chart, Marks, Panel, counts, shifted, varies
from .style import METHOD_STYLES, Look

AGAINST_N = ("response_mean_s", "completed_per_server", "response_censored_s", "above_bound_percent")
MOST_PANELS = 6
"""Scales with a panel of `throughput`, the smallest ones."""
PAPER = Look("#555555", "D", "", hollow=True)


def methods(table: pd.DataFrame, looks: Mapping[str, Look], where: str = "") -> Chart:
    """Table 3 as rows of points [SCALE, fig. 3 and 4]; an outcome that is the same for all has no panel."""
    panels = []
    for metric in (metric for metric in OUTCOMES if varies(table, metric)):
        marks = [
            Marks(
                *(rows[metric], [position]),
                replace(looks[str(name)], line=""),
                low=rows[f"{metric}_low"],
                high=rows[f"{metric}_high"],
                hover=_hovers(rows, metric),
            )
            for position, (name, rows) in enumerate(table.groupby("variant", sort=False))
        ]
        stated = f"paper_{metric}"
        if stated in table and table[stated].notna().any():
            marks.append(Marks(table[stated], np.arange(len(table)), PAPER, "the paper's mean"))
        panels.append(Panel(marks, x_label=label(metric), rows=tuple(map(str, table["variant"]))))
    if not panels:
        return Chart(caption="nothing that tells the methods apart at the training scale")
    return Chart(panels, f"{where}{counts(table)} {INTERVAL}")


def against_servers(table: pd.DataFrame, looks: Mapping[str, Look], where: str = "") -> Chart:
    """Response and completed tasks against the number of servers N [SCALE, fig. 5]; constant metrics are left out.

    Arrivals grow in proportion to N, so completed tasks per server compare across scales. Lines join points with the
    same number of episodes: others differ in their workloads.
    """
    table = table.assign(
        **{f"completed_per_server{end}": table[f"completed{end}"] / table["test_servers"] for end in ("", *_ENDS)}
    )
    scales = sorted({int(n) for n in table["test_servers"]})
    metrics = [metric for metric in AGAINST_N if metric in table and varies(table, metric)]
    if not metrics:
        return Chart(caption="no evaluation episodes with a value that differs")
    shift = dict(zip(looks, shifted(scales, len(looks)), strict=True))
    panels, broken = [], False
    for metric in metrics:
        marks = []
        for name, look in looks.items():
            pieces = list(_of_equal_episodes(table[table["variant"] == name]))
            broken |= len(pieces) > 1
            marks += [
                Marks(
                    *(rows["test_servers"].to_numpy(float) * shift[name], rows[metric]),
                    look,
                    name,
                    low=rows[f"{metric}_low"] if look.line == "-" else None,
                    high=rows[f"{metric}_high"] if look.line == "-" else None,
                    hover=_hovers(rows, metric),
                )
                for rows in pieces
            ]
        panels.append(Panel(marks, y_label=label(metric), x_label="servers N", scales=scales))
    apart = " Lines join scales with the same number of episodes." if broken else ""
    beside = " Points stand a little beside their N." if len(looks) > 1 else ""
    return Chart(panels, f"{where}{counts(table)} {INTERVAL}{apart}{beside}")


_ENDS = ("_low", "_high")


def _of_equal_episodes(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of one variant in pieces of neighbouring scales with the same number of episodes."""
    cuts = [0, *(np.flatnonzero(rows["episodes"].diff().fillna(0)).tolist()), len(rows)]
    yield from (rows.iloc[a:b] for a, b in pairwise(cuts) if a < b)


def _hovers(rows: pd.DataFrame, metric: str) -> list[str]:
    return [
        f"{row['variant']}: {row[metric]:.2f} ({row['seeds']} seeds, {row['episodes']} episodes)"
        for _, row in rows.iterrows()
    ]


def seed_means(episodes: pd.DataFrame) -> pd.DataFrame:
    """Means over the episodes of a seed, as `throughput` takes them: one row per variant, scale and seed."""
    keys = ["variant", "test_servers", "train_seed"]
    values = episodes[keys].assign(**{m: episodes[m].astype(float) for m in ("completed", "response_mean_s")})
    return values.groupby(keys, dropna=False, as_index=False).mean()


def throughput(units: pd.DataFrame, looks: Mapping[str, Look], where: str = "") -> Chart:
    """Completed tasks against response, one panel for each of the smallest scales.

    A policy that completes fewer tasks shows a lower response.

    Args:
        units: variant, test_servers, train_seed, completed and response_mean_s, means over the episodes of a seed.
        looks: of the variants.
        where: the first words of the caption.
    """
    groups = {int(n): units[units["test_servers"] == n] for n in sorted(units["test_servers"].unique())}
    scales = [servers for servers, rows in groups.items() if varies(rows, "completed")]
    panels = []
    for servers in scales[:MOST_PANELS]:
        marks = []
        for name, look in looks.items():
            seeds = units[(units["variant"] == name) & (units["test_servers"] == servers)]
            points = replace(look, line="")
            if len(seeds) > 1:
                hover = [f"{name}, seed {seed}" for seed in seeds["train_seed"]]
                marks.append(
                    Marks(seeds["completed"], seeds["response_mean_s"], points, thin=True, size=0.6, hover=hover)
                )
            means = seeds[["completed", "response_mean_s"]].mean().astype(float)
            marks.append(Marks([means.iloc[0]], [means.iloc[1]], points, name, size=1.4, hover=[name]))
        panels.append(Panel(marks, f"N = {servers}", label("completed"), label("response_mean_s")))
    if not panels:
        return Chart(caption="no evaluation episodes")
    unseen = [name for name in looks if units.loc[units["variant"] == name, "response_mean_s"].isna().all()]
    said = " Small: a training seed; large: the mean over seeds." if units["train_seed"].nunique() > 1 else ""
    said += " Better is to the right and down." + (
        f" The {MOST_PANELS} smallest N." if len(scales) > MOST_PANELS else ""
    )
    said += f" Without a point, as no task completed: {', '.join(unseen)}." if unseen else ""
    return Chart(panels, f"{where}{said.strip()}", columns=3 if len(panels) not in (1, 2, 4) else 2)


def papers_variants(frame: pd.DataFrame) -> dict[str, str]:
    """Method -> the variant that the paper's numbers belong to, in the paper's order; the longest trained of several.

    Args:
        frame: rows of episodes or of training.
    """
    length = "epochs" if "epochs" in frame else "epoch"
    rows = frame.sort_values(length).drop_duplicates("variant", keep="last")
    found = {str(row["method"]): str(row["variant"]) for _, row in rows.iterrows() if is_papers_variant(row)}
    return {method: found[method] for method in PAPER_COMPLETED if method in found}


def figure5(table4: pd.DataFrame, ours: Mapping[str, str]) -> Chart:
    """Zero-shot response time against the number of servers at the paper's scales [SCALE, fig. 5]."""
    scales = sorted({servers for _, servers in PAPER_RESPONSE})
    metric = "response_mean_s"
    marks = []
    table = table4[table4["test_servers"].isin(scales)]
    for method, name in ours.items():
        own = table[table["variant"] == name]
        if (method, scales[-1]) in PAPER_RESPONSE and len(own):
            colour, marker = METHOD_STYLES[method]
            ends: dict[str, Any] = {"low": own[f"{metric}_low"], "high": own[f"{metric}_high"]}
            marks.append(Marks(own["test_servers"], own[metric], Look(colour, marker, "-"), name, **ends))
            stated = np.array([PAPER_RESPONSE[method, scale][0] for scale in scales])
            marks.append(Marks(scales, stated, Look(colour, marker, "--", True), f"the paper's {method}"))
    if not marks:
        return Chart(caption="none of the methods that the paper evaluates at several scales")
    rows = table[table["variant"].isin(list(ours.values()))]
    panel = Panel(marks, x_label="servers N", y_label=label(metric), scales=scales)
    return Chart([panel], f"{counts(rows)} {INTERVAL} Hollow: the paper's means over 30 episodes of one seed.")
